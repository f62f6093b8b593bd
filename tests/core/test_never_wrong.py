"""Calls that once were complete and wrong, or could be: each expected number with its arithmetic."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

import torchscan
from torchscan import Scanner, scan

X = torch.ones(3, 4)
W = torch.ones(4, 4)


def times_w(value):
    return value @ W


def macs(report):
    return report.totals.macs.status, report.totals.macs.known_value


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


class Numpy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() @ W.numpy())


class BesideNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(torch.from_numpy(x.numpy() @ W.numpy()))


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_values_that_leave_for_numpy_and_come_back(functional):
    assert macs(scan(Numpy(), args=(X,), functional=functional))[0] == "unavailable"
    assert macs(scan(BesideNumpy(), args=(X,), functional=functional)) == ("partial", 48)
    assert macs(scan(Constant(), args=(X,), functional=functional)) == ("complete", 48)


class Given(nn.Module):
    """Hands out a tensor that no operator made."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make
        self.table = torch.ones(3, 4)

    def forward(self, x):
        return self.make(self, x)


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (lambda module, x: x, "complete"),
        (lambda module, x: module.table, "complete"),
        (lambda module, x: {"y": [x, (module.table, None)]}, "complete"),
        # what a compiled extension returns: a tensor that was never there before
        (lambda module, x: torch.from_dlpack(np.ones((3, 4), dtype=np.float32)), "unavailable"),
    ],
    ids=["argument", "attribute", "nested", "elsewhere"],
)
def test_a_leaf_without_operators_did_nothing_only_if_it_made_nothing(make, status):
    assert scan(Given(make), args=(X,), functional="estimate").totals.macs.status == status


class Picks(nn.Module):
    """Takes the rows that a mask names."""

    def __init__(self, *masks) -> None:
        super().__init__()
        self.masks = [torch.tensor(mask) for mask in masks]

    def forward(self, x):
        return [x[mask] for mask in self.masks]


def test_results_whose_size_is_a_matter_of_values():
    # Masks of 3 entries pick 1, 2 or 3 rows of 4: 3 positions read, and each entry read and written.
    # 3 + 2 * 4 = 11, 3 + 2 * 8 = 19, 3 + 2 * 12 = 27
    one, two, three = [True, False, False], [True, True, False], [True, True, True]
    for masks, dmas in (([one], 11), ([three], 27), ([two], 19), ([one, two, three, one], 11 + 19 + 27 + 11)):
        assert scan(Picks(*masks), args=(X,), functional="estimate").totals.dmas.value == dmas


def test_foreign_operators_that_answer_with_a_number():
    @torch.library.custom_op("never_wrong::inner_product", mutates_args=())
    def inner_product(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a * b).sum())

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            x = self.fc(x)
            return x, torch.ops.never_wrong.inner_product(x, x)

    for functional in ("audit", "estimate"):
        report = scan(Inner(), args=(X,), functional=functional)
        assert macs(report) == ("partial", 48)
        assert "never_wrong.inner_product" in {d.operator for d in report.diagnostics}
        assert report.totals.operator_flops.status == "partial"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
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


def test_a_strict_failure_travels_between_processes():
    with pytest.raises(torchscan.IncompleteAnalysisError) as caught:
        scan(Numpy(), args=(X,), strict=True)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.report) == (str(caught.value), caught.value.report)


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


class Causal(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_causal_attention_costs_the_same_on_every_path():
    # batch 2, one head, 3 tokens of width 4: Q = J = V = O = 24, A = 2 * 9 = 18, R = 6
    # FLOPs: scaling 24 + 24, scores 18 * 7, select 9, add 18, softmax 5 * 18 - 2 * 6, weighted values 24 * 5
    flops = 48 + 126 + 9 + 18 + 78 + 120
    # DMAs: scaling 48 + 48, scores 24 + 24 + 18, select 9 + 2 + 9, add 9 + 18 + 18, softmax 8 * 18 + 4 * 6,
    # weighted values 18 + 24 + 24
    dmas = 96 + 66 + 20 + 45 + 168 + 66
    x = torch.ones(2, 1, 3, 4)
    for kernel in ([SDPBackend.MATH], [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        for execution in ("real", "fake"):
            with sdpa_kernel(kernel):
                totals = scan(Causal(), args=(x,), functional="estimate", execution=execution).totals
            # 18 scores of 4 terms, 24 values of 3
            assert (totals.macs.value, totals.module_flops.value, totals.dmas.value) == (72 + 72, flops, dmas)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.LayerNorm(4)
        self.third = nn.LayerNorm(4)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [
        (2**60 + 1, 0.5, 2**60 + 2),  # two halves
        (2**60 + 1, 1.0, 2**60 + 3),
        (0, 0.1, 0.2),
        (1, 1e308, 1 + 2 * int(1e308)),  # beyond what a float can hold, and whole
        (10**400, 0.25, 10**400),  # nothing but an integer can hold it: the half is rounded away
    ],
)
def test_a_float_costs_large_integers_nothing(first, others, expected):
    handlers = {nn.Linear: lambda call: {"macs": first}, nn.LayerNorm: lambda call: {"macs": others}}
    total = scan(Pair(), args=(X,), custom_modules=handlers).totals.macs
    assert (total.status, total.value) == ("complete", expected)
    assert type(total.value) is type(expected)


class Mapped(Mapping):
    """A result that computes what it holds when it is read."""

    def __init__(self, numbers) -> None:
        self.numbers = numbers

    def __getitem__(self, name):
        if self.numbers is None:
            raise ZeroDivisionError("late")
        return self.numbers[name]

    def __iter__(self):
        return iter(self.numbers or ["macs"])

    def __len__(self):
        return 1


def test_results_that_are_computed_when_they_are_read():
    class Items(dict):
        def items(self):
            raise ZeroDivisionError("late")

    for result in (Mapped(None), Items(macs=3)):
        report = scan(Pair(), args=(X,), custom_modules={nn.Linear: lambda call, result=result: result})
        # two affine norms of 12 elements, squares and weights: 4 * 12
        assert macs(report) == ("partial", 48)
        assert any("ZeroDivisionError: late" in d.message for d in report.diagnostics if d.path == "first")
    report = scan(Pair(), args=(X,), custom_modules={nn.Linear: lambda call: Mapped({"macs": 7})})
    assert macs(report) == ("complete", 7 + 48)
