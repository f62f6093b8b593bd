"""Fused optimizer steps, for the operator view alone.

Derivation: docs/derivations/functional-operators.md#optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.operators.shapes import Rule, Shape, Work, numel, offer

__all__ = ["formulas"]


def adam(*, decoupled: bool) -> Rule:
    """Return the rule of Adam, or of AdamW, which shrinks the parameter instead of adding to its gradient."""

    def rule(
        self: list[Shape],
        *args: Any,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
        **kwargs: Any,
    ) -> Work:
        first_moment = 3  # subtract, scale, add
        second_moment = 4  # scale, square, scale, add
        denominator = 3  # square root, divide by the bias correction, add epsilon
        step = 3  # divide, scale, subtract
        per_element = first_moment + second_moment + denominator + step
        per_element += (1 if decoupled else 2) if weight_decay else 0
        per_element += (1 if amsgrad else 0) + (1 if maximize else 0)
        return Work(per_element * sum(map(numel, self)), None, None)

    return rule


def sgd(
    self: list[Shape],
    *args: Any,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    is_first_step: bool = False,
    **kwargs: Any,
) -> Work:
    """Count a gradient step: scale and subtract, and what decay and momentum add."""
    per_element = 2 + (2 if weight_decay else 0) + (1 if maximize else 0)
    if momentum:
        velocity = 0 if is_first_step else 2 + (1 if dampening else 0)  # scale, add, and scale the gradient
        per_element += velocity + (2 if nesterov else 0)
    return Work(per_element * sum(map(numel, self)), None, None)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of fused optimizer steps."""
    yield from offer("_fused_adam_", "arithmetic", adam(decoupled=False), estimate=False)
    yield from offer("_fused_adamw_", "arithmetic", adam(decoupled=True), estimate=False)
    yield from offer("_fused_sgd_", "arithmetic", sgd, estimate=False)
