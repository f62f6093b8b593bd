"""Two reports side by side: totals, and added, removed and changed calls.

A delta is given only between two complete results of the same unit, scope and method. Where those differ it is
withheld, and the entry says which one differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from torchscan.report.converter import converter
from torchscan.report.schema import SCHEMA_VERSION, LayerRecord, MetricResult, Report, Totals
from torchscan.report.wire import report_from_dict

__all__ = ["as_report", "compare_metrics", "compare_reports"]

Wire: TypeAlias = dict[str, Any]

_RANK: Final = {"complete": 0, "partial": 1, "unavailable": 2}


def as_report(report: Report | Mapping[str, Any]) -> Report:
    """Return `report` itself, or the report its wire form describes.

    Raises:
        ReportError: the wire form is not one of a report.

    """
    return report if isinstance(report, Report) else report_from_dict(report)


def compare_reports(before: Report | Mapping[str, Any], after: Report | Mapping[str, Any]) -> Wire:
    """Compare two reports, also ones stored by TorchScan 0.2.0.

    Calls are matched by `(path, call_index)`. A metric entry holds `status` (the less known of the two), `delta`
    (`after - before`, or `None`), `before` and `after` (metric results; `None` on the side that lacks the metric), and
    `withheld` where there is no delta: the names of what differs or is incomplete, out of `missing`, `status`,
    `unit`, `scope` and `method`.

    Args:
        before: the earlier report, or its wire form.
        after: the later one.

    Returns:
        Plain JSON-ready data: `schema_version`; `totals` by name; `layers` with `added` and `removed` (each `path`,
        `call_index`, `type`, `metrics`, and `token_dependencies` where the call has them) and `changed` (each `path`,
        `call_index`, `metrics` with the entries that differ, and `type`, `parameters` and `token_dependencies` as
        `before` and `after` where they differ).

    Raises:
        ReportError: one of the two is no report.

    """
    earlier, later = as_report(before), as_report(after)
    old = {(layer.path, layer.call_index): layer for layer in earlier.layers}
    new = {(layer.path, layer.call_index): layer for layer in later.layers}
    changed = [
        difference
        for key, layer in new.items()
        if key in old and (difference := _compare_layers(old[key], layer)) is not None
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "totals": _compare_totals(earlier.totals, later.totals),
        "layers": {
            "added": [_call(layer) for key, layer in new.items() if key not in old],
            "removed": [_call(layer) for key, layer in old.items() if key not in new],
            "changed": changed,
        },
    }


def compare_metrics(before: MetricResult | None, after: MetricResult | None) -> Wire:
    """Return one metric entry of a comparison; at least one side is there."""
    withheld = _withheld(before, after)
    delta = None
    if before is not None and after is not None and not withheld:
        # Both are complete here, so both have a value.
        delta = after.value - before.value  # type: ignore[operator]
    status = "unavailable"
    if before is not None and after is not None:
        status = max(before.status, after.status, key=_RANK.__getitem__)
    entry: Wire = {"status": status, "delta": delta, "before": _wire(before), "after": _wire(after)}
    if withheld:
        entry["withheld"] = withheld
    return entry


def _withheld(before: MetricResult | None, after: MetricResult | None) -> list[str]:
    if before is None or after is None:
        return ["missing"]
    names = [name for name in ("unit", "scope", "method") if getattr(before, name) != getattr(after, name)]
    return names if before.status == after.status == "complete" else ["status", *names]


def _compare_totals(before: Totals, after: Totals) -> Wire:
    earlier = dict(before)
    return {name: compare_metrics(earlier[name], result) for name, result in after}


def _compare_layers(before: LayerRecord, after: LayerRecord) -> Wire | None:
    difference: Wire = {}
    if before.type != after.type:
        difference["type"] = {"before": before.type, "after": after.type}
    if before.parameters != after.parameters:
        difference["parameters"] = {"before": _wire(before.parameters), "after": _wire(after.parameters)}
    if before.token_dependencies != after.token_dependencies:
        difference["token_dependencies"] = {
            "before": _wire(before.token_dependencies),
            "after": _wire(after.token_dependencies),
        }
    # Results that were read are shared where they are equal, so this is mostly a comparison of identities.
    metrics = {
        name: compare_metrics(before.metrics.get(name), after.metrics.get(name))
        for name in {**before.metrics, **after.metrics}
        if before.metrics.get(name) != after.metrics.get(name)
    }
    if not difference and not metrics:
        return None
    return {"path": after.path, "call_index": after.call_index, "metrics": metrics, **difference}


def _call(layer: LayerRecord) -> Wire:
    call: Wire = {
        "path": layer.path,
        "call_index": layer.call_index,
        "type": layer.type,
        "metrics": {name: _wire(result) for name, result in layer.metrics.items()},
    }
    if layer.token_dependencies is not None:
        call["token_dependencies"] = _wire(layer.token_dependencies)
    return call


def _wire(value: object) -> Any:
    return None if value is None else converter().unstructure(value)
