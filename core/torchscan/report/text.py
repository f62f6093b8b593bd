"""A report as text: a table of the call tree, the totals, and the diagnostics by cause.

Plain by default. Nothing relies on colour: a lower bound reads `>= 1.2 G`, what is unavailable `?`, and `0` is zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final

import attrs

from torchscan.contract.states import Complete, MetricState, Partial, Unavailable
from torchscan.contract.tokens import describe as describe_tokens
from torchscan.report import units
from torchscan.report.causes import causes, headline, listed
from torchscan.report.formats import RenderOptions
from torchscan.report.grid import Column, grid, paint, wrapped
from torchscan.report.labels import describe_input, describe_value, shortened, visible
from torchscan.report.plot import CallTree, Covered, Sizes, Standing

if TYPE_CHECKING:
    from torchscan.report.schema import LayerRecord, MetricOwner, MetricResult, Report

__all__ = ["COLUMNS", "Glyphs", "print_summary", "render", "safe"]

_LONGEST: Final = 80  # of a name, type or shape, in characters

#: Names of the columns one can ask for, with their headings; `call` is always there.
COLUMNS: Final = {
    "type": "type",
    "input": "input",
    "output": "output",
    "parameters": "params",
    "parameter_bytes": "bytes",
    "module_flops": "FLOPs",
    "macs": "MACs",
    "dmas": "DMAs",
    "share": "share",
    "receptive_field": "field",
    "effective_stride": "stride",
    "effective_padding": "padding",
    "tokens": "tokens",
    "owner": "owner",
    "handler": "handler",
}
_USUAL: Final = ("type", "output", "parameters", "module_flops", "macs", "dmas", "tokens", "owner")
_SUMMED: Final = ("parameters", "parameter_bytes", "module_flops", "macs", "dmas")
_SPATIAL: Final = ("receptive_field", "effective_stride", "effective_padding")
_RANKS: Final = {"owner": 9, "handler": 8, "input": 7, "tokens": 6, "output": 5, "type": 4}

#: The heading of each total, in the order of the page.
TOTALS: Final = {
    "parameters": "parameters",
    "trainable_parameters": "  trainable",
    "frozen_parameters": "  frozen",
    "parameter_bytes": "parameter bytes",
    "buffer_elements": "buffer elements",
    "buffer_bytes": "buffer bytes",
    "module_flops": "module FLOPs",
    "macs": "MACs",
    "dmas": "DMAs",
    "operator_flops": "operator FLOPs",
}


@attrs.frozen
class Glyphs:
    """The characters of a table that an encoding may lack."""

    branch: str = "├─ "
    last: str = "└─ "
    pass_by: str = "│  "
    blank: str = "   "
    ellipsis: str = "…"
    rule: str = "─"

    @classmethod
    def of(cls, encoding: str) -> Glyphs:
        """Return what can be written in `encoding`."""
        try:
            "├─└│…─".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return cls("|- ", "`- ", "|  ", "   ", "~", "-")
        return cls()


def safe(text: str, encoding: str, longest: int | None = _LONGEST) -> str:
    """Return foreign text as it can be shown: no control or direction characters, and only what `encoding` has."""
    if text.isascii() and text.isprintable():
        return text if longest is None or len(text) <= longest else shortened(text, longest).replace("…", "~")
    text = visible(text)
    if longest is not None:
        text = shortened(text, longest)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("×", "x").replace("…", "~")
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return safe(text, "ascii", longest)
    return text


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
        columns: some of `COLUMNS`, in their order of preference.
        exact: numbers in full.
        width: columns of the terminal; found out by default, and not limited where there is no terminal.

    Raises:
        ValueError: an unknown column, or a negative depth.

    """
    file = sys.stdout if file is None else file
    write(lambda options: render(report, options), file, depth=depth, columns=columns, exact=exact, width=width)


def write(
    draw: Callable[[RenderOptions], str],
    file: IO[str],
    *,
    depth: int | None = None,
    columns: Sequence[str] | None = None,
    exact: bool = False,
    width: int | None = None,
) -> None:
    """Write what `draw` makes of the options that suit `file`."""
    from rich.console import Console

    console = Console(file=file)
    styled = console.is_terminal and not console.is_jupyter and not console.legacy_windows
    file.write(
        draw(
            RenderOptions(
                depth=depth,
                columns=None if columns is None else tuple(columns),
                exact=exact,
                width=width if width is not None else console.width if console.is_terminal else None,
                color=styled and console.color_system is not None and not console.no_color,
                encoding=getattr(file, "encoding", None) or "utf-8",
            )
        )
    )


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as text; with `before`, the comparison.

    Raises:
        ValueError: an unknown column, or a negative depth.

    """
    if options.before is not None:
        from torchscan.report.text_compare import render as render_comparison

        return render_comparison(report, options)
    return "\n".join(_Page(report, options).lines()) + "\n"


class _Page:
    def __init__(self, report: Report, options: RenderOptions) -> None:
        if options.depth is not None and options.depth < 0:
            raise ValueError(f"depth must not be negative, got {options.depth}")
        for name in options.columns or ():
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name!r:.40}; the columns are {', '.join(COLUMNS)}")
        self.report = report
        self.options = options
        self.glyphs = Glyphs.of(options.encoding)
        self.tree = CallTree(report)
        self.repeated = {row.path for row in report.layers if row.call_index}
        dtypes = report.context.dtypes
        self.dtype = f" {dtypes[0].removeprefix('torch.')}" if len(dtypes) == 1 else None

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

    def _safe(self, text: str, longest: int | None = _LONGEST) -> str:
        return safe(text, self.options.encoding, longest)

    def _wrapped(self, text: str, indent: str = "", first: str | None = None) -> Iterator[str]:
        return iter(wrapped(text, self.options.width, indent, first))

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
        return self._safe("; ".join(part for part in parts if part), None)

    # -- the table

    def _table(self) -> list[str]:
        rows, labels = self._rows()
        columns = [Column("call", labels, minimum=16)]
        for name in self._columns():
            columns.append(self._column(name, rows))
        # What nobody asked for and no row has is no column.
        if self.options.columns is None:
            columns = [column for column in columns if any(column.cells)]
        lines, width, dropped = grid(
            columns, self.options.width, color=self.options.color, ellipsis=self.glyphs.ellipsis
        )
        lines.insert(1, self.glyphs.rule * width)
        lines.extend(self._legend(columns, dropped))
        return lines

    def _columns(self) -> Sequence[str]:
        if self.options.columns is not None:
            return self.options.columns
        asked = {name for name in _SUMMED if self.tree.requested(name)}
        return [name for name in _USUAL if name not in _SUMMED or name in asked]

    def _rows(self) -> tuple[list[int], list[str]]:
        """Return the rows to show and their labels, parents before children."""
        rows: list[int] = []
        labels: list[str] = []
        glyphs, children, depth = self.glyphs, self.tree.children, self.options.depth
        self.folded: set[int] = set()
        # (row, what stands before its children, what stands before itself, its depth in the tree)
        stack = [(row, "", "", 0) for row in range(len(self.tree.rows) - 1, -1, -1) if self.tree.parents[row] < 0]
        while stack:
            row, inner, own, level = stack.pop()
            rows.append(row)
            label = own + self._name(self.tree.rows[row])
            inside = children[row]
            if depth is not None and level >= depth and inside:
                self.folded.add(row)
                label += f" (+{self.tree.calls[row] - 1})"
            else:
                for position, child in enumerate(reversed(inside)):
                    last = position == 0
                    stack.append(
                        (
                            child,
                            inner + (glyphs.blank if last else glyphs.pass_by),
                            inner + (glyphs.last if last else glyphs.branch),
                            level + 1,
                        )
                    )
            labels.append(label)
        return rows, labels

    def _name(self, row: LayerRecord) -> str:
        name = row.path.rpartition(".")[2] if row.path else row.name
        return self._safe(f"{name or '(root)'}#{row.call_index}" if row.path in self.repeated else name or "(root)")

    def _column(self, name: str, rows: Sequence[int]) -> Column:
        title, rank = COLUMNS[name], _RANKS.get(name, 0)
        if name in _SUMMED:
            cells, styles = self._numbers(self.tree.sizes(name), rows)
            return Column(title, cells, right=True, styles=styles)
        if name == "share":
            return Column(title, self._shares(rows), right=True)
        if name in _SPATIAL:
            layers = [self.tree.rows[row].metrics.get(name) for row in rows]
            return Column(title, [units.result(result, full=self.options.exact) for result in layers], right=True)
        describe: dict[str, Callable[[LayerRecord], str]] = {
            "type": lambda row: row.type,
            "input": lambda row: self._shape(describe_input(row.input)),
            "output": lambda row: self._shape(describe_value(row.output)),
            "tokens": lambda row: describe_tokens(row.token_dependencies),
            "owner": _owners,
            "handler": lambda row: ", ".join(dict.fromkeys((row.handlers or {}).values())),
        }
        cells = [self._safe(describe[name](self.tree.rows[row])) for row in rows]
        return Column(title, cells, minimum=8, rank=rank)

    def _shape(self, text: str) -> str:
        return text.replace(self.dtype, "") if self.dtype else text

    def _numbers(self, sizes: Sizes, rows: Sequence[int]) -> tuple[list[str], list[str]]:
        cells: list[str] = []
        styles: list[str] = []
        for row in rows:
            standing: Standing = sizes.own[row]
            if isinstance(standing, Covered):
                cell, style = "^", "dim"
            elif row in self.folded or not isinstance(standing, Complete | Partial | Unavailable):
                cell, style = self._sum(sizes, row)
            else:
                cell, style = units.state(standing, full=self.options.exact), _style(standing)
            cells.append(cell)
            styles.append(style)
        return cells, styles

    def _sum(self, sizes: Sizes, row: int) -> tuple[str, str]:
        inside = sizes.total[row]
        if isinstance(inside, Covered):
            return "^", "dim"
        text = units.state(inside, full=self.options.exact)
        return (f"({text})", _style(inside)) if self.tree.children[row] else ("?", "red")

    def _shares(self, rows: Sequence[int]) -> list[str]:
        """Return each call's part of the total, where the total is known and not zero."""
        sizes = self.tree.sizes(self.options.metric)
        whole = getattr(self.report.totals, self.options.metric).value
        if not whole:
            return [""] * len(rows)
        cells = []
        for row in rows:
            inside = sizes.total[row]
            cells.append(f"{100 * inside.value / whole:.1f} %" if isinstance(inside, Complete) else "")
        return cells

    def _legend(self, columns: Sequence[Column], dropped: Sequence[str]) -> Iterator[str]:
        cells = {cell for column in columns if column.right for cell in column.cells}
        notes = []
        if any(cell.startswith((">=", "(>=")) for cell in cells):
            notes.append(">= a lower bound")
        if "?" in cells or "(?)" in cells:
            notes.append("? unavailable")
        if any(cell.startswith("(") for cell in cells):
            notes.append("( ) the sum of the calls inside")
        if "^" in cells:
            notes.append("^ counted in the row of its owner")
        if self.folded:
            notes.append("(+n) calls not shown")
        if dropped:
            notes.append(f"no room for {', '.join(dropped)}")
        for line in self._wrapped("; ".join(notes)) if notes else ():
            yield self._paint(line, "dim")

    # -- below the table

    def _totals(self) -> Iterator[str]:
        yield self._paint("Totals", "bold")
        results = dict(self.report.totals)
        for name, title in TOTALS.items():
            yield f"  {title:<18} {self._total(name, results[name])}"

    def _total(self, name: str, result: MetricResult) -> str:
        if result.method == "not_requested":
            return self._paint("not requested", "dim")
        text = units.result(result, full=self.options.exact)
        if name.endswith("bytes"):
            text += "B" if text[-1:].isalpha() else " B"
        remark = {"partial": "  a lower bound", "unavailable": "  unavailable"}.get(result.status, "")
        return self._paint(text + remark, _style(result.state))

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


def _owners(row: LayerRecord) -> str:
    owners = row.metric_owners or {}
    if not owners:
        return ""
    named = {metric: _call_name(owner) for metric, owner in owners.items()}
    if len(set(named.values())) == 1:
        return next(iter(named.values()))
    return ", ".join(f"{metric}: {name}" for metric, name in named.items())


def _call_name(owner: MetricOwner) -> str:
    return f"{owner.path or '(root)'}{f'#{owner.call_index}' if owner.call_index else ''}"


def _style(state: MetricState) -> str:
    if isinstance(state, Complete):
        return "dim" if state.value == 0 else ""
    return "yellow" if isinstance(state, Partial) else "red"
