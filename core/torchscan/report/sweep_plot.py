"""A sweep as one self-contained HTML page: a total against a swept variable, one line per setting of the others.

A lower bound is an open triangle, so that it is never taken for a value; a configuration without a number is no point,
and the page says how many there are.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from torchscan.report import units
from torchscan.report.labels import visible

if TYPE_CHECKING:
    from torchscan.report.schema import MetricResult
    from torchscan.report.sweep_rows import SweepRow

__all__ = ["PLOTTED", "check_axes", "plot"]

#: What can be drawn.
PLOTTED: Final = ("macs", "module_flops", "dmas", "operator_flops", "parameters", "parameter_bytes")
#: The page asks the network for nothing.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
_HEAD: Final = (
    f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<style>html, body {{height: 100%; margin: 0}}</style><title>{title}</title>"
)
#: Where the menus are: above the drawing and its one line of text.
_ABOVE: Final = {"y": 1, "yanchor": "bottom", "pad": {"b": 40}}
#: Lines that coincide stay visible below one another, and do not differ by colour alone.
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_SYMBOLS: Final = {"complete": "circle", "partial": "triangle-up-open"}


def check_axes(values: Mapping[str, Sequence[Any]], x: str | None, y: str) -> str:
    """Return the variable of the horizontal axis: `x`, or the first with several values.

    Raises:
        ValueError: `x` is not swept, or `y` is no total; the message lists what is.

    """
    if y not in PLOTTED:
        raise ValueError(f"a plot shows one of {', '.join(PLOTTED)}, not {y!r}")
    if not values:
        raise ValueError("there is no swept variable to draw against")
    if x is not None and x not in values:
        raise ValueError(f"{x!r} is not swept; the plot can be drawn against {', '.join(values)}")
    return x or next((name for name, several in values.items() if len(several) > 1), next(iter(values)))


def plot(rows: Iterable[SweepRow], *, x: str | None = None, y: str = "macs", title: str = "sweep") -> str:
    """Return an HTML page that opens offline.

    Args:
        rows: the rows of one sweep.
        x: the variable of the horizontal axis; by default the first with several values.
        y: the total that is shown first; the page offers the others.
        title: the heading.

    Raises:
        ValueError: there are no rows, `x` is not swept, or `y` is no total.
        ModuleNotFoundError: plotly is missing; it is in the extra `html`.

    """
    import plotly.graph_objects as go

    rows = list(rows)
    if not rows:
        raise ValueError("there are no rows to draw")
    names = list(rows[0].config)
    values = {name: _distinct(row.config.get(name) for row in rows) for name in names}
    across = check_axes(values, x, y)
    others = [name for name in names if name != across and len(values[name]) > 1]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values[across])
    lines: dict[str, list[SweepRow]] = {}
    for row in rows:
        label = ", ".join(f"{name}={row.config.get(name)}" for name in others)
        lines.setdefault(_text(label), []).append(row)
    if numeric:
        for line in lines.values():
            line.sort(key=lambda row: row.config[across])
    shown = [key for key in PLOTTED if _drawn(rows, key)]
    first = y if y in shown else (shown[0] if shown else y)
    figure = go.Figure()
    for (label, line), dash in zip(lines.items(), itertools.cycle(_DASHES), strict=False):
        places = [row.config[across] if numeric else _text(str(row.config[across])) for row in line]
        figure.add_scatter(
            x=places,
            name=label,
            mode="lines+markers",
            marker_size=9,
            line_dash=dash,
            hovertemplate="%{text}<extra></extra>",
            **{name.replace(".", "_"): value for name, value in _points(line, first).items()},
        )
    buttons = [
        {
            "label": units.TITLES[key],
            "method": "update",
            "args": [
                _all_points(lines.values(), key),
                {"yaxis.title.text": _axis(key, rows), "annotations[0].text": _missing(rows, key)},
            ],
        }
        for key in shown
    ]
    figure.update_layout(
        # Distances are pixels where a share of the height would make neighbours overlap on a small screen.
        title={"text": _text(title), "yref": "container", "y": 1, "yanchor": "top", "pad": {"t": 16}},
        margin={"t": 150},
        template="plotly_white",
        showlegend=bool(others),
        legend={"title": {"text": _text(", ".join(others))}, "orientation": "h", "y": -0.15, "yanchor": "top"},
        xaxis={"title": {"text": _text(across)}, "type": "linear" if numeric else "category"},
        yaxis={"title": {"text": _axis(first, rows)}, "rangemode": "tozero", "exponentformat": "SI"},
        annotations=[
            {
                "text": _missing(rows, first),
                "showarrow": False,
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "yshift": 10,
            }
        ],
        updatemenus=[
            {
                "buttons": buttons,
                "active": shown.index(first) if shown else 0,
                "x": 1,
                "xanchor": "right",
                **_ABOVE,
            },
            {
                "buttons": _scales(numeric),
                "type": "buttons",
                "direction": "left",
                "x": 0,
                "xanchor": "left",
                **_ABOVE,
            },
        ],
    )
    page: str = figure.to_html(
        full_html=True, include_plotlyjs=True, config={"displaylogo": False, "showSendToCloud": False}
    )
    return page.replace("<html>\n<head>", f'<html lang="en">\n<head>{_HEAD.format(title=_text(title))}', 1)


def _scales(numeric: bool) -> list[dict[str, Any]]:
    axes = ("xaxis.type", "yaxis.type") if numeric else ("yaxis.type",)
    return [{"label": name, "method": "relayout", "args": [dict.fromkeys(axes, name)]} for name in ("linear", "log")]


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _text(text: str) -> str:
    # plotly reads a little HTML in its texts; names of the program are text and nothing else.
    return html.escape(visible(text))


def _result(row: SweepRow, key: str) -> MetricResult | None:
    return None if row.totals is None else getattr(row.totals, key)


def _drawn(rows: Iterable[SweepRow], key: str) -> bool:
    return any((result := _result(row, key)) is not None and result.known_value is not None for row in rows)


def _points(line: Iterable[SweepRow], key: str) -> dict[str, list[Any]]:
    heights: list[Any] = []
    symbols: list[str] = []
    texts: list[str] = []
    for row in line:
        result = _result(row, key)
        heights.append(None if result is None else result.known_value)
        symbols.append(_SYMBOLS.get("" if result is None else result.status, "x"))
        config = ", ".join(f"{name}={value}" for name, value in row.config.items())
        number = "" if result is None else units.result(result, full=True)
        texts.append(f"{_text(config)}<br>{_text(number)}{'' if result is None else ' ' + result.unit}")
    return {"y": heights, "text": texts, "marker.symbol": symbols}


def _all_points(lines: Iterable[Iterable[SweepRow]], key: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"y": [], "text": [], "marker.symbol": []}
    for line in lines:
        for name, values in _points(line, key).items():
            found[name].append(values)
    return found


def _axis(key: str, rows: Iterable[SweepRow]) -> str:
    unit = next((result.unit for row in rows if (result := _result(row, key)) is not None), "")
    title = units.TITLES[key]
    return title if unit in title or unit == "elements" else f"{title} ({unit})"


def _missing(rows: Sequence[SweepRow], key: str) -> str:
    """Return what the picture does not show, in words."""
    failed = sum(row.error is not None for row in rows)
    results = [result for row in rows if (result := _result(row, key)) is not None]
    unknown = sum(result.status == "unavailable" for result in results)
    bounds = sum(result.status == "partial" for result in results)
    parts = [f"{len(rows)} configuration{'' if len(rows) == 1 else 's'}"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{unknown} without a number"] if unknown else []
    parts += [f"{bounds} lower bound{'' if bounds == 1 else 's'} (open triangles)"] if bounds else []
    return ", ".join(parts)
