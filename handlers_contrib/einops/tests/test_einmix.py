"""EinMix: a contraction with a weight, against a scalar walk and against the dispatcher."""

from __future__ import annotations

import einops
import pytest
import torch
from einops.layers.torch import EinMix
from einops_harness import COUNTS, HANDLERS, Contractions, counts, einsum_by_hand, estimate, observe
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version
from torch._subclasses.fake_tensor import FakeTensorMode

import torchscan


@pytest.mark.parametrize(
    ("pattern", "weight", "bias", "lengths", "shape", "expected"),
    [
        # a Linear(4, 2) on (3, 4): 6 dot products of 4 terms (7) and 6 biases; 12 + 8 + 2 + 6 accesses
        ("b cin -> b cout", "cin cout", "cout", {"cin": 4, "cout": 2}, (3, 4), (48, 24, 28)),
        ("b cin -> b cout", "cin cout", None, {"cin": 4, "cout": 2}, (3, 4), (42, 24, 26)),
        # mixing 3 tokens to 2 for 2·4 rows: 16 dot products of 3 terms (5); 24 + 6 + 16 accesses
        ("b t c -> b t0 c", "t t0", None, {"t": 3, "t0": 2}, (2, 3, 4), (80, 48, 46)),
        # per-head weights, heads split and merged again: 2·2·2·3 = 24 outputs of 4 terms (7), 24 biases;
        # 32 + 2·4·3 + 6 + 24 accesses
        ("t b (h c) -> t b (h d)", "h c d", "h d", {"h": 2, "c": 4, "d": 3}, (2, 2, 8), (192, 96, 86)),
        # a scale per channel: one product each, and one MAC each, as the weight of a norm; 24 + 4 + 24
        ("t b c -> t b c", "c", None, {"c": 4}, (2, 3, 4), (24, 24, 52)),
        ("t b c -> t b c", "c", "c", {"c": 4}, (2, 3, 4), (48, 24, 56)),
        # the 3 tokens are summed first: 24 values to 8 by 16 additions, 24 + 8 accesses;
        # then 2·5 = 10 dot products of 4 terms (7), 8 + 20 + 10 accesses
        ("b t c -> b d", "c d", None, {"c": 4, "d": 5}, (2, 3, 4), (86, 40, 70)),
        # an outer product: one term each; 3 + 4 + 12
        ("a -> a b", "b", None, {"b": 4}, (3,), (12, 12, 19)),
        # an ellipsis stands for any leading axes: 6 rows of a Linear(4, 2); 24 + 8 + 12
        ("... cin -> ... cout", "cin cout", None, {"cin": 4, "cout": 2}, (2, 3, 4), (84, 48, 44)),
        # patches: 48 values, 4 outputs of 12 terms (23) for each of 4 channels... 16 in all; 48 + 48 + 16
        (
            "b c (h p) (w q) -> b (h w) e",
            "c p q e",
            None,
            {"c": 3, "p": 2, "q": 2, "e": 4},
            (1, 3, 4, 4),
            (368, 192, 112),
        ),
        # an empty batch
        ("b cin -> b cout", "cin cout", "cout", {"cin": 4, "cout": 2}, (0, 4), (0, 0, 0)),
    ],
)
def test_vectors(pattern, weight, bias, lengths, shape, expected):
    if "..." in pattern and Version(einops.__version__) < Version("0.8.1"):
        pytest.skip("this einops has no ellipsis in EinMix")
    layer = EinMix(pattern, weight_shape=weight, bias_shape=bias, **lengths)
    assert counts(layer, torch.ones(shape)) == expected
    assert counts(layer.to("meta"), torch.ones(shape, device="meta")) == expected
    with FakeTensorMode():
        fake = EinMix(pattern, weight_shape=weight, bias_shape=bias, **lengths)
        assert counts(fake, torch.ones(shape)) == expected


def test_a_weight_without_axes_is_one_product_each():
    with pytest.warns(UserWarning, match="weight has no dimensions"):
        layer = EinMix("a b -> a b", weight_shape="")
    # 6 products; 6 reads, 1 weight, 6 writes
    assert counts(layer, torch.ones(2, 3)) == (6, 6, 13)


@st.composite
def products(draw):
    """Axes of the input, the weight and the output, every contracted axis longer than one."""
    names = list("abcdef")
    roles = draw(st.lists(st.sampled_from(("batch", "row", "sum", "column", "lone")), min_size=1, max_size=5))
    axes = dict(zip(names, roles, strict=False))
    if not any(role != "column" for role in roles):
        axes["f"] = "row"
    sizes = {
        axis: draw(st.sampled_from((2, 3) if role in ("sum", "lone") else (1, 2, 3))) for axis, role in axes.items()
    }
    left = [axis for axis, role in axes.items() if role != "column"]
    weight = [axis for axis, role in axes.items() if role in ("batch", "sum", "column")]
    out = [axis for axis, role in axes.items() if role in ("batch", "row", "column")]
    return left, weight, draw(st.permutations(out)), sizes, draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(products())
def test_a_scalar_walk_and_the_dispatcher_agree(case):
    left, weight, out, sizes, with_bias = case
    if not weight or not out:
        return
    bias = out if with_bias else None
    layer = EinMix(
        f"{' '.join(left)} -> {' '.join(out)}",
        weight_shape=" ".join(weight),
        bias_shape=None if bias is None else " ".join(bias),
        **{axis: sizes[axis] for axis in {*weight, *(bias or ())}},
    )
    tensor = torch.ones([sizes[axis] for axis in left])
    additions, products = einsum_by_hand(left, weight, out, sizes)
    outputs = torch.Size([sizes[axis] for axis in out]).numel()
    found = estimate(layer, tensor)
    assert found["module_flops"] == additions + products + (outputs if with_bias else 0)
    assert found["macs"] == products
    if any(axis in weight and axis in left and axis not in out for axis in sizes):
        with Contractions() as seen, torch.no_grad():
            layer(tensor)
        assert seen.terms == found["macs"]


def test_integers_complex_and_replaced_forwards_are_unavailable():
    layer = EinMix("a b -> a c", weight_shape="b c", b=2, c=3)
    layer.forward = lambda input: input
    found = estimate(layer, torch.ones(2, 2))
    assert {found[name].reason for name in COUNTS} == {"replaced_forward"}
    layer = EinMix("a b -> a c", weight_shape="b c", b=2, c=3)
    layer.weight = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.complex64))
    found = estimate(layer, torch.ones(2, 2, dtype=torch.complex64))
    assert {found[name].reason for name in COUNTS} == {"unsupported_dtype"}


def test_the_formula_owns_the_rearrangements_inside():
    assert HANDLERS["EinMix"].subtree_metrics == frozenset(COUNTS)
    layer = EinMix("t b (h c) -> t b (h d)", weight_shape="h c d", h=2, c=4, d=3)
    inner = counts(layer.post_rearrange, torch.ones(2, 2, 2, 3))
    assert inner == (0, 0, 0)
    call = observe(layer, torch.ones(2, 2, 8), requested={"macs"})
    assert isinstance(call, torchscan.ModuleCall)
    assert "token_dependencies" not in HANDLERS["EinMix"](call)
