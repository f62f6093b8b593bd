"""Module FLOPs of native Transformer calls: scalar operations of the staged dense algorithm.

Defined for ReLU; `uses_gelu` says where they are not. A dot product of n terms is n products and n - 1 sums; a bias is
one more sum. Derivations: docs/derivations/attention.md and transformer.md.
"""

from __future__ import annotations

from torchscan_native.transformer.composition import Composition
from torchscan_native.transformer.dims import (
    AttentionDims,
    Dims,
    FeedForwardDims,
    NormDims,
    StackDims,
    TransformerDims,
)

__all__ = [
    "RESIDUAL_FLOPS",
    "attention_flops",
    "decoder_flops",
    "decoder_layer_flops",
    "encoder_flops",
    "encoder_layer_flops",
    "feed_forward_flops",
    "norm_flops",
    "transformer_flops",
    "uses_gelu",
]


def uses_gelu(d: Dims) -> bool:
    """Return whether a feed-forward block has GELU, where native module FLOPs are not defined."""
    if isinstance(d, AttentionDims):
        return False
    if isinstance(d, TransformerDims):
        return uses_gelu(d.encoder) or uses_gelu(d.decoder)
    if isinstance(d, StackDims):
        return any(layer.feed_forward.activation == "gelu" for layer in d.layers)
    return d.feed_forward.activation == "gelu"


def attention_flops(d: AttentionDims) -> int:
    """FLOPs of one attention call. Derivation: docs/derivations/attention.md#module-flops."""
    b, t, s, e = d.batch, d.target_length, d.source_length, d.embed_dim
    q = b * t * e  # Q, elements of the projected query
    j = b * s * e  # J, elements of the projected key, and of the projected value
    a = b * d.num_heads * t * s  # A, scores
    r = b * d.num_heads * t  # R, softmax rows
    head_dim = e // d.num_heads  # D
    query = q * (2 * e - 1 + d.input_bias)
    key = j * (2 * d.kdim - 1 + d.input_bias)
    value = j * (2 * d.vdim - 1 + d.input_bias)
    scale = q
    scores = a * (2 * head_dim - 1)
    masks = a * len(d.masks)
    softmax = 5 * a - 2 * r
    weighted = q * (2 * s - 1)
    output = q * (2 * e - 1 + d.output_bias)
    averaged = a if d.averaged_weights else 0
    return query + key + value + scale + scores + masks + softmax + weighted + output + averaged


def feed_forward_flops(d: FeedForwardDims) -> int:
    """FLOPs of a ReLU feed-forward block. Derivation: docs/derivations/transformer.md#feed-forward."""
    n = d.tokens * d.embed_dim  # N
    u = d.tokens * d.hidden  # U
    first = u * (2 * d.embed_dim - 1 + d.hidden_bias)
    activation = u
    second = n * (2 * d.hidden - 1 + d.output_bias)
    return first + activation + second


def norm_flops(d: NormDims | None) -> int:
    """FLOPs of a feature-only LayerNorm, 0 for none. Derivation: docs/derivations/transformer.md#normalization."""
    if d is None:
        return 0
    n, r = d.rows * d.width, d.rows
    mean = n  # N - r sums and r divisions
    variance = 3 * n  # differences, squares, N - r sums and r divisions
    deviation = 2 * r  # epsilon and square root
    normalized = 2 * n  # difference and division
    affine = n * (d.weight + d.bias)
    return mean + variance + deviation + normalized + affine


#: Per element of a residual addition, one sum.
#: Derivation: docs/derivations/transformer.md#residual-additions.
RESIDUAL_FLOPS = 1

_COMPOSED = Composition(attention_flops, feed_forward_flops, norm_flops, RESIDUAL_FLOPS)
encoder_layer_flops = _COMPOSED.encoder_layer
decoder_layer_flops = _COMPOSED.decoder_layer
encoder_flops = _COMPOSED.encoder
decoder_flops = _COMPOSED.decoder
transformer_flops = _COMPOSED.transformer
