"""Logical DMAs of native Transformer calls: element reads and writes of the staged dense algorithm.

A stage reads each operand and each parameter tensor once and writes its result once. Derivations:
docs/derivations/attention.md and transformer.md.
"""

from __future__ import annotations

from torchscan_native.transformer.composition import Composition
from torchscan_native.transformer.dims import (
    AttentionDims,
    FeedForwardDims,
    NormDims,
)

__all__ = [
    "RESIDUAL_DMAS",
    "attention_dmas",
    "decoder_dmas",
    "decoder_layer_dmas",
    "encoder_dmas",
    "encoder_layer_dmas",
    "feed_forward_dmas",
    "norm_dmas",
    "transformer_dmas",
]


def attention_dmas(d: AttentionDims) -> int:
    """DMAs of one attention call. Derivation: docs/derivations/attention.md#dmas."""
    b, t, s, e = d.batch, d.target_length, d.source_length, d.embed_dim
    k, v = d.kdim, d.vdim
    q = b * t * e  # Q, elements of the projected query
    j = b * s * e  # J, elements of the projected key, and of the projected value
    a = b * d.num_heads * t * s  # A, scores
    r = b * d.num_heads * t  # R, softmax rows
    bias = e * d.input_bias
    query = b * t * e + e * e + bias + q
    key = b * s * k + k * e + bias + j
    value = b * s * v + v * e + bias + j
    scale = 2 * q
    scores = q + j + a
    masks = sum(elements + 2 * a for elements in d.masks)  # its stored entries, and a pass over the scores
    softmax = 8 * a + 4 * r
    weighted = a + j + q
    output = 2 * q + e * e + e * d.output_bias
    averaged = a + b * t * s if d.averaged_weights else 0
    return query + key + value + scale + scores + masks + softmax + weighted + output + averaged


def feed_forward_dmas(d: FeedForwardDims) -> int:
    """DMAs of a feed-forward block. Derivation: docs/derivations/transformer.md#feed-forward."""
    n = d.tokens * d.embed_dim  # N
    u = d.tokens * d.hidden  # U
    first = n + d.embed_dim * d.hidden + d.hidden * d.hidden_bias + u
    activation = 2 * u
    second = u + d.hidden * d.embed_dim + d.embed_dim * d.output_bias + n
    return first + activation + second


def norm_dmas(d: NormDims | None) -> int:
    """DMAs of a feature-only LayerNorm, 0 for none. Derivation: docs/derivations/transformer.md#normalization."""
    if d is None:
        return 0
    n, r = d.rows * d.width, d.rows
    parameters = d.width * (d.weight + d.bias)
    mean = n + r
    variance = n + r + r
    normalized = n + 2 * r + 1 + n  # the 1 is epsilon
    affine = n + parameters + n if parameters else 0
    return mean + variance + normalized + affine


#: Per element of a residual addition, two reads and a write.
#: Derivation: docs/derivations/transformer.md#residual-additions.
RESIDUAL_DMAS = 3

_COMPOSED = Composition(attention_dmas, feed_forward_dmas, norm_dmas, RESIDUAL_DMAS)
encoder_layer_dmas = _COMPOSED.encoder_layer
decoder_layer_dmas = _COMPOSED.decoder_layer
encoder_dmas = _COMPOSED.encoder
decoder_dmas = _COMPOSED.decoder
transformer_dmas = _COMPOSED.transformer
