"""The rows of a sweep as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torchscan.report import units
from torchscan.report.grid import Column, grid
from torchscan.report.plain import safe
from torchscan.report.sweep_rows import SweepRow

__all__ = ["table"]

_SHOWN: Final = ("parameters", "macs", "module_flops", "dmas", "operator_flops")


def table(rows: Sequence[SweepRow], width: int | None, color: bool, *, exact: bool) -> str:
    """Return the rows as a table, in the order of their configurations.

    Args:
        rows: the rows of one sweep, at least one.
        width: columns of the terminal, or `None` for as many as it takes.
        color: style the headings.
        exact: numbers in full instead of SI units.

    """
    names = list(rows[0].config)
    ordered = sorted(rows, key=lambda row: [_order(row.config[name]) for name in names])
    columns = [
        Column(name, [safe(str(row.config[name]), "ascii") for row in ordered], right=_numeric(rows, name), minimum=4)
        for name in names
    ]
    for key in _SHOWN:
        results = [None if row.totals is None else getattr(row.totals, key) for row in ordered]
        if any(result is not None and result.method != "not_requested" for result in results):
            columns.append(
                Column(units.TITLES[key], [units.result(r, full=exact) for r in results], right=True, rank=len(columns))
            )
    if any(row.error is not None for row in ordered):
        errors = ["" if row.error is None else f"{row.error.type}: {row.error.message}" for row in ordered]
        columns.append(Column("error", [safe(" ".join(text.split()), "ascii", 200) for text in errors], minimum=12))
    lines, _, dropped = grid(columns, width, color=color, ellipsis="~")
    if dropped:
        lines.append(f"No room for: {', '.join(dropped)}.")
    failed = sum(row.error is not None for row in rows)
    count = f"{len(rows)} configuration{'s' * (len(rows) != 1)}"
    lines += ["", count + (f", {failed} failed." if failed else ".")]
    return "\n".join(lines) + "\n"


def _numeric(rows: Sequence[SweepRow], name: str) -> bool:
    return all(isinstance(row.config[name], int | float) for row in rows)


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)
