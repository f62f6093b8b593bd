"""Reading whole layers: for their own calls, and for the stacks that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from torch import nn

from torchscan import ModuleCall
from torchscan_native.transformer.boundaries import Outside
from torchscan_native.transformer.dims import AttentionDims, DecoderLayerDims, EncoderLayerDims
from torchscan_native.transformer.natives import check_stage
from torchscan_native.transformer.operands import Masks
from torchscan_native.transformer.stages import (
    attention_dims,
    attention_layout,
    check_dropout,
    feed_forward_dims,
    norm_dims,
)

__all__ = [
    "DecoderSizes",
    "EncoderSizes",
    "layer_layout",
    "read_called",
    "read_decoder_layer",
    "read_encoder_layer",
    "read_stacked",
]

S = TypeVar("S")
R = TypeVar("R")

_COUNTS: Final = ("module_flops", "macs", "dmas")


class EncoderSizes(NamedTuple):
    """What a call brings to an encoder layer.

    Attributes:
        batch: B.
        length: T = S.
        width: E.
        masks: the explicit masks.

    """

    batch: int
    length: int
    width: int
    masks: Masks

    @property
    def tokens(self) -> int:
        """Return B·T."""
        return self.batch * self.length


class DecoderSizes(NamedTuple):
    """What a call brings to a decoder layer.

    Attributes:
        batch: B.
        target: T.
        source: S.
        width: E.
        memory_width: that of the memory.
        masks: the explicit masks of the target.
        memory_masks: those of the memory.

    """

    batch: int
    target: int
    source: int
    width: int
    memory_width: int
    masks: Masks
    memory_masks: Masks

    @property
    def tokens(self) -> int:
        """Return B·T."""
        return self.batch * self.target


def layer_layout(state: dict[str, Any], *names: str) -> bool:
    """Return the one layout of a layer's attentions."""
    if state["training"]:
        raise Outside("training_mode", "it is in training mode")
    modules = state["_modules"]
    layouts = []
    for name in names:
        try:
            layouts.append(attention_layout(check_stage(modules.get(name), nn.MultiheadAttention, name)))
        except Outside as error:
            raise error if error.where else error.within(name) from None
    if layouts[0] is not layouts[-1]:
        raise Outside("mixed_layouts", f"{names[0]} and {names[-1]} differ in batch_first")
    return layouts[0]


def read_called(call: ModuleCall, state: dict[str, Any], sizes: S, read: Callable[[dict[str, Any], S], R]) -> R:
    """Read a layer for its own call, and keep that for an owner, which asks after all of its layers ran.

    A model may change a layer between two calls, so a call never takes what an earlier one left, and an owner never
    finds more than the latest call: what was kept goes first, also when this call turns out to be outside.

    Args:
        call: the layer's call.
        state: instance dictionary of the layer.
        sizes: what the call brings.
        read: reads the layer.

    Raises:
        Outside: the layer is no native layer of these sizes.

    """
    memo, key = call.memo, _key(state, sizes)
    memo.pop(key, None)
    found = read(state, sizes)
    if call.requested.isdisjoint(_COUNTS):  # an owner counts this call
        memo[key] = found
    return found


def read_stacked(memo: dict[Any, Any], state: dict[str, Any], sizes: S, read: Callable[[dict[str, Any], S], R]) -> R:
    """Read a layer that ran in a stack.

    Args:
        memo: the scan's, where the layer's own call may have left what it found.
        state: instance dictionary of the layer.
        sizes: what the stack handed on.
        read: reads the layer.

    Raises:
        Outside: the layer is no native layer of these sizes.

    """
    found: R | None = memo.get(_key(state, sizes))
    return read(state, sizes) if found is None else found


def _key(state: dict[str, Any], sizes: Any) -> tuple[Any, ...]:
    return ("torchscan_native", id(state), sizes)


def read_encoder_layer(state: dict[str, Any], sizes: EncoderSizes) -> EncoderLayerDims:
    """Read an encoder layer from its instance dictionary.

    Raises:
        Outside: it is no native layer of these sizes.

    """
    modules = state["_modules"]
    batch, length, width, masks = sizes
    attention = _inner_attention(modules, "self_attn", batch, length, length, (width, width, width), masks)
    rows = batch * length
    feed_forward = feed_forward_dims(state, rows, width)
    norms = (
        norm_dims(modules.get("norm1"), "norm1", rows, width),
        norm_dims(modules.get("norm2"), "norm2", rows, width),
    )
    check_dropout(modules, "dropout", "dropout1", "dropout2")
    return EncoderLayerDims(attention, feed_forward, norms)


def read_decoder_layer(state: dict[str, Any], sizes: DecoderSizes) -> DecoderLayerDims:
    """Read a decoder layer from its instance dictionary.

    Raises:
        Outside: it is no native layer of these sizes.

    """
    modules = state["_modules"]
    batch, target, source, width, memory_width, masks, memory_masks = sizes
    self_attention = _inner_attention(modules, "self_attn", batch, target, target, (width, width, width), masks)
    cross_attention = _inner_attention(
        modules, "multihead_attn", batch, target, source, (width, memory_width, memory_width), memory_masks
    )
    rows = batch * target
    feed_forward = feed_forward_dims(state, rows, width)
    norms = (
        norm_dims(modules.get("norm1"), "norm1", rows, width),
        norm_dims(modules.get("norm2"), "norm2", rows, width),
        norm_dims(modules.get("norm3"), "norm3", rows, width),
    )
    check_dropout(modules, "dropout", "dropout1", "dropout2", "dropout3")
    return DecoderLayerDims(self_attention, cross_attention, feed_forward, norms)


def _inner_attention(
    modules: dict[str, Any], name: str, batch: int, target: int, source: int, widths: tuple[int, int, int], masks: Masks
) -> AttentionDims:
    """Read the attention `name` of a layer, which is always called without returned weights."""
    state = modules[name].__dict__
    if state["embed_dim"] != widths[0]:
        raise Outside("mixed_widths", f"embed_dim is {state['embed_dim']} for tokens of width {widths[0]}", name)
    try:
        return attention_dims(state, batch, target, source, widths, masks)
    except Outside as error:
        raise error.within(name) from None
