"""Reduce: one stage; K values to one result are K - 1 operations."""

from __future__ import annotations

import pytest
import torch
from einops.layers.torch import Reduce
from einops_harness import COUNTS, HANDLERS, counts, estimate
from torch._subclasses.fake_tensor import FakeTensorMode

import torchscan


@pytest.mark.parametrize(
    ("pattern", "how", "lengths", "shape", "expected"),
    [
        # 24 values to 6 results of 4: 18 additions; 24 reads and 6 writes
        ("b c h w -> b c", "sum", {}, (2, 3, 2, 2), (18, 0, 30)),
        # and 6 divisions
        ("b c h w -> b c", "mean", {}, (2, 3, 2, 2), (24, 0, 30)),
        ("b c h w -> b c", "max", {}, (2, 3, 2, 2), (18, 0, 30)),
        ("b c h w -> b c", "min", {}, (2, 3, 2, 2), (18, 0, 30)),
        ("b c h w -> b c", "prod", {}, (2, 3, 2, 2), (18, 0, 30)),
        # 2x2 max pooling written with numbers: 48 values to 12 results
        ("b c (h 2) (w 2) -> b c h w", "max", {}, (1, 3, 4, 4), (36, 0, 60)),
        # the same with names, results permuted: writing them in another order is part of the stage
        ("b c (h p) (w q) -> h w (c b)", "max", {"p": 2, "q": 2}, (1, 3, 4, 4), (36, 0, 60)),
        # everything to one value, kept as axes of length one: 24 to 1
        ("b c h w -> 1 1", "sum", {}, (2, 3, 2, 2), (23, 0, 25)),
        ("... c -> c", "mean", {}, (2, 3, 4), (24, 0, 28)),
        ("b ... -> ...", "sum", {}, (2, 3, 4), (12, 0, 36)),
        # an axis of length one is still reduced: a mean divides each of the 6 values
        ("a b -> a", "mean", {}, (6, 1), (6, 0, 12)),
        ("a b -> a", "sum", {}, (6, 1), (0, 0, 12)),
        # no axis reduced: a rearrangement, here a view and a copy of 6
        ("a b -> b a", "sum", {}, (2, 3), (0, 0, 0)),
        ("a b -> (b a)", "mean", {}, (2, 3), (0, 0, 12)),
        # an empty batch
        ("a b -> a", "sum", {}, (0, 3), (0, 0, 0)),
    ],
)
def test_vectors(pattern, how, lengths, shape, expected):
    layer = Reduce(pattern, how, **lengths)
    assert counts(layer, torch.ones(shape)) == expected
    assert counts(layer, torch.ones(shape, device="meta")) == expected
    with FakeTensorMode():
        assert counts(layer, torch.ones(shape)) == expected


def test_integers_and_booleans_cost_no_floating_point_operation():
    assert counts(Reduce("a b -> a", "sum"), torch.ones(2, 3, dtype=torch.int64)) == (0, 0, 8)
    assert counts(Reduce("a b -> a", "max"), torch.ones(2, 3, dtype=torch.bool)) == (0, 0, 8)


def test_an_unknown_reduction_is_unavailable():
    # today's layer refuses it; a later einops may not
    layer, kept = Reduce("a b -> a", "sum"), Reduce("a b -> b a", "sum")
    layer.reduction = kept.reduction = "all"
    call = torchscan.ModuleCall(layer, (torch.ones(2, 3),), {}, torch.ones(2))
    found = HANDLERS["Reduce"](call)
    assert {found[name].reason for name in COUNTS} == {"unknown_reduction"}
    # but where nothing is reduced it does not run
    assert counts(kept, torch.ones(2, 3)) == (0, 0, 0)


def test_complex_and_empty_reductions_are_unavailable():
    found = estimate(Reduce("a b -> a", "sum"), torch.ones(2, 3, dtype=torch.complex64))
    assert isinstance(found["module_flops"], torchscan.Unavailable)
    assert found["module_flops"].reason == "complex_arithmetic"
    assert estimate(Reduce("a b -> a", "sum"), torch.ones(2, 0))["module_flops"].reason == "empty_reduction"
