"""Holding a report against budgets: what a pull-request check and a test ask.

A budget is kept only where the report proves it. A lower bound already above it breaks it; a lower bound below it
proves nothing, so that is a failure too, with another reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

import attrs

from torchscan.contract.states import Number
from torchscan.report import units
from torchscan.report.compare import as_report, compare_metrics
from torchscan.report.schema import MetricResult, Report
from torchscan.report.wire import load_report

__all__ = [
    "BASELINE_METRICS",
    "TOTALS",
    "Check",
    "Verdict",
    "assert_budget",
    "check_report",
    "parse_fraction",
    "parse_number",
]

#: What can have a budget: the totals of a report.
TOTALS: Final = tuple(units.TITLES)
#: What a baseline is compared in when nothing is named.
BASELINE_METRICS: Final = ("parameters", "module_flops", "macs", "dmas")

AnyReport: TypeAlias = Report | Mapping[str, Any] | str | os.PathLike[str]
Outcome: TypeAlias = Literal["pass", "fail", "skip"]

_SUFFIXES: Final = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15, "E": 18}


@attrs.frozen
class Check:
    """The outcome of one check.

    Args:
        metric: the total it is about.
        kind: `max`, `complete` or `baseline`.
        outcome: `pass`, `fail`, or `skip` where there is nothing to hold it against.
        reason: for programs: `within`, `complete`, `over_budget`, `unproven`, `incomplete`, `regression`,
            `incomparable` or `no_baseline`.
        message: for people.
        found: the metric as it stands in the report.
        limit: what it may be at most, where there is a number.

    """

    metric: str
    kind: Literal["max", "complete", "baseline"]
    outcome: Outcome
    reason: str
    message: str
    found: MetricResult
    limit: Number | None = None


@attrs.frozen
class Verdict:
    """The outcome of all checks."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != "fail" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data."""
        return {
            "ok": self.ok,
            "checks": [
                {
                    "metric": check.metric,
                    "kind": check.kind,
                    "outcome": check.outcome,
                    "reason": check.reason,
                    "message": check.message,
                    "status": check.found.status,
                    "value": check.found.value,
                    "known_value": check.found.known_value,
                    "limit": check.limit,
                }
                for check in self.checks
            ],
        }

    def to_text(self) -> str:
        """Return the verdict as text: one line per check, and the sum."""
        lines = [f"{check.outcome:<4}  {check.message}" for check in self.checks]
        passed, failed, skipped = (
            sum(check.outcome == outcome for check in self.checks) for outcome in ("pass", "fail", "skip")
        )
        if failed:
            lines.append(f"{failed} of {len(self.checks)} checks failed")
        else:
            lines.append(f"{passed} check{'s' * (passed != 1)} passed{f', {skipped} skipped' if skipped else ''}")
        return "\n".join(lines)


def check_report(
    report: AnyReport,
    *,
    max: Mapping[str, Number | str] | None = None,
    require_complete: Iterable[str] = (),
    baseline: AnyReport | None = None,
    tolerance: float | str = 0,
) -> Verdict:
    """Hold `report` against budgets.

    Args:
        report: the report, its wire form, or the file it is stored in.
        max: the most each total may be: a number, or text such as `"6e9"` or `"6G"`. Units are those of the report:
            elements for `parameters`, MACs for `macs`, and so on.
        require_complete: totals that must be complete.
        baseline: an earlier report. No total named in `max` or `require_complete` (where none is named: none of
            `BASELINE_METRICS`) may have grown by more than `tolerance`. A total that is incomplete in the baseline,
            and was not named, is skipped.
        tolerance: by which part a total may grow: a fraction (0.01) or text with a percent sign (`"1%"`).

    Raises:
        ValueError: an unknown total, a negative budget or tolerance, or nothing to check.
        ReportError: a report cannot be read.
        OSError: a file cannot be read.

    """
    limits = {_total(name): parse_number(limit) for name, limit in (max or {}).items()}
    if isinstance(require_complete, str):
        raise ValueError(f"require_complete must be a collection of names, got the string {require_complete!r}")
    required = tuple(dict.fromkeys(map(_total, require_complete)))
    allowance = parse_fraction(tolerance)
    if not limits and not required and baseline is None:
        raise ValueError("there is nothing to check: give a budget, a total that must be complete, or a baseline")
    if baseline is None and allowance:
        raise ValueError("a tolerance needs a baseline")
    totals = dict(_report(report).totals)
    checks = [_within(name, totals[name], limit) for name, limit in limits.items()]
    checks += [_complete(name, totals[name]) for name in required]
    if baseline is not None:
        before = dict(_report(baseline).totals)
        named = tuple(dict.fromkeys((*limits, *required)))
        held = [
            _grown(name, before[name], totals[name], allowance, skip=not named) for name in named or BASELINE_METRICS
        ]
        if all(check.outcome == "skip" for check in held):
            held = [attrs.evolve(check, outcome="fail") for check in held]
        checks += held
    return Verdict(tuple(checks))


def assert_budget(
    report: AnyReport,
    *,
    max: Mapping[str, Number | str] | None = None,
    require_complete: Iterable[str] = (),
    baseline: AnyReport | None = None,
    tolerance: float | str = 0,
) -> Verdict:
    """Raise unless `check_report` with the same arguments finds nothing wrong; return its verdict.

    Raises:
        AssertionError: a check failed; the message lists all of them.
        ValueError, ReportError, OSError: as `check_report` does.

    """
    verdict = check_report(report, max=max, require_complete=require_complete, baseline=baseline, tolerance=tolerance)
    if not verdict.ok:
        raise AssertionError(f"the report breaks its budget\n{verdict.to_text()}")
    return verdict


def parse_number(text: Number | str) -> Number:
    """Return a budget: `6e9`, `70_000_000`, `6G`, `1.5 k`.

    Raises:
        ValueError: it is no number, or negative.

    """
    if isinstance(text, bool):
        raise ValueError(f"a budget is a number, got {text}")
    match = re.fullmatch(r"\s*(\S+?)\s*([kKMGBTPE]?)\s*", str(text))
    try:
        number = Decimal(match[1]).scaleb(_SUFFIXES[match[2]]) if match else Decimal("NaN")
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite() or number.adjusted() > 1000:
        raise ValueError(f"a budget is a number such as 6e9, 70_000_000 or 6G, got {text!r:.40}")
    if number < 0:
        raise ValueError(f"a budget must not be negative, got {text!r:.40}")
    return int(number) if number == number.to_integral_value() else float(number)


def parse_fraction(text: float | str) -> Fraction:
    """Return a tolerance: `"1%"`, `0.01`.

    Raises:
        ValueError: it is no number, or negative.

    """
    match = re.fullmatch(r"\s*(\S+?)\s*(%?)\s*", str(text))
    try:
        written = Decimal(match[1]) if match else Decimal(-1)
        if written.is_finite() and abs(written.adjusted()) > 1000:
            raise ValueError  # as a fraction it would fill the memory
        number = Fraction(written)
    except (ArithmeticError, ValueError):
        raise ValueError(f"a tolerance is a fraction such as 0.01 or 1%, got {text!r:.40}") from None
    if match is None or number < 0:
        raise ValueError(f"a tolerance is a fraction such as 0.01 or 1%, not negative, got {text!r:.40}")
    return number / 100 if match[2] else number


def _total(name: str) -> str:
    if name not in TOTALS:
        raise ValueError(f"there is no total {name!r:.40}; there are {', '.join(TOTALS)}")
    return name


def _report(report: AnyReport) -> Report:
    return load_report(report) if isinstance(report, (str, os.PathLike)) else as_report(report)


def _within(name: str, found: MetricResult, limit: Number) -> Check:
    title, most = units.TITLES[name], units.exact(limit)
    text = units.result(found, full=True)
    known = found.known_value

    def check(outcome: Outcome, reason: str, message: str) -> Check:
        return Check(name, "max", outcome, reason, message, found, limit)

    if known is not None and known > limit:
        over = f" by {units.exact(known - limit)}" if found.status == "complete" else ", and there is more"
        return check("fail", "over_budget", f"{title}: {text} is over the budget of {most}{over}")
    if found.status == "complete":
        return check("pass", "within", f"{title}: {text} is within the budget of {most}")
    return check("fail", "unproven", f"{title}: {text} is {_state(found)}, which does not prove the budget of {most}")


def _complete(name: str, found: MetricResult) -> Check:
    title, text = units.TITLES[name], units.result(found, full=True)
    if found.status == "complete":
        return Check(name, "complete", "pass", "complete", f"{title}: {text} is complete", found)
    return Check(name, "complete", "fail", "incomplete", f"{title}: {text} is {_state(found)}, not complete", found)


def _state(found: MetricResult) -> str:
    """Return in words what is incomplete about a result."""
    if found.status == "partial":
        return "a lower bound"
    return "not requested" if found.method == "not_requested" else "unavailable"


def _grown(name: str, before: MetricResult, found: MetricResult, allowance: Fraction, *, skip: bool) -> Check:
    title = units.TITLES[name]

    def check(outcome: Outcome, reason: str, message: str, limit: Number | None = None) -> Check:
        return Check(name, "baseline", outcome, reason, f"{title}: {message}", found, limit)

    if before.value is None:
        text = units.result(before, full=True)
        return check("skip" if skip else "fail", "no_baseline", f"{text} in the baseline is not complete")
    differing = [field for field in compare_metrics(before, found).get("withheld", ()) if field != "status"]
    if differing and found.method != "not_requested":
        return check("fail", "incomparable", f"the {' and '.join(differing)} differ from the baseline's; make it anew")
    most = Fraction(before.value) * (1 + allowance)
    limit: Number = int(most) if most.denominator == 1 else float(most)
    now, was = units.result(found, full=True), units.exact(before.value)
    if found.known_value is not None and Fraction(found.known_value) > most:
        growth = _percent(found.known_value, before.value)
        return check("fail", "regression", f"{now} is{growth} more than the baseline's {was}", limit)
    if found.status != "complete":
        why = f"{now} is {_state(found)}, which proves nothing against the baseline's {was}"
        return check("fail", "unproven", why, limit)
    return check("pass", "within", f"{now} is within what the baseline's {was} allows", limit)


def _percent(now: Number, before: Number) -> str:
    """Return by how much it grew; from nothing there is no percentage."""
    return f" {float(100 * (Fraction(now) / Fraction(before) - 1)):.3g} %" if before else ""
