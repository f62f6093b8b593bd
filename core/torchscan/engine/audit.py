"""The audit of a module's own body: arithmetic that no handler accounts for is never silently free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.operators import OPERATOR_KINDS
from torchscan.contract.states import Complete, MetricState, Partial
from torchscan.engine.hidden import hidden_sums, round_trips
from torchscan.engine.operators import OperatorCost
from torchscan.engine.plan import Plan
from torchscan.engine.records import CallRecord

__all__ = ["Audit", "is_leaf"]

_NOTHING: Final[frozenset[str]] = frozenset()
_SEQUENTIAL: Final = torch.nn.Sequential.forward
_INTEGER_CONTRACTION: Final = frozenset({"macs", "dmas"})


def is_leaf(record: CallRecord) -> bool:
    """Say whether a call stands for itself: it has no children, and its module is made for more than holding some."""
    return not record.children and not record.has_submodules and not _is_pure_container(record)


def _is_pure_container(record: CallRecord) -> bool:
    """Say whether a call runs its children one after the other and nothing else."""
    return getattr(record.module_type, "forward", None) is _SEQUENTIAL and not record.replaced


def _affected(cost: OperatorCost) -> frozenset[str]:
    """Return the metrics that this operator is work for."""
    affected = OPERATOR_KINDS[cost.info.kind]
    if cost.floating or not affected:
        return affected
    # Integer arithmetic is no FLOP and index work is no data movement; an integer contraction still has its terms.
    return _INTEGER_CONTRACTION if cost.info.kind == "contraction" else _NOTHING


def _hidden(operators: Mapping[OperatorCost, int], metric: str) -> frozenset[OperatorCost]:
    """Return the operators that are a sign of work of which they say nothing themselves."""
    found = round_trips(operators)
    return found | hidden_sums(operators) if metric == "macs" else found


class Audit:
    """Decides the counts of bodies that no handler supplied, and keeps what to report about them.

    Args:
        plan: what the scan was asked to do.

    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._alarms: dict[tuple[str, str], tuple[dict[Any, int], set[str]]] = {}
        self._unseen: dict[tuple[str, str], str] = {}
        self._contradicted: dict[str, tuple[str, int, int, set[str]]] = {}

    def body(self, record: CallRecord, metric: str) -> MetricState | None:
        """Return the state of a body's own work, or `None` where there was none.

        Args:
            record: a call whose metric no handler supplied.
            metric: one of the counts.

        """
        if self._plan.estimates:
            return self._estimate(record, metric, record.ran(), worked=is_leaf(record))
        if not self._plan.audits:
            if _is_pure_container(record):
                return None if record.hooked is None else self._unobserved(record, "hooks")
            return self._unobserved(record, "body")
        return self._unexplained(record, metric, record.ran())

    def hooks(self, record: CallRecord, metric: str) -> MetricState | None:
        """Return the state of what foreign hooks did in a call that a handler explains, or `None`."""
        assert record.hooked is not None
        if self._plan.estimates:
            return self._estimate(record, metric, record.hooked, worked=False)
        if not self._plan.audits:
            return self._unobserved(record, "hooks")
        return self._unexplained(record, metric, record.hooked)

    def contradicts(self, record: CallRecord, metric: str) -> MetricState | None:
        """Return a lower bound in place of a native formula's number, where more products were dispatched.

        A formula describes what PyTorch's own layer computes. When something else runs in its place (a function of
        `torch.nn.functional` that somebody replaced, a mode that rewrites calls), the operators tell.
        """
        macs = record.states.get("macs")
        candidate = record.sources.get("macs")
        if type(macs) is not int or record.executed <= macs or candidate is None or candidate.tier != "native":
            return None
        kind, _, _, metrics = self._contradicted.setdefault(
            record.place.path, (record.module_type.__name__, record.executed, macs, set())
        )
        metrics.add(metric)
        value = record.states.get(metric)
        return Partial(value, f"more ran than {kind} computes") if type(value) is int else None

    def _unobserved(self, record: CallRecord, what: str) -> MetricState:
        self._unseen.setdefault((record.place.path, what), record.module_type.__name__)
        return Partial(0, f"the {what} {'was' if what == 'body' else 'were'} not observed")

    def _unexplained(
        self, record: CallRecord, metric: str, operators: Mapping[OperatorCost, int]
    ) -> MetricState | None:
        found = False
        hidden = _hidden(operators, metric)
        for cost, count in operators.items():
            if metric in _affected(cost) or cost in hidden:
                self._alarm(record, cost, count, metric)
                found = True
        return Partial(0, "work that no handler accounts for") if found else None

    def _estimate(
        self, record: CallRecord, metric: str, operators: Mapping[OperatorCost, int], *, worked: bool
    ) -> MetricState | None:
        known = 0
        complete = True
        hidden = _hidden(operators, metric)
        for cost, count in operators.items():
            if cost not in hidden and metric not in _affected(cost):
                continue
            worked = True
            # The terms of a sum of products are those of another operator's products: no formula of its own knows.
            value = None if cost in hidden else cost.estimate().get(metric)
            if value is None:
                complete = False
                self._alarm(record, cost, count, metric)
            else:
                known += value * count
        if not worked:
            return None
        return Complete(known) if complete else Partial(known, "an operator has no formula")

    def _alarm(self, record: CallRecord, cost: OperatorCost, count: int, metric: str) -> None:
        counts, metrics = self._alarms.setdefault((record.place.path, cost.info.name), ({}, set()))
        counts[record, cost] = count
        metrics.add(metric)

    def diagnostics(self) -> Iterable[Diagnostic]:
        """Yield one diagnostic per operator and path, and one per body that was not observed."""
        estimating = self._plan.estimates
        missing = "has no operator formula for" if estimating else "is not accounted for by any handler in"
        remedy = (
            "Register an operator formula or a handler for the module."
            if estimating
            else "Scan with functional='estimate' to count it, or register a handler for the module."
        )
        for (path, operator), (counts, metrics) in self._alarms.items():
            names = [name for name in ("macs", "module_flops", "dmas") if name in metrics]
            calls = sum(counts.values())
            message = (
                f"{operator} ran {calls} time(s) in the module's own body and {missing} {', '.join(names)}. {remedy}"
            )
            if operator == "aten.lift_fresh":
                message = (
                    "values left PyTorch (for NumPy) and came back as new tensors; what was computed in between is "
                    "unknown. Compute it in PyTorch, or register a handler for the module."
                )
            yield Diagnostic(
                "unattributed_operator",
                f"{path or 'the model'}: {message}",
                metric=names[0],
                path=path,
                operator=operator,
                calls=calls,
                reason=",".join(names),
            )
        for path, (kind, executed, macs, metrics) in self._contradicted.items():
            names = [name for name in ("macs", "module_flops", "dmas") if name in metrics]
            yield Diagnostic(
                "unattributed_operator",
                f"{path or 'the model'}: {executed} products were dispatched where {kind} computes {macs}: something "
                "else runs in its place, and its formula is a lower bound. Supply the count with custom_modules.",
                metric=names[0],
                path=path,
                reason=",".join(names),
            )
        for (path, what), kind in self._unseen.items():
            verb = "was" if what == "body" else "were"
            yield Diagnostic(
                "unaudited_module",
                f"{path or 'the model'}: the {what} of {kind} {verb} not observed (functional='skip'), so what runs "
                "there is unknown. Scan with functional='audit'.",
                path=path,
            )
