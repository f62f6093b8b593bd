"""The parts of the HTML page that need no script: totals, before and after, the operator view, the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from torchscan.contract.states import Number
from torchscan.report import units
from torchscan.report.compare import compare_reports
from torchscan.report.differences import call_differences, call_name, total_differences
from torchscan.report.labels import sentence
from torchscan.report.schema import MetricResult, Report

__all__ = ["LISTED", "Cell", "Change", "cell", "changes", "context", "operator_rows", "totals"]

#: Rows of a list that the page writes out; the rest is counted.
LISTED: Final = 100

_WORK: Final = ("module_flops", "macs", "dmas", "operator_flops")
_STATES: Final = {"complete": "", "partial": "lower bound", "unavailable": "unavailable"}


@attrs.frozen
class Cell:
    """A metric result as it is written: in short, what state it is in, and in full for those who ask."""

    text: str
    state: str
    note: str
    full: str


@attrs.frozen
class Change:
    """One line of a comparison.

    Args:
        name: what is compared.
        before: how it was.
        after: how it is.
        delta: the difference, or why it is withheld.
        full: all three, numbers in full.
        direction: `more`, `less` or nothing.

    """

    name: str
    before: str
    after: str
    delta: str
    full: str
    direction: str


def cell(result: MetricResult) -> Cell:
    """Return a result as it is written."""
    if result.method == "not_requested":
        return Cell("–", "absent", "not requested", "")
    full = f"{units.result(result, full=True)} {result.unit}, {result.scope}, {result.method}"
    return Cell(sentence(units.result(result)), result.status, _STATES[result.status], sentence(full))


def totals(report: Report) -> list[tuple[str, Cell]]:
    """Return the totals of a report, each with its name for people; the work comes first."""
    ordered = sorted(units.TITLES, key=lambda name: name not in _WORK)
    return [(sentence(units.TITLES[name]), cell(getattr(report.totals, name))) for name in ordered]


def operator_rows(counted: Mapping[str, int]) -> list[tuple[str, str, str, Number]]:
    """Return counted FLOPs by name, the largest first: name, FLOPs in short, FLOPs in full, part of the largest."""
    ordered = sorted(counted.items(), key=lambda item: -item[1])
    most = ordered[0][1] if ordered else 0
    return [(name, units.si(flops), units.exact(flops), flops / most if most else 0) for name, flops in ordered]


def context(report: Report) -> list[tuple[str, str]]:
    """Return what was scanned and with what, each with its name for people."""
    found = report.context
    plugins = (" ".join(filter(None, (one.name, one.version))) for one in found.plugins or ())
    facts = {
        "Model": found.model_type,
        "torchscan": found.torchscan_version,
        "PyTorch": found.torch_version,
        "Python": found.python_version,
        "Execution": ", ".join(filter(None, (found.execution_mode, found.execution))),
        "Analysis": found.analysis_mode,
        "Functional operators": found.functional,
        "Metrics asked for": ", ".join(found.metrics) if found.metrics is not None else None,
        "Training mode before": "yes" if found.training_before else "no",
        "Devices": ", ".join(found.devices),
        "Types": ", ".join(found.dtypes),
        "Plugins": ", ".join(plugins),
    }
    return [(name, value) for name, value in facts.items() if value]


def changes(before: Report, after: Report, metric: str) -> dict[str, Any]:
    """Return the comparison as the page shows it.

    Args:
        before: the earlier report.
        after: the later report.
        metric: the metric by which changed calls are ordered, the largest difference first.

    Returns:
        `totals` (one `Change` each), `changed` (the call's name and its `Change` lines), `added` and `removed` (the
        call's name and type), the last three with at most `LISTED` entries, and `counts` of all three.

    """
    comparison = compare_reports(before, after)
    layers = comparison["layers"]
    changed = sorted(layers["changed"], key=lambda call: -_size(call, metric))
    return {
        "totals": _lines(total_differences(comparison), total_differences(comparison, full=True)),
        "counts": {name: len(layers[name]) for name in ("changed", "added", "removed")},
        "changed": [
            (
                call_name(call),
                _lines(call_differences(call), call_differences(call, full=True)),
            )
            for call in changed[:LISTED]
        ],
        "added": [(call_name(call), call["type"]) for call in layers["added"][:LISTED]],
        "removed": [(call_name(call), call["type"]) for call in layers["removed"][:LISTED]],
    }


def _size(call: Mapping[str, Any], metric: str) -> Number:
    delta = call["metrics"].get(metric, {}).get("delta")
    return 0 if delta is None else abs(delta)


def _lines(short: Any, full: Any) -> list[Change]:
    return [
        Change(
            sentence(one.name),
            sentence(one.before),
            sentence(one.after),
            sentence(one.delta),
            f"{exact.before} → {exact.after}: {exact.delta}" if exact.delta else "",
            {"+": "more", "-": "less"}.get(one.delta[:1], ""),
        )
        for one, exact in zip(short, full, strict=True)
    ]
