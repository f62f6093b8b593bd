"""The audit of a body's own work: never complete and wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchscan
from torchscan import HandlerRegistration, ModuleHandler, Scanner, scan


def operators(report, metric="macs"):
    return sorted(
        (d.path, d.operator) for d in report.diagnostics if d.code == "unattributed_operator" and metric in d.reason
    )


class Body(nn.Module):
    """A linear layer, and something done to its output in the body."""

    def __init__(self, own) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)
        self.own = own

    def forward(self, x):
        return self.own(self.fc(x))


# input (3, 4): the layer alone is 3 * 4 * 4 = 48 products
CONTRACTIONS = {
    "matmul": (lambda y: y @ y.T, 3 * 3 * 4),
    "einsum": (lambda y: torch.einsum("ij,kj->ik", y, y), 3 * 3 * 4),
    "linear": (lambda y: F.linear(y, torch.ones(2, 4)), 3 * 2 * 4),
    "batched": (lambda y: torch.ones(2, 5, 3) @ y, 2 * 5 * 4 * 3),
    "convolution": (lambda y: F.conv1d(y[None], torch.ones(2, 3, 2)), 2 * 3 * 3 * 2),
    "attention": (lambda y: F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None]), 2 * 3 * 3 * 4),
    "vector": (lambda y: torch.mv(y, torch.ones(4)), 3 * 4),
    "dot": (lambda y: torch.dot(y[0], y[1]), 4),
    "addmm": (lambda y: torch.addmm(torch.ones(3, 3), y, y.T), 3 * 3 * 4),
    "functional norm": (lambda y: F.layer_norm(y, (4,)), 12),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
@pytest.mark.parametrize("outer", [lambda module: module, nn.Sequential], ids=["bare", "wrapped"])
def test_a_contraction_in_a_body_makes_macs_a_lower_bound(name, outer):
    own, macs = CONTRACTIONS[name]
    module = outer(Body(own))
    x = torch.ones(3, 4)
    audited = scan(module, args=(x,))
    assert audited.totals.macs.status == "partial"
    assert audited.totals.macs.known_value == 48
    assert operators(audited)
    estimated = scan(module, args=(x,), functional="estimate")
    assert estimated.totals.macs.status == "complete"
    assert estimated.totals.macs.value == 48 + macs


@pytest.mark.parametrize(
    "own",
    [
        lambda y: y.transpose(0, 1).reshape(2, 6),
        lambda y: y.view(-1)[None].expand(2, 12),
        lambda y: y.contiguous().clone().to(torch.float64),
        lambda y: y.chunk(2, -1)[0].detach(),
    ],
)
def test_views_copies_and_conversions_are_no_work(own):
    report = scan(Body(own), args=(torch.ones(3, 4),))
    for name in ("macs", "module_flops", "dmas"):
        assert getattr(report.totals, name).status == "complete"


@pytest.mark.parametrize("own", [lambda y: y + 1, torch.tanh, lambda y: y.amax(-1), lambda y: y.softmax(-1)])
def test_arithmetic_without_products_leaves_macs_complete(own):
    report = scan(Body(own), args=(torch.ones(3, 4),))
    assert report.totals.macs.value == 48
    assert report.totals.module_flops.status == "partial"
    assert report.totals.dmas.status == "partial"


def test_moving_data_affects_accesses_alone():
    report = scan(Body(lambda y: torch.cat([y, y])), args=(torch.ones(3, 4),))
    assert report.totals.macs.status == "complete"
    assert report.totals.module_flops.status == "complete"
    assert report.totals.dmas.status == "partial"


def test_integer_index_work_is_no_work():
    report = scan(Body(lambda y: y.view(12)[None] if (torch.arange(4) + 1).sum() else y), args=(torch.ones(3, 4),))
    for name in ("macs", "module_flops", "dmas"):
        assert getattr(report.totals, name).status == "complete"


@pytest.mark.parametrize(
    "own",
    [
        lambda y: (y * y[0]).sum(-1),
        lambda y: (y.unsqueeze(0) * y.unsqueeze(1)).sum(-1),
        lambda y: (y * y[0] + y).mean(-1),
        lambda y: y.pow(2).mean(-1),
    ],
)
@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_a_sum_of_products_is_never_complete(own, functional):
    report = scan(Body(own), args=(torch.ones(3, 4),), functional=functional)
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48


def test_scaling_by_a_number_and_adding_makes_no_products():
    report = scan(Body(lambda y: (y * 2.0).sum(-1)), args=(torch.ones(3, 4),))
    assert report.totals.macs.value == 48


if not hasattr(torch.ops.torchscan_test, "mystery"):

    @torch.library.custom_op("torchscan_test::mystery", mutates_args=())
    def mystery(x: torch.Tensor) -> torch.Tensor:
        return x @ x.T


@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_an_unknown_operator_may_hide_anything(functional):
    report = scan(Body(torch.ops.torchscan_test.mystery), args=(torch.ones(3, 4),), functional=functional)
    assert report.totals.macs.status == "partial"
    assert ("", "torchscan_test.mystery") in operators(report)
    assert "torchscan_test.mystery" in {d.operator for d in report.diagnostics if d.code == "uncounted_operator"}


def test_one_diagnostic_per_operator_and_path_with_the_number_of_calls():
    report = scan(Body(lambda y: (y @ y.T) @ (y @ y.T)), args=(torch.ones(3, 4),))
    (alarm,) = [d for d in report.diagnostics if d.code == "unattributed_operator"]
    assert (alarm.path, alarm.operator, alarm.calls) == ("", "aten.mm", 3)
    assert "functional='estimate'" in alarm.message


def test_a_handler_explains_its_own_body():
    report = scan(Body(lambda y: y @ y.T), args=(torch.ones(3, 4),), custom_modules={Body: lambda call: {"macs": 36}})
    assert report.totals.macs.value == 48 + 36
    # what it left out is still its body's affair
    assert report.totals.module_flops.status == "partial"
    assert operators(report) == []


def test_a_leaf_without_handler_is_unavailable_until_it_is_estimated():
    class Leaf(nn.Module):
        def forward(self, a, b):
            return a @ b

    arguments = (torch.ones(2, 3, 4), torch.ones(2, 4, 5))
    report = scan(Leaf(), args=arguments)
    assert report.totals.macs.status == "unavailable"
    assert {d.metric for d in report.diagnostics if d.code == "unsupported_module_metric"} >= {"macs", "dmas"}
    report = scan(Leaf(), args=arguments, functional="estimate")
    # 2 * 3 * 5 outputs of 4 products; 2 * 4 - 1 FLOPs each; operands read and result written once
    assert report.totals.macs.value == 120
    assert report.totals.module_flops.value == 30 * 7
    assert report.totals.dmas.value == 24 + 40 + 30
    assert report.layers[0].metrics["macs"].method == "operator_formula"


def test_fused_work_inside_an_owned_call_raises_no_alarm():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    report = scan(layer, args=(torch.ones(1, 3, 8),))
    assert report.totals.macs.status == "complete"
    assert [d for d in report.diagnostics if d.code == "unattributed_operator"] == []
    names = {*report.operator_flops.by_operator, *(d.operator for d in report.operator_flops.diagnostics)}
    assert "aten._transformer_encoder_layer_fwd" in names  # the scan did not switch the fast path off


def test_without_the_audit_a_composite_is_a_lower_bound():
    report = scan(Body(lambda y: y), args=(torch.ones(3, 4),), functional="skip")
    assert report.totals.macs.status == "partial"
    assert report.totals.macs.known_value == 48
    assert [d.path for d in report.diagnostics if d.code == "unaudited_module"] == [""]
    pure = scan(nn.Sequential(nn.Linear(4, 4)), (4,), functional="skip")
    assert pure.totals.macs.value == 16


class Moe(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(2, 2, bias=False)
        self.experts = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(2))
        self.router.weight.data = torch.eye(2)

    def forward(self, x):
        pick, out = self.router(x).argmax(-1), torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            if (pick == index).any():
                out[pick == index] = expert(x[pick == index])
        return out


def test_routed_work_is_that_of_this_call():
    # the router sees 3 rows (3 * 4 products); both rows that pick expert 0 and the one that picks 1 cost 4 each
    x = torch.tensor([[1.0, 0], [1, 0], [0, 1]])
    assert scan(Moe(), args=(x,)).totals.macs.value == 12 + 8 + 4
    report = scan(Moe(), args=(x[:2],))
    assert report.totals.macs.value == 8 + 8
    assert report.totals.parameters.value == 12
    assert [layer.path for layer in report.layers] == ["", "router", "experts.0"]


def test_a_packs_operator_formula_is_used():
    class Pack:
        @torchscan.hookimpl
        def torchscan_register_operator_formulas(self):
            yield torchscan.OperatorFormula(
                "torchscan_test.mystery",
                "contraction",
                lambda shape, out_shape=None, **kwargs: 2 * shape[0] * shape[0] * shape[1],
                lambda call: {"macs": call.args[0].shape[0] ** 2 * call.args[0].shape[1]},
            )

    module, x = Body(torch.ops.torchscan_test.mystery), torch.ones(3, 4)
    report = Scanner([Pack()]).scan(module, args=(x,), functional="estimate")
    assert report.totals.macs.value == 48 + 36
    assert report.operator_flops.by_operator["torchscan_test.mystery"] == 72
    assert scan(module, args=(x,), functional="estimate").totals.macs.status == "partial"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("execution", ["real", "fake"])
def test_the_same_numbers_on_every_device_and_dtype(dtype, device, execution):
    module = nn.Sequential(Wrapped(), nn.LayerNorm(8)).to(dtype=dtype, device=device)
    x = torch.ones(2, 3, 8, dtype=dtype, device=device)
    report = scan(module, args=(x,), execution=execution, functional="estimate")
    # attention of width 8: 4 * 6 * 64 + 2 * 2 * 9 * 8; feed-forward 2 * 6 * 8 * 16; its norms 2 * 2 * 48;
    # then twice 6 * 3 products per head width in the body, and the last norm 2 * 48
    layer = 4 * 6 * 64 + 2 * 2 * 9 * 8 + 2 * 6 * 8 * 16 + 4 * 48
    assert report.totals.macs.value == layer + 2 * (2 * 3 * 3 * 8) + 2 * 48


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        x = self.layer(x)
        return (x @ x.transpose(1, 2)) @ x


def test_a_subclass_with_its_own_forward_gets_no_formula_by_accident():
    class Twice(nn.Linear):
        def forward(self, x):
            return super().forward(super().forward(x))

    module = Twice(3, 3, bias=False)
    x = torch.ones(1, 3)
    assert scan(module, args=(x,)).totals.macs.status == "unavailable"
    assert scan(module, args=(x,), functional="estimate").totals.macs.value == 18


def test_registrations_of_two_scanners_do_not_meet():
    class Leaf(nn.Module):
        def forward(self, x):
            return x

    class Pack:
        @torchscan.hookimpl
        def torchscan_register_handlers(self):
            yield HandlerRegistration(Leaf, ModuleHandler(lambda call: {"macs": 5}))

    assert Scanner([Pack()]).scan(Leaf(), (1,)).totals.macs.value == 5
    assert Scanner().scan(Leaf(), (1,)).totals.macs.status == "unavailable"


@pytest.mark.parametrize(
    "module", [nn.Linear(4, 4, bias=False), Body(lambda y: y), nn.Sequential(nn.Linear(4, 4, bias=False))]
)
def test_what_a_pre_hook_computes_is_not_explained_by_the_modules_handler(module):
    x = torch.ones(3, 4)
    handle = module.register_forward_pre_hook(lambda module, args: (args[0] @ torch.ones(4, 4),))
    try:
        audited = scan(module, args=(x,))
        assert (audited.totals.macs.status, audited.totals.macs.known_value) == ("partial", 48)
        assert ("", "aten.mm") in operators(audited)
        # the hook multiplies 3 rows of 4 by a 4 x 4 matrix too
        assert scan(module, args=(x,), functional="estimate").totals.macs.value == 96
        assert len(module._forward_pre_hooks) == 1
    finally:
        handle.remove()
    assert scan(module, args=(x,)).totals.macs.value == 48


def test_a_pre_hook_that_only_looks_changes_nothing():
    module = nn.Linear(4, 4)
    module.register_forward_pre_hook(lambda module, args: None)
    module.register_forward_pre_hook(lambda module, args: (args[0].view(3, 4),))
    assert scan(module, args=(torch.ones(3, 4),)).totals.module_flops.status == "complete"


def test_what_a_forward_hook_computes_belongs_to_the_caller():
    module = nn.Sequential(nn.Linear(4, 4, bias=False))
    module[0].register_forward_hook(lambda module, args, output: output @ torch.ones(4, 4))
    report = scan(module, args=(torch.ones(3, 4),))
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 48)


def test_what_a_forward_hook_of_the_root_computes_is_not_lost():
    module = nn.Linear(4, 4, bias=False)
    module.register_forward_hook(lambda module, args, output: output @ torch.ones(4, 4))
    report = scan(module, args=(torch.ones(3, 4),))
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 48)
    assert scan(module, args=(torch.ones(3, 4),), functional="estimate").totals.macs.value == 96
