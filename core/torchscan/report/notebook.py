"""How a report shows itself in a notebook: the text table, escaped."""

from __future__ import annotations

from html import escape
from typing import Final

from torchscan.report.formats import RenderOptions
from torchscan.report.plot import CallTree
from torchscan.report.schema import Report
from torchscan.report.text import render

__all__ = ["repr_html"]

#: A cell's output stays readable; the whole report is one `render_report` away.
_MOST_CALLS: Final = 400

_STYLE: Final = "overflow-x: auto; white-space: pre; line-height: 1.25; tab-size: 2"


def repr_html(report: Report) -> str:
    """Return the text table in a `<pre>`, folded to a depth at which it has a few hundred rows at most."""
    text = render(report, RenderOptions(depth=_depth(report)))
    return f'<pre class="torchscan-report" style="{_STYLE}">{escape(text)}</pre>'


def _depth(report: Report) -> int | None:
    if len(report.layers) <= _MOST_CALLS:
        return None
    levels: list[int] = []
    for parent in CallTree(report).parents:
        levels.append(0 if parent < 0 else levels[parent] + 1)
    depth = 0
    while sum(level <= depth + 1 for level in levels) <= _MOST_CALLS:
        depth += 1
    return depth
