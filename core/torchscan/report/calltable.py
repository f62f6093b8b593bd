"""The calls of a report as the cells of a table: one tree of labels, one text per call and column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from torchscan.contract.states import Complete, MetricState, Partial, Unavailable
from torchscan.contract.tokens import describe as describe_tokens
from torchscan.report import units
from torchscan.report.formats import FormatError, RenderOptions
from torchscan.report.grid import Column
from torchscan.report.labels import describe_input, describe_value, place
from torchscan.report.plain import Glyphs, safe
from torchscan.report.plot import CallTree, Covered, Sizes, Standing

if TYPE_CHECKING:
    from torchscan.report.schema import LayerRecord, Report

__all__ = ["COLUMNS", "CallTable", "state_style"]

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


class CallTable:
    """The calls of a report, laid out as far as columns go.

    Args:
        report: the report.
        options: `depth`, `columns`, `exact`, `metric` (for the column `share`) and `encoding` are heeded.

    Raises:
        FormatError: an unknown column, or a negative depth.

    """

    def __init__(self, report: Report, options: RenderOptions) -> None:
        if options.depth is not None and options.depth < 0:
            raise FormatError(f"depth must be a whole number and not negative, got {options.depth}")
        for name in options.columns or ():
            if name not in COLUMNS:
                raise FormatError(f"there is no column {name!r:.40}; the columns are {', '.join(COLUMNS)}")
        self.options = options
        self.tree = CallTree(report)
        self.report = report
        self.folded: set[int] = set()
        self._glyphs = Glyphs.of(options.encoding)
        self._repeated = {row.path for row in report.layers if row.call_index}
        dtypes = report.context.dtypes
        self._dtype = f" {dtypes[0].removeprefix('torch.')}" if len(dtypes) == 1 else None

    def columns(self) -> list[Column]:
        """Return the columns, the tree of calls first."""
        rows, labels = self._rows()
        columns = [self._column(name, rows) for name in self._names()]
        if self.options.columns is None:
            # What nobody asked for and no row has is no column.
            columns = [column for column in columns if any(column.cells)]
        return [Column("call", labels, minimum=16), *columns]

    def legend(self, columns: Sequence[Column]) -> list[str]:
        """Return what the marks in `columns` mean, as far as they occur."""
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
        return notes

    def _names(self) -> Sequence[str]:
        if self.options.columns is not None:
            return self.options.columns
        asked = {name for name in _SUMMED if self.tree.requested(name)}
        return [name for name in _USUAL if name not in _SUMMED or name in asked]

    def _rows(self) -> tuple[list[int], list[str]]:
        """Return the rows to show and their labels, parents before children."""
        rows: list[int] = []
        labels: list[str] = []
        glyphs, children, depth = self._glyphs, self.tree.children, self.options.depth
        self.folded.clear()
        # (row, what stands before its children, what stands before itself, its depth in the tree)
        stack = [(row, "", "", 0) for row in range(len(self.tree.rows) - 1, -1, -1) if self.tree.parents[row] < 0]
        while stack:
            row, inner, own, level = stack.pop()
            rows.append(row)
            label = own + self._name(row)
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

    def _name(self, row: int) -> str:
        layer, parent = self.tree.rows[row], self.tree.parents[row]
        above = self.tree.rows[parent].path if parent >= 0 else ""
        # A shared module can run far from where its path says; there the last part alone would mislead.
        name = layer.path.removeprefix(f"{above}.") if layer.path else layer.name
        number = f"#{layer.call_index}" if layer.path in self._repeated else ""
        return self._safe((name or "(root)") + number)

    def _column(self, name: str, rows: Sequence[int]) -> Column:
        title, rank = COLUMNS[name], _RANKS.get(name, 0)
        if name in _SUMMED:
            cells, styles = self._numbers(self.tree.sizes(name), rows)
            return Column(title, cells, right=True, styles=styles)
        if name == "share":
            return Column(title, self._shares(rows), right=True)
        if name in _SPATIAL:
            results = [self.tree.rows[row].metrics.get(name) for row in rows]
            return Column(title, [units.result(result, full=self.options.exact) for result in results], right=True)
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
        return text.replace(self._dtype, "") if self._dtype else text

    def _numbers(self, sizes: Sizes, rows: Sequence[int]) -> tuple[list[str], list[str]]:
        cells: list[str] = []
        styles: list[str] = []
        for row in rows:
            standing: Standing = sizes.own[row]
            if isinstance(standing, Covered):
                cell, style = "^", "dim"
            elif isinstance(standing, Complete | Partial | Unavailable) and not (
                row in self.folded and standing != sizes.total[row]
            ):
                cell, style = units.state(standing, full=self.options.exact), state_style(standing)
            else:
                cell, style = self._sum(sizes, row)
            cells.append(cell)
            styles.append(style)
        return cells, styles

    def _sum(self, sizes: Sizes, row: int) -> tuple[str, str]:
        inside = sizes.total[row]
        if isinstance(inside, Covered):
            return "^", "dim"
        text = units.state(inside, full=self.options.exact)
        alone = isinstance(inside, Unavailable) and not self.tree.children[row]
        return text if alone else f"({text})", state_style(inside)

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

    def _safe(self, text: str) -> str:
        return safe(text, self.options.encoding)


def _owners(row: LayerRecord) -> str:
    owners = row.metric_owners or {}
    if not owners:
        return ""
    named = {metric: place(owner.path, owner.call_index) for metric, owner in owners.items()}
    if len(set(named.values())) == 1:
        return next(iter(named.values()))
    return ", ".join(f"{metric}: {name}" for metric, name in named.items())


def state_style(state: MetricState) -> str:
    """Return the rich style of a state; the text says the same without it."""
    if isinstance(state, Complete):
        return "dim" if state.value == 0 else ""
    return "yellow" if isinstance(state, Partial) else "red"
