"""Convolutions. Derivation: docs/derivations/convolution.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import convolution as formula
from torchscan_native.operators.shapes import Rule, Shape, Work, numel, offer, optional_numel, work

__all__ = ["formulas"]


def convolve(input: Shape, weight: Shape, bias: Shape | None, out_shape: Shape) -> Work:
    """Count a convolution; the weight is (out channels, in channels of a group, kernel).

    Derivation: docs/derivations/convolution.md#convolution. Stride, dilation and padding act through the output alone.
    """
    counts = formula.convolution(
        numel(input),
        numel(out_shape),
        math.prod(weight[1:]),
        weight=numel(weight),
        bias=optional_numel(bias),
        padded=None,
    )
    return work(counts, executed=2 * counts.macs)


def scatter(input: Shape, weight: Shape, bias: Shape | None, out_shape: Shape) -> Work:
    """Count a transposed convolution; the weight is (in channels, out channels of a group, kernel).

    Derivation: docs/derivations/convolution.md#transposed-convolution.
    """
    counts = formula.transposed_convolution(
        numel(input),
        numel(out_shape),
        math.prod(weight[1:]),
        weight=numel(weight),
        bias=optional_numel(bias),
    )
    return work(counts, executed=2 * counts.macs)


def convolution(
    input: Shape,
    weight: Shape,
    bias: Shape | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    *args: Any,
    out_shape: Shape,
    **kwargs: Any,
) -> Work:
    """Count the general convolution of ATen."""
    return (scatter if transposed else convolve)(input, weight, bias, out_shape)


def plain(bias_at: int | None, *, transposed: bool = False) -> Rule:
    """Return the rule of a backend's convolution, whose bias is its argument number `bias_at` after the weight."""

    def rule(input: Shape, weight: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
        bias = kwargs.get("bias")
        if bias_at is not None and bias_at < len(args):
            bias = args[bias_at]
        return (scatter if transposed else convolve)(input, weight, bias, out_shape)

    return rule


def time_batch_channel(self: Shape, weight: Shape, bias: Shape, pad: int = 0, *, out_shape: Shape) -> Work:
    """Count `conv_tbc`, whose weight is (kernel, in channels, out channels)."""
    kernel, in_channels, out_channels = weight
    return convolve(self, (out_channels, in_channels, kernel), bias, out_shape)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of convolutions, one per backend."""
    yield from offer("convolution _convolution convolution_overrideable", "contraction", convolution)
    yield from offer("mkldnn_convolution _nnpack_spatial_convolution miopen_convolution", "contraction", plain(0))
    yield from offer(
        "_slow_conv2d_forward slow_conv3d_forward _conv_depthwise2d conv_depthwise3d slow_conv_dilated2d "
        "slow_conv_dilated3d miopen_depthwise_convolution",
        "contraction",
        plain(1),
    )
    yield from offer("cudnn_convolution", "contraction", plain(None))
    yield from offer("slow_conv_transpose2d slow_conv_transpose3d", "contraction", plain(1, transposed=True))
    yield from offer("miopen_convolution_transpose", "contraction", plain(0, transposed=True))
    yield from offer("cudnn_convolution_transpose", "contraction", plain(None, transposed=True))
    yield from offer("conv_tbc", "contraction", time_batch_channel)
