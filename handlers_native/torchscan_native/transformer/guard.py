"""Is this call inside the boundaries of the native formulas, and if not, why?

One check per module type: `ModuleCall -> Supported | Boundary`. A check reads metadata only, never a value, and it
never raises: what cannot be read is outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs
import torch
from torch import nn

from torchscan import ModuleCall
from torchscan_native.transformer.boundaries import Boundary, Outside
from torchscan_native.transformer.dims import (
    AttentionDims,
    DecoderLayerDims,
    Dims,
    EncoderLayerDims,
    StackDims,
    TransformerDims,
)
from torchscan_native.transformer.layer_reading import (
    DecoderSizes,
    EncoderSizes,
    layer_layout,
    read_called,
    read_decoder_layer,
    read_encoder_layer,
    read_stacked,
)
from torchscan_native.transformer.natives import check_classes, check_root, check_stage
from torchscan_native.transformer.operands import (
    Masks,
    check_batched,
    read_masks,
    read_option,
)
from torchscan_native.transformer.stages import (
    attention_dims,
    attention_layout,
    norm_dims,
)

__all__ = [
    "Check",
    "Supported",
    "check_attention",
    "check_decoder",
    "check_decoder_layer",
    "check_encoder",
    "check_encoder_layer",
    "check_transformer",
]

D = TypeVar("D", bound=Dims, covariant=True)
R = TypeVar("R")
Sizes = TypeVar("Sizes", EncoderSizes, DecoderSizes)
Layer = TypeVar("Layer", EncoderLayerDims, DecoderLayerDims)


@attrs.frozen
class Supported(Generic[D]):
    """A call inside the boundaries.

    Args:
        dims: its sizes. Two stages of equal dims cost the same.
        batch_first: its layout: tensors are (batch, tokens, features), else (tokens, batch, features).

    """

    dims: D
    batch_first: bool


Check: TypeAlias = Callable[[ModuleCall], Supported[Dims] | Boundary]

_functorch_level: Final = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)


def _guarded(
    check: Callable[[ModuleCall, dict[str, Any]], Supported[D]],
) -> Callable[[ModuleCall], Supported[D] | Boundary]:
    """Turn a check that raises `Outside` into one that returns."""

    def guard(call: ModuleCall) -> Supported[D] | Boundary:
        try:
            check_classes()
            state = check_root(call.module)
            if state["training"]:
                raise Outside("training_mode", "it is in training mode")
            if _functorch_level() is not None:
                raise Outside("functional_transform", "a torch.func transform is active")
            return check(call, state)
        except Outside as error:
            return error.boundary
        except Exception as error:  # a module this far from native has no other name
            return Outside("unreadable_call", f"{type(error).__name__}: {error}").boundary

    guard.__doc__ = check.__doc__
    guard.__name__ = check.__name__.removeprefix("_")
    return guard


def _check_output(output: Any, expected: torch.Size) -> None:
    if not isinstance(output, torch.Tensor) or output.is_nested or output.shape != expected:
        raise Outside("output_shape", f"it is not of shape {tuple(expected)}", "output")


# -- attention -------------------------------------------------------------------------------------------------------


def _check_attention(call: ModuleCall, state: dict[str, Any]) -> Supported[AttentionDims]:
    """Check a call of `nn.MultiheadAttention`."""
    arguments = call.arguments
    query, key, value = arguments["query"], arguments["key"], arguments["value"]
    batch_first = attention_layout(state)
    batch, target, query_width = check_batched(query, "query", batch_first)
    if key is query:
        source, key_width = target, query_width
    else:
        key_batch, source, key_width = check_batched(key, "key", batch_first)
        if key_batch != batch:
            raise Outside("input_shape", f"its batch is {key_batch} and that of query {batch}", "key")
    if value is key:
        value_width = key_width
    else:
        value_batch, value_length, value_width = check_batched(value, "value", batch_first)
        if (value_batch, value_length) != (batch, source):
            raise Outside("input_shape", "it does not match key in batch and tokens", "value")
    masks = read_masks(arguments, "attn_mask", "key_padding_mask", "is_causal", batch, target, source)
    averaged = read_option(arguments, "average_attn_weights") and read_option(arguments, "need_weights")
    dims = attention_dims(state, batch, target, source, (query_width, key_width, value_width), masks, averaged)
    output = call.output
    _check_output(output[0] if isinstance(output, tuple) else output, query.shape)
    return Supported(dims, batch_first)


# -- layers ----------------------------------------------------------------------------------------------------------


def _check_encoder_layer(call: ModuleCall, state: dict[str, Any]) -> Supported[EncoderLayerDims]:
    """Check a call of `nn.TransformerEncoderLayer`."""
    arguments = call.arguments
    batch_first = layer_layout(state, "self_attn")
    src = arguments["src"]
    batch, length, width = check_batched(src, "src", batch_first)
    masks = read_masks(arguments, "src_mask", "src_key_padding_mask", "is_causal", batch, length, length)
    dims = read_called(call, state, EncoderSizes(batch, length, width, masks), read_encoder_layer)
    _check_output(call.output, src.shape)
    return Supported(dims, batch_first)


def _read_memory(memory: Any, batch: int, batch_first: bool) -> tuple[int, int]:
    """Return source length and width of a decoder's memory."""
    memory_batch, source, width = check_batched(memory, "memory", batch_first)
    if memory_batch != batch:
        raise Outside("input_shape", f"its batch is {memory_batch} and that of tgt {batch}", "memory")
    return source, width


def _decoder_masks(arguments: Any, batch: int, target: int, source: int) -> tuple[Masks, Masks]:
    return (
        read_masks(arguments, "tgt_mask", "tgt_key_padding_mask", "tgt_is_causal", batch, target, target),
        read_masks(arguments, "memory_mask", "memory_key_padding_mask", "memory_is_causal", batch, target, source),
    )


def _check_decoder_layer(call: ModuleCall, state: dict[str, Any]) -> Supported[DecoderLayerDims]:
    """Check a call of `nn.TransformerDecoderLayer`."""
    arguments = call.arguments
    batch_first = layer_layout(state, "self_attn", "multihead_attn")
    tgt = arguments["tgt"]
    batch, target, width = check_batched(tgt, "tgt", batch_first)
    source, memory_width = _read_memory(arguments["memory"], batch, batch_first)
    masks = _decoder_masks(arguments, batch, target, source)
    dims = read_called(
        call, state, DecoderSizes(batch, target, source, width, memory_width, *masks), read_decoder_layer
    )
    _check_output(call.output, tgt.shape)
    return Supported(dims, batch_first)


# -- stacks ----------------------------------------------------------------------------------------------------------


def _stack_layers(state: dict[str, Any], cls: type[nn.Module], *attentions: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the instance dictionaries of a stack's layers, a shared layer once per run, and their one layout."""
    if state["training"]:
        raise Outside("training_mode", "it is in training mode")
    container = state["_modules"].get("layers")
    if type(container) is not nn.ModuleList:
        raise Outside("foreign_layer", f"it is a {type(container).__name__} and not an nn.ModuleList", "layers")
    layers = []
    layouts = set()
    for name, layer in container._modules.items():
        try:
            layers.append(check_stage(layer, cls, "", "foreign_layer"))
            layouts.add(layer_layout(layers[-1], *attentions))
        except Outside as error:
            raise error.within(f"layers.{name}".rstrip(".")) from None
    if not layers:
        raise Outside("empty_stack", "it has no layers", "layers")
    if len(layouts) > 1:
        raise Outside("mixed_layouts", "the layers differ in batch_first", "layers")
    return layers, layouts.pop()


def _final_norm(state: dict[str, Any]) -> Any:
    norm = state["_modules"].get("norm")
    return state.get("norm") if norm is None else norm


def _stack_dims(
    memo: dict[Any, Any],
    state: dict[str, Any],
    layers: list[dict[str, Any]],
    sizes: Sizes,
    read: Callable[[dict[str, Any], Sizes], Layer],
) -> StackDims[Layer]:
    found = []
    for index, layer in enumerate(layers):
        try:
            found.append(read_stacked(memo, layer, sizes, read))
        except Outside as error:
            raise error.within(f"layers.{index}") from None
    return StackDims(tuple(found), norm_dims(_final_norm(state), "norm", sizes.tokens, sizes.width))


def _check_packing(state: dict[str, Any], mask: Any, padding: Any) -> None:
    """Check that an encoder cannot pack its tokens.

    PyTorch packs only under a padding mask without an attention mask, and only where the constructor left nested
    tensors on (`use_nested_tensor`). What it decides further (the mask's values, autocast, a global switch) does not
    make the dense estimate safe.
    """
    if padding is None or mask is not None:
        return
    if state.get("use_nested_tensor", state.get("enable_nested_tensor", True)):
        raise Outside("padding_with_nested_tensors", "a padding mask is given and nested tensors are enabled")


def _check_encoder(call: ModuleCall, state: dict[str, Any]) -> Supported[StackDims[EncoderLayerDims]]:
    """Check a call of `nn.TransformerEncoder`."""
    arguments = call.arguments
    layers, batch_first = _stack_layers(state, nn.TransformerEncoderLayer, "self_attn")
    src = arguments["src"]
    batch, length, width = check_batched(src, "src", batch_first)
    masks = read_masks(arguments, "mask", "src_key_padding_mask", "is_causal", batch, length, length)
    _check_packing(state, arguments["mask"], arguments["src_key_padding_mask"])
    dims = _stack_dims(call.memo, state, layers, EncoderSizes(batch, length, width, masks), read_encoder_layer)
    _check_output(call.output, src.shape)
    return Supported(dims, batch_first)


def _check_decoder(call: ModuleCall, state: dict[str, Any]) -> Supported[StackDims[DecoderLayerDims]]:
    """Check a call of `nn.TransformerDecoder`."""
    arguments = call.arguments
    layers, batch_first = _stack_layers(state, nn.TransformerDecoderLayer, "self_attn", "multihead_attn")
    tgt = arguments["tgt"]
    batch, target, width = check_batched(tgt, "tgt", batch_first)
    source, memory_width = _read_memory(arguments["memory"], batch, batch_first)
    masks = _decoder_masks(arguments, batch, target, source)
    sizes = DecoderSizes(batch, target, source, width, memory_width, *masks)
    dims = _stack_dims(call.memo, state, layers, sizes, read_decoder_layer)
    _check_output(call.output, tgt.shape)
    return Supported(dims, batch_first)


# -- nn.Transformer --------------------------------------------------------------------------------------------------


def _check_transformer(call: ModuleCall, state: dict[str, Any]) -> Supported[TransformerDims]:
    """Check a call of `nn.Transformer`."""
    arguments = call.arguments
    modules = state["_modules"]
    encoder = check_stage(modules.get("encoder"), nn.TransformerEncoder, "encoder", "foreign_stack")
    decoder = check_stage(modules.get("decoder"), nn.TransformerDecoder, "decoder", "foreign_stack")
    encoder_layers, batch_first = _within(
        "encoder", lambda: _stack_layers(encoder, nn.TransformerEncoderLayer, "self_attn")
    )
    decoder_layers, decoder_layout = _within(
        "decoder", lambda: _stack_layers(decoder, nn.TransformerDecoderLayer, "self_attn", "multihead_attn")
    )
    if not (state["batch_first"] is batch_first is decoder_layout):
        raise Outside("mixed_layouts", "it and its stacks differ in batch_first")
    src, tgt = arguments["src"], arguments["tgt"]
    batch, source, width = check_batched(src, "src", batch_first)
    target_batch, target, target_width = check_batched(tgt, "tgt", batch_first)
    if target_batch != batch:
        raise Outside("input_shape", f"its batch is {target_batch} and that of src {batch}", "tgt")
    if not (width == target_width == state["d_model"]):
        raise Outside("mixed_widths", f"src, tgt and d_model are {width}, {target_width} and {state['d_model']} wide")
    encoder_masks = read_masks(arguments, "src_mask", "src_key_padding_mask", "src_is_causal", batch, source, source)
    _within("encoder", lambda: _check_packing(encoder, arguments["src_mask"], arguments["src_key_padding_mask"]))
    decoder_masks = _decoder_masks(arguments, batch, target, source)
    encoder_sizes = EncoderSizes(batch, source, width, encoder_masks)
    decoder_sizes = DecoderSizes(batch, target, source, width, width, *decoder_masks)
    memo = call.memo
    dims = TransformerDims(
        _within("encoder", lambda: _stack_dims(memo, encoder, encoder_layers, encoder_sizes, read_encoder_layer)),
        _within("decoder", lambda: _stack_dims(memo, decoder, decoder_layers, decoder_sizes, read_decoder_layer)),
    )
    _check_output(call.output, tgt.shape)
    return Supported(dims, batch_first)


def _within(name: str, read: Callable[[], R]) -> R:
    try:
        return read()
    except Outside as error:
        raise error.within(name) from None


check_attention = _guarded(_check_attention)
check_encoder_layer = _guarded(_check_encoder_layer)
check_decoder_layer = _guarded(_check_decoder_layer)
check_encoder = _guarded(_check_encoder)
check_decoder = _guarded(_check_decoder)
check_transformer = _guarded(_check_transformer)
