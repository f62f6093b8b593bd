"""The call tree for speedscope.app: one profile per metric, in which a call is as wide as its work.

The format is described at https://www.speedscope.app/file-format-schema.json. A width can show neither a lower bound
nor unknown work, so the names say it: `>=` in front of the first, `?` in front of the second.
"""

from __future__ import annotations

import json
from typing import Any, Final

from torchscan.contract.states import Complete, Number, Partial
from torchscan.report.formats import RenderOptions
from torchscan.report.labels import shortened, visible
from torchscan.report.plot import METRICS, CallTree, Covered, Metric, Sizes, known
from torchscan.report.schema import Report

__all__ = ["render"]

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class _Frames:
    """The distinct names of a file; an event refers to one by its number."""

    def __init__(self) -> None:
        self.listed: list[dict[str, str]] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def __call__(self, name: str, path: str) -> int:
        key = (name, path)
        if (number := self._numbers.get(key)) is None:
            number = self._numbers[key] = len(self.listed)
            self.listed.append({"name": name, "file": path})
        return number


def render(report: Report, options: RenderOptions) -> str:
    """Return a file with one profile per metric; with `before`, one for each of the two reports."""
    frames = _Frames()
    reports = [("", report)] if options.before is None else [("before: ", options.before), ("after: ", report)]
    profiles: list[dict[str, Any]] = []
    active = 0
    for prefix, one in reports:
        tree = CallTree(one)
        for metric in METRICS:
            if tree.requested(metric.key):
                if metric.key == options.metric:
                    active = len(profiles)
                profiles.append(_profile(tree, metric, prefix, frames))
    title = options.title or report.context.model_type
    document = {
        "$schema": _SCHEMA,
        "name": shortened(visible(title), 200),
        "exporter": f"torchscan {report.context.torchscan_version}",
        "activeProfileIndex": active,
        "shared": {"frames": frames.listed},
        "profiles": profiles,
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _profile(tree: CallTree, metric: Metric, prefix: str, frames: _Frames) -> dict[str, Any]:
    sizes = tree.sizes(metric.key)
    events: list[dict[str, Any]] = []
    at: Number = 0
    # (row, or its end, and the frame that ends there)
    stack: list[tuple[int, int | None, Number]] = [
        (row, None, 0) for row in range(len(tree.rows) - 1, -1, -1) if tree.parents[row] < 0
    ]
    while stack:
        row, frame, own = stack.pop()
        if frame is not None:
            at += own
            events.append({"type": "C", "frame": frame, "at": at})
            continue
        if isinstance(sizes.total[row], Covered):
            continue  # counted in its owner, so it has no width of its own
        frame = frames(_name(tree, sizes, row), visible(tree.rows[row].path) or "(root)")
        events.append({"type": "O", "frame": frame, "at": at})
        stack.append((row, frame, known(sizes.own[row])))
        stack.extend((child, None, 0) for child in reversed(tree.children[row]))
    whole = getattr(tree.report.totals, metric.key)
    state = {"partial": " (a lower bound)", "unavailable": " (unavailable)"}.get(whole.status, "")
    return {
        "type": "evented",
        "name": f"{prefix}{metric.label}{state}",
        "unit": "none",
        "startValue": 0,
        "endValue": at,
        "events": events,
    }


def _name(tree: CallTree, sizes: Sizes, row: int) -> str:
    layer = tree.rows[row]
    name = layer.path.rpartition(".")[2] if layer.path else layer.name
    state = sizes.total[row]
    mark = "" if isinstance(state, Complete) else ">= " if isinstance(state, Partial) else "? "
    return f"{mark}{shortened(visible(name), 100)} ({shortened(visible(layer.type), 100)})"
