"""Running totals: each retained estimate once."""

from __future__ import annotations

from torchscan.contract.states import Complete, MetricState, Number, Partial, exact_sum
from torchscan.plugins.resolution import NATIVE_METHOD
from torchscan.report.schema import MetricResult

__all__ = ["Sum"]


class Sum:
    """The running total of one metric."""

    __slots__ = ("floats", "incomplete", "known", "methods", "reason", "value")

    def __init__(self) -> None:
        self.value = 0
        self.floats: list[Number] = []
        self.known = False
        self.incomplete = False
        self.reason = ""
        self.methods: set[str] = set()

    def add(self, state: MetricState, method: str) -> None:
        """Add one estimate; a lower bound of zero says nothing, so it makes nothing known."""
        if isinstance(state, Complete):
            self.add_number(state.value, method)
            return
        self.incomplete = True
        self.reason = self.reason or state.reason
        if isinstance(state, Partial) and state.known_value:
            self.add_number(state.known_value, method)

    def add_number(self, value: Number, method: str) -> None:
        """Add one complete estimate."""
        if type(value) is int:
            self.value += value
        else:
            self.floats.append(value)
        self.known = True
        self.methods.add(method)

    def result(self, unit: str) -> MetricResult:
        """Return the total."""
        # Two totals made by different methods are not comparable, so a mixed total names every method in it.
        method = " + ".join(sorted(self.methods)) or NATIVE_METHOD
        value = exact_sum((self.value, *self.floats))
        if not self.incomplete:
            return MetricResult("complete", value, value, unit, "forward", method)
        if self.known:
            return MetricResult("partial", None, value, unit, "forward", method)
        return MetricResult("unavailable", None, None, unit, "forward", method)
