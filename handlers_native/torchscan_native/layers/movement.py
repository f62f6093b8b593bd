"""Modules that move data: padding, folding, shuffling; and those that do nothing in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import movement as formulas
from torchscan_native.layers.formulas.rules import NOTHING
from torchscan_native.layers.guard import TRAINING, Refused, floating, only, refusal
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import NOWHERE, POINTWISE, RESAMPLED, Spatial, answer, axes, pad


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular"):
        yield from offer((f"{kind}Pad{count}d" for count in (1, 2, 3)), _padding(reflect=kind == "Reflection"))
    yield from offer(("Fold",), fold)
    yield from offer(("Unfold",), unfold)
    yield from offer(("PixelShuffle", "PixelUnshuffle", "ChannelShuffle"), shuffle)
    yield from offer(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"), dropout)
    yield from offer(("Identity",), identity)
    yield from offer(("Flatten", "Unflatten"), view)


def _padding(*, reflect: bool) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        sides = module.padding
        shape = x.shape
        read = formulas.cropped(shape, sides, reflect=reflect)
        counts = formulas.move(read, floating(call.output).numel())
        return answer(counts, pad(sides, len(shape), len(sides) // 2))

    return adapter


def fold(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Fold`, batched or not."""
    x = floating(only(call))
    y = floating(call.output)
    sizes = zip(
        y.shape[-2:],
        axes(module.kernel_size, 2),
        axes(module.dilation, 2),
        axes(module.padding, 2),
        axes(module.stride, 2),
        strict=True,
    )
    blocks = valid = reached = 1
    for size in sizes:
        count, entries, positions = formulas.fold_overlap(*size)
        blocks, valid, reached = blocks * count, valid * entries, reached * positions
    if blocks != x.shape[-1]:
        raise Refused(_BLOCKS)
    planes = y.numel() // (y.shape[-2] * y.shape[-1]) if y.numel() else 0
    return answer(formulas.fold(x.numel(), y.numel(), planes, valid, reached), NOWHERE)


def unfold(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Unfold`."""
    x = floating(only(call))
    return answer(formulas.move(x.numel(), floating(call.output).numel()), NOWHERE)


def shuffle(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of a pixel or channel shuffle."""
    elements = floating(only(call)).numel()
    return answer(formulas.move(elements, elements), _shuffled(module))


def _shuffled(module: Any) -> Spatial:
    if (down := getattr(module, "downscale_factor", None)) is not None:
        return down, down, 0  # all channels together see one block
    return POINTWISE if getattr(module, "upscale_factor", 1) == 1 else RESAMPLED


def dropout(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of a dropout: nothing in evaluation."""
    if module.training and module.p:
        raise Refused(TRAINING)
    return _IDENTITY


def identity(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Identity`: nothing, whatever it is given."""
    return _IDENTITY


def view(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Flatten` or `Unflatten`: a view, after which no axis is spatial."""
    return _VIEW


_IDENTITY = answer(NOTHING, POINTWISE)
_VIEW = answer(NOTHING, NOWHERE)
_BLOCKS = refusal("block_count", "the input does not have the number of blocks that the module's attributes name")
