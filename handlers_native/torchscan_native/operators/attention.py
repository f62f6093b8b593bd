"""Fused attention. Derivation: docs/derivations/functional-operators.md#fused-attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas.activation import FLOPS_PER_ELEMENT
from torchscan_native.layers.formulas.rules import dot
from torchscan_native.layers.formulas.softmax import softmax
from torchscan_native.operators.shapes import NotCovered, Shape, Work, numel, offer
from torchscan_native.transformer import dmas, flops, macs
from torchscan_native.transformer.dims import AttentionDims, EncoderLayerDims, FeedForwardDims, NormDims

__all__ = ["formulas"]

#: What PyTorch's own formulas of fused attention leave out.
_GAP = "PyTorch's formula counts the two matrix products and leaves out scaling, masks and the softmax"
_BACKWARD_GAP = "the formula counts the five matrix products and leaves out scaling, masks and the softmax"
_LENGTHS_GAP = "the formula takes the longest of several packed sequences for all of them, and leaves out the softmax"


def scaled_dot_product(
    query: Shape,
    key: Shape,
    value: Shape,
    *,
    mask: Shape | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Work:
    """Count `softmax(scale q k^T + mask) v`, operator by operator as the unfused path runs it.

    Derivation: docs/derivations/functional-operators.md#scaled-dot-product. The same call costs the same whichever
    path PyTorch takes.

    Args:
        query: (batch, heads, T, D).
        key: (batch, key heads, S, D); every key head serves `heads / key heads` query heads.
        value: (batch, key heads, S, Dv).
        mask: an additive or boolean mask, as stored.
        dropout_p: above 0 the call is a training call, and only its MACs are known.
        is_causal: the triangular mask that PyTorch makes by itself.

    """
    *batch, heads, t, d = query
    s, dv = key[-2], value[-1]
    count = math.prod(batch) * heads
    q, k, v = count * t * d, count * s * d, count * s * dv  # key and value heads repeated for their query heads
    scores, rows, outputs = count * t * s, count * t, count * t * dv
    if rows and not s:
        raise NotCovered("an empty attention axis")
    attended = softmax(scores, rows)

    scaling = q + k  # both operands are scaled by the square root
    scaling_accesses = 2 * q + 2 * k
    masking = masking_accesses = 0
    if mask is not None:
        masking += scores
        masking_accesses += numel(mask) + 2 * scores
    if is_causal:
        cells = t * s
        masking += cells + scores  # select minus infinity or zero; add
        # The triangle of truth values is index work; then selection and add.
        masking_accesses += (cells + 2 + cells) + (cells + 2 * scores)
    terms = scores * d + outputs * s
    executed = scaling + 2 * terms + masking + attended.flops
    if dropout_p:
        return Work(None, terms, None, executed=executed + 2 * scores)
    return Work(
        scaling + scores * dot(d) + masking + attended.flops + outputs * dot(s),
        terms,
        scaling_accesses + (q + k + scores) + masking_accesses + attended.dmas + (scores + v + outputs),
        executed=executed,
    )


def flash_for_cpu(
    query: Shape,
    key: Shape,
    value: Shape,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Shape | None = None,
    **kwargs: Any,
) -> Work:
    """Count the fused operator of the CPU."""
    return scaled_dot_product(query, key, value, mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal)


def flash(
    query: Shape,
    key: Shape,
    value: Shape,
    dropout_p: Any = 0.0,
    is_causal: bool = False,
    *args: Any,
    scale: float | None = None,
    **kwargs: Any,
) -> Work:
    """Count flash attention of CUDA; its quantized overload has descaling factors where the others have the dropout.

    PyTorch pads heads to a multiple of 8 elements before it calls this operator, and passes the scale of the width
    they had.
    """
    if dropout_p is None or isinstance(dropout_p, tuple):
        raise NotCovered("quantized operands")
    width = _width_before_padding(query[-1], scale)
    query, key = (*query[:-1], width), (*key[:-1], width)
    if value[-1] - width in range(8):
        value = (*value[:-1], width)
    return scaled_dot_product(query, key, value, dropout_p=dropout_p, is_causal=is_causal)


def _width_before_padding(width: int, scale: float | None) -> int:
    if width % 8 or not scale or not math.isfinite(scale) or scale < 0:
        return width
    named = round(scale**-2)
    if not width - 8 < named < width or not math.isclose(scale, named**-0.5, rel_tol=1e-6):
        return width
    if width == 8:  # a scale such as 1 or a half is as likely to be a caller's own
        raise NotCovered("a head of at most 8 elements that may have been padded")
    return named


def efficient(
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count memory-efficient and cuDNN attention."""
    return scaled_dot_product(query, key, value, mask=attn_bias, dropout_p=dropout_p, is_causal=is_causal)


def overrideable(
    query: Shape,
    key: Shape,
    value: Shape,
    attn_bias: Shape | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count the form that other backends and Metal implement."""
    return scaled_dot_product(query, key, value, mask=attn_bias, dropout_p=dropout_p, is_causal=is_causal)


def scaled_dot_product_backward(
    grad_out: Shape, query: Shape, key: Shape, value: Shape, *args: Any, **kwargs: Any
) -> Work:
    """Count the five products of the backward pass, for the operator view alone.

    The scores are computed again; then the gradients of the value, the probabilities, the query and the key.
    """
    *batch, heads, t, d = query
    scores = math.prod(batch) * heads * t * key[-2]
    again = d
    value_gradient = probability_gradient = value[-1]
    query_gradient = key_gradient = d
    terms = again + value_gradient + probability_gradient + query_gradient + key_gradient
    return Work(None, None, None, executed=2 * scores * terms)


def _attention(query: Shape, embed_dim: int, num_heads: int, mask: Shape | None, *, averaged: bool) -> AttentionDims:
    batch, length, _ = query
    return AttentionDims(
        batch=batch,
        target_length=length,
        source_length=length,
        embed_dim=embed_dim,
        num_heads=num_heads,
        kdim=embed_dim,
        vdim=embed_dim,
        input_bias=1,
        output_bias=1,
        masks=() if mask is None else (numel(mask),),
        averaged_weights=averaged,
    )


def _attention_executed(d: AttentionDims) -> int:
    """FLOPs of the operator view: `2 K` for a dot product, and what `attention_flops` counts beside those."""
    scores = d.batch * d.num_heads * d.target_length * d.source_length
    rows = d.batch * d.num_heads * d.target_length
    scale = d.batch * d.target_length * d.embed_dim
    masks = scores * len(d.masks)
    averaged = scores if d.averaged_weights else 0
    return 2 * macs.attention_macs(d) + scale + masks + softmax(scores, rows).flops + averaged


def multi_head(
    query: Shape,
    key: Shape,
    value: Shape,
    embed_dim: int,
    num_head: int,
    qkv_weight: Shape,
    qkv_bias: Shape,
    proj_weight: Shape,
    proj_bias: Shape,
    mask: Shape | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
    **kwargs: Any,
) -> Work:
    """Count the fast path of multi-head self-attention. Derivation: docs/derivations/attention.md."""
    if not query == key == value:
        raise NotCovered("attention between different sequences")
    d = _attention(query, embed_dim, num_head, mask, averaged=need_weights and average_attn_weights)
    return Work(
        flops.attention_flops(d), macs.attention_macs(d), dmas.attention_dmas(d), executed=_attention_executed(d)
    )


def encoder_layer(
    src: Shape,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Shape,
    qkv_bias: Shape,
    proj_weight: Shape,
    proj_bias: Shape,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Shape,
    norm_bias_1: Shape,
    norm_weight_2: Shape,
    norm_bias_2: Shape,
    ffn_weight_1: Shape,
    ffn_bias_1: Shape,
    ffn_weight_2: Shape,
    ffn_bias_2: Shape,
    mask: Shape | None = None,
    mask_type: int | None = None,
    **kwargs: Any,
) -> Work:
    """Count the fast path of an encoder layer. Derivation: docs/derivations/transformer.md#encoder-layer.

    With GELU the module FLOPs are not defined, and the operator view counts it like the operator.
    """
    tokens = src[0] * src[1]
    hidden = ffn_weight_1[0]
    norm = NormDims(tokens, embed_dim, 1, 1)
    d = EncoderLayerDims(
        _attention(src, embed_dim, num_heads, mask, averaged=False),
        FeedForwardDims(tokens, embed_dim, hidden, 1, 1, "gelu" if use_gelu else "relu"),
        (norm, norm),
    )
    activation = tokens * hidden * FLOPS_PER_ELEMENT["GELU" if use_gelu else "ReLU"]
    executed = (
        _attention_executed(d.self_attention)
        + 2 * macs.feed_forward_macs(d.feed_forward)
        + activation
        + sum(map(flops.norm_flops, d.norms))
        + 2 * flops.RESIDUAL_FLOPS * tokens * embed_dim
    )
    return Work(
        None if use_gelu else flops.encoder_layer_flops(d),
        macs.encoder_layer_macs(d),
        dmas.encoder_layer_dmas(d),
        executed=executed,
    )


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of fused attention."""
    yield from offer("_scaled_dot_product_flash_attention_for_cpu", "contraction", flash_for_cpu)
    yield from offer("_scaled_dot_product_flash_attention", "contraction", flash, known_gap=_GAP)
    yield from offer(
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention",
        "contraction",
        efficient,
        known_gap=_GAP,
    )
    yield from offer(
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps",
        "contraction",
        overrideable,
    )
    yield from offer(
        "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward",
        "contraction",
        scaled_dot_product_backward,
        estimate=False,
        known_gap=_BACKWARD_GAP,
    )
    yield from offer(
        "_flash_attention_forward _flash_attention_backward _efficient_attention_forward _efficient_attention_backward",
        "contraction",
        known_gap=_LENGTHS_GAP,
    )
    yield from offer("_native_multi_head_attention", "contraction", multi_head)
    yield from offer("_transformer_encoder_layer_fwd", "contraction", encoder_layer)
