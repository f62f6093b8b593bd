"""A report, or a comparison, as markdown for a pull-request comment.

Everything that comes from the scanned program stands in a code span: there it is text, links nothing and calls nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torchscan.report import units
from torchscan.report.calltable import CallTable
from torchscan.report.causes import causes
from torchscan.report.compare import compare_reports
from torchscan.report.differences import Difference, call_differences, call_name, total_differences
from torchscan.report.formats import RenderOptions
from torchscan.report.labels import shortened, visible
from torchscan.report.schema import Report

__all__ = ["code", "render"]

#: GitHub refuses comments of more than 65,536 characters; the rest of the tables is left to the stored report.
_MOST_CALLS: Final = 200
_MOST_CHARACTERS: Final = 60_000


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as markdown; with `before`, the comparison."""
    title = options.title or report.context.model_type
    lines = [f"### {code(title)}", ""]
    if options.before is None:
        lines += [*_totals(report, options), *_calls(report, options), *_diagnostics(report)]
    else:
        lines += _comparison(compare_reports(options.before, report), options)
    return "\n".join(lines) + "\n"


def code(text: str, longest: int = 120) -> str:
    """Return foreign text as a code span, safe inside a table too."""
    text = shortened(visible(text), longest).replace("|", "\\|")
    if not text.strip():
        return "` `"
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| {' | '.join('---:' if to_the_right else '---' for to_the_right in right)} |"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _details(summary: str, lines: Sequence[str], room: int) -> Iterator[str]:
    """Fold `lines` away, the first two of which are a table's head, as far as there is room for them."""
    yield ""
    yield f"<details><summary>{summary}</summary>"
    yield ""
    used = 0
    for number, line in enumerate(lines):
        used += len(line) + 1
        if number >= _MOST_CALLS + 2 or used > room:
            yield ""
            yield f"{len(lines) - number:,} more rows are in the report."
            break
        yield line
    yield ""
    yield "</details>"


def _totals(report: Report, options: RenderOptions) -> Iterator[str]:
    results = dict(report.totals)
    rows = [
        (
            title,
            "not requested" if result.method == "not_requested" else _number(units.result(result, full=options.exact)),
            "" if result.method == "not_requested" else result.status,
        )
        for name, title in units.TITLES.items()
        if (result := results.get(name)) is not None
    ]
    yield from _table(("total", "value", "state"), rows, (False, True, False))


def _number(text: str) -> str:
    """Return a number with the sign of a lower bound as the entity it must be in HTML."""
    return text.replace(">", "&gt;")


def _calls(report: Report, options: RenderOptions) -> Iterator[str]:
    table = CallTable(report, options)
    columns = table.columns()
    rows = [
        [
            _number(cell) if column.right else code(cell) if cell else ""
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in zip(*(column.cells for column in columns), strict=True)
    ]
    lines = list(_table([column.title for column in columns], rows, [column.right for column in columns]))
    calls = len(report.layers)
    yield from _details(f"{calls:,} call{'' if calls == 1 else 's'}", lines, _MOST_CHARACTERS // 2)
    if notes := table.legend(columns):
        yield ""
        yield _number("; ".join(notes)).replace("^", "\\^")


def _diagnostics(report: Report) -> Iterator[str]:
    if not (found := causes(report)):
        return
    rows = [
        (
            f"{cause.count:,}",
            code(f"{cause.code} ({cause.reason})" if cause.reason else cause.code),
            ", ".join(map(code, cause.operators[:3] or filter(None, (cause.type,)))),
            ", ".join(map(code, cause.metrics)),
            code(cause.message, 300),
            cause.remedy,
        )
        for cause in found
    ]
    header = ("count", "cause", "of", "metrics", "message", "remedy")
    lines = list(_table(header, rows, (True, False, False, False, False, False)))
    yield from _details("Diagnostics", lines, _MOST_CHARACTERS // 3)


def _comparison(comparison: Mapping[str, Any], options: RenderOptions) -> Iterator[str]:
    totals = [_row(difference) for difference in total_differences(comparison, full=options.exact)]
    yield from _table(("total", "before", "after", "change"), totals, (False, True, True, True))
    layers = comparison["layers"]
    changed = [
        (code(call_name(call)), *_row(difference))
        for call in layers["changed"]
        for difference in call_differences(call, full=options.exact)
    ]
    room = _MOST_CHARACTERS // 4
    if changed:
        head = ("call", "what", "before", "after", "change")
        lines = list(_table(head, changed, (False, False, True, True, True)))
        yield from _details(f"{len(layers['changed']):,} changed", lines, room)
    for kind in ("added", "removed"):
        if calls := layers[kind]:
            rows = [(code(call_name(call)), code(call["type"])) for call in calls]
            yield from _details(f"{len(calls):,} {kind}", list(_table(("call", "type"), rows, (False, False))), room)
    if not any(layers.values()):
        yield ""
        yield "No call was added, removed or changed."


def _row(difference: Difference) -> tuple[str, str, str, str]:
    sides = [
        code(side) if difference.name in ("type", "tokens") else _number(side)
        for side in (difference.before, difference.after)
    ]
    change = f"**{difference.delta}**" if difference.changed and difference.delta else difference.delta
    return difference.name, sides[0], sides[1], change
