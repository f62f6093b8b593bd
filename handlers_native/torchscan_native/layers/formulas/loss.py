"""Losses. Derivation: docs/derivations/loss.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import Counts
from torchscan_native.layers.formulas.softmax import log_softmax

__all__ = ["FLOPS_PER_ELEMENT", "cross_entropy", "elementwise", "negative_log_likelihood"]

#: FLOPs per element before the reduction; each expansion is a row of docs/derivations/loss.md#elementwise.
FLOPS_PER_ELEMENT = {
    "L1Loss": 2,  # subtract, abs
    "MSELoss": 2,  # subtract, square
    "SmoothL1Loss": 7,  # subtract, abs, square, scale, subtract, compare, select
    "HuberLoss": 8,  # subtract, abs, square, half, subtract, scale, compare, select
    "KLDivLoss": 3,  # log, subtract, multiply; exp in place of log when the target is one already
    "SoftMarginLoss": 5,  # multiply, negate, exp, add, log
    "BCELoss": 10,  # log, max, multiply, 1-y, 1-x, log, max, multiply, add, negate
    "BCEWithLogitsLoss": 10,  # 1-y, multiply, logsigmoid (7), subtract
    "MarginRankingLoss": 5,  # subtract, multiply, negate, add, max
}


def elementwise(elements: int, per_element: int, operands: int, *, reduced: bool, mean: bool) -> Counts:
    """Count a loss per element and its reduction. Derivation: docs/derivations/loss.md#elementwise.

    Args:
        elements: elements of one operand, `N`.
        per_element: FLOPs of each.
        operands: tensors the stage reads.
        reduced: whether one number is left.
        mean: whether that number is divided by a count.

    """
    counts = Counts(elements * per_element, 0, operands * elements + elements)
    return _add(counts, _reduction(elements, reduced, mean))


def negative_log_likelihood(rows: int, *, reduced: bool, mean: bool) -> Counts:
    """Count the pick of one entry per row. Derivation: docs/derivations/loss.md#negative-log-likelihood.

    Args:
        rows: rows, `R`.
        reduced: whether one number is left.
        mean: whether that number is divided by a count.

    """
    negate = rows
    picked = Counts(negate, 0, rows + rows + rows)  # the targets, one entry per row, the result
    return _add(picked, _reduction(rows, reduced, mean))


def cross_entropy(elements: int, rows: int, *, reduced: bool, mean: bool) -> Counts:
    """Count a log-softmax and the pick of one entry per row. Derivation: docs/derivations/loss.md#cross-entropy.

    Args:
        elements: scores, `N`.
        rows: rows, `R`.
        reduced: whether one number is left.
        mean: whether that number is divided by a count.

    """
    return _add(log_softmax(elements, rows), negative_log_likelihood(rows, reduced=reduced, mean=mean))


def _reduction(values: int, reduced: bool, mean: bool) -> Counts:
    if not reduced:
        return Counts(0, 0, 0)
    adds = values - 1
    divide = 1 if mean else 0
    return Counts(adds + divide, 0, values + 1)


def _add(left: Counts, right: Counts) -> Counts:
    return Counts(left.flops + right.flops, left.macs + right.macs, left.dmas + right.dmas)
