"""MACs of native Transformer calls. Derivations: docs/derivations/attention.md and transformer.md."""

from __future__ import annotations

from torchscan_native.transformer.composition import Composition
from torchscan_native.transformer.dims import (
    AttentionDims,
    FeedForwardDims,
    NormDims,
)

__all__ = [
    "RESIDUAL_MACS",
    "attention_macs",
    "decoder_layer_macs",
    "decoder_macs",
    "encoder_layer_macs",
    "encoder_macs",
    "feed_forward_macs",
    "norm_macs",
    "transformer_macs",
]


def attention_macs(d: AttentionDims) -> int:
    """MACs of one attention call. Derivation: docs/derivations/attention.md#macs."""
    b, t, s, e = d.batch, d.target_length, d.source_length, d.embed_dim
    query = b * t * e * e  # (T, E) @ (E, E)
    key = b * s * d.kdim * e  # (S, K) @ (K, E)
    value = b * s * d.vdim * e  # (S, V) @ (V, E)
    scores = b * t * s * e  # H products (T, D) @ (D, S); H * D = E
    weighted = b * t * s * e  # H products (T, S) @ (S, D)
    output = b * t * e * e  # (T, E) @ (E, E)
    return query + key + value + scores + weighted + output


def feed_forward_macs(d: FeedForwardDims) -> int:
    """MACs of a feed-forward block. Derivation: docs/derivations/transformer.md#feed-forward."""
    first = d.tokens * d.embed_dim * d.hidden  # (B·T, E) @ (E, F)
    second = d.tokens * d.hidden * d.embed_dim  # (B·T, F) @ (F, E)
    return first + second


def norm_macs(d: NormDims | None) -> int:
    """MACs of a feature-only LayerNorm, 0 for none. Derivation: docs/derivations/transformer.md#normalization."""
    if d is None:
        return 0
    n = d.rows * d.width
    squares = n  # one product per term of the variance
    affine = n * d.weight  # one product per element; a bias alone has none
    return squares + affine


#: Per element of a residual addition, a sum is no product.
#: Derivation: docs/derivations/transformer.md#residual-additions.
RESIDUAL_MACS = 0

_COMPOSED = Composition(attention_macs, feed_forward_macs, norm_macs, RESIDUAL_MACS)
encoder_layer_macs = _COMPOSED.encoder_layer
decoder_layer_macs = _COMPOSED.decoder_layer
encoder_macs = _COMPOSED.encoder
decoder_macs = _COMPOSED.decoder
transformer_macs = _COMPOSED.transformer
