"""Layers, stacks and the whole Transformer as sums of their stages, whatever metric the stages are counted in.

Derivation: docs/derivations/transformer.md. This module knows neither torch nor pluggy.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from torchscan_native.transformer.dims import (
    AttentionDims,
    DecoderLayerDims,
    EncoderLayerDims,
    FeedForwardDims,
    NormDims,
    StackDims,
    TransformerDims,
)

__all__ = ["Composition"]


@attrs.frozen
class Composition:
    """The formulas of the stages in one metric, and what is composed of them.

    Args:
        attention: the cost of one attention call.
        feed_forward: the cost of one feed-forward block.
        norm: the cost of one LayerNorm, 0 for none.
        residual: the cost of one residual addition, per element.

    """

    attention: Callable[[AttentionDims], int]
    feed_forward: Callable[[FeedForwardDims], int]
    norm: Callable[[NormDims | None], int]
    residual: int

    def encoder_layer(self, d: EncoderLayerDims) -> int:
        """Return the cost of an encoder layer. Derivation: docs/derivations/transformer.md#encoder-layer."""
        attention = self.attention(d.self_attention)
        feed_forward = self.feed_forward(d.feed_forward)
        norms = sum(map(self.norm, d.norms))
        residuals = 2 * self.residual * d.feed_forward.tokens * d.feed_forward.embed_dim
        return attention + feed_forward + norms + residuals

    def decoder_layer(self, d: DecoderLayerDims) -> int:
        """Return the cost of a decoder layer. Derivation: docs/derivations/transformer.md#decoder-layer."""
        self_attention = self.attention(d.self_attention)
        cross_attention = self.attention(d.cross_attention)
        feed_forward = self.feed_forward(d.feed_forward)
        norms = sum(map(self.norm, d.norms))
        residuals = 3 * self.residual * d.feed_forward.tokens * d.feed_forward.embed_dim
        return self_attention + cross_attention + feed_forward + norms + residuals

    def encoder(self, d: StackDims[EncoderLayerDims]) -> int:
        """Return the cost of an encoder stack. Derivation: docs/derivations/transformer.md#stacks."""
        return sum(map(self.encoder_layer, d.layers)) + self.norm(d.norm)

    def decoder(self, d: StackDims[DecoderLayerDims]) -> int:
        """Return the cost of a decoder stack. Derivation: docs/derivations/transformer.md#stacks."""
        return sum(map(self.decoder_layer, d.layers)) + self.norm(d.norm)

    def transformer(self, d: TransformerDims) -> int:
        """Return the cost of an `nn.Transformer`. Derivation: docs/derivations/transformer.md#stacks."""
        return self.encoder(d.encoder) + self.decoder(d.decoder)
