"""Token relations of the native types: each stage's own, composed along the path that the tokens take.

Derivation and pictures: docs/explanation/token-relations.md. This module knows neither torch nor pluggy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from torchscan import ModuleCall, Output, Relation, Source, TokenDependencies
from torchscan_native.transformer.boundaries import Boundary
from torchscan_native.transformer.dims import (
    AttentionDims,
    DecoderLayerDims,
    EncoderLayerDims,
    NormDims,
    StackDims,
    TransformerDims,
)
from torchscan_native.transformer.guard import Supported
from torchscan_native.transformer.mask_values import Pattern, Refused, read_pattern

__all__ = ["attention", "decoder", "encoder", "token_dependencies"]

ALL: Final = Relation("all")
NONE: Final = Relation("none")
SAME: Final = Relation("same_position")
PREFIX: Final = Relation("prefix")


def _said(relation: Relation | None) -> Relation:
    if relation is None:
        raise Refused("inexpressible_relation")
    return relation


# -- the stages ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def attention(target: int, source: int, causal: bool) -> tuple[Relation, Relation, Relation]:
    """Return how an attention depends on its query, key and value.

    A softmax over one key is 1 whatever its score: with one source token, or in the first causal row, neither query
    nor key matters.

    Args:
        target: T, query tokens.
        source: S, key and value tokens.
        causal: row i attends to the keys up to i; otherwise to all.

    Returns:
        The canonical relations of (T, T), (T, S) and (T, S).

    """
    value = PREFIX if causal else ALL
    if source == 1:
        query = key = NONE
    elif causal:
        query, key = Relation("same_position", first_position=1), Relation("prefix", first_position=1)
    else:
        query, key = SAME, ALL
    return query.canonical(target, target), key.canonical(target, source), value.canonical(target, source)


def _mixed(target: int, source: int, causal: bool) -> tuple[Relation, Relation]:
    """Return how a residual attention block depends on its stream and on its keys-and-values.

    The stream reaches the output by the residual path and as the query; norms act on each token alone.
    """
    query, key, value = attention(target, source, causal)
    stream = _said(SAME.union(query, target, target))
    return stream, _said(key.union(value, target, source))


@functools.lru_cache(maxsize=1024)
def encoder(length: int, causal: bool, layers: int) -> Relation:
    """Return how a stack of encoder layers depends on its input.

    Feed-forward, norm and residual act on each token alone, so a layer depends on what its attention and its residual
    path do, and a stack on the layers one through another.

    Args:
        length: S, the tokens.
        causal: the attention is.
        layers: the number of layers.

    Raises:
        Refused: the relation is none of the four kinds.

    """
    stream, keys = _mixed(length, length, causal)
    layer = _said(stream.union(keys, length, length))
    relation = SAME.canonical(length, length)
    for _ in range(layers):
        before = relation
        relation = _said(layer.through(relation, length, length, length))
        if relation == before:  # so will every later layer leave it
            break
    return relation


@functools.lru_cache(maxsize=1024)
def decoder(target: int, source: int, causal: bool, memory_causal: bool, layers: int) -> tuple[Relation, Relation]:
    """Return how a stack of decoder layers depends on its target and on its memory.

    The self-attention of each layer mixes what the layers before took from the memory, so the memory relation can
    grow with the second layer.

    Args:
        target: T, target tokens.
        source: S, memory tokens.
        causal: the self-attention is.
        memory_causal: the cross-attention is.
        layers: the number of layers.

    Raises:
        Refused: a relation is none of the four kinds.

    """
    stream, keys = _mixed(target, target, causal)
    mixing = _said(stream.union(keys, target, target))
    query, reading = _mixed(target, source, memory_causal)
    step = _said(query.through(mixing, target, target, target))
    from_target, from_memory = SAME.canonical(target, target), NONE
    for _ in range(layers):
        before = from_target, from_memory
        from_target = _said(step.through(from_target, target, target, target))
        carried = _said(step.through(from_memory, target, target, source))
        from_memory = _said(carried.union(reading, target, source))
        if (from_target, from_memory) == before:
            break
    return from_target, from_memory


# -- the report object -----------------------------------------------------------------------------------------------

_GENERIC: Final = (
    "Structural: generic finite parameter and input values, without accidental cancellation or numerical underflow."
)
_OUTPUT_ONLY: Final = "The attention output alone is described, not returned attention weights."
_LOCAL: Final = (
    "Feed-forward stages, residual paths and normalization over more than one feature act on each token alone; "
    "dropout is off."
)
_IDENTITY: Final = "Arguments share a source only where they are the same tensor object."
_LATER: Final = "The {name} excludes exactly the later positions, in every batch entry and head."
_NOTHING: Final = "The {name} excludes no token."
_BIAS: Final = (
    "Finite entries of a floating mask bias the scores and exclude nothing; a fused kernel of PyTorch that reads them "
    "otherwise is not described."
)
_HINT: Final = "A causal hint only repeats what its mask says."

#: Names of one attention's mask, key padding mask and causal hint.
_Masks: TypeAlias = tuple[str, str, str]
_ATTENTION: Final = ("attn_mask", "key_padding_mask", "is_causal")
_ENCODER_LAYER: Final = ("src_mask", "src_key_padding_mask", "is_causal")
_ENCODER: Final = ("mask", "src_key_padding_mask", "is_causal")
_SOURCE: Final = ("src_mask", "src_key_padding_mask", "src_is_causal")
_TARGET: Final = ("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal")
_MEMORY: Final = ("memory_mask", "memory_key_padding_mask", "memory_is_causal")


@functools.lru_cache(maxsize=1024)
def _assumptions(local: bool, several: bool, patterns: tuple[tuple[_Masks, Pattern], ...]) -> tuple[str, ...]:
    found = [_GENERIC, _LOCAL if local else _OUTPUT_ONLY]
    if several:
        found.append(_IDENTITY)
    for (mask, padding, _), pattern in patterns:
        if pattern.masked:
            found.append((_LATER if pattern.causal else _NOTHING).format(name=mask))
        if pattern.padded:
            found.append(_NOTHING.format(name=padding))
    if any(pattern.biased for _, pattern in patterns):
        found.append(_BIAS)
    if any(pattern.hinted for _, pattern in patterns):
        found.append(_HINT)
    return tuple(found)


def _dependencies(
    call: ModuleCall,
    batch_first: bool,
    output_length: int,
    inputs: Sequence[tuple[str, int, Relation]],
    local: bool,
    patterns: tuple[tuple[_Masks, Pattern], ...],
) -> TokenDependencies:
    """Group the inputs by tensor and return the finished object.

    Args:
        call: the call; two arguments are one source where they are the same object.
        batch_first: the layout, which decides the token axis.
        output_length: T.
        inputs: argument name, length and relation of each input, in signature order.
        local: there are stages around the attention.
        patterns: what each attention's masks do.

    """
    arguments = call.arguments
    groups: list[int] = []
    for name, _, _ in inputs:
        tensor = arguments[name]
        groups.append(next(i for i, (other, _, _) in enumerate(inputs) if arguments[other] is tensor))
    assumptions = _assumptions(local, len(inputs) > 1, patterns)
    return _finished(1 if batch_first else 0, output_length, tuple(inputs), tuple(groups), assumptions)


@functools.lru_cache(maxsize=1024)
def _finished(
    axis: int,
    output_length: int,
    inputs: tuple[tuple[str, int, Relation], ...],
    groups: tuple[int, ...],
    assumptions: tuple[str, ...],
) -> TokenDependencies:
    sources = []
    for group in dict.fromkeys(groups):
        members = [entry for entry, its_group in zip(inputs, groups, strict=True) if its_group == group]
        length = members[0][1]
        relation = NONE
        for _, _, other in members:
            relation = _said(relation.union(other, output_length, length))
        sources.append(Source(tuple(name for name, _, _ in members), axis, length, relation))
    return TokenDependencies("complete", tuple(sources), Output(axis, output_length), assumptions)


# -- the six types ---------------------------------------------------------------------------------------------------


def _of_attention(call: ModuleCall, dims: AttentionDims, batch_first: bool) -> TokenDependencies:
    target, source = dims.target_length, dims.source_length
    pattern = read_pattern(call, *_ATTENTION)
    query, key, value = attention(target, source, pattern.causal)
    inputs = (("query", target, query), ("key", source, key), ("value", source, value))
    return _dependencies(call, batch_first, target, inputs, False, ((_ATTENTION, pattern),))


def _of_encoder(
    call: ModuleCall, batch_first: bool, masks: _Masks, layers: Sequence[EncoderLayerDims]
) -> TokenDependencies:
    length = layers[0].self_attention.target_length
    pattern = read_pattern(call, *masks)
    inputs = (("src", length, encoder(length, pattern.causal, len(layers))),)
    return _dependencies(call, batch_first, length, inputs, True, ((masks, pattern),))


def _of_decoder(call: ModuleCall, batch_first: bool, layers: Sequence[DecoderLayerDims]) -> TokenDependencies:
    cross = layers[0].cross_attention
    target, source = cross.target_length, cross.source_length
    own, memory = read_pattern(call, *_TARGET), read_pattern(call, *_MEMORY)
    from_target, from_memory = decoder(target, source, own.causal, memory.causal, len(layers))
    inputs = (("tgt", target, from_target), ("memory", source, from_memory))
    return _dependencies(call, batch_first, target, inputs, True, ((_TARGET, own), (_MEMORY, memory)))


def _of_transformer(call: ModuleCall, dims: TransformerDims, batch_first: bool) -> TokenDependencies:
    cross = dims.decoder.layers[0].cross_attention
    target, source = cross.target_length, cross.source_length
    encoding = read_pattern(call, *_SOURCE)
    own, memory = read_pattern(call, *_TARGET), read_pattern(call, *_MEMORY)
    from_target, from_memory = decoder(target, source, own.causal, memory.causal, len(dims.decoder.layers))
    encoded = encoder(source, encoding.causal, len(dims.encoder.layers))
    from_source = _said(from_memory.through(encoded, target, source, source))
    inputs = (("src", source, from_source), ("tgt", target, from_target))
    patterns = ((_SOURCE, encoding), (_TARGET, own), (_MEMORY, memory))
    return _dependencies(call, batch_first, target, inputs, True, patterns)


def _check_norms(dims: Any, where: str = "") -> None:
    """Refuse a LayerNorm over a single feature, whose output is constant.

    Raises:
        Refused: there is one.

    """
    if isinstance(dims, TransformerDims):
        _check_norms(dims.encoder, "encoder.")
        _check_norms(dims.decoder, "decoder.")
    elif isinstance(dims, StackDims):
        for index, layer in enumerate(dims.layers):
            _check_norms(layer, f"{where}layers.{index}.")
        _check_norm(dims.norm, f"{where}norm")
    elif isinstance(dims, EncoderLayerDims | DecoderLayerDims):
        for index, norm in enumerate(dims.norms, start=1):
            _check_norm(norm, f"{where}norm{index}")


def _check_norm(norm: NormDims | None, where: str) -> None:
    if norm is not None and norm.width == 1:
        raise Refused("width_one_norm", where)


def _width(dims: Any) -> int:
    while not isinstance(dims, AttentionDims):
        if isinstance(dims, TransformerDims):
            dims = dims.encoder
        dims = dims.layers[0] if isinstance(dims, StackDims) else dims.self_attention
    return dims.embed_dim


def token_dependencies(call: ModuleCall, plan: Supported[Any] | Boundary) -> TokenDependencies:
    """Return the token dependencies of one call to a native Transformer type.

    Args:
        call: the call. Of its tensors, only the masks are read.
        plan: what the guard of its type found.

    Returns:
        The relations of its main output to each distinct input tensor; unavailable, with a reason of its own, where
        the guard found a boundary or the masks are outside the relation model.

    """
    if isinstance(plan, Boundary):
        return TokenDependencies.unavailable(plan.reason, plan.message)
    dims, batch_first = plan.dims, plan.batch_first
    try:
        if isinstance(dims, AttentionDims):
            return _of_attention(call, dims, batch_first)
        if _width(dims) == 1:
            _check_norms(dims)
        if isinstance(dims, EncoderLayerDims):
            return _of_encoder(call, batch_first, _ENCODER_LAYER, (dims,))
        if isinstance(dims, DecoderLayerDims):
            return _of_decoder(call, batch_first, (dims,))
        if isinstance(dims, TransformerDims):
            return _of_transformer(call, dims, batch_first)
        if isinstance(dims.layers[0], EncoderLayerDims):
            return _of_encoder(call, batch_first, _ENCODER, dims.layers)
        return _of_decoder(call, batch_first, dims.layers)
    except Refused as error:
        return TokenDependencies.unavailable(error.reason, error.message)
