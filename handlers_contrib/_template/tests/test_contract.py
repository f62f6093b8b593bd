"""The pack keeps the contract, its numbers are right, and torchscan finds it."""

from __future__ import annotations

import torch
from examplelib import LowRank
from torchscan_template.handlers import low_rank
from torchscan_template.plugin import torchscan_register_handlers

import torchscan
from torchscan.testing import Sample, check_pack_import, conformance

(REGISTRATION,) = torchscan_register_handlers()

CALLS = {
    "vector": lambda: (LowRank(4, 2, 3), (torch.ones(4),), {}),
    "batch": lambda: (LowRank(4, 2, 3), (torch.ones(5, 4),), {}),
    "by_name": lambda: (LowRank(4, 2, 3), (), {"x": torch.ones(2, 5, 4)}),
    "sparse": Sample(lambda: (LowRank(4, 2, 3), (torch.eye(4).to_sparse(),), {}), supported=False),
}


@conformance(REGISTRATION, CALLS, oracle=True)
def test_the_handler_keeps_the_contract(case):
    case()


def test_the_pack_costs_nothing_until_its_library_is_in_use():
    check_pack_import("torchscan_template.plugin", ["examplelib"])


def test_the_numbers_worked_out_by_hand():
    module, x = LowRank(4, 2, 3), torch.ones(5, 4)
    found = low_rank(torchscan.ModuleCall(module, (x,), {}, module(x)))
    # 5 rows, 4 -> 2 -> 3.  MACs: 5*4*2 + 5*2*3
    assert found["macs"] == 40 + 30
    # FLOPs: 10 dot products of 4 terms, 15 of 2 terms
    assert found["module_flops"] == 10 * 7 + 15 * 3
    # DMAs: (20 + 8 + 10) + (10 + 6 + 15)
    assert found["dmas"] == 38 + 31


def test_installing_the_pack_is_enough():
    report = torchscan.scan(LowRank(4, 2, 3), args=(torch.ones(5, 4),), strict=True)
    assert report.totals.macs.value == 70
    assert report.layers[0].handlers["macs"] == "template"
    assert "torchscan-template" in {plugin.distribution for plugin in report.context.plugins}
