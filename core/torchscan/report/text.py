"""A report as text: a table of the call tree, the totals, and the diagnostics by cause.

Plain by default. Nothing relies on colour: a lower bound reads `>= 1.2 G`, what is unavailable `?`, and `0` is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from torchscan.report import units
from torchscan.report.calltable import CallTable, state_style
from torchscan.report.causes import causes, headline, listed
from torchscan.report.formats import RenderOptions
from torchscan.report.grid import grid, paint, wrapped
from torchscan.report.plain import LONGEST, Glyphs, safe

if TYPE_CHECKING:
    from torchscan.report.schema import MetricResult, Report

__all__ = ["print_summary", "render", "write"]


def print_summary(
    report: Report,
    file: IO[str] | None = None,
    *,
    depth: int | None = None,
    columns: Sequence[str] | None = None,
    exact: bool = False,
    width: int | None = None,
) -> None:
    """Print `report` as a table; styled on a terminal, plain everywhere else.

    Args:
        report: the report.
        file: where to; standard output by default.
        depth: show calls down to this depth; those below are summed up.
        columns: some of `torchscan.report.calltable.COLUMNS`, in the order wanted.
        exact: numbers in full.
        width: columns of the terminal; found out by default, and not limited where there is no terminal.

    Raises:
        FormatError: an unknown column, or a negative depth.

    """
    file = sys.stdout if file is None else file
    chosen = None if columns is None else tuple(columns)
    write(lambda suited: render(report, suited), file, depth=depth, columns=chosen, exact=exact, width=width)


def write(
    draw: Callable[[RenderOptions], str], file: IO[str] | None, *, width: int | None = None, **options: Any
) -> None:
    """Write what `draw` makes of `options` and of what suits `file`: its width, its colours and its encoding."""
    if file is None:  # a process without standard output, such as a service
        return
    from rich.console import Console

    console = Console(file=file)
    styled = console.is_terminal and not console.is_jupyter and not console.legacy_windows
    suited = RenderOptions(
        width=width if width is not None else console.width if console.is_terminal else None,
        color=styled and console.color_system is not None and not console.no_color,
        encoding=getattr(file, "encoding", None) or "utf-8",
        **options,
    )
    file.write(draw(suited))


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as text; with `before`, the comparison.

    Raises:
        FormatError: an unknown column, or a negative depth.

    """
    if options.before is not None:
        from torchscan.report.text_compare import render as render_comparison

        return render_comparison(report, options)
    return "\n".join(_Page(report, options).lines()) + "\n"


class _Page:
    def __init__(self, report: Report, options: RenderOptions) -> None:
        self.report = report
        self.options = options
        self.table = CallTable(report, options)

    def lines(self) -> Iterator[str]:
        """Return the lines of the page."""
        title = self.options.title or self.report.context.model_type
        yield self._paint(self._safe(title), "bold")
        yield from self._wrapped(self._provenance())
        yield ""
        yield from self._table()
        yield ""
        yield from self._totals()
        yield from self._diagnostics()

    def _paint(self, text: str, style: str) -> str:
        return paint(text, style) if self.options.color else text

    def _safe(self, text: str, longest: int | None = LONGEST) -> str:
        return safe(text, self.options.encoding, longest)

    def _wrapped(self, text: str, indent: str = "", first: str | None = None) -> Iterator[str]:
        return wrapped(text, self.options.width, indent, first)

    def _provenance(self) -> str:
        context = self.report.context
        calls = len(self.report.layers)
        parts = [
            f"{calls:,} call{'' if calls == 1 else 's'}",
            f"torchscan {context.torchscan_version}, torch {context.torch_version}",
            ", ".join(context.devices),
            ", ".join(dtype.removeprefix("torch.") for dtype in context.dtypes),
        ]
        if context.analysis_mode == "structure":
            parts.insert(0, "structure only")
        return self._safe("; ".join(part for part in parts if part), 200)

    def _table(self) -> Iterator[str]:
        columns = self.table.columns()
        glyphs = Glyphs.of(self.options.encoding)
        lines, width, dropped = grid(columns, self.options.width, color=self.options.color, ellipsis=glyphs.ellipsis)
        yield lines[0]
        yield glyphs.rule * width
        yield from lines[1:]
        notes = self.table.legend(columns)
        if dropped:
            notes.append(f"no room for {', '.join(dropped)}")
        for line in self._wrapped("; ".join(notes)) if notes else ():
            yield self._paint(line, "dim")

    def _totals(self) -> Iterator[str]:
        yield self._paint("Totals", "bold")
        results = dict(self.report.totals)
        for name, title in units.TITLES.items():
            yield f"  {title:<20} {self._total(name, results[name])}"

    def _total(self, name: str, result: MetricResult) -> str:
        if result.method == "not_requested":
            return self._paint("not requested", "dim")
        text = units.result(result, full=self.options.exact)
        if name.endswith("bytes"):
            text += "B" if text[-1:].isalpha() else " B"
        remark = {"partial": "  a lower bound", "unavailable": "  unavailable"}.get(result.status, "")
        return self._paint(text + remark, state_style(result.state))

    def _diagnostics(self) -> Iterator[str]:
        found = causes(self.report)
        if not found:
            return
        yield ""
        yield self._paint("Diagnostics", "bold")
        for cause in found:
            style = "red" if cause.severity == "error" else "yellow"
            for line in self._wrapped(self._safe(headline(cause), 400), "    ", "  "):
                yield self._paint(line, style)
            example = "" if cause.alone else "for example: "
            yield from self._wrapped(self._safe(example + cause.message, 1000), "    ")
            if cause.places:
                yield from self._wrapped(self._safe(f"in {listed(cause.places)}", 400), "    ")
            if cause.remedy:
                yield from self._wrapped(cause.remedy, "       ", "    -> ")
