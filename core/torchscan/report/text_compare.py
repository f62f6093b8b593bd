"""Two reports side by side as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchscan.report.compare import compare_reports
from torchscan.report.differences import Difference, call_differences, call_name, total_differences
from torchscan.report.formats import RenderOptions
from torchscan.report.grid import Column, grid, paint
from torchscan.report.plain import Glyphs, safe
from torchscan.report.schema import Report

__all__ = ["render"]


def render(report: Report, options: RenderOptions) -> str:
    """Return the comparison of `options.before` with `report` as text."""
    if options.before is None:
        raise ValueError("a comparison needs the report from before")
    title = options.title or f"{options.before.context.model_type} -> {report.context.model_type}"
    return "\n".join(_lines(compare_reports(options.before, report), options, title)) + "\n"


def _lines(comparison: Mapping[str, Any], options: RenderOptions, title: str) -> Iterator[str]:
    def heading(text: str) -> str:
        return paint(text, "bold") if options.color else text

    def shown(text: str) -> str:
        return safe(text, options.encoding)

    yield heading(shown(title))
    yield ""
    yield from _table([("", difference) for difference in total_differences(comparison, full=options.exact)], options)
    layers = comparison["layers"]
    for kind in ("added", "removed"):
        if calls := layers[kind]:
            yield ""
            yield heading(f"{len(calls):,} {kind}")
            for call in calls:
                yield "  " + shown(f"{call_name(call)}  {call['type']}")
    if changed := layers["changed"]:
        yield ""
        yield heading(f"{len(changed):,} changed")
        rows = []
        for call in changed:
            name = shown(call_name(call))
            for difference in call_differences(call, full=options.exact):
                rows.append((name, difference))
                name = ""
        yield from _table(rows, options)
    if not any(layers.values()):
        yield ""
        yield "No call was added, removed or changed."


def _table(rows: Sequence[tuple[str, Difference]], options: RenderOptions) -> list[str]:
    def shown(text: str) -> str:
        return safe(text, options.encoding)

    styles = ["bold" if difference.changed else "dim" for _, difference in rows]
    columns = [
        Column("", [difference.name for _, difference in rows], styles=styles),
        Column("before", [shown(difference.before) for _, difference in rows], right=True, minimum=8),
        Column("after", [shown(difference.after) for _, difference in rows], right=True, minimum=8),
        Column("change", [difference.delta for _, difference in rows], styles=styles),
    ]
    if any(name for name, _ in rows):
        columns.insert(0, Column("call", [name for name, _ in rows], minimum=16))
    glyphs = Glyphs.of(options.encoding)
    lines, width, _ = grid(columns, options.width, color=options.color, ellipsis=glyphs.ellipsis)
    return [lines[0], glyphs.rule * width, *lines[1:]]
