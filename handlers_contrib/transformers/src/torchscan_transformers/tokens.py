"""Token relations of attention, of the layers around it, and of whole models.

A relation says which tokens of an argument may affect which tokens of the output. Masks and position embeddings are
constants of the call, not tokens.
"""

from __future__ import annotations

import functools
from typing import Any

import torchscan
from torchscan_transformers import masks
from torchscan_transformers.arguments import argument
from torchscan_transformers.attention import Facts, cached_length, implementation, is_causal, source_length
from torchscan_transformers.guard import Unsupported, token_features
from torchscan_transformers.parts import require_known

ASSUMPTIONS = (
    "masks and position embeddings are constants of the call",
    "parameters and inputs are generic and finite, without accidental cancellation or underflow",
)
EXCLUSION = "the smallest finite number of a floating-point mask excludes, as the library means it"
ALL, PREFIX = torchscan.Relation("all"), torchscan.Relation("prefix")


@functools.lru_cache(maxsize=4096)
def _dependencies(
    length: int, *sources: tuple[tuple[str, ...], int, torchscan.Relation], masked: bool = False
) -> torchscan.TokenDependencies:
    """Return the relation of an output of some tokens to sources of (arguments, length, relation), tokens on axis 1."""
    return torchscan.TokenDependencies(
        status="complete",
        sources=tuple(torchscan.Source(names, 1, source_length, found) for names, source_length, found in sources),
        output=torchscan.Output(1, length),
        assumptions=(*ASSUMPTIONS, EXCLUSION) if masked else ASSUMPTIONS,
    ).canonical()


def attention(call: torchscan.ModuleCall, facts: Facts, memory_name: str) -> torchscan.TokenDependencies:
    """Return the relation of one attention call.

    Args:
        call: the call.
        facts: what was read from it.
        memory_name: the argument that keys and values come from in cross-attention.

    Raises:
        Unsupported: a mask outside the relation model, or tokens that only a cache holds.

    """
    name = implementation(call, call.module)
    target = token_features(facts.queries)[1]
    source = source_length(call, facts, name)
    if facts.memory is None:
        _require_no_past(source, target)
    if facts.memory is not None and facts.cache is not None:
        raise Unsupported(
            "cached_memory", "whether keys come from this call or from the cache is not known; pass use_cache=False"
        )
    causal = _causal(call, call.module, facts.mask, name, target, source)
    kind = PREFIX if causal else ALL
    masked = facts.mask is not None
    if facts.memory is None:
        return _dependencies(target, (("hidden_states",), target, kind), masked=masked)
    # A softmax over one key is constant: the queries affect nothing, in the first causal row too.
    if source == 1:
        query = torchscan.Relation("none")
    else:
        query = torchscan.Relation("same_position", first_position=1 if causal and target > 1 else None)
    if facts.memory is facts.queries:
        both = query.union(kind, target, source)
        if both is None:
            raise Unsupported("irregular_union", "queries and keys together have no relation of the known kinds")
        return _dependencies(target, (("hidden_states", memory_name), target, both), masked=masked)
    return _dependencies(
        target,
        (("hidden_states",), target, query),
        ((memory_name,), int(facts.memory.shape[1]), kind),
        masked=masked,
    )


def _require_no_past(source: int | None, target: int) -> None:
    """Accept self-attention to the tokens of the call alone.

    Args:
        source: S, the number of keys; `None` where it is not known.
        target: T, the number of tokens of the call.

    Raises:
        Unsupported: there are other keys.

    """
    if source != target:
        raise Unsupported(
            "past_tokens", "the output also depends on tokens of earlier calls, which only the cache holds"
        )


def _causal(call: torchscan.ModuleCall, module: Any, mask: Any, name: str, target: int, source: int) -> bool:
    """Say whether attention is causal; otherwise it is full.

    Raises:
        Unsupported: it is neither.

    """
    if mask is None:
        return name == "sdpa" and target > 1 and is_causal(call, module)
    return masks.allowed(mask, masks.values_of(call, mask), target, source, additive=name == "eager") == "causal"


def layer(call: torchscan.ModuleCall, attention_path: str) -> torchscan.TokenDependencies:
    """Return the relation of a layer of self-attention and token-local parts: norms, feed-forward, residuals.

    Args:
        call: the call of the layer.
        attention_path: where the layer keeps its attention, dotted.

    Raises:
        Unsupported: a part is not the library's own, or the attention has no relation.

    """
    hidden = argument(call, "hidden_states")
    _, length, width = token_features(hidden)
    if width == 1:
        raise Unsupported("width_one_norm", "a norm of one feature is constant")
    if argument(call, "encoder_hidden_states") is not None:
        raise Unsupported("cross_attention_layer", "a layer with cross-attention has no relation here; its parts do")
    require_known(call)
    module: Any = call.module
    for part in attention_path.split("."):
        module = getattr(module, part)
    name = implementation(call, module)
    cache = argument(call, "cache", "past_key_values")
    if cache is not None:
        _require_no_past(cached_length(cache, module.layer_idx, length, cross=False), length)
    mask = argument(call, "attention_mask")
    causal = _causal(call, module, mask, name, length, length)
    kind = PREFIX if causal else ALL
    return _dependencies(length, (("hidden_states",), length, kind), masked=mask is not None)


def model(call: torchscan.ModuleCall, *, causal: bool, output: str) -> torchscan.TokenDependencies:
    """Return the relation of a whole model on its input tokens.

    Args:
        call: the call of the model, or of a model with a token-local head.
        causal: whether its own masks are causal; otherwise they are full.
        output: the field of the result that holds the main output.

    Raises:
        Unsupported: a part is not the library's own, the caller's mask excludes more, or tokens come from a cache.

    """
    config: Any = call.module.config
    require_known(call)
    implementation(call, call.module)
    if config.hidden_size == 1:
        raise Unsupported("width_one_norm", "a norm of one feature is constant")
    if causal and not getattr(config, "is_causal", True):
        raise Unsupported("bidirectional", "a decoder whose configuration says is_causal=False has no relation here")
    if argument(call, "encoder_hidden_states") is not None:
        raise Unsupported("cross_attention_layer", "a model with cross-attention has no relation here; its parts do")
    if argument(call, "labels") is not None:
        raise Unsupported("loss", "the main output is a loss and has no token axis; scan without labels=")
    names = [name for name in ("input_ids", "inputs_embeds") if argument(call, name) is not None]
    tokens = argument(call, names[0])
    length = int(tokens.shape[1])
    result = getattr(call.output, output, None)
    result = call.output[0] if result is None else result
    if tuple(result.shape[:2]) != tuple(tokens.shape[:2]):
        raise Unsupported("sliced_output", "the output has other tokens than the input; pass logits_to_keep=0")
    cache = argument(call, "cache", "past_key_values")
    if cache is not None:
        _require_no_past(cached_length(cache, 0, length, cross=False), length)
    if length > (_window(config) or length):
        raise Unsupported("sliding_window", "a sliding window shorter than the input has no relation")
    mask = argument(call, "attention_mask")
    if mask is None:
        if argument(call, "position_ids") is not None and causal:
            raise Unsupported("packed_sequences", "position_ids without a mask may pack several sequences into one")
    else:
        _require_no_padding(call, mask)
    if (kinds := argument(call, "token_type_ids")) is not None and kinds is not tokens:
        names.append("token_type_ids")
    kind = PREFIX if causal else ALL
    return _dependencies(length, *(((name,), length, kind) for name in names))


def _window(config: Any) -> int | None:
    """Return the sliding window of a model, `None` where it has none."""
    if getattr(config, "layer_types", None) is not None and "sliding_attention" not in config.layer_types:
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _require_no_padding(call: torchscan.ModuleCall, mask: Any) -> None:
    """Accept a 2-D mask of ones.

    Raises:
        Unsupported: it is another mask.

    """
    if getattr(mask, "ndim", None) != 2:
        raise Unsupported(
            "mask_shape", "only a 2-D padding mask is read at the level of a model; its layers read others"
        )
    if not bool(masks.values_of(call, mask).all()):
        raise Unsupported("padding", "the mask excludes padding tokens")
