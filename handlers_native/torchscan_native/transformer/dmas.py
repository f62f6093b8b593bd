"""Logical DMAs of native Transformer calls: element reads and writes of the staged dense algorithm.

A stage reads each operand and each parameter tensor once and writes its result once. Derivations:
docs/derivations/attention.md and transformer.md.
"""

from __future__ import annotations

from torchscan_native.transformer.dims import (
    AttentionDims,
    DecoderLayerDims,
    EncoderLayerDims,
    FeedForwardDims,
    NormDims,
    StackDims,
    TransformerDims,
)

__all__ = [
    "attention_dmas",
    "decoder_dmas",
    "decoder_layer_dmas",
    "encoder_dmas",
    "encoder_layer_dmas",
    "feed_forward_dmas",
    "norm_dmas",
    "residual_dmas",
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


def residual_dmas(elements: int) -> int:
    """DMAs of adding two tensors. Derivation: docs/derivations/transformer.md#residual-additions."""
    return 3 * elements  # two reads and a write


def encoder_layer_dmas(d: EncoderLayerDims) -> int:
    """DMAs of an encoder layer. Derivation: docs/derivations/transformer.md#encoder-layer."""
    attention = attention_dmas(d.self_attention)
    feed_forward = feed_forward_dmas(d.feed_forward)
    norms = sum(map(norm_dmas, d.norms))
    residuals = 2 * residual_dmas(d.feed_forward.tokens * d.feed_forward.embed_dim)
    return attention + feed_forward + norms + residuals


def decoder_layer_dmas(d: DecoderLayerDims) -> int:
    """DMAs of a decoder layer. Derivation: docs/derivations/transformer.md#decoder-layer."""
    self_attention = attention_dmas(d.self_attention)
    cross_attention = attention_dmas(d.cross_attention)
    feed_forward = feed_forward_dmas(d.feed_forward)
    norms = sum(map(norm_dmas, d.norms))
    residuals = 3 * residual_dmas(d.feed_forward.tokens * d.feed_forward.embed_dim)
    return self_attention + cross_attention + feed_forward + norms + residuals


def encoder_dmas(d: StackDims[EncoderLayerDims]) -> int:
    """DMAs of an encoder stack. Derivation: docs/derivations/transformer.md#stacks."""
    layers = sum(map(encoder_layer_dmas, d.layers))
    return layers + norm_dmas(d.norm)


def decoder_dmas(d: StackDims[DecoderLayerDims]) -> int:
    """DMAs of a decoder stack. Derivation: docs/derivations/transformer.md#stacks."""
    layers = sum(map(decoder_layer_dmas, d.layers))
    return layers + norm_dmas(d.norm)


def transformer_dmas(d: TransformerDims) -> int:
    """DMAs of an `nn.Transformer`. Derivation: docs/derivations/transformer.md#stacks."""
    return encoder_dmas(d.encoder) + decoder_dmas(d.decoder)
