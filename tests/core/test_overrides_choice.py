"""Caller overrides: which handler decides, what is refused, and operator mappings."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from core.overrides_support import METRICS, Block, Leaf, Other, X, constant, row, run
from torchscan import (
    Complete,
    HandlerRegistration,
    ModuleHandler,
    Scanner,
    Unavailable,
    crawl_module,
    scan,
)

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
        # its own target, match and contract would count for nothing here
        ({Leaf: HandlerRegistration(Other, constant(), "exact")}, TypeError, r"custom_modules\[Leaf\]"),
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
