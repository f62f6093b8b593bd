"""A report as comma-separated values: the records of its calls, or the differences to an earlier report."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from torchscan.report.compare import compare_reports
from torchscan.report.formats import RenderOptions
from torchscan.report.labels import visible
from torchscan.report.records import records
from torchscan.report.schema import Report

__all__ = ["render"]

_DIFFERENCE: Final = (
    "path", "call_index", "change", "metric", "before", "before_status", "after", "after_status", "delta", "withheld"
)  # fmt: skip

#: A spreadsheet takes a cell that begins so for a formula, and runs it.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def render(report: Report, options: RenderOptions) -> str:
    """Return one row per call; with `before`, one row per difference."""
    if options.before is not None:
        return _written(_DIFFERENCE, _differences(compare_reports(options.before, report)))
    rows = records(report)
    return _written(tuple(rows[0]) if rows else (), (tuple(row.values()) for row in rows))


def _written(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _differences(comparison: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for name, entry in comparison["totals"].items():
        yield (None, None, "total", name, *_entry(entry))
    layers = comparison["layers"]
    for change in ("added", "removed"):
        for call in layers[change]:
            for name, result in call["metrics"].items():
                sides = (None, result) if change == "added" else (result, None)
                entry = {"before": sides[0], "after": sides[1], "delta": None, "withheld": ["missing"]}
                yield (call["path"], call["call_index"], change, name, *_entry(entry))
    for call in layers["changed"]:
        for name, entry in call["metrics"].items():
            yield (call["path"], call["call_index"], "changed", name, *_entry(entry))


def _entry(entry: Mapping[str, Any]) -> Iterator[Any]:
    for side in ("before", "after"):
        result = entry[side]
        yield None if result is None else result["known_value"]
        yield None if result is None else result["status"]
    yield entry["delta"]
    yield " ".join(entry.get("withheld", ()))
