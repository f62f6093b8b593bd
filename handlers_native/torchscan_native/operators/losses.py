"""Losses. Derivation: docs/derivations/loss.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import loss as formula
from torchscan_native.operators.shapes import NotCovered, Rule, Shape, Work, numel, offer, unknown, work

__all__ = ["formulas"]

_NONE, _MEAN = 0, 1  # PyTorch's numbers for the reduction; 2 is the sum


def elementwise(name: str) -> Rule:
    """Return the rule of a loss that compares two tensors element by element."""

    def rule(self: Shape, target: Shape, reduction: int = _MEAN, *args: Any, **kwargs: Any) -> Work:
        if self != target:
            raise NotCovered("operands of different shapes")
        counts = formula.elementwise(
            numel(self),
            formula.FLOPS_PER_ELEMENT[name],
            2,
            reduced=reduction != _NONE,
            mean=reduction == _MEAN,
        )
        return work(counts)

    return rule


def binary_cross_entropy(
    self: Shape, target: Shape, weight: Shape | None = None, reduction: int = _MEAN, **kwargs: Any
) -> Work:
    """Count the cross entropy of probabilities; weights have no rule."""
    if weight is not None:
        raise NotCovered("weighted elements")
    return elementwise("BCELoss")(self, target, reduction)


def binary_cross_entropy_with_logits(
    self: Shape,
    target: Shape,
    weight: Shape | None = None,
    pos_weight: Shape | None = None,
    reduction: int = _MEAN,
    **kwargs: Any,
) -> Work:
    """Count the cross entropy of scores; weights have no rule."""
    if weight is not None or pos_weight is not None:
        raise NotCovered("weighted elements")
    return elementwise("BCEWithLogitsLoss")(self, target, reduction)


def picked(self: Shape, target: Shape, weight: Shape | None, reduction: int, *args: Any, **kwargs: Any) -> Work:
    """Count the pick of one entry per row; which rows are ignored is a matter of values."""
    if weight is not None:
        raise NotCovered("weighted classes")
    rows = numel(target)
    counts = formula.negative_log_likelihood(rows, reduced=reduction != _NONE, mean=reduction == _MEAN)
    return work(counts)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of losses."""
    yield from offer("mse_loss", "arithmetic", elementwise("MSELoss"))
    yield from offer("smooth_l1_loss", "arithmetic", elementwise("SmoothL1Loss"))
    yield from offer("huber_loss", "arithmetic", elementwise("HuberLoss"))
    yield from offer("soft_margin_loss", "arithmetic", elementwise("SoftMarginLoss"))
    yield from offer("binary_cross_entropy", "arithmetic", binary_cross_entropy)
    yield from offer("binary_cross_entropy_with_logits", "arithmetic", binary_cross_entropy_with_logits)
    yield from offer("nll_loss_forward nll_loss2d_forward", "arithmetic", picked)
    yield from offer(
        "multi_margin_loss multilabel_margin_loss_forward _ctc_loss _cudnn_ctc_loss", "arithmetic", unknown, view=False
    )
