"""Normalisation layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import normalization as formulas
from torchscan_native.layers.formulas.rules import power
from torchscan_native.layers.guard import EMPTY_ROW, TRAINING, Refused, floating, only, parameter_numel, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import GLOBAL, NOWHERE, POINTWISE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("LayerNorm",), layer_norm)
    yield from offer(("RMSNorm",), rms_norm)
    yield from offer(("GroupNorm",), group_norm)
    yield from offer(("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"), batch_norm)
    yield from offer(
        ("InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"),
        instance_norm,
        methods=("_apply_instance_norm", "_handle_no_batch_input"),
    )
    yield from offer(("LocalResponseNorm",), local_response_norm)


def layer_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `LayerNorm`."""
    elements = floating(only(call)).numel()
    shape = module.normalized_shape
    width = math.prod(shape)
    if not width:
        raise Refused(EMPTY_ROW)
    counts = formulas.two_pass(elements, elements // width, **_affine(module, shape))
    return answer(counts, NOWHERE)


def rms_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `RMSNorm`."""
    elements = floating(only(call, "x")).numel()
    shape = module.normalized_shape
    width = math.prod(shape)
    if not width:
        raise Refused(EMPTY_ROW)
    counts = formulas.root_mean_square(elements, elements // width, weight=parameter_numel(module, "weight", shape))
    return answer(counts, NOWHERE)


def group_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `GroupNorm`."""
    shape = floating(only(call)).shape
    elements = math.prod(shape)
    rows = shape[0] * module.num_groups
    if rows and not elements:
        raise Refused(EMPTY_ROW)
    return answer(formulas.two_pass(elements, rows, **_affine(module, (shape[1],))), GLOBAL)


def batch_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `BatchNorm`: the stored buffers decide which statistics it uses."""
    if module.training:
        raise Refused(TRAINING)
    shape = floating(only(call)).shape
    elements = math.prod(shape)
    channels = shape[1]
    affine = _affine(module, (channels,))
    mean = _buffer(module, "running_mean")
    variance = _buffer(module, "running_var")
    if mean is None and variance is None:
        if channels and not elements:
            raise Refused(EMPTY_ROW)
        return answer(formulas.two_pass(elements, channels, **affine), GLOBAL)
    floating(mean)
    floating(variance)
    return answer(formulas.saved_statistics(elements, channels, **affine), POINTWISE)


def instance_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `InstanceNorm`, batched or not; it uses stored statistics only where it tracks them."""
    x = floating(only(call))
    shape = x.shape
    elements = x.numel()
    unbatched = len(shape) == module._get_no_batch_dim()
    channels = shape[0 if unbatched else 1]
    affine = _affine(module, (channels,))
    if module.track_running_stats:
        if module.training:
            raise Refused(TRAINING)
        floating(_buffer(module, "running_mean"))
        floating(_buffer(module, "running_var"))
        return answer(formulas.saved_statistics(elements, channels, **affine), POINTWISE)
    if _buffer(module, "running_mean") is not None:
        raise Refused(_UNTRACKED)
    rows = channels if unbatched else shape[0] * channels
    if rows and not elements:
        raise Refused(EMPTY_ROW)
    return answer(formulas.two_pass(elements, rows, **affine), GLOBAL)


def local_response_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `LocalResponseNorm`."""
    elements = floating(only(call)).numel()
    per_power = power(module.beta)
    if per_power is None:
        raise Refused(_BETA)
    return answer(formulas.local_response(elements, module.size, per_power), POINTWISE)


def _affine(module: Any, shape: tuple[int, ...]) -> dict[str, int | None]:
    return {"weight": parameter_numel(module, "weight", shape), "bias": parameter_numel(module, "bias", shape)}


def _buffer(module: Any, name: str) -> Any:
    buffers = module._buffers
    return buffers[name] if name in buffers else getattr(module, name)


_BETA = refusal("exponent", "there is no rule for this exponent; supply the count with custom_modules")
_UNTRACKED = refusal("untracked_statistics", "stored statistics that the module does not track are updated in the call")
