"""What must not change a count: the fast path, the device, the type, a mask that excludes nothing, the head count."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_paths import fast_path
from torchscan import Scanner, scan

COUNTS = ("macs", "dmas", "module_flops")


MODELS = {
    "attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), 3),
    "encoder": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), 1),
    "decoder": lambda: (nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2), 2),
    "transformer": lambda: (nn.Transformer(8, 2, 1, 1, 16, batch_first=True), 2),
    "wrapped": lambda: (nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), 1),
}


def counts(report):
    return {name: getattr(report.totals, name) for name in COUNTS}


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_the_same_everywhere(name):
    module, inputs = MODELS[name]()
    args = (torch.ones(2, 3, 8),) * inputs
    with fast_path(True):
        expected = counts(scan(module, args=args))
    assert all(result.status == "complete" for result in expected.values())
    with fast_path(False):
        assert counts(scan(module, args=args)) == expected
        assert counts(scan(module, args=args, execution="fake")) == expected
    for dtype in (torch.bfloat16, torch.float64):
        for device in ("cpu", "meta"):
            moved = module.to(dtype=dtype, device=device) if device == "cpu" else MODELS[name]()[0].to(device, dtype)
            cast = tuple(arg.to(dtype=dtype, device=device) for arg in args)
            assert counts(scan(moved, args=cast)) == expected
    module = module.to(torch.float32).eval()
    with Scanner().observe(module) as observation, torch.no_grad():
        module(*args)
    assert counts(observation.report()) == expected


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize(
    "mask",
    [torch.zeros(3, 3), torch.zeros(3, 3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool).triu(1)],
    ids=["additive", "allowing", "causal"],
)
def test_a_mask_changes_no_products(mask, enabled):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.ones(2, 3, 8)
    with fast_path(enabled):
        plain = scan(layer, args=(x,)).totals
        masked = scan(layer, args=(x,), kwargs={"src_mask": mask}).totals
    assert masked.macs == plain.macs
    # the mask is read once, and applied to the scores of 2 batches and 2 heads: 3 * 3 read, 36 read and 36 written
    assert masked.dmas.value - plain.dmas.value == 9 + 2 * 36
    assert masked.module_flops.value - plain.module_flops.value == 36


def test_the_number_of_heads_cancels():
    x = torch.ones(1, 4, 12)
    reports = [scan(nn.MultiheadAttention(12, heads, batch_first=True), args=(x, x, x)) for heads in (2, 3, 4, 6)]
    # four projections of 4 tokens, and two products of 4 by 4 tokens, all of width 12
    assert {report.totals.macs.value for report in reports} == {4 * 4 * 144 + 2 * 16 * 12}
    assert len({report.totals.dmas.value for report in reports}) == 4
