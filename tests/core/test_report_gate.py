"""Budgets: what keeps one, what breaks one, and what proves nothing."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import pytest

from core.report_builder import DATA, bound, known, report, stored, unknown
from torchscan import Report
from torchscan.contract.errors import ReportError
from torchscan.report.gate import TOTALS, assert_budget, check_report, parse_fraction, parse_number


def one(macs=None, **totals):
    return report(totals={**({} if macs is None else {"macs": macs}), **totals})


def outcomes(verdict):
    return [(check.kind, check.metric, check.outcome, check.reason) for check in verdict.checks]


@pytest.mark.parametrize(
    ("macs", "outcome", "reason"),
    [
        (known(100), "pass", "within"),
        (known(0), "pass", "within"),
        (known(101), "fail", "over_budget"),
        (bound(101), "fail", "over_budget"),  # the rest can only add to it
        (bound(100), "fail", "unproven"),
        (bound(0), "fail", "unproven"),
        (unknown(), "fail", "unproven"),
        (unknown(method="not_requested"), "fail", "unproven"),
    ],
)
def test_a_budget_of_100(macs, outcome, reason):
    verdict = check_report(one(macs), max={"macs": 100})
    assert outcomes(verdict) == [("max", "macs", outcome, reason)]
    assert verdict.ok is (outcome == "pass")


@pytest.mark.parametrize(
    ("macs", "ok"), [(known(0), True), (bound(5), False), (unknown(), False), (unknown(method="not_requested"), False)]
)
def test_required_to_be_complete(macs, ok):
    verdict = check_report(one(macs), require_complete=["macs", "dmas", "macs"])
    assert outcomes(verdict) == [
        ("complete", "macs", "pass" if ok else "fail", "complete" if ok else "incomplete"),
        ("complete", "dmas", "pass", "complete"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "outcome", "reason"),
    [
        (known(1000), known(1000), 0, "pass", "within"),
        (known(1000), known(900), 0, "pass", "within"),
        (known(1000), known(1001), 0, "fail", "regression"),
        (known(1000), known(1010), "1%", "pass", "within"),  # exactly the limit
        (known(1000), known(1011), "1%", "fail", "regression"),
        (known(1000), known(1010), 0.01, "pass", "within"),
        (known(3), known(3), 0.1, "pass", "within"),
        (known(0), known(0), "1%", "pass", "within"),
        (known(0), known(1), "1%", "fail", "regression"),
        (known(2**60), known(2**60 + 1), 0, "fail", "regression"),  # a double would not see it
        (known(1000), bound(1011), "1%", "fail", "regression"),
        (known(1000), bound(900), "1%", "fail", "unproven"),
        (known(1000), unknown(), "1%", "fail", "unproven"),
        (known(1000), known(10, method="other"), 0, "fail", "incomparable"),
        (known(1000), known(10, unit="FLOPs"), 0, "fail", "incomparable"),
        (bound(1000), known(900), 0, "fail", "no_baseline"),
        (unknown(), known(900), 0, "fail", "no_baseline"),
        (unknown(method="not_requested"), known(900), 0, "fail", "no_baseline"),
        (known(1000), unknown(method="not_requested"), 0, "fail", "unproven"),
    ],
)
def test_a_named_total_against_a_baseline(before, after, tolerance, outcome, reason):
    verdict = check_report(one(after), max={"macs": 10**30}, baseline=one(before), tolerance=tolerance)
    assert outcomes(verdict)[1:] == [("baseline", "macs", outcome, reason)]


def test_an_unnamed_total_that_the_baseline_lacks_is_skipped():
    verdict = check_report(one(bound(5)), baseline=one(bound(5)))
    assert outcomes(verdict) == [
        ("baseline", "parameters", "pass", "within"),
        ("baseline", "module_flops", "pass", "within"),
        ("baseline", "macs", "skip", "no_baseline"),
        ("baseline", "dmas", "pass", "within"),
    ]
    assert verdict.ok
    assert verdict.to_text().endswith("3 checks passed, 1 skipped")


def test_a_baseline_with_nothing_to_compare_proves_nothing():
    nothing = report(totals={name: unknown() for name in ("macs", "dmas", "module_flops", "parameters")})
    assert not check_report(nothing, baseline=nothing).ok


def test_a_verdict_for_people_and_for_programs():
    verdict = check_report(one(known(1500), dmas=bound(7)), max={"macs": "1k", "dmas": 10}, require_complete=["dmas"])
    assert verdict.to_text().splitlines() == [
        "fail  MACs: 1,500 is over the budget of 1,000 by 500",
        "fail  DMAs: >= 7 is a lower bound, which does not prove the budget of 10",
        "fail  DMAs: >= 7 is a lower bound, not complete",
        "3 of 3 checks failed",
    ]
    assert check_report(one(known(1)), max={"macs": 1}).to_text().endswith("\n1 check passed")
    data = verdict.to_dict()
    assert data["ok"] is False
    assert data["checks"][0] == {
        "metric": "macs",
        "kind": "max",
        "outcome": "fail",
        "reason": "over_budget",
        "message": "MACs: 1,500 is over the budget of 1,000 by 500",
        "status": "complete",
        "value": 1500,
        "known_value": 1500,
        "limit": 1000,
    }


def test_reports_may_be_typed_plain_or_files():
    file = DATA / "v1" / "attention.json"
    for given in (file, str(file), stored("v1/attention"), Report.load(file)):
        # The source document derives 208 MACs and 352 DMAs for this call.
        assert check_report(given, max={"macs": 208, "dmas": "352"}, baseline=given).ok
        assert not check_report(given, max={"macs": 207}).ok


def test_a_baseline_of_0_2_0_counts_by_another_convention():
    verdict = check_report(stored("v1/attention"), baseline=stored("v0_2_0/attention"))
    assert ("baseline", "module_flops", "fail", "incomparable") in outcomes(verdict)
    assert ("baseline", "parameters", "pass", "within") in outcomes(verdict)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to check"),
        ({"max": {"flops": 3}}, "no total 'flops'; there are parameters"),
        ({"require_complete": ["flops"]}, "no total 'flops'"),
        ({"require_complete": "macs"}, "a collection of names"),
        ({"max": {"macs": -1}}, "must not be negative"),
        ({"max": {"macs": "many"}}, "a budget is a number such as"),
        ({"max": {"macs": float("nan")}}, "a budget is a number such as"),
        ({"max": {"macs": "1e99999999999"}}, "a budget is a number such as"),
        ({"max": {"macs": float("inf")}}, "a budget is a number such as"),
        ({"max": {"macs": True}}, "a budget is a number, got True"),
        ({"max": {"macs": "1e99999"}}, "a budget is a number such as"),
        ({"max": {"macs": 1}, "tolerance": 0.1}, "a tolerance needs a baseline"),
        ({"baseline": report(), "tolerance": -0.1}, "not negative"),
        ({"baseline": report(), "tolerance": "x"}, "a tolerance is a fraction"),
        ({"baseline": report(), "tolerance": "nan"}, "a tolerance is a fraction"),
        # Exact as a fraction, this would not fit the memory.
        ({"baseline": report(), "tolerance": "1e-500000000"}, "a tolerance is a fraction"),
        ({"baseline": report(), "tolerance": "1 %%"}, "a tolerance is a fraction"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_report(report(), **arguments)


def test_what_is_no_report_is_refused():
    with pytest.raises(ReportError):
        check_report({}, max={"macs": 1})
    with pytest.raises(FileNotFoundError):
        check_report(report(), baseline="none.json")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("6e9", 6 * 10**9),
        ("70_000_000", 70_000_000),
        ("6G", 6 * 10**9),
        ("1.5 k", 1500),
        (" 25M ", 25_000_000),
        ("0", 0),
        ("0.5", 0.5),
        (2**60 + 1, 2**60 + 1),
        (1.0, 1),
        (str(2**60 + 1), 2**60 + 1),
    ],
)
def test_numbers(text, number):
    assert parse_number(text) == number
    assert type(parse_number(text)) is type(number)


def test_tolerances():
    assert parse_fraction("1%") == parse_fraction("0.01") == parse_fraction(0.01) == Fraction(1, 100)
    assert parse_fraction("12.5 %") == Fraction(1, 8)
    assert parse_fraction(0) == 0


def test_every_total_can_have_a_budget():
    assert set(TOTALS) == {name for name, _ in report().totals}
    assert check_report(report(), max=dict.fromkeys(TOTALS, 0)).ok


def test_an_assertion_outside_of_pytest():
    assert assert_budget(one(known(1)), max={"macs": 1}).ok
    with pytest.raises(AssertionError, match="MACs: 2 is over the budget of 1 by 1"):
        assert_budget(one(known(2)), max={"macs": 1})


def test_the_fixture_is_there_wherever_pytest_is(tmp_path):
    file = DATA / "v1" / "attention.json"
    (tmp_path / "test_budget.py").write_text(
        f"""
import sys

def test_kept(torchscan_budget):
    assert torchscan_budget({str(file)!r}, max={{"macs": 208}}, require_complete=["macs"]).ok
    assert "torch" not in sys.modules

def test_broken(torchscan_budget):
    torchscan_budget({str(file)!r}, max={{"macs": 207}})
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "fail  MACs: 208 is over the budget of 207 by 1" in done.stdout
    assert "check_report" not in done.stdout  # the message, not the machinery
