"""From one call's record to its row: ownership, states, diagnostics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import (
    COUNT_METRICS,
    METRICS,
    SPATIAL_METRICS,
    UNITS,
    MetricState,
    Partial,
    Unavailable,
    add,
)
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.audit import Audit, is_leaf
from torchscan.engine.estimates import WireState
from torchscan.engine.plan import Plan
from torchscan.engine.records import BITS, CallRecord
from torchscan.engine.sums import Sum
from torchscan.plugins.resolution import NATIVE_METHOD, Candidate
from torchscan.report.schema import BufferCount, LayerRecord, MetricOwner, MetricResult, ParameterCount

__all__ = ["Rows", "hand_up"]

#: The method of work that operator formulas counted, or could not.
OPERATOR_METHOD: Final = "operator_formula"

_CALLS: Final = MetricResult("complete", 1, 1, "calls", "module_call", "pytorch_hook")
_BIT_OF: Final = tuple((name, BITS[name], index) for index, name in enumerate(METRICS))
_NO_PARAMETERS: Final = ParameterCount()
_NO_BUFFERS: Final = BufferCount()


@attrs.frozen
class _Answer:
    """What the handlers' estimates come to in a row."""

    metrics: dict[str, MetricResult]
    ownership: dict[str, str]
    covered: dict[str, MetricOwner]
    handlers: dict[str, str]
    repeats: bool  # an equal call has the same answer and nothing to complain about


class Rows:
    """Builds rows in execution order, and sums what they retain.

    Args:
        plan: what the scan was asked to do.
        unobserved: whether the model called modules in other threads.

    """

    def __init__(self, plan: Plan, *, unobserved: bool = False) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.sums = {name: Sum() for name in COUNT_METRICS}
        self.audit = Audit(plan)
        self._bits = plan.bits
        self._unobserved = unobserved
        self._estimating = plan.estimates
        self._results: dict[Any, MetricResult] = {}
        self._answers: dict[Any, _Answer] = {}
        self._tokens: dict[tuple[int, Candidate], TokenDependencies] = {}

    def row(
        self, record: CallRecord, parameters: ParameterCount = _NO_PARAMETERS, buffers: BufferCount = _NO_BUFFERS
    ) -> LayerRecord:
        """Return the row of one call; its parent's row comes first."""
        parent = record.parent
        owners = None
        if parent is not None:
            owners = parent.owners
            if parent.owned:
                owners = list(owners) if owners is not None else [None] * len(METRICS)
                for _, bit, index in _BIT_OF:
                    if parent.owned & bit and owners[index] is None:
                        owners[index] = parent
        record.owners = owners
        if record.failed:
            self._fail(record)
        answer, key = self._remembered(record, owners)
        if answer is None:
            answer = self._answer(record, owners)
            if key is not None and answer.repeats:
                self._answers[key] = answer
        handlers = answer.handlers
        tokens = None
        if record.tokens is not None:
            handlers = dict(handlers)
            tokens = self._token_dependencies(record, handlers)
        place = record.place
        return LayerRecord(
            place.path,
            record.call_index,
            place.name,
            place.depth,
            record.module_type.__name__,
            record.input,
            record.output,
            parameters,
            buffers,
            answer.metrics,
            answer.ownership or None,
            answer.covered or None,
            tokens,
            handlers or None,
            None if parent is None else parent.name(),
        )

    def _remembered(self, record: CallRecord, owners: Any) -> tuple[_Answer | None, Any]:
        """Return the answer of an earlier call with the same estimates from the same handler, and its key."""
        states = record.states
        # What hooks computed is no part of the estimates that make the key.
        if not states or record.source is None or record.failed or _has_more(record):
            return None, None
        if self._unobserved and record.parent is None:
            return None, None
        if record.executed and self.audit.contradicts(record, "macs") is not None:
            return None, None
        key = (record.source, id(owners), tuple(states), *states.values())
        try:
            found = self._answers.get(key)
        except TypeError:  # an estimate in wire form
            return None, None
        if found is not None:
            for name, value in states.items():
                if name in self.sums and type(value) is int and name in found.metrics:
                    self.sums[name].value += value
        return found, key

    def _answer(self, record: CallRecord, owners: Any) -> _Answer:
        metrics = {"calls": _CALLS}
        ownership: dict[str, str] = {}
        handlers: dict[str, str] = {}
        covered: dict[str, MetricOwner] = {}
        bits = self._bits
        repeats = True
        if bits:
            sources = record.sources
            states = record.states
            for name, bit, index in _BIT_OF:
                if not bits & bit:
                    continue
                if owners is not None and (owner := owners[index]) is not None:
                    covered[name] = owner.name()
                    continue
                if name in states:
                    value = states[name]
                    candidate = sources.get(name)
                    if record.executed and name in self.sums:
                        value = self.audit.contradicts(record, name) or value
                    result = self._supplied(record, name, value, candidate)
                    if candidate is not None:
                        ownership[name] = result.scope
                        handlers[name] = candidate.plugin
                    metrics[name] = self._with_hooks(record, name, result) if _has_more(record) else result
                    repeats &= not _has_more(record)
                    repeats &= type(value) is int or (type(value) is Unavailable and value.expected)
                else:
                    self._unsupplied(record, name, metrics)
                    repeats = False  # depends on what else ran in the call
            if self._unobserved and record.parent is None:
                self._add_unobserved(record, metrics)
        return _Answer(metrics, ownership, covered, handlers, repeats)

    def _fail(self, record: CallRecord) -> None:
        for name in METRICS:
            record.states[name] = Unavailable("failed", code="", expected=False)
        # It owned its subtree while its children ran; they do not stand in for it now that it failed.
        record.owned |= record.may_own & self._bits & ~record.covered
        self.diagnostics.append(
            Diagnostic(
                "module_forward_error",
                f"{record.place.path or 'the model'}: the call raised and the model caught it; what it "
                "did before is unknown.",
                "error",
                path=record.place.path,
                call_index=record.call_index,
            )
        )

    def _supplied(self, record: CallRecord, name: str, value: Any, candidate: Candidate | None) -> MetricResult:
        method = candidate.method if candidate is not None else NATIVE_METHOD
        scope = "module_call"
        if candidate is None:
            if name in SPATIAL_METRICS and not record.failed:
                scope = "subtree"  # accumulated along a chain of children
        elif name in candidate.handler.subtree_metrics:
            scope = "subtree"
        if isinstance(value, WireState):
            if candidate is not None and candidate.tier == "caller" and value.method:
                method = f"{method}:{value.method}"
            value = value.state
        if isinstance(value, (int, float)):
            if name in self.sums:
                self.sums[name].add_number(value, method)
            key = (name, value, scope, method)
            result = self._results.get(key)
            if result is None:
                result = self._results[key] = MetricResult("complete", value, value, UNITS[name], scope, method)
            return result
        if isinstance(value, Unavailable):
            if value.expected:
                method = "not_applicable"
            elif value.code != "":
                self._complain(record, name, value, candidate)
        elif isinstance(value, Partial):
            self._complain(record, name, value, candidate)
        if name in self.sums:
            self.sums[name].add(value, method)
        return MetricResult.of(value, unit=UNITS[name], scope=scope, method=method)

    def _with_hooks(self, record: CallRecord, name: str, result: MetricResult) -> MetricResult:
        """Add what foreign hooks computed in the call, and below it where it owns the metric; no formula knows it."""
        if name not in self.sums or record.owned_by_caller & BITS[name]:
            return result
        hooked = [record] if record.hooked is not None else []
        if record.inherited is not None:
            hooked += record.inherited.get(name, ())
        for other in hooked:
            state = self.audit.hooks(other, name)
            if state is not None:
                self.sums[name].add(state, OPERATOR_METHOD)
                method = result.method if OPERATOR_METHOD in result.method else f"{result.method} + {OPERATOR_METHOD}"
                result = MetricResult.of(add(result.state, state), unit=result.unit, scope=result.scope, method=method)
        return result

    def _add_unobserved(self, record: CallRecord, metrics: dict[str, MetricResult]) -> None:
        """Make the counts of a model that called modules in other threads a lower bound, unless it owns them all."""
        for name in COUNT_METRICS:
            if not self._bits & BITS[name] & ~record.owned:
                continue
            state: MetricState = Partial(0, "a module was called in another thread")
            self.sums[name].add(state, OPERATOR_METHOD)
            method = OPERATOR_METHOD
            if (found := metrics.get(name)) is not None:
                state, method = add(found.state, state), found.method
            metrics[name] = MetricResult.of(state, unit=UNITS[name], scope="module_call", method=method)

    def _complain(
        self, record: CallRecord, name: str, state: Partial | Unavailable, candidate: Candidate | None
    ) -> None:
        custom = candidate is not None and candidate.tier == "caller"
        where = record.place.path or "the model"
        if isinstance(state, Partial):
            code = "custom_metric_partial" if custom else "partial_module_metric"
            message = f"{where}: {name} is a lower bound{': ' + state.reason if state.reason else ''}."
            reason = state.reason or None
        else:
            code = state.code or ("custom_metric_unavailable" if custom else "unavailable_module_metric")
            message = f"{where}: {state.message or state.reason or name + ' is unavailable'}"
            reason = state.reason or None
        severity = "error" if code.endswith("_error") else "warning"
        self.diagnostics.append(
            Diagnostic(
                code,
                message,
                severity,  # type: ignore[arg-type]
                name,
                path=record.place.path,
                call_index=record.call_index,
                plugin=None if candidate is None or custom else candidate.plugin,
                reason=reason,
            )
        )

    def _token_dependencies(self, record: CallRecord, handlers: dict[str, str]) -> TokenDependencies:
        tokens, candidate = record.tokens, record.tokens_source
        assert tokens is not None
        assert candidate is not None
        handlers["token_dependencies"] = candidate.plugin
        # Equal calls of a native layer have one object, which need not be copied for each row.
        key = (id(tokens), candidate)
        if not record.stirred and (known := self._tokens.get(key)) is not None:
            return known
        if record.stirred and tokens.status == "complete" and candidate.tier != "caller":
            tokens = TokenDependencies.unavailable(
                "hooks",
                "A hook on a module inside of this call computed something, or was not looked at, and may have moved "
                "tokens. Remove it, or describe the relation in custom_modules.",
            )
        if tokens.status != "complete":
            self.diagnostics.append(
                Diagnostic(
                    "unsupported_token_dependencies",
                    f"{record.place.path or 'the model'}: {tokens.message or tokens.reason or 'no token relation'}",
                    metric="token_dependencies",
                    path=record.place.path,
                    call_index=record.call_index,
                    plugin=None if candidate.tier == "caller" else candidate.plugin,
                    reason=tokens.reason,
                )
            )
        found = attrs.evolve(tokens, method=tokens.method or candidate.method, message=None)
        if tokens is record.tokens and tokens.status == "complete":
            self._tokens[key] = found
        return found

    def _unsupplied(self, record: CallRecord, name: str, metrics: dict[str, MetricResult]) -> None:
        """Decide a metric that no handler supplied: the children answer for a composite, nobody for a leaf."""
        if name in SPATIAL_METRICS:
            if is_leaf(record):
                metrics[name] = self._unsupported(record, name)
            return
        if is_leaf(record) and (not self._estimating or record.opaque):
            metrics[name] = self._unsupported(record, name)
            self.sums[name].add(Unavailable(f"{record.module_type.__name__} has no handler"), NATIVE_METHOD)
            return
        state = self.audit.body(record, name)
        if state is not None:
            self.sums[name].add(state, OPERATOR_METHOD)
            metrics[name] = MetricResult.of(state, unit=UNITS[name], scope="module_call", method=OPERATOR_METHOD)

    def _unsupported(self, record: CallRecord, name: str) -> MetricResult:
        kind = record.module_type
        self.diagnostics.append(
            Diagnostic(
                "unsupported_module_metric",
                f"{record.place.path or 'the model'}: no handler has a {name} formula for "
                f"{kind.__module__}.{kind.__qualname__}. Register one with custom_modules=, install a pack that knows "
                "it, or scan with functional='estimate'.",
                metric=name,
                path=record.place.path,
                call_index=record.call_index,
            )
        )
        return MetricResult("unavailable", None, None, UNITS[name], "module_call", NATIVE_METHOD)


def _has_more(record: CallRecord) -> bool:
    """Say whether more may have run in a call than its handler explains."""
    return record.hooked is not None or record.inherited is not None


def hand_up(records: Iterable[CallRecord], *, observed: bool) -> None:
    """Give the calls that own a metric what is known of the calls below them.

    That is which of them have hooks, of which no formula knows, and how many products they dispatched.

    Args:
        records: every call, finished, in execution order.
        observed: whether operators were looked at; else hooks may have done anything.

    """
    macs = BITS["macs"]
    answers: dict[CallRecord, CallRecord] = {}  # who answers for the products of a call: the outermost owner
    for record in records:
        parent = record.parent
        owner = record
        if parent is not None:
            above = answers[parent]
            if above is not parent or parent.owned & macs:
                owner = above
        answers[record] = owner
        record.executed = 0
        if record.operators:
            owner.executed += sum([cost.products() * count for cost, count in record.operators.items()])
        if record.hooked is not None:
            _hand_up_hooks(record)
            if record.hooked or not observed:
                record.stirred |= bool(record.left)
                while parent is not None:
                    parent.stirred = True
                    parent = parent.parent


def _hand_up_hooks(record: CallRecord) -> None:
    for name, bit, _ in _BIT_OF:
        owner = None
        above = record.parent
        while above is not None:
            if above.owned & bit:
                owner = above  # the outermost one owns
            above = above.parent
        if owner is not None and name in COUNT_METRICS:
            if owner.inherited is None:
                owner.inherited = {}
            heirs = owner.inherited.setdefault(name, [])
            if record not in heirs:
                heirs.append(record)
