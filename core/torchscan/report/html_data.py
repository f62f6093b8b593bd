"""The data block of the HTML page: reports as columns, ready for its scripts.

Columns rather than one object per call, and every text once: a report of thousands of calls stays small. Everything
here ends up inside a JSON block of the page, which holds no character that could end it (`as_json`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from torchscan.contract.states import Complete, Number, Partial, Unavailable
from torchscan.contract.tokens import describe
from torchscan.report.labels import describe_input, describe_value, visible
from torchscan.report.plot import METRICS, CallTree, Covered, Standing
from torchscan.report.schema import Failed, Report
from torchscan.report.token_pictures import in_words

__all__ = ["as_json", "page_data"]

#: Beyond this a JSON number loses digits in JavaScript, so it travels as text.
_SAFE: Final = 2**53
_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class _Texts:
    """Every text once, by its number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def written(self) -> list[str]:
        return [visible(text) for text in self.numbers]


def as_json(data: object) -> str:
    """Return `data` as JSON that can stand inside a `<script>` element: ASCII, without `<`, `>` and `&`."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def page_data(report: Report, before: Report | None, first: str) -> dict[str, Any]:
    """Return what the page's scripts draw.

    Args:
        report: the report of the page.
        before: the report it is compared with.
        first: the key of the metric shown first; the next one that was asked for, where the report lacks it.

    Returns:
        JSON-ready data: `metrics`, `first`, `texts`, and `reports` with the columns of each.

    """
    texts = _Texts()
    trees = [CallTree(one) for one in (report, before) if one is not None]
    asked = [metric.key for metric in METRICS if any(tree.requested(metric.key) for tree in trees)]
    reports = [_columns(tree, texts) for tree in trees]
    return {
        "metrics": [
            {"key": metric.key, "label": metric.label, "unit": metric.unit, "asked": metric.key in asked}
            for metric in METRICS
        ],
        "first": first if first in asked else asked[0],
        "reports": reports,
        "texts": texts.written(),
    }


def _columns(tree: CallTree, texts: _Texts) -> dict[str, Any]:
    rows = tree.rows
    return {
        "parent": tree.parents,
        "path": [texts(row.path) for row in rows],
        "label": [texts(row.name if row.path else row.type) for row in rows],
        "index": [row.call_index for row in rows],
        "type": [texts(row.type) for row in rows],
        "input": [texts(describe_input(row.input)) for row in rows],
        "output": [texts(describe_value(row.output)) for row in rows],
        "failed": [index for index, row in enumerate(rows) if isinstance(row.output, Failed)],
        "shared": [index for index, row in enumerate(rows) if row.parameters.shared],
        "tokens": {
            index: [texts(describe(row.token_dependencies)), texts(in_words(row.token_dependencies))]
            for index, row in enumerate(rows)
            if row.token_dependencies is not None
        },
        "notes": _notes(tree, texts),
        "sizes": {
            metric.key: _sizes(tree, metric.key, texts) if tree.requested(metric.key) else None for metric in METRICS
        },
    }


def _sizes(tree: CallTree, metric: str, texts: _Texts) -> dict[str, Any]:
    sizes = tree.sizes(metric)
    methods: dict[int, int] = {}
    handlers: dict[int, int] = {}
    for index, row in enumerate(tree.rows):
        if (result := row.metrics.get(metric)) is not None:
            methods[index] = texts(result.method)
        if row.handlers and metric in row.handlers:
            handlers[index] = texts(row.handlers[metric])
    return {
        "own": "".join(map(_letter, sizes.own)),
        "ownNumber": [_number(state) for state in sizes.own],
        "total": "".join(map(_letter, sizes.total)),
        "totalNumber": [_number(state) for state in sizes.total],
        # Seven digits of a part place an edge to a thousandth of a pixel.
        "share": [float(f"{share:.7g}") if share else 0 for share in sizes.share],
        "owner": {
            index: state.owner
            for index, state in enumerate(sizes.own)
            if isinstance(state, Covered) and state.owner is not None
        },
        "method": methods,
        "handler": handlers,
    }


def _letter(state: Standing) -> str:
    if isinstance(state, Complete):
        return "c"
    if isinstance(state, Partial):
        return "p"
    if isinstance(state, Unavailable):
        return "u"
    return "o" if isinstance(state, Covered) else "-"


def _number(state: Standing) -> Number | str | None:
    if isinstance(state, Complete):
        number = state.value
    elif isinstance(state, Partial):
        number = state.known_value
    else:
        return None
    return number if number <= _SAFE else str(number)


def _notes(tree: CallTree, texts: _Texts) -> dict[int, list[list[int]]]:
    """Return the diagnostics of each row: the code and the message, as numbers of texts."""
    by_path: dict[str, list[int]] = {}
    for index, row in enumerate(tree.rows):
        by_path.setdefault(row.path, []).append(index)
    notes: dict[int, list[list[int]]] = {}
    for diagnostic in tree.report.diagnostics:
        if diagnostic.path is None:
            continue
        note = [texts(diagnostic.code), texts(diagnostic.message)]
        if diagnostic.call_index is None:
            places: Iterable[int] = by_path.get(diagnostic.path, ())
        else:
            found = tree.row_of.get((diagnostic.path, diagnostic.call_index))
            places = () if found is None else (found,)
        for index in places:
            notes.setdefault(index, []).append(note)
    return notes
