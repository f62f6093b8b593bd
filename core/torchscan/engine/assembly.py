"""From records to the report: ownership, the audit, totals. Pure bookkeeping, after the model has run."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import torch

from torchscan._version import __version__
from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.operators import OPERATOR_KINDS
from torchscan.contract.states import (
    COUNT_METRICS,
    METRICS,
    SPATIAL_METRICS,
    UNITS,
    Complete,
    MetricState,
    Number,
    Partial,
    Unavailable,
)
from torchscan.engine.estimates import WireState
from torchscan.engine.hidden import hidden_sums
from torchscan.engine.hidden import hidden_sums
from torchscan.engine.observer import BITS, CallRecord, Observer
from torchscan.engine.operators import OperatorCost
from torchscan.engine.operator_view import not_requested, operator_report
from torchscan.engine.parameters import StoredTensors, count_stored
from torchscan.plugins.resolution import NATIVE_METHOD, Candidate
from torchscan.report.schema import (
    BufferCount,
    Context,
    Inputs,
    LayerRecord,
    MetricOwner,
    MetricResult,
    OperatorReport,
    ParameterCount,
    PluginUsed,
    Report,
    Totals,
)

__all__ = ["Assembly", "Plan"]

_CALLS: Final = MetricResult("complete", 1, 1, "calls", "module_call", "pytorch_hook")
_BIT_OF: Final = tuple((name, BITS[name], index) for index, name in enumerate(METRICS))
_COUNT_BITS: Final = BITS["module_flops"] | BITS["macs"] | BITS["dmas"]
_NO_PARAMETERS = ParameterCount()
_NO_BUFFERS = BufferCount()
OPERATOR_METHOD: Final = "operator_formula"


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

    @property
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
    def audits(self) -> bool:
        """Whether a composite's own body is observed."""
        return self.mode != "structure" and self.functional != "skip" and bool(self.bits & _COUNT_BITS)


class _Sum:
    """The running total of one metric."""

    __slots__ = ("incomplete", "known", "methods", "reason", "value")

    def __init__(self) -> None:
        self.value: Number = 0
        self.known = False
        self.incomplete = False
        self.reason = ""
        self.methods: set[str] = set()

    def add(self, state: MetricState, method: str) -> None:
        if isinstance(state, Complete):
            self.value += state.value
            self.known = True
            self.methods.add(method)
            return
        self.incomplete = True
        self.reason = self.reason or state.reason
        if isinstance(state, Partial) and state.known_value:
            self.value += state.known_value
            self.known = True
            self.methods.add(method)

    def result(self, unit: str) -> MetricResult:
        # Two totals made by different methods are not comparable, so a mixed total names every method in it.
        method = " + ".join(sorted(self.methods)) or NATIVE_METHOD
        if not self.incomplete:
            return MetricResult("complete", self.value, self.value, unit, "forward", method)
        if self.known:
            return MetricResult("partial", None, self.value, unit, "forward", method)
        return MetricResult("unavailable", None, None, unit, "forward", method)


@attrs.frozen
class _Answer:
    """What the handlers' estimates come to in a row."""

    metrics: dict[str, MetricResult]
    ownership: dict[str, str]
    covered: dict[str, MetricOwner]
    handlers: dict[str, str]
    repeats: bool  # an equal call has the same answer and nothing to complain about


class Assembly:
    """Builds the report of one scan.

    Args:
        observer: the records.
        plan: what was asked.
        context: devices, dtypes and the like.
        inputs: the arguments of the call.
        execution_mode: `evaluation_no_grad`, or `observed` where the caller runs the model.
        plugins: who took part.
        diagnostics: what was found before the call (plugins, conflicts).

    """

    def __init__(
        self,
        observer: Observer,
        plan: Plan,
        *,
        training_before: bool,
        inputs: Inputs,
        execution_mode: str = "evaluation_no_grad",
        plugins: Iterable[PluginUsed] = (),
        diagnostics: Iterable[Diagnostic] = (),
    ) -> None:
        self._observer = observer
        self._plan = plan
        self._bits = plan.bits
        self._training_before = training_before
        self._inputs = inputs
        self._execution_mode = execution_mode
        self._plugins = tuple(plugins)
        self._diagnostics: list[Diagnostic] = list(diagnostics)
        self._sums = {name: _Sum() for name in COUNT_METRICS}
        self._results: dict[Any, MetricResult] = {}
        self._answers: dict[Any, _Answer] = {}
        self._hidden_sums: dict[CallRecord, frozenset[OperatorCost]] = {}
        self._alarms: dict[tuple[str, str], list[Any]] = {}
        self._unaudited: dict[str, CallRecord] = {}

    def report(self) -> Report:
        """Return the report."""
        records = self._observer.records
        stored, rows = count_stored(self._observer.tree.places.values(), records)
        layers = [self._layer(record, *rows.get(record, (_NO_PARAMETERS, _NO_BUFFERS))) for record in records]
        operators = (
            operator_report(records, self._observer.tree.root, full=self._plan.audits or self._plan.operator_view)
            if self._plan.operator_view
            else not_requested()
        )
        self._report_alarms()
        return Report(
            context=self._context(stored),
            inputs=self._inputs,
            layers=tuple(layers),
            totals=self._totals(stored, operators),
            operator_flops=operators,
            diagnostics=(*self._diagnostics, *operators.diagnostics),
        )

    # -- rows ----------------------------------------------------------------------------------------------------

    def layer(self, record: CallRecord) -> LayerRecord:
        """Return one row by itself, as it stands before ownership and audit."""
        return self._layer(record, _NO_PARAMETERS, _NO_BUFFERS)

    def _layer(self, record: CallRecord, parameters: ParameterCount, buffers: BufferCount) -> LayerRecord:
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
            None if parent is None else MetricOwner(parent.place.path, parent.call_index),
        )

    def _remembered(self, record: CallRecord, owners: Any) -> tuple[_Answer | None, Any]:
        """Return the answer of an earlier call with the same estimates from the same handler, and its key."""
        states = record.states
        if not states or len(sources := set(record.sources.values())) != 1 or record.failed:
            return None, None
        key = (*sources, id(owners), *states.items())
        try:
            found = self._answers.get(key)
        except TypeError:  # an estimate in wire form
            return None, None
        if found is not None:
            for name, value in states.items():
                if name in self._sums and type(value) is int and name in found.metrics:
                    self._sums[name].value += value
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
                    covered[name] = MetricOwner(owner.place.path, owner.call_index)
                    continue
                if name in states:
                    value = states[name]
                    candidate = sources.get(name)
                    result = self._supplied(record, name, value, candidate)
                    if candidate is not None:
                        ownership[name] = result.scope
                        handlers[name] = candidate.plugin
                    metrics[name] = result
                    repeats &= type(value) is int or (type(value) is Unavailable and value.expected)
                else:
                    self._unsupplied(record, name, metrics)
                    repeats = False  # depends on what else ran in the call
        return _Answer(metrics, ownership, covered, handlers, repeats)

    def _fail(self, record: CallRecord) -> None:
        for name in METRICS:
            record.states[name] = Unavailable("failed", code="", expected=False)
        # It owned its subtree while its children ran; they do not stand in for it now that it failed.
        record.owned |= self._observer._statically_owned(record.module_type)[0] & self._bits & ~record.covered
        self._diagnostics.append(
            Diagnostic(
                "module_forward_error",
                f"{record.place.path or 'the model'}: the call raised and the model caught it; what it did before is unknown.",
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
            if name in self._sums:
                total = self._sums[name]
                total.value += value
                total.known = True
                total.methods.add(method)
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
        if name in self._sums:
            self._sums[name].add(value, method)
        return MetricResult.of(value, unit=UNITS[name], scope=scope, method=method)

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
        self._diagnostics.append(
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

    def _token_dependencies(self, record: CallRecord, handlers: dict[str, str]) -> Any:
        tokens, candidate = record.tokens, record.tokens_source
        assert tokens is not None
        assert candidate is not None
        handlers["token_dependencies"] = candidate.plugin
        if tokens.status != "complete":
            self._diagnostics.append(
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
        return attrs.evolve(tokens, method=tokens.method or candidate.method, message=None)

    # -- the audit -----------------------------------------------------------------------------------------------

    def _unsupplied(self, record: CallRecord, name: str, metrics: dict[str, MetricResult]) -> None:
        """Decide a metric that no handler supplied: the children answer for a composite, nobody for a leaf."""
        leaf = not record.children and not record.has_submodules
        if name in SPATIAL_METRICS:
            if leaf:
                metrics[name] = self._unsupported(record, name)
            return
        plan = self._plan
        if plan.functional == "estimate":
            if leaf or record.operators:
                state = self._estimated(record, name, leaf)
                if state is not None:
                    self._sums[name].add(state, OPERATOR_METHOD)
                    metrics[name] = MetricResult.of(
                        state, unit=UNITS[name], scope="module_call", method=OPERATOR_METHOD
                    )
            return
        if leaf:
            self._sums[name].add(Unavailable(f"{record.module_type.__name__} has no handler"), NATIVE_METHOD)
            metrics[name] = self._unsupported(record, name)
            return
        if not plan.audits:
            if not _pure_container(record.module_type):
                self._unaudited.setdefault(record.place.path, record)
                self._sums[name].add(Partial(0, "not audited"), OPERATOR_METHOD)
                metrics[name] = MetricResult(
                    "partial", None, 0, UNITS[name], "module_call", OPERATOR_METHOD
                )
            return
        alarmed = False
        hidden = hidden_sums(record.operators) if name == "macs" else ()
        for cost, count in record.operators.items():
            if name in _affected(cost) or cost in hidden:
                self._alarm(record, cost, count, name)
                alarmed = True
        if alarmed:
            self._sums[name].add(Partial(0, "own body"), OPERATOR_METHOD)
            metrics[name] = MetricResult("partial", None, 0, UNITS[name], "module_call", OPERATOR_METHOD)

    def _unsupported(self, record: CallRecord, name: str) -> MetricResult:
        kind = record.module_type
        self._diagnostics.append(
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

    def _estimated(self, record: CallRecord, name: str, leaf: bool) -> MetricState | None:
        known = 0
        complete = True
        any_work = False
        hidden = hidden_sums(record.operators) if name == "macs" else ()
        for cost, count in record.operators.items():
            if name not in _affected(cost) and cost not in hidden:
                continue
            any_work = True
            value = None if cost in hidden else cost.estimate().get(name)
            if value is None:
                complete = False
                self._alarm(record, cost, count, name)
            else:
                known += value * count
        if not any_work and not leaf:
            return None
        return Complete(known) if complete else Partial(known, "an operator has no formula")

    def _hidden(self, record: CallRecord) -> frozenset[OperatorCost]:
        found = self._hidden_sums.get(record)
        if found is None:
            found = self._hidden_sums[record] = hidden_sums(record.operators)
        return found

    def _alarm(self, record: CallRecord, cost: OperatorCost, count: int, name: str) -> None:
        key = (record.place.path, cost.info.name)
        alarm = self._alarms.setdefault(key, [{}, []])
        alarm[0][record, cost] = count
        if name not in alarm[1]:
            alarm[1].append(name)

    def _report_alarms(self) -> None:
        estimating = self._plan.functional == "estimate"
        for (path, operator), (counts, names) in self._alarms.items():
            calls = sum(counts.values())
            names = [name for name in ("macs", "module_flops", "dmas") if name in names]
            missing = "has no operator formula for" if estimating else "is not accounted for by any handler in"
            remedy = (
                "Register an operator formula or a handler for the module."
                if estimating
                else "Scan with functional='estimate' to count it, or register a handler for the module."
            )
            self._diagnostics.append(
                Diagnostic(
                    "unattributed_operator",
                    f"{path or 'the model'}: {operator} ran {calls} time(s) in the module's own body and {missing} "
                    f"{', '.join(names)}. {remedy}",
                    metric=names[0],
                    path=path,
                    operator=operator,
                    calls=calls,
                    reason=",".join(names),
                )
            )
        for path, record in self._unaudited.items():
            self._diagnostics.append(
                Diagnostic(
                    "unaudited_module",
                    f"{path or 'the model'}: the body of {record.module_type.__name__} was not observed "
                    "(functional='skip'), so its own work is unknown. Scan with functional='audit'.",
                    path=path,
                )
            )

    # -- the rest ------------------------------------------------------------------------------------------------

    def _totals(self, stored: StoredTensors, operators: OperatorReport) -> Totals:
        def count(value: int, unit: str) -> MetricResult:
            if stored.lazy:  # a parameter without a size yet
                return MetricResult("partial", None, value, unit, "model", "pytorch")
            return MetricResult("complete", value, value, unit, "model", "pytorch")

        def metric(name: str) -> MetricResult:
            if not self._bits & BITS[name]:
                return MetricResult("unavailable", None, None, UNITS[name], "forward", "not_requested")
            return self._sums[name].result(UNITS[name])

        return Totals(
            parameters=count(stored.trainable + stored.frozen, "elements"),
            trainable_parameters=count(stored.trainable, "elements"),
            frozen_parameters=count(stored.frozen, "elements"),
            parameter_bytes=count(stored.parameter_bytes, "bytes"),
            buffer_elements=MetricResult(
                "complete", stored.buffer_elements, stored.buffer_elements, "elements", "model", "pytorch"
            ),
            buffer_bytes=MetricResult(
                "complete", stored.buffer_bytes, stored.buffer_bytes, "bytes", "model", "pytorch"
            ),
            module_flops=metric("module_flops"),
            operator_flops=operators.total,
            macs=metric("macs"),
            dmas=metric("dmas"),
        )

    def _context(self, stored: StoredTensors) -> Context:
        root = self._observer.tree.root
        kind = type(root)
        return Context(
            torchscan_version=__version__,
            torch_version=str(torch.__version__),
            python_version=platform.python_version(),
            model_type=f"{kind.__module__}.{kind.__qualname__}",
            execution_mode=self._execution_mode,
            training_before=self._training_before,
            devices=tuple(sorted({str(device) for device, _ in stored.kinds})),
            dtypes=tuple(sorted({str(dtype) for _, dtype in stored.kinds})),
            analysis_mode=self._plan.mode,
            execution=self._plan.execution,
            functional=self._plan.functional,
            metrics=tuple(sorted(self._plan.metrics)) if self._plan.selected else None,
            plugins=self._plugins,
        )


def _affected(cost: OperatorCost) -> frozenset[str]:
    """Return the metrics that this operator is work for."""
    affected = OPERATOR_KINDS[cost.info.kind]
    if cost.floating or not affected:
        return affected
    # Integer arithmetic is no FLOP and index work is no data movement; an integer contraction still has its terms.
    return _INTEGER_CONTRACTION if cost.info.kind == "contraction" else frozenset()


_INTEGER_CONTRACTION: Final = frozenset({"macs", "dmas"})


def _pure_container(kind: type) -> bool:
    return getattr(kind, "forward", None) is torch.nn.Sequential.forward


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




def single_layer(record: CallRecord, plan: Plan) -> LayerRecord:
    """Return one finished call as a row by itself, before ownership and audit, for listeners."""
    assembly = object.__new__(Assembly)
    assembly._plan = plan
    assembly._bits = plan.bits
    assembly._diagnostics = []
    assembly._sums = {name: _Sum() for name in COUNT_METRICS}
    assembly._results = {}
    assembly._answers = {}
    assembly._hidden_sums = {}
    assembly._alarms = {}
    assembly._unaudited = {}
    return assembly._layer(record, _NO_PARAMETERS, _NO_BUFFERS)
