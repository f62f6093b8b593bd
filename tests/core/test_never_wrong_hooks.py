"""What hooks and listeners do: never complete and wrong, and nothing where they only look."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchscan
from core.never_wrong_support import W, X, macs, times_w
from torchscan import Scanner, scan


class TestHooks:
    """What hooks compute is work that no handler explains, wherever the hook sits."""

    # Linear(4, 4) on 3 rows: 3 * 4 * 4 = 48 products; a hook that multiplies by a (4, 4) matrix: 48 more.

    @pytest.mark.parametrize("hooked", [0, 1])
    def test_pre_hook_beside_an_equal_call_without_one(self, hooked):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[hooked].register_forward_pre_hook(lambda module, args: (times_w(args[0]),))
        assert macs(scan(model, args=(X,))) == ("partial", 96)
        assert macs(scan(model, args=(X,), functional="estimate")) == ("complete", 144)

    @pytest.mark.parametrize("wrap", [lambda module: module, nn.Sequential], ids=["root", "child"])
    @pytest.mark.parametrize(
        "register",
        [
            lambda module: module.register_forward_pre_hook(lambda m, args: (times_w(args[0]),)),
            lambda module: module.register_forward_hook(lambda m, args, out: times_w(out)),
        ],
        ids=["pre-hook", "forward hook"],
    )
    def test_every_place_of_a_hook(self, register, wrap):
        layer = nn.Linear(4, 4)
        register(layer)
        model = wrap(layer)
        assert macs(scan(model, args=(X,))) == ("partial", 48)
        estimated = scan(model, args=(X,), functional="estimate")
        assert macs(estimated) == ("complete", 96)
        # the operator view: 2 * 48 for each product, both of them
        assert estimated.totals.operator_flops.value == 192
        for execution in ("real", "fake"):
            skipped = scan(model, args=(X,), functional="skip", metrics=["macs"], execution=execution)
            assert macs(skipped) == ("partial", 48)
        with Scanner().observe(model) as observation, torch.no_grad():
            model.eval()(X)
        assert macs(observation.report()) == ("partial", 48)

    def test_hooks_that_only_look_cost_nothing(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        seen = []
        model[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
        model[1].register_forward_pre_hook(lambda module, args: seen.append(args[0].shape))
        report = scan(model, args=(X,), strict=True)
        assert macs(report) == ("complete", 96)
        assert seen == [(3, 4)] * 2

    # Encoder layer, E = 4, F = 8, 3 tokens: 504 products; a hook on linear1 multiplies (3, 8) by (8, 8): 192 more.

    @pytest.mark.parametrize(
        "build",
        [
            lambda layer: layer,
            lambda layer: nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
            lambda layer: nn.Sequential(layer),
        ],
        ids=["layer", "stack", "wrapped"],
    )
    def test_hooks_inside_of_what_a_native_handler_owns(self, build):
        def grow(module, args, out):
            return out @ torch.ones(8, 8)

        def look(module, args, out):
            return None

        tokens = torch.ones(1, 3, 4)
        for hook, status, known in ((look, "complete", 504), (grow, "partial", 504)):
            model = build(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
            for module in model.modules():
                if isinstance(module, nn.Linear) and module.out_features == 8:
                    module.register_forward_hook(hook)
            report = scan(model, args=(tokens,))
            assert macs(report) == (status, known)
            assert macs(scan(model, args=(tokens,), functional="estimate")) == (
                "complete",
                known if hook is look else 504 + 192,
            )

    def test_equal_operators_in_a_hook_and_in_the_body_add_up(self):
        class Adds(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(4, 4, bias=False)

            def forward(self, x):
                return self.fc(x) + 1

        model = Adds()
        model.fc.register_forward_hook(lambda module, args, out: out + 1)
        # 3 * 4 * 7 in the layer, one add for each of 12 outputs in the hook, one in the body
        assert scan(model, args=(X,), functional="estimate").totals.module_flops.value == 84 + 12 + 12

    def test_a_contraction_that_a_hook_writes_out(self):
        layer = nn.Linear(4, 4)
        layer.register_forward_pre_hook(lambda module, args: ((args[0][:, :, None] * W).sum(1),))
        for functional in ("audit", "estimate"):
            assert macs(scan(layer, args=(X,), functional=functional)) == ("partial", 48)


class Listens:
    """A plugin that computes with what it hears."""

    @torchscan.hookimpl
    def torchscan_call_estimated(self, call, layer):
        times_w(call.output)
        call.module(*call.args)


@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_what_listeners_compute_is_no_work_of_the_model(functional):
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x))

    model = Two()
    scanner = Scanner([Listens()])
    reports = [
        scanner.scan(model, args=(X,), functional=functional),
        scan(model, args=(X,), functional=functional, progress=lambda calls: times_w(X)),
    ]
    with scanner.observe(model, functional=functional) as observation, torch.no_grad():
        model.eval()(X)
    reports.append(observation.report())
    for report in reports:
        assert macs(report) == ("complete", 96)
        assert report.totals.operator_flops.value == 192
        assert len(report.layers) == 3


class TestTokensUnderHooks:
    @staticmethod
    def relation(hook, **options):
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        if hook is not None:
            layer.linear2.register_forward_hook(hook)
        mask = nn.Transformer.generate_square_subsequent_mask(3)
        model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        report = scan(model, args=(torch.ones(1, 3, 4), mask), **options)
        return report.layers[0].token_dependencies, report

    def test_a_hook_that_turns_tokens_around_leaves_no_relation(self):
        found, _ = self.relation(None)
        assert found.sources[0].relation.kind == "prefix"
        found, _ = self.relation(lambda module, args, out: None)
        assert found.sources[0].relation.kind == "prefix"
        # the first output now sees the last token
        found, report = self.relation(lambda module, args, out: out.flip(1))
        assert (found.status, found.reason) == ("unavailable", "hooks")
        assert any(d.code == "unsupported_token_dependencies" and d.path == "" for d in report.diagnostics)

    def test_where_nobody_looked_nobody_knows(self):
        for hook, status in ((None, "complete"), (lambda module, args, out: out.flip(1), "unavailable")):
            found, _ = self.relation(hook, metrics=["token_dependencies"])
            assert found.status == status
