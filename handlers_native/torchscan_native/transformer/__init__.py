"""Formulas of the `torch.nn` Transformers."""

from __future__ import annotations

from collections.abc import Iterator

from torchscan import HandlerRegistration


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per native Transformer class; each is for that very type, never for a subclass."""
    from torch import nn

    from torchscan_native.transformer import handlers

    for target, handler in (
        (nn.MultiheadAttention, handlers.attention),
        (nn.TransformerEncoderLayer, handlers.encoder_layer),
        (nn.TransformerDecoderLayer, handlers.decoder_layer),
        (nn.TransformerEncoder, handlers.encoder),
        (nn.TransformerDecoder, handlers.decoder),
        (nn.Transformer, handlers.transformer),
    ):
        yield HandlerRegistration(target, handler, match="exact")
