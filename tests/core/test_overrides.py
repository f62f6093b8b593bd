"""Caller overrides: what a handler sees, and what it may return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from core.overrides_support import METRICS, Block, Leaf, Other, X, about, constant, row, run
from torchscan import (
    Complete,
    ModuleCall,
    ModuleEstimates,
    Output,
    Partial,
    Relation,
    Report,
    Source,
    TokenDependencies,
    Unavailable,
    crawl_module,
)

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


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Unavailable(ValueError("no width")),
        lambda: Unavailable(None),
        lambda: Unavailable("x", code=["y"]),
        lambda: Unavailable("x", message=5),
        lambda: Partial(3, 7),
    ],
)
def test_a_reason_that_is_no_text_costs_the_handler_and_not_the_report(wrong):
    report = run(Block(Leaf(), Other()), {Leaf: lambda call: {"macs": wrong()}, Other: constant(macs=5)})
    (diagnostic,) = about(report, "macs", "first")
    assert diagnostic.code == "custom_handler_error"
    assert "must be of type str, got" in diagnostic.message
    assert Report.from_dict(json.loads(report.to_json())) == report
    assert report.totals.macs.known_value == 5


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
