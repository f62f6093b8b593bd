"""Calls that PyTorch announces otherwise, or not at all: never complete and wrong."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import torchscan
from core.never_wrong_support import X, macs, times_w
from torchscan import scan


class OwnCall(nn.Linear):
    def __call__(self, x):
        return times_w(super().__call__(times_w(x)))


class NoHooks(nn.Module):
    """Calls its forward by itself, so that PyTorch calls no hook for it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        return self.fc(times_w(x))


class TestOwnCall:
    """A class with a `__call__` of its own works where no hook of PyTorch's is heard."""

    @pytest.mark.parametrize("wrap", [lambda module: module, nn.Sequential], ids=["root", "child"])
    def test_work_around_the_call(self, wrap):
        # 48 in the layer, 48 before and 48 after it
        assert macs(scan(wrap(OwnCall(4, 4)), args=(X,))) == ("partial", 48)
        assert macs(scan(wrap(OwnCall(4, 4)), args=(X,), functional="estimate")) == ("complete", 144)

    @pytest.mark.parametrize("wrap", [lambda module: module, nn.Sequential], ids=["root", "child"])
    def test_a_call_that_nobody_hears(self, wrap):
        model = wrap(NoHooks())
        report = scan(model, args=(X,))
        assert macs(report) == ("partial", 48)
        root = report.layers[0]
        assert (root.path, root.type) == ("", type(model).__name__)
        assert root.input.args[0].shape == (3, 4)
        assert root.output.shape == (3, 4)
        assert report.totals.parameters.value == 20
        assert macs(scan(model, args=(X,), functional="estimate")) == ("complete", 96)

    def test_a_leaf_that_nobody_hears(self):
        class Alone(nn.Linear):
            def __call__(self, x):
                return self.forward(x)

        assert macs(scan(Alone(4, 4), args=(X,)))[0] == "unavailable"
        assert macs(scan(Alone(4, 4), args=(X,), functional="estimate")) == ("complete", 48)


@pytest.mark.parametrize("functional", ["audit", "estimate", "skip"])
@pytest.mark.parametrize("container", [nn.Sequential(nn.Linear(4, 4)), nn.Sequential()], ids=["full", "empty"])
def test_a_container_whose_instance_has_another_forward(container, functional):
    container.forward = times_w
    state = macs(scan(container, args=(X,), functional=functional))
    assert state == (("complete", 48) if functional == "estimate" else ("unavailable", None))


class InThreads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.here = nn.Linear(4, 4)
        self.there = nn.Linear(4, 4)

    def forward(self, x):
        with ThreadPoolExecutor(1) as pool:
            return self.here(x), pool.submit(self.there, x).result()


@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_modules_called_in_other_threads_are_missed_and_said_to_be(functional):
    report = scan(InThreads(), args=(X,), functional=functional)
    for name in ("macs", "module_flops", "dmas", "operator_flops"):
        assert getattr(report.totals, name).status == "partial"
    assert macs(report) == ("partial", 48)
    assert [d.path for d in report.diagnostics if d.code == "unobserved_call"] == ["there"]
    with pytest.raises(torchscan.IncompleteAnalysisError):
        scan(InThreads(), args=(X,), strict=True)


def test_two_models_in_two_threads_do_not_take_the_other_for_their_own():
    barrier = Barrier(2)

    class Meets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            barrier.wait(10)
            x = self.fc(x)
            barrier.wait(10)
            return x

    with ThreadPoolExecutor(2) as pool:
        for report in pool.map(lambda _: scan(Meets(), args=(X,)), range(2)):
            assert macs(report) == ("complete", 48)
            assert not report.diagnostics


@pytest.mark.filterwarnings("ignore:.*deprecated")  # TorchScript is, as a whole
class TestTorchScript:
    # 3 rows: Linear(4, 8) has 3 * 8 dot products of 4 terms (7 FLOPs) and biases, ReLU 24, Linear(8, 2) 3 * 2 of 15 + 1
    FLOPS = 3 * 8 * 8 + 24 + 3 * 2 * 16
    MACS = 3 * 32 + 3 * 16

    @pytest.mark.parametrize("warm", [0, 1, 3])
    @pytest.mark.parametrize("build", ["traced", "scripted", "frozen", "optimized"])
    def test_what_it_optimizes_is_no_work_of_the_call(self, build, warm):
        plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
        module = torch.jit.script(plain) if build == "scripted" else torch.jit.trace(plain, X)
        if build == "frozen":
            module = torch.jit.freeze(module)
        if build == "optimized":
            module = torch.jit.optimize_for_inference(module)
        for _ in range(warm):
            module(X)
        for functional in ("estimate", "audit"):
            report = scan(module, args=(X,), functional=functional)
            if functional == "audit":
                assert macs(report) == ("unavailable", None)
            else:
                assert (macs(report), report.totals.module_flops.value) == (("complete", self.MACS), self.FLOPS)
        assert torch._C._get_graph_executor_optimize()


class TestReplacedFunctions:
    """A formula describes what PyTorch computes; operators tell when something else runs under its name."""

    # Linear(4, 4) on 3 rows is 48 products; the replacement multiplies by a (4, 4) matrix first: 96 were dispatched.

    @pytest.fixture
    def twice(self, monkeypatch):
        original = F.linear
        monkeypatch.setattr(F, "linear", lambda x, w, b=None: original(x @ torch.ones(x.shape[-1], x.shape[-1]), w, b))

    @pytest.mark.usefixtures("twice")
    @pytest.mark.parametrize("execution", ["real", "fake"])
    @pytest.mark.parametrize("functional", ["audit", "estimate"])
    def test_a_replaced_function_makes_a_layer_a_lower_bound(self, functional, execution):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        report = scan(model, args=(X,), functional=functional, execution=execution)
        for name, known in (("macs", 96), ("module_flops", 192), ("dmas", 2 * (12 + 20 + 12))):
            assert getattr(report.totals, name).status == "partial"
            assert getattr(report.totals, name).known_value == known
        assert {d.path for d in report.diagnostics if d.code == "unattributed_operator"} == {"0", "1"}

    @pytest.mark.usefixtures("twice")
    def test_below_what_a_native_stack_owns(self):
        # E = 4, F = 8, 3 tokens: 504 products; unfused, so that the replaced function runs in both linears
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        layer.linear1.register_forward_hook(lambda module, args, out: None)
        for model in (layer, nn.Sequential(layer)):
            assert macs(scan(model, args=(torch.ones(1, 3, 4),))) == ("partial", 504)

    def test_a_mode_that_rewrites_calls(self):
        class Twice(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is F.linear:
                    return func(times_w(args[0]), *args[1:], **(kwargs or {}))
                return func(*args, **(kwargs or {}))

        with Twice():
            assert macs(scan(nn.Linear(4, 4), args=(X,))) == ("partial", 48)
        assert macs(scan(nn.Linear(4, 4), args=(X,))) == ("complete", 48)


@pytest.mark.parametrize("execution", ["real", "fake"])
def test_a_model_as_deep_as_python_lets_it_be(execution):
    class Onion(nn.Module):
        def __init__(self, inner) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    limit = sys.getrecursionlimit()
    model: nn.Module = nn.Linear(4, 4)
    for _ in range(200):
        model = Onion(model)
    while True:  # as many layers as run without a scan
        deeper = Onion(model)
        try:
            with torch.no_grad():
                deeper(X)
        except RecursionError:
            break
        model = deeper
    report = scan(model, args=(X,), execution=execution)
    assert macs(report) == ("complete", 48)
    assert len(report.layers) > 200
    assert sys.getrecursionlimit() == limit
    assert type(report).from_dict(report.to_dict()) == report
    for shape in ("text", "markdown", "html", "svg", "csv"):
        assert torchscan.render_report(report, format=shape)
