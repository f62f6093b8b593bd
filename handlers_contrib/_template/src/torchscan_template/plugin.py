"""The plugin: what it registers. Loading it imports neither examplelib nor torch."""

from __future__ import annotations

from collections.abc import Iterator

import torchscan


@torchscan.hookimpl
def torchscan_register_handlers() -> Iterator[torchscan.HandlerRegistration]:
    """Offer a handler for `LowRank` of examplelib."""
    from torchscan_template.handlers import low_rank

    yield torchscan.HandlerRegistration("examplelib.LowRank", low_rank, match="exact")
