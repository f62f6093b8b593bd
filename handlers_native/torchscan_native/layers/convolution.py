"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import convolution as formulas
from torchscan_native.layers.guard import Refused, floating, only, parameter, parameter_numel, refusal
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import RESAMPLED, Spatial, answer, axes, same, same_padding, window


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class; a lazy class has become one of these when its call ends."""
    for count in (1, 2, 3):
        yield from offer((f"Conv{count}d",), _convolution(count), methods=("_conv_forward",))
        yield from offer((f"ConvTranspose{count}d",), _transposed(count), methods=("_output_padding",))


def _convolution(count: int) -> Adapter:
    """Return the adapter for convolutions over `count` axes, batched or not."""

    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        y = floating(call.output)
        channels = -count - 1
        expected = (y.shape[channels], x.shape[channels] // module.groups, *axes(module.kernel_size, count))
        weight = _kernel(module, expected)
        terms = math.prod(weight[1:])
        padded = None
        if module.padding_mode != "zeros":
            padded = _padded(x.shape, module._reversed_padding_repeated_twice)
        counts = formulas.convolution(
            x.numel(),
            y.numel(),
            terms,
            weight=weight[0] * terms,
            bias=parameter_numel(module, "bias", (weight[0],)),
            padded=padded,
        )
        return answer(counts, _window(module, weight[2:], count))

    return adapter


def _transposed(count: int) -> Adapter:
    """Return the adapter for transposed convolutions; `output_size` acts through the output alone."""

    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        y = floating(call.output)
        channels = -count - 1
        expected = (x.shape[channels], y.shape[channels] // module.groups, *axes(module.kernel_size, count))
        weight = _kernel(module, expected)
        taps = math.prod(weight[1:])
        bias = parameter_numel(module, "bias", (y.shape[channels],))
        counts = formulas.transposed_convolution(x.numel(), y.numel(), taps, weight=weight[0] * taps, bias=bias)
        return answer(counts, _scatter_window(module, weight[2:], count))

    return adapter


def _kernel(module: Any, expected: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the weight: two axes of channels, then those of the kernel."""
    weight = parameter(module, "weight", expected)
    if weight is None or len(weight) != len(expected):
        raise Refused(_KERNEL)
    return weight


def _padded(shape: tuple[int, ...], sides: list[int]) -> int:
    axes = len(sides) // 2
    padded = math.prod(shape[:-axes])
    for axis in range(axes):  # the last axis comes first in `sides`
        padded *= shape[-1 - axis] + sides[2 * axis] + sides[2 * axis + 1]
    return padded


def _window(module: Any, kernel: tuple[int, ...], count: int) -> Spatial:
    padding, stride, dilation = module.padding, axes(module.stride, count), axes(module.dilation, count)
    if padding == "same":
        found = window(kernel, stride, (0,) * count, dilation)
        return found[0], found[1], same_padding(kernel, dilation)
    return window(kernel, stride, (0,) * count if padding == "valid" else axes(padding, count), dilation)


def _scatter_window(module: Any, kernel: tuple[int, ...], count: int) -> Spatial:
    """With stride one a transposed convolution is a convolution of the mirrored kernel, padded by what is left."""
    if any(stride != 1 for stride in axes(module.stride, count)) or any(axes(module.output_padding, count)):
        return RESAMPLED
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, axes(module.dilation, count), strict=True)]
    left = [span - 1 - padding for span, padding in zip(spans, axes(module.padding, count), strict=True)]
    if any(padding < 0 for padding in left):
        return RESAMPLED
    return same(spans), 1, same(left)


_KERNEL = refusal("weight_shape", "the weight does not have one axis per kernel axis and two for the channels")
