"""Caller overrides: who owns the work below a handler."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.overrides_support import METRICS, Block, Leaf, Other, Outer, about, constant, row, run
from torchscan import ModuleHandler


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


class Catches(nn.Module):
    """Falls back on its second child where the first one raises."""

    def __init__(self, bad: nn.Module, good: nn.Module) -> None:
        super().__init__()
        self.bad, self.good = bad, good

    def forward(self, x):
        try:
            return self.bad(x)
        except ValueError:
            return self.good(x)


def test_a_failed_child_that_the_model_caught_is_not_asked_and_not_counted():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("only this one")

    asked = []
    custom = {Fails: lambda call: asked.append(call) or {"macs": 1}, Leaf: constant(macs=5)}
    report = run(Catches(Fails(), Leaf()), custom)
    assert asked == []
    assert row(report, "bad").output.kind == "failed"
    assert row(report, "bad").metrics["macs"].status == "unavailable"
    assert [d.code for d in report.diagnostics if d.path == "bad" and d.code == "module_forward_error"]
    assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 5)
    # Under an owner the failure below it changes nothing: the owner answers for the whole call.
    assert run(Catches(Fails(), Leaf()), {**custom, Catches: inclusive(macs=9)}).totals.macs.value == 9


def test_an_owner_that_failed_itself_leaves_its_metric_unavailable_and_its_siblings_alone():
    class FailsLate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Leaf()

        def forward(self, x):
            self.inner(x)
            raise ValueError("late")

    asked = []
    custom = {
        FailsLate: ModuleHandler(lambda call: asked.append(call) or {"macs": 100}, subtree_metrics={"macs"}),
        Leaf: constant(macs=5),
    }
    report = run(Catches(FailsLate(), Other()), custom)
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
