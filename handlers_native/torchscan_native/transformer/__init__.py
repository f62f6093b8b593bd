"""Formulas of the `torch.nn` Transformers."""

from __future__ import annotations

from collections.abc import Iterator

from torchscan import HandlerRegistration


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per Transformer class."""
    yield from ()
