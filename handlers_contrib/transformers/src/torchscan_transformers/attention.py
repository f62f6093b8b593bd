"""Attention: the facts of one call, read from its arguments, and the integers of its formula."""

from __future__ import annotations

from typing import Any

import attrs

import torchscan
from torchscan_transformers.arguments import argument
from torchscan_transformers.formulas import NOTHING, AttentionDims, Counts, attention
from torchscan_transformers.guard import Unsupported, token_features
from torchscan_transformers.sources import resolve

REGISTRY = "transformers.modeling_utils:ALL_ATTENTION_FUNCTIONS"
SDPA = "transformers.integrations.sdpa_attention:sdpa_attention_forward"
_CACHES = "transformers.cache_utils"


@attrs.frozen(eq=False, kw_only=True)
class Facts:
    """What the formulas and the token relation need to know of one attention call.

    Attributes:
        queries: the features the queries come from.
        memory: the features keys and values come from in cross-attention, else `None`.
        mask: the explicit mask, or `None`.
        cache: the key-value cache, or `None`.
        weights: the returned attention weights, or `None` where the implementation has none.
        heads: query heads.
        key_heads: key and value heads.
        head_dim: the width of one head.
        bias: the position bias added to the scores, or `None`.
        rotary: the cosine table of rotary position embeddings, or `None`.

    """

    queries: Any
    memory: Any = None
    mask: Any
    cache: Any
    weights: Any
    heads: int
    key_heads: int
    head_dim: int
    bias: Any = None
    rotary: Any = None


def configured(call: torchscan.ModuleCall, module: Any, name: str) -> Any:
    """Return a field of a module's configuration; the library looks one up slowly, so it is asked once a scan."""
    fields: dict[tuple[int, str], Any] = call.memo.setdefault("torchscan_transformers.configured", {})
    key = (id(module), name)
    if key not in fields:
        fields[key] = getattr(module.config, name)
    return fields[key]


def implementation(call: torchscan.ModuleCall, module: Any) -> str:
    """Return `eager` or `sdpa`, the attention function that an attention module dispatches to.

    Args:
        call: the call of the module, or of a layer or model around it.
        module: the module whose configuration says it.

    Raises:
        Unsupported: it is another one, or one of these names was given another function.

    """
    name: Any = configured(call, module, "_attn_implementation")
    known: dict[Any, bool] = call.memo.setdefault("torchscan_transformers.implementation", {})
    if name not in known:
        registered = resolve(REGISTRY).get(name) if name in ("eager", "sdpa") else None
        known[name] = registered is (resolve(SDPA) if name == "sdpa" else None) and name in ("eager", "sdpa")
    if known[name]:
        return str(name)
    raise Unsupported(
        "attention_implementation",
        f"no formula for the attention implementation {name!r}; load the model with attn_implementation='eager' or "
        "'sdpa'",
    )


def is_causal(call: torchscan.ModuleCall, module: Any) -> bool:
    """Say whether the SDPA of an attention module masks causally when it gets no mask.

    Args:
        call: the call of the module, or of a layer around it.
        module: the attention module.

    """
    hint = call.kwargs.get("is_causal")
    return bool(module.is_causal if hint is None else hint)


def source_length(call: torchscan.ModuleCall, facts: Facts, name: str) -> int:
    """Return S, the number of keys of a call: its own, and those that its cache already held.

    Raises:
        Unsupported: the cache is of a kind whose lengths are not known here.

    """
    target: int = facts.queries.shape[1]
    if facts.weights is not None:
        return int(facts.weights.shape[-1])
    new: int = target if facts.memory is None else facts.memory.shape[1]
    length: int | None = new
    module: Any = call.module
    if facts.cache is not None:
        length = cached_length(facts.cache, module.layer_idx, new, cross=facts.memory is not None)
    if length is None:
        # An explicit mask spans the keys.
        if facts.mask is None or facts.mask.shape[-1] == 1:
            raise Unsupported(
                "unknown_cache", f"the lengths of a {type(facts.cache).__name__} are not known; use a DynamicCache"
            )
        length = int(facts.mask.shape[-1])
    if name == "sdpa" and facts.mask is None and 1 < target < length and is_causal(call, module):
        return target  # keys beyond the last query are cut off before the product
    return length


def cached_length(cache: Any, layer_idx: int, new: int, *, cross: bool) -> int | None:
    """Return S, read from the cache after the call.

    Args:
        cache: the cache of the whole model.
        layer_idx: the layer.
        new: the number of keys that the call itself brought.
        cross: whether it is cross-attention.

    Returns:
        The number of keys, or `None` for an unknown kind of cache.

    """
    if _cache_kind(cache) == "EncoderDecoderCache":
        cache = cache.cross_attention_cache if cross else cache.self_attention_cache
    if _cache_kind(cache) not in ("DynamicCache", "StaticCache"):
        return None
    layer = cache.layers[layer_idx]
    kind = _cache_kind(layer)
    if kind in ("DynamicLayer", "StaticLayer"):
        return int(layer.keys.shape[-2])
    if kind == "DynamicSlidingWindowLayer" and not layer.record_past:
        # The layer keeps the last window - 1 keys, and attends to those and the new ones.
        return int(min(layer.cumulative_length - new, layer.sliding_window - 1) + new)
    return None


def _cache_kind(cache: Any) -> str:
    """Return the name of the library's class of a cache or one of its layers, `""` for a class of anybody else."""
    kind = type(cache)
    return kind.__name__ if kind is resolve(f"{_CACHES}:{kind.__name__}") else ""


def dims(call: torchscan.ModuleCall, facts: Facts) -> AttentionDims:
    """Return the integers of one attention call.

    Raises:
        Unsupported: the call is outside the formula.

    """
    name = implementation(call, call.module)
    batch, target, _ = token_features(facts.queries)
    if facts.memory is not None and token_features(facts.memory)[0] != batch:
        raise Unsupported("unsupported_shape", "queries and keys differ in batch size")
    for argument_name in ("head_mask", "layer_head_mask", "position_bias"):
        if call.kwargs.get(argument_name) is not None and facts.bias is None:
            raise Unsupported(argument_name, f"an attention call with {argument_name}= has no formula")
    if facts.mask is not None and getattr(facts.mask, "ndim", None) != 4:
        raise Unsupported("mask_shape", "an explicit mask must have the shape (batch, heads, queries, keys)")
    source = source_length(call, facts, name)
    if facts.weights is not None and tuple(facts.weights.shape) != (batch, facts.heads, target, source):
        raise Unsupported(
            "unexpected_heads",
            f"the weights have the shape {tuple(facts.weights.shape)}, expected {(batch, facts.heads, target, source)}",
        )
    if not target or not source:
        raise Unsupported("empty_attention", "attention over no tokens has no defined count")
    added = [tensor.numel() for tensor in (facts.bias, facts.mask) if tensor is not None]
    return AttentionDims(
        batch=batch,
        heads=facts.heads,
        key_heads=facts.key_heads,
        target_length=target,
        source_length=source,
        head_dim=facts.head_dim,
        masks=tuple(added),
        rotary=None if facts.rotary is None else facts.rotary.numel(),
    )


def counts(call: torchscan.ModuleCall, facts: Facts) -> Counts:
    """Return what the own body of one attention call costs.

    Raises:
        Unsupported: the call is outside the formula.

    """
    sizes = dims(call, facts)
    return attention(sizes) if sizes.batch else NOTHING


def _width(module: Any, projection: Any, expected: int) -> None:
    """Refuse a projection of another width than the configuration says: heads were split over devices or pruned.

    Raises:
        Unsupported: it has another width.

    """
    width = getattr(projection, "out_features", None) or getattr(projection, "nf", expected)
    if width != expected:
        raise Unsupported(
            "unexpected_heads", f"a projection of {type(module).__name__} is {width} wide, expected {expected}"
        )


def llama_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a LLaMA, Mistral or Qwen2 attention call: grouped keys, rotary positions."""
    module: Any = call.module
    heads: int = configured(call, module, "num_attention_heads")
    _width(module, module.q_proj, heads * module.head_dim)
    return Facts(
        queries=argument(call, "hidden_states"),
        mask=argument(call, "attention_mask"),
        cache=argument(call, "cache", "past_key_values"),
        weights=call.output[1],
        heads=heads,
        key_heads=heads // module.num_key_value_groups,
        head_dim=module.head_dim,
        rotary=argument(call, "position_embeddings")[0],
    )


def gpt2_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a GPT-2 attention call; cross-attention has a mask of its own."""
    module: Any = call.module
    memory = argument(call, "encoder_hidden_states")
    _width(module, module.c_proj, module.num_heads * module.head_dim)
    return Facts(
        queries=argument(call, "hidden_states"),
        memory=memory,
        mask=argument(call, "attention_mask" if memory is None else "encoder_attention_mask"),
        cache=argument(call, "cache", "past_key_values"),
        weights=call.output[1],
        heads=module.num_heads,
        key_heads=module.num_heads,
        head_dim=module.head_dim,
    )


def bert_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a BERT self-attention call."""
    return _bert(call, None)


def bert_cross_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a BERT cross-attention call."""
    return _bert(call, argument(call, "encoder_hidden_states"))


def _bert(call: torchscan.ModuleCall, memory: Any) -> Facts:
    module: Any = call.module
    _width(module, module.query, module.num_attention_heads * module.attention_head_size)
    return Facts(
        queries=argument(call, "hidden_states"),
        memory=memory,
        mask=argument(call, "attention_mask"),
        cache=argument(call, "cache", "past_key_values"),
        weights=call.output[1],
        heads=module.num_attention_heads,
        key_heads=module.num_attention_heads,
        head_dim=module.attention_head_size,
    )


def t5_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a T5 attention call: the relative position bias, zeros included, is added to the scores."""
    module: Any = call.module
    _width(module, module.q, module.n_heads * module.key_value_proj_dim)
    return Facts(
        queries=argument(call, "hidden_states"),
        memory=argument(call, "key_value_states"),
        mask=argument(call, "mask"),
        cache=argument(call, "cache", "past_key_values"),
        weights=call.output[2],
        heads=module.n_heads,
        key_heads=module.n_heads,
        head_dim=module.key_value_proj_dim,
        bias=call.output[1],
    )


def vit_facts(call: torchscan.ModuleCall) -> Facts:
    """Read a ViT attention call."""
    module: Any = call.module
    _width(module, module.q_proj, module.num_attention_heads * module.head_dim)
    return Facts(
        queries=argument(call, "hidden_states"),
        mask=argument(call, "attention_mask"),
        cache=None,
        weights=call.output[1],
        heads=module.num_attention_heads,
        key_heads=module.num_attention_heads,
        head_dim=module.head_dim,
    )
