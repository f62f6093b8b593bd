"""Functional code against the layers: the body of every `nn` layer, counted as if it were anybody's own code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchscan
from native.layers_catalogue import CATALOGUE
from native.layers_support import COUNTS, counts

#: Layers that multiply and then sum in two operators, which may be a contraction: their MACs are never complete.
SPLIT = {
    "RMSNorm": "the mean square is `pow` and `mean`",
    "LocalResponseNorm": "the mean square is `mul` and `avg_pool`",
    "CosineSimilarity": "the dot product is `mul` and `sum`",
    "LPPool1d": "the window sums squares",
    "LPPool2d": "the same",
    "LPPool3d": "the same",
    "KLDivLoss": "the sum of target times logarithm",
    "MarginRankingLoss": "the mean of margins times labels",
}
#: Layers whose FLOPs differ, because PyTorch writes the same function with other operations.
OTHER_FLOPS = {
    "LPPool1d": "a sign, an absolute value and two products guard the root",
    "LPPool2d": "the same",
    "LPPool3d": "the same",
    "LocalResponseNorm": "the window is an average, so it divides once more",
    "CosineSimilarity": "both operands are normalised before the product",
    "GRU": "the update is one product shorter: (h - n) * z + n",
    "GRUCell": "the same",
}
#: Layers whose stages PyTorch divides in another way, so that more, or fewer, intermediate results are accessed.
OTHER_DMAS = {
    "Bilinear": "the bias is a stage of its own",
    "CircularPad1d": "one copy for the middle and each edge",
    "CircularPad2d": "the same",
    "CircularPad3d": "the same",
    "RMSNorm": "the square is a stage of its own, epsilon is a Python number",
    "Softsign": "three stages in place of one",
    "Tanhshrink": "two stages in place of one",
    "EmbeddingBag": "the operator always has an offsets tensor",
    "RNN": "a gate sum and an activation for each of two operands",
    "LSTM": "the final states are stacked",
    "LSTMCell": "a stage per gate",
    "PairwiseDistance": "the difference and epsilon are two stages",
    "L1Loss": "the difference and the absolute value are two stages",
    "MarginRankingLoss": "a stage per operation",
}
#: An operator without a formula for FLOPs and accesses.
UNKNOWN = {"KLDivLoss": "aten.xlogy"}


class Body(nn.Module):
    """Runs a layer that the scan cannot see, so that its operators are the body of this module."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "layer", layer)

    def forward(self, *args: Any) -> Any:
        return self.layer(*args)


@pytest.fixture(scope="module")
def pairs():
    found = {}
    for name, (build, args) in CATALOGUE.items():
        torch.manual_seed(0)
        layer = build().eval()
        report = torchscan.scan(Body(layer), args=args, functional="estimate")
        found[name] = (dict(zip(COUNTS, counts(layer, *args), strict=True)), report)
    return found


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_macs_are_the_layers(pairs, name):
    layer, report = pairs[name]
    found = report.totals.macs
    if name in SPLIT:
        assert found.status != "complete"
        assert (found.known_value or 0) <= layer["macs"]
        assert any(d.code == "unattributed_operator" and "macs" in d.reason for d in report.diagnostics)
    else:
        assert (found.status, found.value) == ("complete", layer["macs"])


@pytest.mark.parametrize("name", sorted(CATALOGUE.keys() - OTHER_FLOPS.keys() - UNKNOWN.keys()))
def test_flops_are_the_layers(pairs, name):
    layer, report = pairs[name]
    assert report.totals.module_flops.value == layer["module_flops"]


@pytest.mark.parametrize("name", sorted(CATALOGUE.keys() - OTHER_FLOPS.keys() - OTHER_DMAS.keys() - UNKNOWN.keys()))
def test_dmas_are_the_layers(pairs, name):
    layer, report = pairs[name]
    assert report.totals.dmas.value == layer["dmas"]


@pytest.mark.parametrize("name", sorted(OTHER_FLOPS))
def test_what_differs_in_flops_still_differs(pairs, name):
    layer, report = pairs[name]
    assert report.totals.module_flops.value != layer["module_flops"]


@pytest.mark.parametrize("name", sorted(OTHER_DMAS))
def test_what_differs_in_dmas_still_differs(pairs, name):
    layer, report = pairs[name]
    assert report.totals.dmas.value != layer["dmas"]


@pytest.mark.parametrize("name", sorted(UNKNOWN))
def test_what_is_unknown_is_named(pairs, name):
    _, report = pairs[name]
    for total in (report.totals.module_flops, report.totals.dmas):
        assert total.status == "partial"
    named = {d.operator: d.reason for d in report.diagnostics if d.code == "unattributed_operator"}
    assert "module_flops,dmas" in named[UNKNOWN[name]]
