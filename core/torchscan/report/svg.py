"""The SVG picture: a static icicle of the call tree, for papers and READMEs.

It needs no script, no font and no style sheet from elsewhere, and the same report always gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

import attrs

from torchscan.contract.states import Complete, Partial, Unavailable
from torchscan.report import units
from torchscan.report.labels import sentence, shortened, visible
from torchscan.report.plot import METRICS, CallTree, Covered, Sizes, known

if TYPE_CHECKING:
    from torchscan.report.formats import RenderOptions
    from torchscan.report.schema import MetricResult, Report

__all__ = ["render"]

_WIDTH: Final = 960
_MARGIN: Final = 20
_LEVEL: Final = 34
#: Calls narrower than this are not drawn one by one.
_NARROWEST: Final = 1.5
#: The average width of a character, for what fits into a box.
_CHARACTER: Final = 6.7
_FONT: Final = "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\""

_INK: Final = "#16202b"
_QUIET: Final = "#566270"
_COMPOSITE: Final = "#e3e8ee"
_OTHER: Final = "#cfd6dd"
_COVERED: Final = "#f4f5f7"
_TYPES: Final = ("#a4c8f0", "#f5c489", "#a3d8ae", "#d6b6ea", "#f3b0ae", "#a9dcdd", "#e6da86", "#d3bfa8")
#: The hatch of each state that a plain colour would hide.
_MARKS: Final[dict[type, str]] = {Partial: "bound", Unavailable: "unknown", Covered: "covered"}


@attrs.frozen
class _Box:
    """A call on paper, or a run of neighbouring calls too narrow to be drawn one by one."""

    rows: tuple[int, ...]
    level: int
    left: float
    width: float
    run: bool = False


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as an SVG picture of one metric.

    Args:
        report: the report.
        options: `metric` is drawn, `title` is the heading, `depth` ends the picture (8 levels otherwise); `before` is
            drawn above, in the same colours. Each of the two is as wide as its own total.

    """
    if options.before is None:
        return _page([_Drawing(report, options, options.title)])
    after = _Drawing(report, options, f"After: {options.title or report.context.model_type}")
    earlier = _Drawing(options.before, options, f"Before: {options.title or options.before.context.model_type}")
    # What is in both keeps the colour that it has in the later report.
    shared = {kind: colour for kind, colour in after.colours.items() if kind in earlier.colours}
    free = [colour for colour in _TYPES if colour not in after.colours.values()]
    earlier.colours = shared | dict(zip((kind for kind in earlier.colours if kind not in shared), free, strict=False))
    return _page([earlier, after])


def _page(drawings: list[_Drawing]) -> str:
    """Return one picture with the drawings below one another."""
    label = "; ".join(drawing.label for drawing in drawings)
    groups: list[str] = []
    height = 0
    for drawing in drawings:
        parts, deep = drawing.parts()
        groups += [f'<g transform="translate(0 {height})">', *parts, "</g>"] if height else parts
        height += deep
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label={quoteattr(shortened(label, 200))} {_FONT}>',
        f"<title>{escape(label)}</title>",
        "<defs>",
        _hatch("bound", "M0 8L8 0M-2 2L2 -2M6 10L10 6"),
        _hatch("unknown", "M0 8L8 0M-2 2L2 -2M6 10L10 6M0 0L8 8M-2 6L2 10M6 -2L10 2"),
        _hatch("covered", "M1 4h1.5M5 4h1.5M1 0h1.5M5 0h1.5"),
        "</defs>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *groups,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Drawing:
    def __init__(self, report: Report, options: RenderOptions, title: str | None) -> None:
        self.report = report
        self.tree = CallTree(report)
        self.metric = next(metric for metric in METRICS if metric.key == options.metric)
        self.asked = self.tree.requested(self.metric.key)
        self.sizes: Sizes = self.tree.sizes(self.metric.key)
        self.levels = 8 if options.depth is None else options.depth + 1
        self.title = visible(title or report.context.model_type)
        self.full = options.exact
        self.total = self._total(getattr(report.totals, self.metric.key))
        self.label = f"{self.title}: {self.total}"
        self.colours = self._colours()
        self.boxes = tuple(self._boxes()) if self.asked and self.tree.rows else ()

    def parts(self) -> tuple[list[str], int]:
        """Return the marks of the drawing, from the top, and its height."""
        deepest = max((box.level for box in self.boxes), default=-1) + 1
        top = 92
        bottom = top + deepest * _LEVEL
        legend, height = self._legend(bottom + 26)
        parts = [
            _text(_MARGIN, 34, shortened(self.title, 78), size=20, weight=700),
            _text(_MARGIN, 58, self.total, size=14, weight=600),
            _text(_MARGIN, 78, shortened(self._others(), 140), size=12, fill=_QUIET),
            *(self._box(box, top) for box in self.boxes),
            *legend,
        ]
        return parts, height

    def _total(self, result: MetricResult) -> str:
        if not self.asked:
            return f"{self.metric.label}: not requested in this scan"
        text = sentence(units.result(result, full=self.full))
        note = {"complete": "", "partial": " (lower bound)", "unavailable": " (unavailable)"}[result.status]
        return f"{self.metric.label}: {text}{note}"

    def _others(self) -> str:
        """Return the totals that are not drawn."""
        found = []
        for metric in METRICS:
            if metric is not self.metric and self.tree.requested(metric.key):
                text = units.result(getattr(self.report.totals, metric.key), full=self.full)
                found.append(f"{metric.label} {sentence(text)}")
        return ", ".join(found)

    # -- the layout ------------------------------------------------------------------------------------------------

    def _boxes(self) -> Iterator[_Box]:
        level = [_Box((0,), 0, _MARGIN, _WIDTH - 2 * _MARGIN)]
        while level:
            yield from level
            level = [
                inside for box in level if not box.run and box.level + 1 < self.levels for inside in self._inside(box)
            ]

    def _inside(self, box: _Box) -> Iterator[_Box]:
        left = start = box.left
        run: list[int] = []
        for child in self.tree.children[box.rows[0]]:
            width = box.width * self.sizes.share[child]
            if width == 0:
                continue
            if width < _NARROWEST:
                start = start if run else left
                run.append(child)
            else:
                if run:
                    yield _Box(tuple(run), box.level + 1, start, left - start, run=True)
                    run = []
                yield _Box((child,), box.level + 1, left, width)
            left += width
        if run:
            yield _Box(tuple(run), box.level + 1, start, left - start, run=True)

    def _colours(self) -> dict[str, str]:
        """Give a colour to the types with the most known work."""
        work: dict[str, float] = {}
        for row, state in zip(self.tree.rows, self.sizes.own, strict=True):
            if amount := known(state):
                work[row.type] = work.get(row.type, 0) + amount
        ranked = sorted(work, key=lambda kind: (-work[kind], kind))
        return dict(zip(ranked, _TYPES, strict=False))

    # -- the marks -------------------------------------------------------------------------------------------------

    def _box(self, box: _Box, top: float) -> str:
        y = top + box.level * _LEVEL
        place = f'x="{_short(box.left)}" y="{y}" width="{_short(box.width)}" height="{_LEVEL - 2}"'
        if box.run:
            return self._run(box, place, y)
        index = box.rows[0]
        state = self.sizes.total[index]
        row = self.tree.rows[index]
        name = visible(row.path or row.type)
        parts = [
            "<g>",
            f"<title>{escape(f'{name} ({visible(row.type)}): {self._standing(index)}')}</title>",
            f'<rect {place} fill="{self._colour(index)}" stroke="#ffffff" stroke-width="1"/>',
        ]
        if (mark := _MARKS.get(type(state))) is not None:
            own = isinstance(self.sizes.own[index], Partial | Unavailable | Covered)
            parts.append(f'<rect {place} fill="url(#{mark})" opacity="{0.5 if own else 0.2}"/>')
        above = self.tree.parents[index]
        label = name
        if above >= 0 and (prefix := visible(self.tree.rows[above].path)) and name.startswith(f"{prefix}."):
            label = name[len(prefix) + 1 :]
        room = int((box.width - 8) / _CHARACTER)
        if room >= 4 or 0 < len(label) <= room:
            parts.append(_text(box.left + 4, y + 13, shortened(label, room), size=11))
            number = "" if isinstance(state, Covered) else sentence(units.state(state))
            if number and len(number) <= room:
                parts.append(_text(box.left + 4, y + 27, number, size=11))
        parts.append("</g>")
        return "".join(parts)

    def _run(self, box: _Box, place: str, y: float) -> str:
        """Return a run of calls, marked by what they have in common."""
        count = len(box.rows)
        words = f"{count} {'call' if count == 1 else 'calls'} too narrow to be drawn"
        mark = _MARKS.get(self._common(box))
        hatch = "" if mark is None else f'<rect {place} fill="url(#{mark})" opacity="0.5"/>'
        fill = _COVERED if mark == "covered" else _OTHER
        label = _text(box.left + 4, y + 13, words, size=11) if len(words) <= (box.width - 8) / _CHARACTER else ""
        return f'<g><title>{words}</title><rect {place} fill="{fill}"/>{hatch}{label}</g>'

    def _common(self, box: _Box) -> type:
        """Return the state of every call of a box, or that something in it is incomplete."""
        states = {type(self.sizes.total[row]) for row in box.rows}
        if len(states) == 1:
            return states.pop()
        return Partial if states & {Partial, Unavailable} else Complete

    def _standing(self, row: int) -> str:
        state = self.sizes.total[row]
        if not isinstance(state, Covered):
            return sentence(units.state(state, full=True)) + f" {self.metric.unit}"
        if state.owner is None:
            return "inside the estimate of another call"
        owner = self.tree.rows[state.owner]
        return f"inside the estimate of {visible(owner.path or owner.type)}"

    def _colour(self, row: int) -> str:
        own = self.sizes.own[row]
        if isinstance(own, Covered):
            return _COVERED
        if not known(own) and self.tree.children[row]:
            return _COMPOSITE
        return self.colours.get(self.tree.rows[row].type, _OTHER)

    def _legend(self, y: float) -> tuple[list[str], int]:
        """Return the legend that begins at `y`, as far as its marks occur, and the height of the picture."""
        states = {self._common(box) for box in self.boxes}
        entries: list[tuple[str, str | None, str]] = [
            (colour, None, shortened(visible(kind), 40)) for kind, colour in self.colours.items()
        ]
        for kind, words in (
            (Partial, "≥ lower bound: some work inside is not counted"),
            (Unavailable, "? unknown, not zero: its width means nothing"),
            (Covered, "inside an owner's estimate: structure only"),
        ):
            if kind in states:
                entries.append((_COVERED if kind is Covered else _COMPOSITE, _MARKS[kind], words))
        parts: list[str] = []
        x: float = _MARGIN
        for colour, mark, words in entries:
            width = 30 + len(words) * _CHARACTER + 12
            if x > _MARGIN and x + width > _WIDTH - _MARGIN:
                x, y = _MARGIN, y + 22
            swatch = f'<rect x="{_short(x)}" y="{_short(y - 11)}" width="22" height="14" fill='
            parts.append(f'{swatch}"{colour}" stroke="{_OTHER}"/>')
            if mark is not None:
                parts.append(f'{swatch}"url(#{mark})" opacity="0.5"/>')
            parts.append(_text(x + 30, y, words, size=12, fill=_QUIET))
            x += width
        return parts, int(y) + 20


def _hatch(name: str, path: str) -> str:
    return (
        f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="{_INK}" stroke-width="1"/></pattern>'
    )


def _text(x: float, y: float, text: str, *, size: int, weight: int = 400, fill: str = _INK) -> str:
    bold = "" if weight == 400 else f' font-weight="{weight}"'
    return (
        f'<text x="{_short(x)}" y="{_short(y)}" font-size="{size}"{bold} fill="{fill}" direction="ltr" '
        f'unicode-bidi="isolate">{escape(text)}</text>'
    )


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
