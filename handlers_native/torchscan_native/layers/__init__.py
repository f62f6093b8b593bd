"""Formulas of the `torch.nn` layers: one adapter per family here, its integer arithmetic in `formulas`."""

from __future__ import annotations

from collections.abc import Iterator

from torchscan import HandlerRegistration


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per layer class."""
    from torchscan_native.layers import (
        activation,
        convolution,
        distance,
        embedding,
        interpolation,
        linear,
        loss,
        movement,
        normalization,
        parametrization,
        pooling,
        quantized,
        recurrent,
        softmax,
    )

    for family in (
        linear,
        convolution,
        normalization,
        activation,
        softmax,
        pooling,
        embedding,
        recurrent,
        movement,
        interpolation,
        distance,
        loss,
        parametrization,
        quantized,
    ):
        yield from family.registrations()
