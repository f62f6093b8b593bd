"""Pooling and unpooling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import pooling as formulas
from torchscan_native.layers.formulas.rules import power, root
from torchscan_native.layers.guard import Refused, floating, indices, only, refusal
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import NOWHERE, SCATTERED, adaptive_windows, answer, axes, same, window


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    for count in (1, 2, 3):
        yield from offer((f"MaxPool{count}d",), _maximum(count))
        yield from offer((f"AvgPool{count}d",), _average(count))
        yield from offer((f"LPPool{count}d",), _lp_norm(count))
        yield from offer((f"AdaptiveMaxPool{count}d",), _adaptive(count, maximum=True))
        yield from offer((f"AdaptiveAvgPool{count}d",), _adaptive(count, maximum=False))
        yield from offer((f"FractionalMaxPool{count}d",), _fractional(count))
        yield from offer((f"MaxUnpool{count}d",), unpool)


def _maximum(count: int) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        kernel = axes(module.kernel_size, count)
        y = _values(call, module)
        counts = formulas.maximum(x.numel(), y.numel(), math.prod(kernel), indices=bool(module.return_indices))
        padding, dilation = axes(module.padding, count), axes(module.dilation, count)
        return answer(counts, window(kernel, _stride(module, kernel), padding, dilation))

    return adapter


def _average(count: int) -> Adapter:
    ones = (1,) * count

    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        kernel = axes(module.kernel_size, count)
        counts = formulas.average(x.numel(), floating(call.output).numel(), math.prod(kernel))
        return answer(counts, window(kernel, _stride(module, kernel), axes(module.padding, count), ones))

    return adapter


def _lp_norm(count: int) -> Adapter:
    ones, zeros = (1,) * count, (0,) * count

    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        kernel = axes(module.kernel_size, count)
        per_power, per_root = power(module.norm_type), root(module.norm_type)
        if per_power is None or per_root is None:
            raise Refused(_NORM)
        counts = formulas.lp_norm(
            x.numel(), floating(call.output).numel(), math.prod(kernel), power=per_power, root=per_root
        )
        return answer(counts, window(kernel, _stride(module, kernel), zeros, ones))

    return adapter


def _adaptive(count: int, *, maximum: bool) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        y = _values(call, module) if maximum else floating(call.output)
        lengths, outputs = x.shape[-count:], y.shape[-count:]
        visited = formulas.visits(math.prod(x.shape[:-count]), lengths, outputs)
        if maximum:
            counts = formulas.adaptive_maximum(x.numel(), y.numel(), visited, indices=bool(module.return_indices))
        else:
            counts = formulas.adaptive_average(x.numel(), y.numel(), visited)
        return answer(counts, adaptive_windows(lengths, outputs))

    return adapter


def _fractional(count: int) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        kernel = axes(module.kernel_size, count)
        samples = module._buffers.get("_random_samples")
        counts = formulas.maximum(
            x.numel(),
            _values(call, module).numel(),
            math.prod(kernel),
            indices=bool(module.return_indices),
            samples=0 if samples is None else floating(samples).numel(),
        )
        return answer(counts, (same(kernel), SCATTERED, 0))

    return adapter


def unpool(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `MaxUnpoolNd`; `output_size` acts through the output alone."""
    arguments = call.arguments
    x = floating(arguments["input"])
    indices(arguments["indices"])
    return answer(formulas.unpool(x.numel(), floating(call.output).numel()), NOWHERE)


def _values(call: ModuleCall, module: Any) -> torch.Tensor:
    """Return the maxima, which come with their positions where the module is asked for them."""
    return floating(call.output[0] if module.return_indices else call.output)


def _stride(module: Any, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Return the distance between windows; without a stride they lie side by side."""
    return kernel if module.stride is None else axes(module.stride, len(kernel))


_NORM = refusal("norm_type", "there is no rule for this norm; supply the count with custom_modules")
