"""The plugin: what it registers. Loading it imports neither einops nor torch."""

from __future__ import annotations

from collections.abc import Iterator

import torchscan


@torchscan.hookimpl
def torchscan_register_handlers() -> Iterator[torchscan.HandlerRegistration]:
    """Offer handlers for `Rearrange`, `Reduce` and `EinMix` of `einops.layers.torch`."""
    from torchscan_einops.handlers import einmix, rearrange, reduce

    yield torchscan.HandlerRegistration("einops.layers.torch.Rearrange", rearrange)
    yield torchscan.HandlerRegistration("einops.layers.torch.Reduce", reduce)
    # EinMix runs `Rearrange` children before and after its product. Their copies are layout work inside a larger
    # formula, so the formula owns its subtree; exact, because a subclass may run more than that.
    yield torchscan.HandlerRegistration(
        "einops.layers.torch.EinMix",
        torchscan.ModuleHandler(einmix, subtree_metrics=("module_flops", "macs", "dmas")),
        match="exact",
    )
