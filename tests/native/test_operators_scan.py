"""Functional code through a scan: the audit names it, an estimate counts it, and hidden sums stay open."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchscan
from native.operator_log import Function


class Around(nn.Module):
    """A composite: a linear layer, then a function in its own body."""

    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4, bias=False), function

    def forward(self, x):
        return self.function(self.linear(x))


def estimate(module, *args, **options):
    return torchscan.scan(module, args=args, functional="estimate", **options)


def alarms(report):
    return {d.operator: tuple(d.reason.split(",")) for d in report.diagnostics if d.code == "unattributed_operator"}


x = torch.rand(1, 3, 4)

# -- the audit: what a kind of operator makes incomplete -------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t: t @ t.mT, {"aten.bmm": ("macs", "module_flops", "dmas")}),
        (lambda t: F.layer_norm(t, (4,)), {"aten.native_layer_norm": ("macs", "module_flops", "dmas")}),
        (lambda t: t + 1, {"aten.add": ("module_flops", "dmas")}),
        (lambda t: t.softmax(-1), {"aten._softmax": ("module_flops", "dmas")}),
        (lambda t: torch.cat([t, t]), {"aten.cat": ("dmas",)}),
        (lambda t: t.mT.reshape(-1).clone().double(), {}),
        (lambda t: (t, torch.arange(4) * 2 + 1), {}),
    ],
)
def test_a_kind_of_operator_makes_its_metrics_incomplete(function, expected):
    report = torchscan.scan(Around(function), args=(x,))
    assert alarms(report) == expected
    incomplete = {name for names in expected.values() for name in names}
    for name, known in (("module_flops", 12 * 7), ("macs", 48), ("dmas", 12 + 16 + 12)):
        total = getattr(report.totals, name)
        assert total.status == ("partial" if name in incomplete else "complete")
        assert total.known_value == known


def test_an_estimate_adds_the_body_to_its_children():
    report = estimate(Around(lambda t: t @ t.mT + 1), x)
    # linear 12 outputs of 4 terms; 9 outputs of 4 terms; 9 adds
    assert report.totals.macs.value == 48 + 36
    assert report.totals.module_flops.value == 12 * 7 + 9 * 7 + 9
    assert report.totals.dmas.value == (12 + 16 + 12) + (12 + 12 + 9) + (9 + 9)
    assert report.layers[0].metrics["macs"].method == "operator_formula"
    assert alarms(report) == {}


def test_an_estimate_names_what_it_cannot_count():
    report = estimate(Around(lambda t: torch.fft.rfft(t).abs()), x)
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48
    assert alarms(report)["aten._fft_r2c"] == ("macs", "module_flops", "dmas")


def test_complex_rotation_leaves_macs_complete():
    def rotate(t):
        turned = torch.view_as_complex(t.reshape(1, 3, 2, 2)) * torch.ones(3, 2, dtype=torch.complex64)
        return torch.view_as_real(turned)

    report = estimate(Around(rotate), x)
    assert report.totals.macs.value == 48
    assert report.totals.module_flops.status == "partial"


def test_an_integer_contraction_has_macs_and_no_flops():
    tokens = torch.ones(2, 3, dtype=torch.int64)
    report = estimate(Function(lambda t: t @ t.T), tokens)
    # 4 outputs of 3 terms
    assert (report.totals.macs.value, report.totals.module_flops.value) == (12, 0)


def test_the_value_of_a_scalar_decides_where_it_decides():
    # 12 elements: a root 1, a power 3; an add 1, a scaled add 2
    report = estimate(Function(lambda t: (t**0.5, t**1.5, t.add(t, alpha=1.0), t.add(t, alpha=0.5))), x)
    assert report.totals.module_flops.value == 12 * (1 + 3 + 1 + 2)


# -- one number whatever runs it -------------------------------------------------------------------------------------


def attention(q):
    k, v = q.roll(1, -2), q.flip(-1)
    bias = torch.zeros(q.shape[-2], q.shape[-2], dtype=q.dtype, device=q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias) + (q @ k.mT / 2 + bias).softmax(-1) @ v


def convolutional(t):
    t = F.conv2d(t, torch.ones(2, 2, 2, 2, dtype=t.dtype, device=t.device), stride=2)
    t = F.group_norm(F.silu(t), 1)
    return F.interpolate(F.max_pool2d(t, 2), scale_factor=2, mode="bilinear").mean((2, 3))


def einsum(t):
    return torch.einsum("bhid,bhjd->bhij", t, t).softmax(-1) @ t + torch.einsum("bhid,de->bhie", t, t[0, 0, :4, :4].T)


@pytest.mark.parametrize("function", [attention, convolutional, einsum])
def test_device_type_and_execution_change_no_number(function):
    t = torch.rand(1, 2, 4, 4) if function is not convolutional else torch.rand(1, 2, 8, 8)
    module = Function(function)
    expected = estimate(module, t).totals
    assert expected.macs.status == expected.module_flops.status == expected.dmas.status == "complete"
    others = {
        "float64": estimate(module, t.double()),
        "bfloat16": estimate(module, t.bfloat16()),
        "meta": estimate(module, t.to("meta")),
        "fake": estimate(module, t, execution="fake"),
    }
    for how, report in others.items():
        for name in ("macs", "module_flops", "dmas"):
            assert getattr(report.totals, name) == getattr(expected, name), (how, name)


@pytest.mark.parametrize("execution", ["real", "fake"])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # 12 results of 2 terms, a row by a matrix with one axis more: each product reads 2 + 6 and writes 3 elements
        (lambda t: t[0, 0, 0, :2] @ t.view(4, 2, 4)[:, :, :3], (12 * 3, 24, 4 * 8 + 12)),
        # 32 comparisons, 32 choices: a comparison and a choice read 32 and 64 elements, and each number is one read
        (lambda t: torch.where(t > 0, t, 0.0), (64, 0, (32 + 32) + (32 + 32 + 1 + 32))),
        (lambda t: torch.where(t > 0, 1.0, 0.0), (64, 0, (32 + 32) + (32 + 2 + 32))),
    ],
)
def test_inference_mode_changes_no_number(function, expected, execution):
    t = torch.rand(1, 2, 4, 4)

    def totals():
        found = estimate(Function(function), t, execution=execution).totals
        return found.module_flops.value, found.macs.value, found.dmas.value

    assert totals() == expected
    with torch.inference_mode():
        assert totals() == expected


def test_causal_attention_in_inference_mode_without_computing():
    attend = Function(lambda t: F.scaled_dot_product_attention(t, t, t, is_causal=True))
    t = torch.rand(1, 2, 4, 4)
    expected = estimate(attend, t).totals
    with torch.inference_mode():
        found = estimate(attend, t, execution="fake").totals
    assert (found.module_flops, found.macs, found.dmas) == (expected.module_flops, expected.macs, expected.dmas)


# -- sums of products ------------------------------------------------------------------------------------------------

w = torch.rand(4)
gate = torch.rand(1, 3, 4)
rows = torch.tensor([0, 1, 1])
places = torch.zeros(1, 3, 4, dtype=torch.int64)

HIDDEN = {
    "dot product": lambda t: (t * gate).sum(-1),
    "through a view": lambda t: (t * gate).view(3, 2, 2).sum((0, 1)),
    "through an add": lambda t: (t * gate + 1).sum(-1),
    "weighted mean": lambda t: (t * w).mean(-1),
    "mean square": lambda t: t.pow(2).mean(-1),
    "square by hand": lambda t: (t * t).sum(),
    "outer then sum": lambda t: (t[..., None] * gate[:, :, None]).sum(-1),
    "part of a product": lambda t: (t * gate)[:, 1:].sum(),
    "products put together": lambda t: torch.stack([t * gate, t]).sum(0),
    "running": lambda t: (t * gate).cumsum(1),
    "pooled": lambda t: F.avg_pool2d((t * gate)[None], (1, 2)),
    "scattered": lambda t: torch.zeros(2, 4).index_add_(0, torch.tensor([0, 1, 1]), (t * gate)[0]),
    "put and added": lambda t: torch.zeros(2, 4).index_put_((rows,), (t * gate)[0], accumulate=True),
    "put flat and added": lambda t: torch.zeros(8).put_(torch.arange(12) % 8, t * gate, accumulate=True),
    "scattered and reduced": lambda t: torch.zeros(1, 3, 4).scatter_(1, places, t * gate, reduce="add"),
    "counted with weights": lambda t: torch.bincount(torch.arange(12), weights=(t * gate).flatten()),
    "a bag of products": lambda t: F.embedding_bag(rows[None], (t * gate)[0], mode="sum"),
    "a list of products": lambda t: torch._foreach_mul([t, w], [gate, w])[0].sum(-1),
    "a list of fused products": lambda t: torch._foreach_addcmul([w, t], [w, t], [w, gate])[1].sum(-1),
    "outer product onto": lambda t: torch.addr(t[0], t[0, :, 0], w).sum(-1),
    "product with a logarithm": lambda t: torch.xlogy(t, gate).sum(-1),
    "fused product": lambda t: torch.addcmul(t, t, gate).sum(-1),
    "root mean square": lambda t: F.rms_norm(t, (4,)),
    "cosine": lambda t: F.cosine_similarity(t, gate, dim=-1),
    "in a loop": lambda t: sum((t[:, i] * gate[:, i]).sum(-1) for i in range(3)),
}
PLAIN = {
    "sum": lambda t: t.sum(-1),
    "mean": lambda t: t.mean((0, 1)),
    "scaled sum": lambda t: (t * 2).sum(-1),
    "scaled by one element": lambda t: (t * w[0]).sum(-1),
    "sum before the product": lambda t: t * t.mean(-1, keepdim=True),
    "product alone": lambda t: t * gate + t,
    "cube": lambda t: (t**3).sum(),
    "product of another size": lambda t: (w * w, t.sum(-1)),
    "product put in its place": lambda t: torch.zeros(3, 4).index_put_((rows,), (t * gate)[0]),
    "product put flat": lambda t: torch.zeros(12).put_(torch.arange(12), t * gate),
    "product scattered": lambda t: torch.zeros(1, 3, 4).scatter_(1, places, t * gate),
    "a list that is scaled": lambda t: torch._foreach_mul([t, gate], 2.0)[0].sum(-1),
    "maximum of a product": lambda t: (t * gate).amax(-1),
}


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("functional", ["audit", "estimate"])
@pytest.mark.parametrize("name", HIDDEN)
def test_a_sum_of_products_is_never_complete(name, functional):
    report = torchscan.scan(Around(HIDDEN[name]), args=(x,), functional=functional)
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48
    assert any("macs" in reasons for reasons in alarms(report).values())


@pytest.mark.parametrize("functional", ["audit", "estimate"])
@pytest.mark.parametrize("name", PLAIN)
def test_another_sum_has_no_macs(name, functional):
    report = torchscan.scan(Around(PLAIN[name]), args=(x,), functional=functional)
    assert (report.totals.macs.status, report.totals.macs.value) == ("complete", 48)


def test_a_matrix_product_is_no_hidden_sum():
    # 3 outputs of 4 terms
    assert estimate(Around(lambda t: t @ w), x).totals.macs.value == 48 + 12


def test_a_hidden_sum_still_has_its_flops_and_accesses():
    report = estimate(Around(lambda t: (t * gate).sum(-1)), x)
    # linear 84; 12 products, 9 adds
    assert report.totals.module_flops.value == 84 + 12 + 9
    assert report.totals.dmas.value == 40 + 36 + 15


def test_a_handlers_own_sum_is_explained():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.RMSNorm(4))
    # 12 squares and 12 products with the weight
    assert torchscan.scan(model, args=(x,)).totals.macs.value == 48 + 24


# -- operands that are not dense -------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_product_has_no_dense_count(layout):
    eye = torch.eye(4).to_sparse() if layout == "coo" else torch.eye(4).to_sparse_csr()
    dense = torch.rand(4, 3)
    # first the dense product, so that nothing remembered of it is taken for the sparse one
    report = estimate(Function(lambda s, d: (s.to_dense() @ d, s @ d)), eye, dense)
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48
    assert report.operator_flops.total.status == "partial"
    assert alarms(report)["aten.mm"] == ("macs", "module_flops", "dmas")


def test_a_nested_product_has_no_dense_count():
    parts = [torch.rand(2, 3), torch.rand(1, 3)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    report = estimate(Function(lambda t: F.linear(t, torch.rand(5, 3))), nested)
    assert report.totals.macs.status != "complete"


class LowRank(torch.Tensor):
    """A weight that is put together whenever an operator takes it, as classes of quantized tensors do."""

    @staticmethod
    def __new__(cls, left, right):
        shape = (left.shape[0], right.shape[1])
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=left.dtype)

    def __init__(self, left, right):
        self.left, self.right = left, right

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [arg.left @ arg.right if isinstance(arg, cls) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


@pytest.mark.parametrize("functional", ["audit", "estimate"])
@pytest.mark.parametrize("function", [lambda t, w: t[0] @ w, lambda t, w: t + w[:3], lambda t, w: (t, w.t())])
def test_a_tensor_class_may_run_anything_out_of_sight(function, functional):
    weight = LowRank(torch.rand(4, 2), torch.rand(2, 4))
    report = torchscan.scan(Around(lambda t: function(t, weight)), args=(x,), functional=functional)
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48  # of the layer; 32 and more are not seen
    assert ("macs", "module_flops", "dmas") in alarms(report).values()
    assert report.operator_flops.total.status == "partial"
