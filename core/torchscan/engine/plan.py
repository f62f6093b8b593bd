"""What one scan was asked to do."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import attrs

from torchscan.contract.states import COUNT_METRICS, SPATIAL_METRICS
from torchscan.engine.records import BITS, COUNTS
from torchscan.report.schema import MetricResult, Report

__all__ = ["Plan", "incomplete"]


@attrs.frozen
class Plan:
    """What one scan was asked to do.

    Args:
        metrics: names of the metrics wanted, `operator_flops` and `token_dependencies` among them.
        mode: `full` or `structure`.
        functional: `audit`, `estimate` or `skip`.
        execution: `real` or `fake`.
        selected: whether the caller named the metrics.

    """

    metrics: frozenset[str]
    mode: str
    functional: str
    execution: str
    selected: bool

    @functools.cached_property
    def bits(self) -> int:
        """The metrics a handler can answer, as bits."""
        if self.mode == "structure":
            return 0
        return sum(bit for name, bit in BITS.items() if name in self.metrics)

    @property
    def operator_view(self) -> bool:
        """Whether the operator view is wanted."""
        return self.mode != "structure" and "operator_flops" in self.metrics

    @property
    def estimates(self) -> bool:
        """Whether operator formulas count what no handler knows."""
        return self.functional == "estimate"

    @property
    def audits(self) -> bool:
        """Whether a composite's own body is observed."""
        return self.mode != "structure" and self.functional != "skip" and bool(self.bits & COUNTS)


def incomplete(report: Report, plan: Plan) -> str | None:
    """Return what makes a strict scan fail, in one sentence, or `None`."""
    found: list[str] = []
    for name in (*COUNT_METRICS, "operator_flops"):
        result: MetricResult = getattr(report.totals, name)
        if name in plan.metrics and plan.mode != "structure" and result.status != "complete":
            found.append(f"{name} is {result.status}")
    rows: Mapping[str, str] = {
        d.metric: d.path or "the model"
        for d in report.diagnostics
        if d.metric in SPATIAL_METRICS or d.metric == "token_dependencies"
    }
    found += [f"{name} is unavailable in {path}" for name, path in rows.items()]
    found += [
        f"{d.code} ({d.plugin or d.message})"
        for d in report.diagnostics
        if d.code in ("plugin_load_error", "plugin_contract_mismatch", "handler_conflict")
    ]
    return "; ".join(found) or None
