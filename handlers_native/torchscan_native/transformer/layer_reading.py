"""Reading whole layers: for their own calls, and for the stacks that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

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
    "decoder_layer_dims",
    "decoder_layer_key",
    "encoder_layer_dims",
    "layer_key",
    "layer_layout",
    "read_afresh",
    "read_decoder_layer",
    "read_encoder_layer",
]

R = TypeVar("R")

_COUNTS: Final = ("module_flops", "macs", "dmas")


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


def layer_key(state: dict[str, Any], *sizes: Any) -> tuple[Any, ...]:
    """Return where a scan keeps what a layer's own call found, for the stack that made the call."""
    return ("torchscan_native", id(state), *sizes)


def read_afresh(call: ModuleCall, key: tuple[Any, ...], read: Callable[[], R]) -> R:
    """Read a layer for its own call, and keep that for an owner, which asks after all of its layers ran.

    A model may change a layer between two calls, so a call never takes what an earlier one left, and an owner never
    finds more than the latest call: what was kept goes first, also when this call turns out to be outside.
    """
    memo = call.memo
    memo.pop(key, None)
    found = read()
    if call.requested.isdisjoint(_COUNTS):  # an owner counts this call
        memo[key] = found
    return found


def encoder_layer_dims(
    memo: dict[Any, Any], state: dict[str, Any], batch: int, length: int, width: int, masks: Masks
) -> EncoderLayerDims:
    """Return the dims of an encoder layer that ran in a stack.

    Args:
        memo: the scan's, where the layer's own call may have left them.
        state: instance dictionary of the layer.
        batch: B.
        length: T = S.
        width: E.
        masks: those the stack handed on.

    Raises:
        Outside: the layer is no native layer of these inputs.

    """
    found = memo.get(layer_key(state, batch, length, width, masks.elements, masks.rows))
    return read_encoder_layer(state, batch, length, width, masks) if found is None else found


def read_encoder_layer(state: dict[str, Any], batch: int, length: int, width: int, masks: Masks) -> EncoderLayerDims:
    """Read an encoder layer; arguments and errors as in `encoder_layer_dims`."""
    modules = state["_modules"]
    attention = _inner_attention(modules, "self_attn", batch, length, length, (width, width, width), masks)
    rows = batch * length
    feed_forward = feed_forward_dims(state, rows, width)
    norms = (
        norm_dims(modules.get("norm1"), "norm1", rows, width),
        norm_dims(modules.get("norm2"), "norm2", rows, width),
    )
    check_dropout(modules, "dropout", "dropout1", "dropout2")
    return EncoderLayerDims(attention, feed_forward, norms)


def decoder_layer_dims(
    memo: dict[Any, Any],
    state: dict[str, Any],
    batch: int,
    target: int,
    source: int,
    widths: tuple[int, int],
    masks: tuple[Masks, Masks],
) -> DecoderLayerDims:
    """Return the dims of a decoder layer that ran in a stack.

    Args:
        memo: the scan's, where the layer's own call may have left them.
        state: instance dictionary of the layer.
        batch: B.
        target: T.
        source: S.
        widths: E, and the width of the memory.
        masks: those of the target and those of the memory.

    Raises:
        Outside: the layer is no native layer of these inputs.

    """
    found = memo.get(decoder_layer_key(state, batch, target, source, widths, masks))
    return read_decoder_layer(state, batch, target, source, widths, masks) if found is None else found


def decoder_layer_key(
    state: dict[str, Any],
    batch: int,
    target: int,
    source: int,
    widths: tuple[int, int],
    masks: tuple[Masks, Masks],
) -> tuple[Any, ...]:
    """Return the key of a decoder layer; arguments as in `decoder_layer_dims`."""
    own, memory = masks
    return layer_key(state, batch, target, source, widths, own.elements, own.rows, memory.elements, memory.rows)


def read_decoder_layer(
    state: dict[str, Any],
    batch: int,
    target: int,
    source: int,
    widths: tuple[int, int],
    masks: tuple[Masks, Masks],
) -> DecoderLayerDims:
    """Read a decoder layer; arguments and errors as in `decoder_layer_dims`."""
    modules = state["_modules"]
    width, memory_width = widths
    self_attention = _inner_attention(modules, "self_attn", batch, target, target, (width, width, width), masks[0])
    cross_attention = _inner_attention(
        modules, "multihead_attn", batch, target, source, (width, memory_width, memory_width), masks[1]
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
