"""Caller overrides: what a handler sees, what it may return, and which one decides."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchscan import (
    Complete,
    ModuleCall,
    ModuleEstimates,
    ModuleHandler,
    Output,
    Partial,
    Relation,
    Report,
    Scanner,
    Source,
    TokenDependencies,
    Unavailable,
    crawl_module,
    scan,
)

METRICS = ("module_flops", "macs", "dmas")
X = torch.ones(3, 4)


class Leaf(nn.Module):
    def forward(self, x, mask=None, *, scale=1.0):
        return x * 2


class Other(Leaf):
    pass


class Block(nn.Module):
    """Two children and no arithmetic of its own."""

    def __init__(self, first: nn.Module | None = None, second: nn.Module | None = None) -> None:
        super().__init__()
        self.first = Leaf() if first is None else first
        self.second = Leaf() if second is None else second

    def forward(self, x):
        return self.second(self.first(x))


def constant(**metrics):
    return lambda call: metrics


def run(module, custom, *, args=(X,), kwargs=None, **options) -> Report:
    return scan(module, args=args, kwargs=kwargs or {}, custom_modules=custom, **options)


def row(report: Report, path: str = "", call_index: int = 0):
    (found,) = [layer for layer in report.layers if (layer.path, layer.call_index) == (path, call_index)]
    return found


def about(report: Report, metric: str, path: str = "") -> list:
    return [d for d in report.diagnostics if d.path == path and d.metric in (metric, None)]


# What a handler sees


def test_the_call_holds_the_very_objects_of_the_invocation():
    seen: list[ModuleCall] = []
    module, mask, kwargs = Leaf(), torch.zeros(3), {"scale": 3.0}
    inside = {}
    module.register_forward_hook(lambda m, args, kw, output: inside.update(output=output), with_kwargs=True)
    run(module, {Leaf: lambda call: seen.append(call) or {}}, args=(X, mask), kwargs=kwargs)
    (call,) = seen
    assert isinstance(call, ModuleCall)
    assert call.module is module
    assert call.args[0] is X
    assert call.args[1] is mask
    assert len(call.args) == 2
    assert dict(call.kwargs) == kwargs
    assert call.kwargs["scale"] is kwargs["scale"]
    assert call.output is inside["output"]


def test_arguments_are_bound_with_defaults_however_they_were_passed():
    seen = []
    for args, kwargs in (((X,), {}), ((), {"x": X}), ((X, None), {"scale": 1.0})):
        run(Leaf(), {Leaf: lambda call: seen.append(dict(call.arguments)) or {}}, args=args, kwargs=kwargs)
    for arguments in seen:
        assert list(arguments) == ["x", "mask", "scale"]
        assert arguments["x"] is X
        assert arguments["mask"] is None
        assert arguments["scale"] == 1.0


def test_one_tensor_under_several_names_stays_one_object():
    seen = []

    class Three(nn.Module):
        def forward(self, query, key, value):
            return query

    run(Three(), {Three: lambda call: seen.append(call.args) or {}}, args=(X, X, X))
    assert all(argument is X for argument in seen[0])


def test_a_handler_runs_once_per_call_without_gradients_and_unseen_by_the_operator_view():
    modes = []

    def handler(call):
        modes.append(torch.is_grad_enabled())
        torch.ones(8, 8) @ torch.ones(8, 8)
        return {"macs": 0}

    shared = Leaf()
    report = run(Block(shared, shared), {Leaf: handler})
    assert modes == [False, False]
    assert "aten.mm" not in report.operator_flops.by_operator
    assert [layer.call_index for layer in report.layers if layer.path == "first"] == [0, 1]


def test_a_handler_is_told_what_is_wanted():
    wanted = []
    run(Leaf(), {Leaf: lambda call: wanted.append(call.requested) or {"macs": 1}}, metrics=["macs"])
    assert wanted == [frozenset({"macs"})]


# What a handler may return

KNOWN = {
    "an int": (7, ("complete", 7, 7)),
    "zero": (0, ("complete", 0, 0)),
    "a whole float": (7.0, ("complete", 7, 7)),
    "a float": (7.5, ("complete", 7.5, 7.5)),
    "a NumPy integer": (np.int64(7), ("complete", 7, 7)),
    "a NumPy float": (np.float32(2.5), ("complete", 2.5, 2.5)),
    "a fraction": (Fraction(15, 2), ("complete", 7.5, 7.5)),
    "Complete": (Complete(7), ("complete", 7, 7)),
    "Partial": (Partial(7), ("partial", None, 7)),
    "Unavailable": (Unavailable("because"), ("unavailable", None, None)),
    "None": (None, ("unavailable", None, None)),
    "a huge integer": (2**200 + 1, ("complete", 2**200 + 1, 2**200 + 1)),
}


def wire(status, value, known, **changes) -> dict[str, Any]:
    return {
        "status": status,
        "value": value,
        "known_value": known,
        "unit": "MACs",
        "scope": "module_call",
        "method": "by hand",
        **changes,
    }


KNOWN["wire complete"] = (wire("complete", 7, 7), ("complete", 7, 7))
KNOWN["wire partial"] = (wire("partial", None, 7), ("partial", None, 7))
KNOWN["wire unavailable"] = (wire("unavailable", None, None), ("unavailable", None, None))


@pytest.mark.parametrize("name", KNOWN)
def test_every_form_of_a_metric_means_its_state(name):
    value, expected = KNOWN[name]
    report = run(Leaf(), {Leaf: constant(macs=value)})
    result = row(report).metrics["macs"]
    assert (result.status, result.value, result.known_value) == expected
    assert (result.unit, result.scope) == ("MACs", "module_call")
    total = report.totals.macs
    assert (total.status, total.value, total.known_value) == expected
    if expected[0] == "complete":
        assert type(result.value) is type(expected[1])
        assert about(report, "macs") == []
    else:
        (diagnostic,) = about(report, "macs")
        kind = "partial" if expected[0] == "partial" else "unavailable"
        assert diagnostic.code == f"custom_metric_{kind}"


def test_a_reported_result_can_be_returned_as_it_is():
    first = crawl_module(Leaf(), args=(X,), custom_modules={Leaf: constant(macs=7)})
    again = run(Leaf(), {Leaf: constant(macs=first["layers"][0]["metrics"]["macs"])})
    assert row(again).metrics["macs"].value == 7


def test_the_method_names_the_handler_and_then_the_method_it_gives():
    def by_formula(call):
        return {"macs": 1, "dmas": wire("complete", 2, 2, unit="DMAs")}

    metrics = row(run(Leaf(), {Leaf: by_formula})).metrics
    name = f"custom_module_handler:{__name__}.{by_formula.__qualname__}"
    assert metrics["macs"].method == name
    assert metrics["dmas"].method == f"{name}:by hand"


INVALID = {
    "negative": -1,
    "a bool": True,
    "NaN": float("nan"),
    "infinite": float("inf"),
    "text": "7",
    "complex": 1 + 0j,
    "a tensor": torch.tensor(7),
    "a list": [7],
    "wire without a field": {"status": "complete", "value": 7, "known_value": 7},
    "wire with another field": {**wire("complete", 7, 7), "note": "x"},
    "wire with another unit": wire("complete", 7, 7, unit="FLOPs"),
    "wire with two numbers": wire("complete", 7, 8),
    "wire complete without a value": wire("complete", None, 7),
    "wire partial with a value": wire("partial", 7, 7),
    "wire partial without a number": wire("partial", None, None),
    "wire unavailable with a number": wire("unavailable", None, 7),
    "wire with an unknown status": wire("exact", 7, 7),
    "wire with a negative number": wire("complete", -7, -7),
    "wire with a bool": wire("complete", True, True),
    "wire with NaN": wire("partial", None, float("nan")),
    "wire with another scope": wire("complete", 7, 7, scope="forward"),
    "wire with a method that is no text": wire("complete", 7, 7, method=3),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_field_is_unavailable_and_costs_only_itself(name):
    report = run(Leaf(), {Leaf: constant(macs=INVALID[name], dmas=5)})
    metrics = row(report).metrics
    assert metrics["macs"].status == "unavailable"
    assert metrics["dmas"].value == 5
    (diagnostic,) = about(report, "macs")
    assert diagnostic.code == "custom_metric_invalid"
    assert report.totals.macs.status == "unavailable"
    json.loads(report.to_json())


@pytest.mark.parametrize("result", [None, 7, "macs", [("macs", 7)], {"flops": 7, "macs": 1}, {3: 4}, {"calls": 1}])
def test_a_result_that_is_no_mapping_or_names_an_unknown_metric_is_unavailable_as_a_whole(result):
    report = run(Leaf(), {Leaf: lambda call: result})
    for metric in METRICS:
        assert row(report).metrics[metric].status == "unavailable"
        assert [d.code for d in about(report, metric)] == ["custom_handler_invalid"]


def test_any_mapping_will_do():
    class Own(Mapping):
        def __getitem__(self, key):
            return {"macs": 7}[key]

        def __iter__(self):
            return iter(["macs"])

        def __len__(self):
            return 1

    assert row(run(Leaf(), {Leaf: lambda call: Own()})).metrics["macs"].value == 7
    assert row(run(Leaf(), {Leaf: lambda call: ModuleEstimates(macs=8)})).metrics["macs"].value == 8


def test_a_raising_handler_makes_its_metrics_unavailable_once_each_and_the_rest_goes_on():
    def raises(call):
        raise RuntimeError("no formula for this width")

    report = run(Block(Leaf(), Other()), {Leaf: raises, Other: constant(macs=5, dmas=6, module_flops=7)})
    for metric in METRICS:
        assert row(report, "first").metrics[metric].status == "unavailable"
        (diagnostic,) = about(report, metric, "first")
        assert (diagnostic.code, diagnostic.severity) == ("custom_handler_error", "error")
        assert "no formula for this width" in diagnostic.message
    assert row(report, "second").metrics["macs"].value == 5
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 5)


def test_a_raising_handler_leaves_the_models_own_result_and_error_alone():
    def raises(call):
        raise RuntimeError("handler")

    module, results = Leaf(), []
    module.register_forward_hook(lambda m, args, output: results.append(output))
    run(module, {Leaf: raises})
    assert torch.equal(results[0], X * 2)

    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("the model's own")

    with pytest.raises(KeyError, match="the model's own"):
        run(Fails(), {Fails: raises})


def test_an_interrupt_inside_a_handler_reaches_the_caller():
    def interrupted(call):
        raise KeyboardInterrupt

    module = Leaf().train()
    with pytest.raises(KeyboardInterrupt):
        run(module, {Leaf: interrupted})
    assert module.training
    assert row(run(module, {Leaf: constant(macs=1)})).metrics["macs"].value == 1


def test_a_handler_may_describe_token_relations():
    dependencies = TokenDependencies(
        "complete", (Source(("x",), 0, 3, Relation("prefix")),), Output(0, 3), ("written by hand",)
    )
    report = run(Leaf(), {Leaf: constant(macs=1, token_dependencies=dependencies)})
    found = row(report).token_dependencies
    assert found.sources == dependencies.sources
    assert found.method.startswith("custom_module_handler:")
    assert report.to_dict()["layers"][0]["token_dependencies"]["sources"][0]["relation"]["kind"] == "prefix"


@pytest.mark.parametrize(
    "dependencies",
    [
        "all",
        TokenDependencies("complete", (Source(("y",), 0, 3, Relation("all")),), Output(0, 3)),
        TokenDependencies("complete", (Source(("x",), 0, 5, Relation("all")),), Output(0, 3)),
        TokenDependencies.unavailable("sparse"),
        None,
    ],
)
def test_a_relation_that_does_not_fit_the_call_is_unavailable_and_says_so(dependencies):
    report = run(Leaf(), {Leaf: constant(macs=1, token_dependencies=dependencies)})
    assert row(report).metrics["macs"].value == 1
    found = row(report).token_dependencies
    assert found.status == "unavailable"
    assert found.sources == ()
    (diagnostic,) = [d for d in report.diagnostics if d.metric == "token_dependencies"]
    assert diagnostic.code == "unsupported_token_dependencies"


def test_integers_of_any_size_add_up_exactly():
    # Every one of them is odd and above 2**53, where a float would have lost the last digit.
    values = [2**60 + 1, 2**61 + 1]
    report = run(Block(Leaf(), Other()), {Leaf: constant(macs=values[0]), Other: constant(macs=values[1])})
    assert report.totals.macs.value == 2**60 + 2**61 + 2
    assert json.loads(report.to_json())["totals"]["macs"]["value"] == 2**60 + 2**61 + 2


# Which handler decides


@pytest.mark.parametrize("subset", [s for n in range(4) for s in itertools.combinations(METRICS, n)])
def test_any_subset_of_metrics_can_be_overridden_and_the_rest_falls_to_native(subset):
    # Linear(4, 2) on (3, 4): 48 FLOPs, 24 MACs, 28 DMAs
    native = {"module_flops": 48, "macs": 24, "dmas": 28}
    report = run(nn.Linear(4, 2), {nn.Linear: lambda call: dict.fromkeys(subset, 1000)})
    for metric in METRICS:
        result = row(report).metrics[metric]
        assert result.value == (1000 if metric in subset else native[metric])
        assert result.method.startswith("custom_module_handler:") == (metric in subset)
    assert row(report).handlers.get("macs") == ("caller" if "macs" in subset else "native")


def test_an_unavailable_metric_is_never_replaced_by_a_fallback():
    for value in (None, Unavailable("on purpose"), -1):
        report = run(nn.Linear(4, 2), {nn.Linear: constant(macs=value)})
        assert row(report).metrics["macs"].status == "unavailable"
        assert row(report).metrics["dmas"].value == 28


def test_the_closest_class_of_the_mro_wins_whatever_the_order_of_the_mapping():
    class Base(nn.Module):
        def forward(self, x):
            return x

    class Left(Base):
        pass

    class Right(Base):
        pass

    class Both(Left, Right):
        pass

    offers = {Base: constant(macs=1), Right: constant(macs=2), Left: constant(macs=3), nn.Module: constant(macs=4)}
    for order in itertools.permutations(offers):
        custom = {kind: offers[kind] for kind in order}
        assert run(Both(), custom).totals.macs.value == 3  # the MRO is Both, Left, Right, Base
        assert run(Right(), custom).totals.macs.value == 2
        assert run(Base(), custom).totals.macs.value == 1
        assert run(Leaf(), custom).totals.macs.value == 4


def test_within_the_callers_tier_a_metric_left_out_goes_to_the_next_tier_not_to_a_base_class():
    # "Within a tier the closest class wins"; what it leaves out is native's, not that of the caller's other handler.
    custom = {nn.Linear: constant(dmas=9), nn.Module: constant(macs=1000)}
    metrics = row(run(nn.Linear(4, 2), custom)).metrics
    assert (metrics["macs"].value, metrics["dmas"].value) == (24, 9)


def test_an_override_of_a_base_class_holds_for_its_subclasses():
    assert run(Other(), {Leaf: constant(macs=5)}).totals.macs.value == 5


def test_a_class_can_be_named_by_its_dotted_name():
    assert run(nn.Linear(4, 2), {"torch.nn.Linear": constant(macs=5)}).totals.macs.value == 5
    assert run(nn.Linear(4, 2), {"torch.nn.modules.linear.Linear": constant(macs=5)}).totals.macs.value == 5
    assert run(Leaf(), {f"{__name__}.Leaf": constant(macs=6)}).totals.macs.value == 6


def test_overrides_hold_for_one_call_alone():
    module = nn.Linear(4, 2)
    scanner = Scanner()
    assert scanner.scan(module, args=(X,), custom_modules={nn.Linear: constant(macs=1)}).totals.macs.value == 1
    assert scanner.scan(module, args=(X,)).totals.macs.value == 24
    assert scan(module, args=(X,)).totals.macs.value == 24


def test_a_leaf_without_any_handler_is_unavailable_and_a_composite_goes_to_its_children():
    report = run(Block(Leaf(), Other()), {Other: constant(macs=5)})
    assert row(report, "first").metrics["macs"].status == "unavailable"
    assert "macs" not in row(report).metrics
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 5)


def test_a_plain_estimate_of_a_composite_adds_to_its_children():
    report = run(Block(), {Block: constant(macs=100), Leaf: constant(macs=5)})
    assert row(report).metrics["macs"].value == 100
    assert report.totals.macs.value == 100 + 5 + 5


# Ownership


def inclusive(metrics=("macs",), **values):
    return ModuleHandler(lambda call: values, subtree_metrics=metrics)


def test_an_owned_metric_covers_the_subtree_and_only_that_metric():
    custom = {Block: inclusive(macs=100), Leaf: constant(macs=5, dmas=6)}
    report = run(Block(), custom)
    assert report.totals.macs.value == 100
    assert report.totals.dmas.value == 12
    assert row(report).metrics["macs"].scope == "subtree"
    assert row(report).metric_ownership["macs"] == "subtree"
    for path in ("first", "second"):
        child = row(report, path)
        assert "macs" not in child.metrics
        assert child.metrics["dmas"].value == 6
        owner = child.metric_owners["macs"]
        assert (owner.path, owner.call_index) == ("", 0)
        assert child.output.kind == "tensor"
        assert child.metric_owners.keys() == {"macs"}


def test_handlers_of_descendants_do_not_run_for_what_the_caller_owns():
    asked = []
    custom = {
        Block: inclusive(metrics=METRICS, macs=1, module_flops=1, dmas=1),
        Leaf: lambda call: asked.append(call.requested) or {},
    }
    run(Block(), custom, metrics=METRICS)
    assert asked == []
    custom[Block] = inclusive(macs=1)
    run(Block(), custom, metrics=METRICS)
    assert asked == [frozenset({"module_flops", "dmas"})] * 2


@pytest.mark.parametrize("failure", ["raises", "leaves it out", "says None", "is invalid", "is no mapping"])
def test_children_never_stand_in_for_a_failed_inclusive_formula(failure):
    def estimate(call):
        if failure == "raises":
            raise RuntimeError("boom")
        return {
            "leaves it out": {"dmas": 1},
            "says None": {"macs": None},
            "is invalid": {"macs": -1},
            "is no mapping": 3,
        }[failure]

    report = run(Block(), {Block: ModuleHandler(estimate, subtree_metrics={"macs"}), Leaf: constant(macs=5)})
    assert row(report).metrics["macs"].status == "unavailable"
    assert report.totals.macs.status == "unavailable"
    assert "macs" not in row(report, "first").metrics
    assert row(report, "first").metric_owners["macs"].path == ""
    code = {
        "raises": "custom_handler_error",
        "leaves it out": "custom_metric_unavailable",
        "says None": "custom_metric_unavailable",
        "is invalid": "custom_metric_invalid",
        "is no mapping": "custom_handler_invalid",
    }[failure]
    assert code in {d.code for d in about(report, "macs")}


def test_the_outermost_owner_covers_an_inner_one():
    inner = Block()
    custom = {Outer: inclusive(macs=1000), Block: inclusive(macs=100), Leaf: constant(macs=5)}
    report = run(Outer(inner), custom)
    assert report.totals.macs.value == 1000
    for layer in report.layers[1:]:
        assert layer.metric_owners["macs"].path == ""
        assert "macs" not in layer.metrics


def test_owners_of_different_metrics_nest():
    custom = {
        Outer: inclusive(metrics={"macs"}, macs=1000),
        Block: inclusive(metrics={"dmas"}, dmas=100),
        Leaf: constant(macs=5, dmas=6, module_flops=7),
    }
    report = run(Outer(Block()), custom)
    assert (report.totals.macs.value, report.totals.dmas.value, report.totals.module_flops.value) == (1000, 100, 14)
    owners = row(report, "inner.first").metric_owners
    assert (owners["macs"].path, owners["dmas"].path) == ("", "inner")


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_ownership_follows_executed_calls_so_a_shared_child_counts_elsewhere():
    shared = Leaf()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Outer(shared)
            self.alone = shared

        def forward(self, x):
            return self.alone(self.block(x))

    report = run(Model(), {Outer: inclusive(macs=100), Leaf: constant(macs=5)})
    calls = [layer for layer in report.layers if layer.type == "Leaf"]
    assert ["macs" in layer.metrics for layer in calls] == [False, True]
    assert calls[0].metric_owners["macs"].path == "block"
    assert calls[1].metric_owners is None
    assert report.totals.macs.value == 105


def test_each_call_of_an_owner_is_its_own_owner():
    inner = Outer(Leaf())
    report = run(Block(inner, inner), {Outer: inclusive(macs=100), Leaf: constant(macs=5)})
    assert report.totals.macs.value == 200
    leaves = [layer for layer in report.layers if layer.type == "Leaf"]
    assert [layer.metric_owners["macs"].call_index for layer in leaves] == [0, 1]


def test_recursion_counts_each_call_once():
    class Again(nn.Module):
        def forward(self, x, depth=2):
            return self(x, depth - 1) if depth else x

    plain = run(Again(), {Again: constant(macs=5)})
    assert [layer.call_index for layer in plain.layers] == [0, 1, 2]
    assert plain.totals.macs.value == 15
    owned = run(Again(), {Again: inclusive(macs=5)})
    assert owned.totals.macs.value == 5
    assert [layer.metric_owners["macs"].call_index for layer in owned.layers[1:]] == [0, 0]


def test_a_failed_child_that_the_model_caught_is_not_asked_and_not_counted():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("only this one")

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = Fails(), Leaf()

        def forward(self, x):
            try:
                return self.bad(x)
            except ValueError:
                return self.good(x)

    asked = []
    custom = {Fails: lambda call: asked.append(call) or {"macs": 1}, Leaf: constant(macs=5)}
    report = run(Catches(), custom)
    assert asked == []
    assert row(report, "bad").output.kind == "failed"
    assert row(report, "bad").metrics["macs"].status == "unavailable"
    assert [d.code for d in report.diagnostics if d.path == "bad" and d.code == "module_forward_error"]
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 5)
    # Under an owner the failure below it changes nothing: the owner answers for the whole call.
    assert run(Catches(), {**custom, Catches: inclusive(macs=9)}).totals.macs.value == 9


def test_an_owner_that_failed_itself_leaves_its_metric_unavailable_and_its_siblings_alone():
    class FailsLate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Leaf()

        def forward(self, x):
            self.inner(x)
            raise ValueError("late")

    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.good = FailsLate(), Other()

        def forward(self, x):
            try:
                return self.bad(x)
            except ValueError:
                return self.good(x)

    asked = []
    custom = {
        FailsLate: ModuleHandler(lambda call: asked.append(call) or {"macs": 100}, subtree_metrics={"macs"}),
        Leaf: constant(macs=5),
    }
    report = run(Catches(), custom)
    assert asked == []
    assert "macs" not in row(report, "bad.inner").metrics
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 5)  # the sibling's


def test_owned_composites_are_not_alarmed_for_their_own_arithmetic():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Leaf()

        def forward(self, x):
            return self.inner(x) @ torch.ones(4, 2)

    alarmed = run(Mixed(), {Leaf: constant(macs=5)})
    assert alarmed.totals.macs.status == "partial"
    assert "unattributed_operator" in {d.code for d in alarmed.diagnostics if d.path == ""}
    # 3 * 4 * 2 of its own and 5 below
    owned = run(Mixed(), {Mixed: inclusive(macs=29), Leaf: constant(macs=5)})
    assert (owned.totals.macs.status, owned.totals.macs.value) == ("complete", 29)
    plain = run(Mixed(), {Mixed: constant(macs=24), Leaf: constant(macs=5)})
    assert (plain.totals.macs.status, plain.totals.macs.value) == ("complete", 29)
    assert not [d for d in plain.diagnostics if d.code == "unattributed_operator" and d.metric == "macs"]


# Refusals before the model runs


class Untouched(nn.Module):
    def forward(self, x):
        raise AssertionError("the model must not run")


@pytest.mark.parametrize(
    ("custom", "error", "match"),
    [
        ([(Leaf, constant())], TypeError, "custom_modules must map"),
        ({3: constant()}, TypeError, "custom_modules key 3"),
        ({int: constant()}, TypeError, "custom_modules key <class 'int'>"),
        ({Leaf(): constant()}, TypeError, "custom_modules key Leaf"),
        ({"Leaf": constant()}, ValueError, "'Leaf'"),
        ({"torch.nn.": constant()}, ValueError, "'torch.nn.'"),
        ({Leaf: 7}, TypeError, r"custom_modules\[Leaf\]"),
        ({Leaf: {"macs": 7}}, TypeError, r"custom_modules\[Leaf\]"),
        ({Leaf: None}, TypeError, r"custom_modules\[Leaf\]"),
        ({Leaf: Complete}, TypeError, r"custom_modules\[Leaf\]"),
    ],
)
@pytest.mark.parametrize("entry", [scan, crawl_module])
def test_a_bad_registration_is_refused_by_key_before_the_model_runs(custom, error, match, entry):
    with pytest.raises(error, match=match):
        entry(Untouched(), args=(X,), custom_modules=custom)


@pytest.mark.parametrize(
    ("metrics", "error"),
    [({"flops"}, ValueError), ("macs", TypeError), ({"token_dependencies"}, ValueError), (3, TypeError)],
)
def test_a_handler_that_owns_an_unknown_metric_cannot_be_built(metrics, error):
    with pytest.raises(error):
        ModuleHandler(constant(), subtree_metrics=metrics)


def test_structure_mode_asks_no_handler():
    asked = []
    report = run(Leaf(), {Leaf: lambda call: asked.append(call) or {}}, mode="structure")
    assert asked == []
    assert report.totals.macs.method == "not_requested"


# custom_mapping


def test_custom_mapping_counts_an_operator_for_that_call_alone():
    def relu_flops(shape, *args, out_shape=None, **kwargs):
        return 1000

    module = nn.ReLU()
    counted = scan(module, args=(X,), custom_mapping={torch.ops.aten.relu: relu_flops})
    assert counted.operator_flops.by_operator["aten.relu"] == 1000
    assert counted.operator_flops.total.value == 1000
    without = scan(module, args=(X,))
    assert without.operator_flops.by_operator.get("aten.relu") != 1000
    # The two views stay apart: a mapping of operators changes no module metric.
    assert counted.totals.module_flops == without.totals.module_flops


@pytest.mark.parametrize(
    ("mapping", "match"),
    [({"aten.relu": lambda *a, **k: 1}, "aten.relu"), ({torch.ops.aten.relu: 7}, "relu"), ([3], "custom_mapping")],
)
def test_a_bad_operator_mapping_is_refused_before_the_model_runs(mapping, match):
    with pytest.raises((TypeError, ValueError), match=match):
        scan(Untouched(), args=(X,), custom_mapping=mapping)


def test_an_operator_formula_that_raises_is_reported_and_breaks_nothing():
    def raises(*args, out_shape=None, **kwargs):
        raise RuntimeError("unknown layout")

    report = scan(nn.ReLU(), args=(X,), custom_mapping={torch.ops.aten.relu: raises})
    assert report.operator_flops.total.status != "complete"
    assert any("aten.relu" in (d.operator or "") for d in report.operator_flops.diagnostics)
