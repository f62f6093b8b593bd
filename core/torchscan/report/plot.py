"""What every drawing of a report needs: the tree of calls, and the share of its parent that each call gets.

A share is a width on paper, not a measurement. It follows the retained numbers: a call is as wide as its own estimate
and everything executed inside it. Three things have no number to follow, and none of them may look like zero:

- a call whose work is unknown gets a strip of fixed width (`UNKNOWN_SHARE` of its parent, less where there are many);
- a call that an ancestor's estimate covers divides the ancestor's width by the number of calls inside, as structure;
- a lower bound is as wide as what is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from torchscan.contract.states import Complete, MetricState, Number, Partial, Unavailable
from torchscan.contract.states import total as total_of

if TYPE_CHECKING:
    from torchscan.report.schema import LayerRecord, MetricResult, Report

__all__ = ["METRICS", "NOTHING", "UNKNOWN_SHARE", "CallTree", "Covered", "Metric", "Sizes", "Standing", "known"]

#: The part of its parent's width that a call of unknown work gets.
UNKNOWN_SHARE: Final = 0.05
#: The part of a call's width that all its calls of unknown work get together, at most.
_UNKNOWN_LIMIT: Final = 0.3


@attrs.frozen
class Metric:
    """A metric that can be drawn.

    Args:
        key: its name on the wire.
        label: its name for people.
        unit: what it counts, lower case inside a sentence where the field spells it so.

    """

    key: str
    label: str
    unit: str


METRICS: Final = (
    Metric("macs", "MACs", "MACs"),
    Metric("module_flops", "Module FLOPs", "FLOPs"),
    Metric("dmas", "DMAs", "DMAs"),
    Metric("parameters", "Parameters", "parameters"),
    Metric("parameter_bytes", "Parameter bytes", "bytes"),
)


@attrs.frozen
class Covered:
    """The metric of this call is inside the estimate of the call at row `owner` (`None`: a row the report lacks)."""

    owner: int | None


@attrs.frozen
class _Nothing:
    """The row says nothing about the metric: its work is that of its children."""


NOTHING: Final = _Nothing()

#: What one row says about one metric.
Standing: TypeAlias = MetricState | Covered | _Nothing


@attrs.frozen
class Sizes:
    """One metric over the whole tree, row by row.

    Args:
        own: what each row itself says.
        total: its own estimate and those of everything executed inside; `Covered` inside an owner.
        share: its part of its parent's width, from 0 to 1 (the root is 1).

    """

    own: tuple[Standing, ...]
    total: tuple[MetricState | Covered, ...]
    share: tuple[float, ...]


class CallTree:
    """The calls of a report as the tree in which they were executed.

    Args:
        report: the report; rows are its layers, in their order.

    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self.rows: Sequence[LayerRecord] = report.layers
        self.row_of = {(row.path, row.call_index): index for index, row in enumerate(self.rows)}

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """The row of each call's parent; -1 for a root.

        Rows of older reports do not name their caller. There the parent is the latest call of the nearest module above
        by path; where the owner of a metric lies nowhere above, the owner is the parent.
        """
        latest: dict[str, int] = {}
        parents: list[int] = []
        for index, row in enumerate(self.rows):
            parent = -1
            if row.parent is not None:
                parent = self.row_of.get((row.parent.path, row.parent.call_index), -1)
            if not 0 <= parent < index:
                parent = self._by_path(row, latest, parents)
            parents.append(parent)
            latest[row.path] = index
        return tuple(parents)

    def _by_path(self, row: LayerRecord, latest: Mapping[str, int], parents: Sequence[int]) -> int:
        if not parents:
            return -1
        path, parent = row.path, -1
        while path and parent < 0:
            path = path.rpartition(".")[0]
            parent = latest.get(path, -1)
        parent = max(parent, 0)  # whatever has no module above it, and a root that calls itself: one tree
        for owner in (row.metric_owners or {}).values():
            found = self.row_of.get((owner.path, owner.call_index), -1)
            if not 0 <= found < len(parents):
                continue
            above = parent
            while above >= 0 and above != found:
                above = parents[above]
            if above < 0:
                return found
        return parent

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The rows executed directly inside each call, in order."""
        children: list[list[int]] = [[] for _ in self.rows]
        for index, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(index)
        return tuple(map(tuple, children))

    @cached_property
    def calls(self) -> tuple[int, ...]:
        """How many calls each call holds, itself included."""
        calls = [1] * len(self.rows)
        for index in range(len(calls) - 1, -1, -1):
            if (parent := self.parents[index]) >= 0:
                calls[parent] += calls[index]
        return tuple(calls)

    def requested(self, metric: str) -> bool:
        """Say whether the scan was asked for `metric`."""
        found: MetricResult = getattr(self.report.totals, metric)
        return found.method != "not_requested"

    def sizes(self, metric: str) -> Sizes:
        """Return how `metric` (a key of `METRICS`) stands in every row."""
        own = tuple(self._own(row, metric) for row in self.rows)
        totals: list[MetricState | Covered] = [Complete(0)] * len(own)
        for index in range(len(own) - 1, -1, -1):
            mine = own[index]
            if isinstance(mine, Covered):
                totals[index] = mine
                continue
            inside = [state for child in self.children[index] if not isinstance(state := totals[child], Covered)]
            if not isinstance(mine, _Nothing):
                totals[index] = total_of([mine, *inside])
            else:
                # Reports of TorchScan 0.2.0 say nothing about a call that failed: unknown work, not none. Later ones
                # say so, and a call without a word and without calls inside was seen to do nothing.
                silent = not self.children[index] and self.report.context.execution is None
                totals[index] = Unavailable("no_estimate") if silent else total_of(inside)
        return Sizes(own, tuple(totals), self._shares(totals))

    def _own(self, row: LayerRecord, metric: str) -> Standing:
        if metric == "parameters":
            return Complete(row.parameters.total)
        if metric == "parameter_bytes":
            return Complete(row.parameters.bytes)
        found = row.metrics.get(metric)
        if found is not None and found.method != "not_requested":
            return found.state
        owner = (row.metric_owners or {}).get(metric)
        if owner is not None:
            return Covered(self.row_of.get((owner.path, owner.call_index)))
        return NOTHING

    def _shares(self, totals: Sequence[MetricState | Covered]) -> tuple[float, ...]:
        share = [0.0] * len(totals)
        if share:
            share[0] = 1.0
        for index, children in enumerate(self.children):
            for child, part in self._divide(totals[index], children, totals).items():
                share[child] = part
        return tuple(share)

    def _divide(
        self, whole: MetricState | Covered, children: Sequence[int], totals: Sequence[MetricState | Covered]
    ) -> Mapping[int, float]:
        covered = [child for child in children if isinstance(totals[child], Covered)]
        sized = [child for child in children if known(totals[child]) > 0]
        strips = [child for child in children if _is_unknown(totals[child])]
        if sized or strips:
            # Covered from elsewhere, beside calls that are not: the width is not theirs to divide.
            strips, covered = [*strips, *covered], []
        # A row inside an owner has no number of its own to divide, whatever a child says.
        everything = known(whole) or sum(known(totals[child]) for child in sized)
        parts: dict[int, float] = {}
        if strips:
            # With nothing known beside them the unknown calls have the whole width to themselves.
            part = min(UNKNOWN_SHARE, _UNKNOWN_LIMIT / len(strips)) if everything > 0 else 1 / len(strips)
            parts.update(dict.fromkeys(strips, part))
        left = 1.0 - sum(parts.values())
        for child in sized:
            parts[child] = left * (known(totals[child]) / everything)
        calls = sum(self.calls[child] for child in covered)
        for child in covered:
            parts[child] = left * self.calls[child] / calls
        return parts


def known(state: Standing) -> Number:
    """Return the number of a state or its lower bound; of nothing known it is zero."""
    if isinstance(state, Complete):
        return state.value
    if isinstance(state, Partial):
        return state.known_value
    return 0


def _is_unknown(state: Standing) -> bool:
    return isinstance(state, Unavailable) or (isinstance(state, Partial) and state.known_value == 0)
