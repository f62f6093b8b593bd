"""The softmax family. Derivation: docs/derivations/softmax.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import Counts

__all__ = ["log_softmax", "softmax", "softmin"]


def softmax(elements: int, rows: int) -> Counts:
    """Count a softmax that subtracts the maximum. Derivation: docs/derivations/softmax.md#softmax.

    Args:
        elements: all elements, `N`.
        rows: rows that each sum to one, `R`.

    """
    n, r = elements, rows
    maximum = n - r
    subtract = n
    exponential = n
    row_sum = n - r
    divide = n
    return Counts(
        maximum + subtract + exponential + row_sum + divide,
        0,
        (n + r) + (2 * n + r) + (n + n) + (n + r) + (2 * n + r),
    )


def log_softmax(elements: int, rows: int) -> Counts:
    """Count a log-softmax. Derivation: docs/derivations/softmax.md#log-softmax.

    Args:
        elements: all elements, `N`.
        rows: rows, `R`.

    """
    n, r = elements, rows
    maximum = n - r
    subtract = n
    exponential = n
    row_sum = n - r
    logarithm = r
    subtract_logarithm = n
    return Counts(
        maximum + subtract + exponential + row_sum + logarithm + subtract_logarithm,
        0,
        (n + r) + (2 * n + r) + (n + n) + (n + r) + (r + r) + (2 * n + r),
    )


def softmin(elements: int, rows: int) -> Counts:
    """Count a softmax of the negated input. Derivation: docs/derivations/softmax.md#softmin.

    Args:
        elements: all elements, `N`.
        rows: rows, `R`.

    """
    base = softmax(elements, rows)
    negate = elements
    return Counts(negate + base.flops, 0, (elements + elements) + base.dmas)
