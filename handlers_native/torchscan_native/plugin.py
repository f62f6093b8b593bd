"""The native plugin: what it registers, and the only file here that knows pluggy."""

from __future__ import annotations

from collections.abc import Iterator

import torchscan


@torchscan.hookimpl
def torchscan_register_handlers() -> Iterator[torchscan.HandlerRegistration]:
    """Offer the native Transformer handlers and the layers of `torch.nn`."""
    from torchscan_native.layers import registrations as layers
    from torchscan_native.transformer import registrations as transformer

    yield from transformer()
    yield from layers()


@torchscan.hookimpl
def torchscan_register_operator_formulas() -> Iterator[torchscan.OperatorFormula]:
    """Offer formulas for the operators of functional code."""
    from torchscan_native.operators import formulas

    yield from formulas()
