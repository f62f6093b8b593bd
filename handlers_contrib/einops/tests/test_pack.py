"""The pack as a pack: what it costs to have, what it leaves alone, and how a scan uses it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torch
from einops.layers.torch import EinMix, Rearrange, Reduce
from einops_harness import COUNTS, HANDLERS, observe

import torchscan


def test_it_is_found_under_its_name():
    (found,) = (point for point in entry_points(group="torchscan") if point.name == "einops")
    assert found.value == "torchscan_einops.plugin"
    assert found.dist is not None
    assert found.dist.name == "torchscan-einops"


def test_loading_it_imports_neither_library():
    code = (
        "import sys, torchscan_einops.plugin as p; list(p.torchscan_register_handlers());"
        "assert not {'torch', 'einops'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Noisy(Rearrange):
    def forward(self, input):
        return super().forward(input) * 2


class Plain(Rearrange):
    pass


def test_another_forward_is_not_ours():
    assert HANDLERS["Rearrange"](observe(Noisy("a b -> (b a)"), torch.ones(2, 3))) == {}
    replaced = Reduce("a b -> a", "sum")
    replaced.forward = lambda input: input
    assert HANDLERS["Reduce"](observe(replaced, torch.ones(2, 3))) == {}
    assert HANDLERS["Rearrange"](observe(Plain("a b -> (b a)"), torch.ones(2, 3)))["dmas"] == 12


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sparse_and_nested_inputs_are_unavailable():
    layer = Rearrange("a b -> b a")
    for tensor in (torch.eye(2).to_sparse(), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])):
        found = HANDLERS["Rearrange"](torchscan.ModuleCall(layer, (tensor,), {}, torch.eye(2)))
        assert {found[name].reason for name in COUNTS} == {"unsupported_layout"}


def test_the_argument_may_come_by_keyword():
    assert HANDLERS["Rearrange"](observe(Rearrange("a b -> (b a)"), input=torch.ones(2, 3)))["dmas"] == 12


def test_a_wrong_shape_is_an_error_of_the_model_and_not_a_number():
    call = torchscan.ModuleCall(Rearrange("a (b c) -> a b c", b=2), (torch.ones(2, 3),), {}, torch.ones(2, 3))
    with pytest.raises(ValueError, match="does not fit"):
        HANDLERS["Rearrange"](call)


def test_a_scan_counts_a_patch_stem():
    from torch import nn

    stem = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2),
        EinMix("b t (g c) -> b t0 (c g)", weight_shape="t t0", bias_shape="t0", t=4, t0=6, g=3),
        Reduce("b t c -> b c", "mean"),
        nn.Linear(12, 8, bias=False),
    )
    report = torchscan.crawl_module(stem, args=(torch.ones(1, 3, 4, 4),))
    totals = report["totals"]
    # mixing: 6·12 = 72 outputs of 4 terms; Linear: 12·8
    assert totals["macs"]["value"] == 72 * 4 + 96
    # mixing 72·7 + 72; mean of 72 values to 12: 72; Linear 8·23
    assert totals["module_flops"]["value"] == 576 + 72 + 184
    # stem 2·48; mixing 48 + 24 + 6 + 72; mean 72 + 12; Linear 12 + 96 + 8
    assert totals["dmas"]["value"] == 96 + 150 + 84 + 116
    rows = {row["path"]: row for row in report["layers"]}
    assert rows["1.post_rearrange"]["metric_owners"]["dmas"]["path"] == "1"
    assert rows["0"]["metrics"]["macs"]["method"].startswith("plugin:einops:")
