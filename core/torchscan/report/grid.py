"""Aligned columns of text for terminals, thousands of rows in milliseconds.

rich measures the cells and styles them. Its own table is not used: it lays out every cell on its own, which takes
seconds for the reports this is made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import attrs
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.style import Style

__all__ = ["Column", "grid", "paint", "wrapped"]

GAP: Final = "  "


@attrs.frozen
class Column:
    """One column.

    Args:
        title: its heading.
        cells: one text per row, of printable characters.
        right: align to the right.
        minimum: how far it may shrink, in columns of the terminal; `None` does not shrink.
        rank: columns of a higher rank are left out first where there is no room; 0 stays.
        styles: one style per row, or none at all.

    """

    title: str
    cells: Sequence[str]
    right: bool = attrs.field(default=False, kw_only=True)
    minimum: int | None = attrs.field(default=None, kw_only=True)
    rank: int = attrs.field(default=0, kw_only=True)
    styles: Sequence[str] | None = attrs.field(default=None, kw_only=True)

    @property
    def width(self) -> int:
        """The width of its widest cell."""
        return max(cell_len(self.title), max(map(_len, self.cells), default=0))


def _len(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def grid(
    columns: Sequence[Column], width: int | None, *, color: bool, ellipsis: str
) -> tuple[list[str], int, list[str]]:
    """Lay out `columns` in lines of at most `width`.

    Args:
        columns: the columns, the first one leading.
        width: columns of the terminal, or `None` for as many as it takes.
        color: style the cells.
        ellipsis: the one character that stands for what is cut off.

    Returns:
        The lines, the heading first, their width, and the titles of the columns there was no room for.

    """
    kept = list(columns)
    widths = {column.title: column.width for column in kept}
    dropped: list[str] = []
    if width is not None:
        while (spare := width - _total(kept, widths)) < 0:
            shrinkable = sum(
                max(widths[column.title] - column.minimum, 0) for column in kept if column.minimum is not None
            )
            worst = max(kept, key=lambda column: column.rank)
            if shrinkable + spare >= 0 or worst.rank == 0:
                _shrink(kept, widths, -spare)
                break
            kept.remove(worst)
            dropped.append(worst.title)
    parts = [_aligned(column, widths[column.title], color=color, ellipsis=ellipsis) for column in kept]
    return [GAP.join(line).rstrip() for line in zip(*parts, strict=True)], _total(kept, widths), dropped


def _total(columns: Sequence[Column], widths: dict[str, int]) -> int:
    return sum(widths[column.title] for column in columns) + len(GAP) * (len(columns) - 1)


def _shrink(columns: Sequence[Column], widths: dict[str, int], need: int) -> None:
    """Take `need` from the columns that can give, the widest first."""
    while need > 0:
        able = [column for column in columns if column.minimum is not None and widths[column.title] > column.minimum]
        if not able:
            return
        able.sort(key=lambda column: -widths[column.title])
        widest = widths[able[0].title]
        # Down to the next one's width or the column's own minimum, whichever comes first.
        floor = max(able[0].minimum or 0, widths[able[1].title] if len(able) > 1 else 0)
        step = min(need, max(widest - floor, 1))
        widths[able[0].title] = widest - step
        need -= step


def _aligned(column: Column, width: int, *, color: bool, ellipsis: str) -> list[str]:
    lines = [_fit(text, width, column.right, ellipsis) for text in (column.title, *column.cells)]
    if not color:
        return lines
    styles = column.styles or [""] * len(column.cells)
    return [paint(line, style) for line, style in zip(lines, ("bold", *styles), strict=True)]


def _fit(text: str, width: int, right: bool, ellipsis: str) -> str:
    if text.isascii() and len(text) <= width:
        return text.rjust(width) if right else text.ljust(width)
    length = _len(text)
    if length > width:
        return set_cell_size(text, max(width - 1, 0)) + ellipsis if width else ""
    return " " * (width - length) + text if right else text + " " * (width - length)


def paint(text: str, style: str) -> str:
    """Return `text` with the escape codes of a rich style; the blanks around it stay plain."""
    if not style or not (bare := text.strip()):
        return text
    start = text.index(bare)
    return f"{text[:start]}{_style(style).render(bare, color_system=ColorSystem.STANDARD)}{text[start + len(bare) :]}"


@cache
def _style(definition: str) -> Style:
    return Style.parse(definition)


def wrapped(text: str, width: int | None, indent: str, first: str | None = None) -> Iterable[str]:
    """Return `text` in lines of at most `width`, each behind `indent`."""
    lead = indent if first is None else first
    if width is None:
        yield lead + text
        return
    line, room = "", max(width - cell_len(indent), 20)
    for word in text.split():
        if line and _len(line) + 1 + _len(word) > room:
            yield lead + line
            line, lead = "", indent
        line = f"{line} {word}" if line else word
    yield lead + line
