"""Norms. Derivation: docs/derivations/normalization.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import normalization as formula
from torchscan_native.layers.formulas.parametrization import weight_norm
from torchscan_native.layers.formulas.rules import Counts
from torchscan_native.operators.shapes import NotCovered, Shape, Work, numel, offer, optional_numel, work

__all__ = ["formulas"]


def _two_pass(elements: int, rows: int, weight: Shape | None, bias: Shape | None) -> Counts:
    if rows and not elements:
        raise NotCovered("an empty normalised row")
    return formula.two_pass(elements, rows, weight=optional_numel(weight), bias=optional_numel(bias))


def layer_norm(
    input: Shape,
    normalized_shape: list[int],
    weight: Shape | None = None,
    bias: Shape | None = None,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count LayerNorm."""
    rows = math.prod(input[: len(input) - len(normalized_shape)])
    return work(_two_pass(numel(input), rows, weight, bias))


def group_norm(
    input: Shape,
    weight: Shape | None,
    bias: Shape | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count GroupNorm."""
    return work(_two_pass(numel(input), N * group, weight, bias))


def batch_statistics(input: Shape, weight: Shape | None, bias: Shape | None, *, updates: bool) -> Work:
    """Count a batch norm that computes its statistics.

    Where it also updates running statistics, a matter of training, only the MACs and the operator view are known: a
    scale, a scale and an add for each of the two statistics of a channel.
    """
    channels = input[1]
    found = _two_pass(numel(input), channels, weight, bias)
    if not updates:
        return work(found)
    return Work(None, found.macs, None, executed=found.flops + 2 * 3 * channels)


def saved_statistics(input: Shape, weight: Shape | None, bias: Shape | None) -> Work:
    """Count a batch norm with stored statistics."""
    counts = formula.saved_statistics(numel(input), input[1], weight=optional_numel(weight), bias=optional_numel(bias))
    return work(counts)


def batch_norm(
    input: Shape,
    weight: Shape | None,
    bias: Shape | None,
    *rest: Any,
    **kwargs: Any,
) -> Work:
    """Count batch norm; one overload has no running statistics among its arguments."""
    if isinstance(rest[0], bool):
        return batch_statistics(input, weight, bias, updates=False)
    running_mean, _, training = rest[:3]
    if training:
        return batch_statistics(input, weight, bias, updates=running_mean is not None)
    return saved_statistics(input, weight, bias)


def evaluation_batch_norm(input: Shape, weight: Shape | None, bias: Shape | None, *args: Any, **kwargs: Any) -> Work:
    """Count the form that never computes statistics."""
    return saved_statistics(input, weight, bias)


def training_batch_norm(input: Shape, weight: Shape | None, bias: Shape | None, *args: Any, **kwargs: Any) -> Work:
    """Count the form that always computes and stores them."""
    return batch_statistics(input, weight, bias, updates=True)


def normalized_weight(v: Shape, g: Shape, dim: int = 0, **kwargs: Any) -> Work:
    """Count `g v / |v|`. Derivation: docs/derivations/parametrization.md#weight-norm."""
    return work(weight_norm(numel(v), numel(g)))


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of norms."""
    yield from offer("native_layer_norm", "contraction", layer_norm)
    yield from offer("native_group_norm", "contraction", group_norm)
    yield from offer(
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional cudnn_batch_norm "
        "miopen_batch_norm",
        "contraction",
        batch_norm,
    )
    yield from offer("_native_batch_norm_legit_no_training _batch_norm_no_update", "contraction", evaluation_batch_norm)
    yield from offer("_batch_norm_with_update _batch_norm_with_update_functional", "contraction", training_batch_norm)
    yield from offer("_weight_norm_interface", "arithmetic", normalized_weight)
