"""Comparisons: the deltas there are, and the reason for each there is not."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings

from core.report_builder import CAUSAL, bound, known, layer, report, reports, stored, unknown
from torchscan import Report, compare_reports
from torchscan.contract.errors import ReportError
from torchscan.contract.tokens import Output, Relation, Source, TokenDependencies
from torchscan.report.schema import ParameterCount

FULL = TokenDependencies("complete", (Source(("query",), 1, 4, Relation("all")),), Output(1, 4), (), "m")


def one(macs, **fields):
    """Return a report of one call, whose MACs are also the total."""
    return report(
        layer("", metrics={} if macs is None else {"macs": macs}, **fields), totals={"macs": macs or unknown()}
    )


def test_two_widths_by_hand():
    comparison = compare_reports(stored("v0_2_0/convolutions"), stored("v0_2_0/convolutions_wider"))
    totals = {name: entry["delta"] for name, entry in comparison["totals"].items()}
    # width 4 -> 6: convolution 3*3*3*w + w, norm 2*w, linear (16*w)*10 + 10; per unit of width 28 + 2 + 160 = 190
    assert totals["parameters"] == 2 * 190
    assert totals["parameter_bytes"] == 4 * 2 * 190
    # batch-norm buffers: running mean and variance (w each) and one int64 counter that stays
    assert totals["buffer_elements"] == 2 * 2
    changed = {call["path"]: call for call in comparison["layers"]["changed"]}
    # stem: 8*8 outputs * w * 3*3*3 products
    assert changed["stem"]["metrics"]["macs"]["delta"] == 64 * 2 * 27
    # head.1: 16*w inputs * 10 outputs
    assert changed["head.1"]["metrics"]["macs"]["delta"] == 16 * 2 * 10
    assert (
        changed["stem"]["parameters"]["after"]["trainable"] - changed["stem"]["parameters"]["before"]["trainable"] == 56
    )
    assert comparison["layers"]["added"] == comparison["layers"]["removed"] == []


def test_it_says_at_least_what_0_2_0_said():
    ours = compare_reports(stored("v0_2_0/convolutions"), stored("v0_2_0/convolutions_wider"))
    theirs = stored("v0_2_0/other_comparison")
    assert theirs["schema_version"] == ours["schema_version"]
    for name, entry in theirs["totals"].items():
        assert entry.items() <= ours["totals"][name].items()
    mine = {(call["path"], call["call_index"]): call for call in ours["layers"]["changed"]}
    assert theirs["layers"]["changed"]
    for call in theirs["layers"]["changed"]:
        metrics = mine[call["path"], call["call_index"]]["metrics"]
        assert call["metrics"].keys() == metrics.keys()
        for name, entry in call["metrics"].items():
            assert entry.items() <= metrics[name].items()


@pytest.mark.parametrize(
    ("before", "after", "status", "delta", "withheld"),
    [
        (known(5), known(9), "complete", 4, None),
        (known(9), known(5), "complete", -4, None),
        (known(5), known(5), "complete", 0, None),
        (known(0), known(0), "complete", 0, None),
        (known(2**60), known(2**60 + 1), "complete", 1, None),
        (known(5), bound(5), "partial", None, ["status"]),
        (bound(5), known(5), "partial", None, ["status"]),
        (bound(5), bound(5), "partial", None, ["status"]),
        (bound(5), unknown(), "unavailable", None, ["status"]),
        (unknown(), unknown(), "unavailable", None, ["status"]),
        (known(5), known(9, unit="FLOPs"), "complete", None, ["unit"]),
        (known(5), known(9, scope="subtree"), "complete", None, ["scope"]),
        (known(5), known(9, method="other"), "complete", None, ["method"]),
        (known(5), bound(9, scope="subtree", method="other"), "partial", None, ["status", "scope", "method"]),
        (known(5), known(9, "FLOPs", "subtree", "other"), "complete", None, ["unit", "scope", "method"]),
    ],
)
def test_a_delta_is_withheld_where_it_would_mean_nothing(before, after, status, delta, withheld):
    entry = compare_reports(one(before), one(after))["totals"]["macs"]
    assert (entry["status"], entry["delta"], entry.get("withheld")) == (status, delta, withheld)
    assert entry["before"]["method"] == before.method
    assert entry["after"]["known_value"] == after.known_value


def test_a_metric_on_one_side_only():
    comparison = compare_reports(one(known(5)), one(None))
    (call,) = comparison["layers"]["changed"]
    entry = call["metrics"]["macs"]
    assert (entry["status"], entry["delta"], entry["withheld"], entry["after"]) == (
        "unavailable",
        None,
        ["missing"],
        None,
    )


def test_equal_calls_are_not_listed():
    layers = compare_reports(one(bound(5)), one(bound(5)))["layers"]
    assert layers == {"added": [], "removed": [], "changed": []}


def test_calls_are_matched_by_path_and_number():
    before = report(layer(""), layer("a", metrics={"macs": known(1)}), layer("gone"))
    after = report(
        layer(""),
        layer("a", metrics={"macs": known(1)}),
        layer("a", call_index=1, metrics={"macs": known(1)}, token_dependencies=FULL),
    )
    layers = compare_reports(before, after)["layers"]
    assert layers["changed"] == []
    assert [(call["path"], call["call_index"]) for call in layers["removed"]] == [("gone", 0)]
    (added,) = layers["added"]
    assert (added["path"], added["call_index"], added["metrics"]["macs"]["value"]) == ("a", 1, 1)
    assert added["token_dependencies"]["sources"][0]["relation"] == {"kind": "all"}
    assert "token_dependencies" not in layers["removed"][0]


def test_a_changed_relation_stands_under_its_call_without_a_number():
    (call,) = compare_reports(one(known(5), token_dependencies=FULL), one(known(5), token_dependencies=CAUSAL))[
        "layers"
    ]["changed"]
    assert call["metrics"] == {}
    assert call["token_dependencies"].keys() == {"before", "after"}
    assert call["token_dependencies"]["before"]["sources"][0]["relation"] == {"kind": "all"}
    assert call["token_dependencies"]["after"]["sources"][0]["relation"] == {"kind": "prefix"}


def test_type_and_parameters_of_a_call():
    (call,) = compare_reports(
        one(known(5), type="Linear"), one(known(5), type="Conv2d", parameters=ParameterCount(3, 0, 12))
    )["layers"]["changed"]
    assert call["type"] == {"before": "Linear", "after": "Conv2d"}
    assert call["parameters"]["after"] == {"trainable": 3, "frozen": 0, "bytes": 12, "shared": False}


def test_a_report_of_0_2_0_against_one_of_this_release():
    comparison = compare_reports(stored("v0_2_0/attention"), stored("v1/attention"))
    # The same numbers by another convention: nothing is subtracted.
    assert comparison["totals"]["module_flops"]["withheld"] == ["method"]
    assert comparison["totals"]["macs"]["withheld"] == ["status", "method"]
    assert comparison["totals"]["parameters"]["delta"] == 0
    (call,) = comparison["layers"]["changed"]
    assert call["token_dependencies"]["before"] is None
    assert call["token_dependencies"]["after"]["status"] == "complete"


def test_wire_forms_and_reports_are_the_same():
    before, after = one(known(5)), one(known(9))
    expected = compare_reports(before, after)
    kept = copy.deepcopy(before.to_dict())
    data = before.to_dict()
    assert compare_reports(data, after.to_dict()) == expected
    assert compare_reports(data, after) == expected
    assert data == kept


def test_what_is_no_report_is_refused():
    good = one(known(5))
    newer = {**good.to_dict(), "schema_version": 2}
    for before, after in ((newer, good), (good, newer), ({}, good), (good, stored("v0_2_0/other_comparison"))):
        with pytest.raises(ReportError):
            compare_reports(before, after)


@settings(max_examples=40, deadline=None)
@given(reports(), reports())
def test_any_two_reports(before, after):
    comparison = compare_reports(before, after)
    json.dumps(comparison, allow_nan=False)
    keys = [
        {(call["path"], call["call_index"]) for call in comparison["layers"][kind]} for kind in ("added", "removed")
    ]
    old = {(row.path, row.call_index) for row in before.layers}
    new = {(row.path, row.call_index) for row in after.layers}
    assert keys == [new - old, old - new]
    entries = [*comparison["totals"].values()]
    entries += [entry for call in comparison["layers"]["changed"] for entry in call["metrics"].values()]
    for entry in entries:
        assert (entry["delta"] is None) == bool(entry.get("withheld"))


@settings(max_examples=30, deadline=None)
@given(reports())
def test_a_report_against_itself(same: Report):
    comparison = compare_reports(same, same)
    assert comparison["layers"] == {"added": [], "removed": [], "changed": []}
    assert {entry["delta"] for entry in comparison["totals"].values()} <= {0, None}
