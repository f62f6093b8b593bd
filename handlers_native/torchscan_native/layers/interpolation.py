"""Upsampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import interpolation as formulas
from torchscan_native.layers.formulas import pooling
from torchscan_native.layers.guard import Refused, floating, only, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import RESAMPLED, adaptive_windows, answer

_TAPS = {"linear": 2, "bilinear": 4, "trilinear": 8, "bicubic": 16}


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"), upsample)


def upsample(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Upsample`."""
    x = floating(only(call))
    y = floating(call.output)
    mode = module.mode
    if (taps := _TAPS.get(mode)) is not None:
        return answer(formulas.interpolate(x.numel(), y.numel(), taps), RESAMPLED)
    if mode in ("nearest", "nearest-exact"):
        return answer(formulas.nearest(x.numel(), y.numel()), RESAMPLED)
    if mode == "area":
        lengths, outputs = x.shape[2:], y.shape[2:]
        visited = pooling.visits(math.prod(x.shape[:2]), lengths, outputs)
        return answer(pooling.adaptive_average(x.numel(), y.numel(), visited), adaptive_windows(lengths, outputs))
    raise Refused(_MODE)


_MODE = refusal("mode", "there is no formula for this mode; supply the count with custom_modules")
