"""Pooling, interpolation and sampling. Derivation: docs/derivations/functional-operators.md#windows-and-taps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import interpolation, movement
from torchscan_native.layers.formulas import pooling as formula
from torchscan_native.operators.shapes import Rule, Shape, Work, numel, offer, tensors, work

__all__ = ["formulas", "visits"]


def _window(kernel_size: int | Sequence[int], axes: int) -> int:
    sizes = (kernel_size,) if isinstance(kernel_size, int) else tuple(kernel_size)
    return math.prod(sizes * axes if len(sizes) == 1 else sizes)


def maximum(axes: int) -> Rule:
    """Return the rule of max pooling over `axes` axes.

    The operator always returns the positions too; whether anybody asked for them it does not say, so they are not
    counted. Nor are the random numbers of fractional pooling. Derivation:
    docs/derivations/functional-operators.md#by-products.
    """

    def rule(self: Shape, kernel_size: int | list[int], *args: Any, out_shape: Any, **kwargs: Any) -> Work:
        outputs = numel(next(tensors(out_shape)))
        return work(formula.maximum(numel(self), outputs, _window(kernel_size, axes), indices=False))

    return rule


def average(axes: int) -> Rule:
    """Return the rule of average pooling over `axes` axes."""

    def rule(self: Shape, kernel_size: int | list[int], *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
        return work(formula.average(numel(self), numel(out_shape), _window(kernel_size, axes)))

    return rule


def visits(larger: Shape, smaller: Shape, axes: int) -> int:
    """Return how many values the adaptive windows of the last `axes` axes visit."""
    return formula.visits(math.prod(larger[:-axes]), larger[-axes:], smaller[-axes:])


def adaptive_average(axes: int) -> Rule:
    """Return the rule of adaptive average pooling over `axes` axes."""

    def rule(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
        return work(formula.adaptive_average(numel(self), numel(out_shape), visits(self, out_shape, axes)))

    return rule


def adaptive_maximum(axes: int) -> Rule:
    """Return the rule of adaptive max pooling over `axes` axes; the positions are a by-product."""

    def rule(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
        found = next(tensors(out_shape))
        visited = visits(self, found, axes)
        return work(formula.adaptive_maximum(numel(self), numel(found), visited, indices=False))

    return rule


def unpool(self: Shape, indices: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count max unpooling: values and indices in, a plane out."""
    return work(formula.unpool(numel(self), numel(out_shape)))


def nearest(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count copies of the nearest neighbour."""
    return work(interpolation.nearest(numel(self), numel(out_shape)))


def taps(count: int) -> Rule:
    """Return the rule of an interpolation with `count` neighbours per output: constant weights, so a contraction."""

    def rule(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
        counts = interpolation.interpolate(numel(self), numel(out_shape), count)
        return work(counts, executed=2 * counts.macs)

    return rule


def grid_sampler(axes: int) -> Rule:
    """Return the rule of sampling at given positions, whose weights are computed from values.

    The weighted sum of the neighbours is known; the FLOPs of the weights, and which elements are read, are not.
    """

    def rule(
        input: Shape,
        grid: Shape,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
        *,
        out_shape: Shape,
        **kwargs: Any,
    ) -> Work:
        neighbours = {0: 2**axes, 1: 0, 2: 4**axes}[interpolation_mode]  # linear, nearest, cubic
        return Work(None, numel(out_shape) * neighbours, None)

    return rule


def fold(
    self: Shape,
    output_size: list[int],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
    *,
    out_shape: Shape,
    **kwargs: Any,
) -> Work:
    """Count the adds of overlapping blocks. Derivation: docs/derivations/data-movement.md#fold."""
    valid = reached = 1
    for geometry in zip(output_size, kernel_size, dilation, padding, stride, strict=True):
        _, entries, positions = movement.fold_overlap(*geometry)
        valid *= entries
        reached *= positions
    planes = math.prod(out_shape[:-2])
    return work(movement.fold(numel(self), numel(out_shape), planes, valid, reached))


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of pooling, interpolation and sampling."""
    yield from offer("max_pool2d_with_indices mkldnn_max_pool2d", "arithmetic", maximum(2))
    yield from offer("max_pool3d_with_indices mkldnn_max_pool3d", "arithmetic", maximum(3))
    yield from offer("avg_pool2d", "arithmetic", average(2), terms="sums")
    yield from offer("avg_pool3d", "arithmetic", average(3), terms="sums")
    yield from offer("_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d", "arithmetic", adaptive_average(2), terms="sums")
    yield from offer("_adaptive_avg_pool3d", "arithmetic", adaptive_average(3), terms="sums")
    yield from offer("adaptive_max_pool2d", "arithmetic", adaptive_maximum(2))
    yield from offer("adaptive_max_pool3d", "arithmetic", adaptive_maximum(3))
    yield from offer("fractional_max_pool2d", "arithmetic", maximum(2))
    yield from offer("fractional_max_pool3d", "arithmetic", maximum(3))
    yield from offer("max_unpool2d max_unpool3d", "movement", unpool)
    yield from offer(
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d "
        "_upsample_nearest_exact3d",
        "movement",
        nearest,
    )
    yield from offer("upsample_linear1d", "contraction", taps(2))
    yield from offer("upsample_bilinear2d", "contraction", taps(4))
    yield from offer("upsample_trilinear3d", "contraction", taps(8))
    yield from offer("upsample_bicubic2d", "contraction", taps(16))
    yield from offer("grid_sampler_2d", "contraction", grid_sampler(2), view=False)
    yield from offer("grid_sampler_3d", "contraction", grid_sampler(3), view=False)
    yield from offer("col2im", "arithmetic", fold, terms="sums")
