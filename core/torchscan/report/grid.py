"""Aligned columns of text for terminals, thousands of rows in milliseconds.

rich measures the cells and styles them. Its own table is not used: it lays out every cell on its own, which takes
seconds for the reports this is made for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    widths = [column.width for column in kept]
    dropped: list[str] = []
    if width is not None:
        while (missing := _total(widths) - width) > 0:
            spare = sum(map(_spare, kept, widths))
            worst = max(range(len(kept)), key=lambda index: kept[index].rank)
            if spare >= missing or kept[worst].rank == 0:
                _shrink(kept, widths, missing)
                break
            dropped.append(kept.pop(worst).title)
            del widths[worst]
    parts = [
        _aligned(column, taken, color=color, ellipsis=ellipsis) for column, taken in zip(kept, widths, strict=True)
    ]
    return [GAP.join(line).rstrip() for line in zip(*parts, strict=True)], _total(widths), dropped


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _spare(column: Column, width: int) -> int:
    """Return how much a column of that width can give."""
    return 0 if column.minimum is None else max(width - column.minimum, 0)


def _shrink(columns: Sequence[Column], widths: list[int], need: int) -> None:
    """Take `need` from the columns that can give, the widest first."""
    while need > 0:
        able = [index for index, column in enumerate(columns) if _spare(column, widths[index]) > 0]
        if not able:
            return
        widest, *others = sorted(able, key=lambda index: -widths[index])
        # Down to the next one's width or the column's own minimum, whichever comes first.
        above_next = widths[widest] - max((widths[index] for index in others), default=0)
        step = min(need, _spare(columns[widest], widths[widest]), max(above_next, 1))
        widths[widest] -= step
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


def wrapped(text: str, width: int | None, indent: str, first: str | None = None) -> Iterator[str]:
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
