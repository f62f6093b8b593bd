"""The integers that decide what a native Transformer call costs.

Read from a call by `torchscan_native.transformer.guard`, consumed by the formulas. Letters are those of the
derivations: B batch, T target length, S source length, E width, H heads, K and V key and value input widths, F
feed-forward width. Sizes are in elements; this module knows neither torch nor pluggy.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

import attrs

__all__ = [
    "AttentionDims",
    "DecoderLayerDims",
    "Dims",
    "EncoderLayerDims",
    "FeedForwardDims",
    "NormDims",
    "StackDims",
    "TransformerDims",
]


# Frozen classes without slots are built twice as fast, and a deep stack builds a thousand of them.


@attrs.frozen(slots=False)
class AttentionDims:
    """One attention call.

    Args:
        batch: B.
        target_length: T, query tokens.
        source_length: S, key and value tokens.
        embed_dim: E, the query and output width.
        num_heads: H.
        kdim: K, the key input width.
        vdim: V, the value input width.
        input_bias: 1 when the three input projections have a bias, else 0.
        output_bias: 1 when the output projection has a bias, else 0.
        masks: stored elements of each explicit mask, attention mask before key padding mask.
        averaged_weights: weights averaged over the heads are returned.

    """

    batch: int
    target_length: int
    source_length: int
    embed_dim: int
    num_heads: int
    kdim: int
    vdim: int
    input_bias: int
    output_bias: int
    masks: tuple[int, ...] = ()
    averaged_weights: bool = False


@attrs.frozen(slots=False)
class FeedForwardDims:
    """Two linear maps with an activation between them, on B·T tokens.

    Args:
        tokens: B·T.
        embed_dim: E.
        hidden: F.
        hidden_bias: 1 when the first linear map has a bias, else 0.
        output_bias: 1 when the second has one, else 0.
        activation: the function between them.

    """

    tokens: int
    embed_dim: int
    hidden: int
    hidden_bias: int
    output_bias: int
    activation: Literal["relu", "gelu"] = "relu"


@attrs.frozen(slots=False)
class NormDims:
    """A LayerNorm over the features alone.

    Args:
        rows: r, the number of tokens, B·T.
        width: E.
        weight: 1 when the affine weight is present, else 0.
        bias: 1 when the affine bias is present, else 0.

    """

    rows: int
    width: int
    weight: int
    bias: int


@attrs.frozen(slots=False)
class EncoderLayerDims:
    """One encoder layer; a norm that is an Identity is `None`."""

    self_attention: AttentionDims
    feed_forward: FeedForwardDims
    norms: tuple[NormDims | None, NormDims | None]


@attrs.frozen(slots=False)
class DecoderLayerDims:
    """One decoder layer; a norm that is an Identity is `None`."""

    self_attention: AttentionDims
    cross_attention: AttentionDims
    feed_forward: FeedForwardDims
    norms: tuple[NormDims | None, NormDims | None, NormDims | None]


L = TypeVar("L", bound=EncoderLayerDims | DecoderLayerDims, covariant=True)


@attrs.frozen(slots=False)
class StackDims(Generic[L]):
    """A stack: its layers in the order they run, a shared one once per run.

    No final norm, or an Identity, is `None`.
    """

    layers: tuple[L, ...]
    norm: NormDims | None


@attrs.frozen(slots=False)
class TransformerDims:
    """An encoder stack and a decoder stack."""

    encoder: StackDims[EncoderLayerDims]
    decoder: StackDims[DecoderLayerDims]


Dims: TypeAlias = (
    AttentionDims
    | EncoderLayerDims
    | DecoderLayerDims
    | StackDims[EncoderLayerDims]
    | StackDims[DecoderLayerDims]
    | TransformerDims
)
