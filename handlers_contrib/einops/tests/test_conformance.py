"""Every handler keeps the contract: the conformance kit."""

from __future__ import annotations

import pytest
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from torchscan_einops.plugin import torchscan_register_handlers

from torchscan.testing import Sample, check_pack_import, conformance_cases

OFFERS = {offer.target.rpartition(".")[2]: offer for offer in torchscan_register_handlers()}
SAMPLES = {
    "Rearrange": [
        Sample(lambda: (Rearrange("b t c -> (t c) b"), (torch.ones(2, 3, 4),), {}), "view"),
        Sample(lambda: (Rearrange("b (t p) c -> b t (c p)", p=2), (torch.ones(2, 4, 3),), {}), "copy"),
        Sample(lambda: (Rearrange("... t c -> ... c t"), (), {"input": torch.ones(2, 3, 4)}), "named"),
    ],
    "Reduce": [
        Sample(lambda: (Reduce("b t c -> b t", "mean"), (torch.ones(2, 3, 4),), {}), "mean"),
        Sample(lambda: (Reduce("b (t 2) c -> b t c", "max"), (torch.ones(2, 4, 4),), {}), "max"),
        Sample(
            lambda: (Reduce("a b -> a", "sum"), (torch.ones(2, 3, dtype=torch.complex64),), {}),
            "complex",
            supported=False,
        ),
    ],
    "EinMix": [
        Sample(
            lambda: (
                EinMix("b t (h c) -> b t (h d)", weight_shape="h c d", bias_shape="h d", h=2, c=2, d=3).eval(),
                (torch.ones(2, 3, 4),),
                {},
            ),
            "heads",
        ),
        Sample(
            lambda: (EinMix("b t c -> b t0 c", weight_shape="t t0", t=3, t0=2).eval(), (torch.ones(2, 3, 4),), {}),
            "tokens",
        ),
    ],
}


@pytest.mark.parametrize(
    "case",
    [
        case
        for name, samples in SAMPLES.items()
        for case in conformance_cases(OFFERS[name], samples, oracle=True, name=name)
    ],
)
def test_contract(case):
    case()


def test_the_pack_imports_without_its_library():
    check_pack_import("torchscan_einops.plugin", ("einops", "torch"))
