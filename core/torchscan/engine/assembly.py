"""From records to the report, once the model has run."""

from __future__ import annotations

import platform
from collections.abc import Iterable

import torch

from torchscan._version import __version__
from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import UNITS
from torchscan.engine.observer import Observer
from torchscan.engine.operator_view import not_requested, operator_report
from torchscan.engine.parameters import StoredTensors, count_stored
from torchscan.engine.plan import Plan
from torchscan.engine.records import BITS
from torchscan.engine.rows import Rows, hand_up
from torchscan.report.schema import Context, Inputs, MetricResult, OperatorReport, PluginUsed, Report, Totals

__all__ = ["assemble"]


def assemble(
    observer: Observer,
    plan: Plan,
    *,
    training_before: bool,
    inputs: Inputs,
    execution_mode: str = "evaluation_no_grad",
    plugins: Iterable[PluginUsed] = (),
    diagnostics: Iterable[Diagnostic] = (),
) -> Report:
    """Build the report of one scan.

    Args:
        observer: the records.
        plan: what was asked.
        training_before: the model's own training flag before the scan.
        inputs: the arguments of the call.
        execution_mode: `evaluation_no_grad`, or `observed` where the caller runs the model.
        plugins: who took part.
        diagnostics: what was found before the call (plugins, conflicts).

    """
    records = observer.records
    stored, reached = count_stored(observer.tree.places.values(), records)
    rows = Rows(plan, unobserved=bool(observer.elsewhere_called))
    hand_up(records, observed=plan.audits or plan.operator_view)
    layers = tuple([rows.row(record, *reached.get(record, ())) for record in records])
    root = observer.tree.root
    unobserved = tuple(_unobserved(observer)) if plan.mode != "structure" else ()
    operators = operator_report(records, root, unobserved) if plan.operator_view else not_requested()
    return Report(
        context=_context(root, plan, stored, training_before, execution_mode, tuple(plugins)),
        inputs=inputs,
        layers=layers,
        totals=_totals(plan, rows, stored, operators),
        operator_flops=operators,
        diagnostics=(
            *diagnostics,
            *rows.diagnostics,
            *rows.audit.diagnostics(),
            *(unobserved if not plan.operator_view else ()),
            *operators.diagnostics,
        ),
    )


def _unobserved(observer: Observer) -> Iterable[Diagnostic]:
    for path, kind in observer.elsewhere_called.items():
        yield Diagnostic(
            "unobserved_call",
            f"{path or 'the model'}: {kind} was called in another thread than the model, so what the call computed is "
            "unknown. Call it in the model's own thread, or scan it by itself.",
            path=path,
        )


def _totals(plan: Plan, rows: Rows, stored: StoredTensors, operators: OperatorReport) -> Totals:
    def stored_count(value: int, unit: str, unknown: bool) -> MetricResult:
        if unknown:
            return MetricResult("partial", None, value, unit, "model", "pytorch")
        return MetricResult("complete", value, value, unit, "model", "pytorch")

    def parameters(value: int, unit: str) -> MetricResult:
        return stored_count(value, unit, stored.unknown_parameters)

    def buffers(value: int, unit: str) -> MetricResult:
        return stored_count(value, unit, stored.unknown_buffers)

    def metric(name: str) -> MetricResult:
        if not plan.bits & BITS[name]:
            return MetricResult("unavailable", None, None, UNITS[name], "forward", "not_requested")
        return rows.sums[name].result(UNITS[name])

    return Totals(
        parameters=parameters(stored.trainable + stored.frozen, "elements"),
        trainable_parameters=parameters(stored.trainable, "elements"),
        frozen_parameters=parameters(stored.frozen, "elements"),
        parameter_bytes=parameters(stored.parameter_bytes, "bytes"),
        buffer_elements=buffers(stored.buffer_elements, "elements"),
        buffer_bytes=buffers(stored.buffer_bytes, "bytes"),
        module_flops=metric("module_flops"),
        operator_flops=operators.total,
        macs=metric("macs"),
        dmas=metric("dmas"),
    )


def _context(
    root: torch.nn.Module,
    plan: Plan,
    stored: StoredTensors,
    training_before: bool,
    execution_mode: str,
    plugins: tuple[PluginUsed, ...],
) -> Context:
    kind = type(root)
    return Context(
        torchscan_version=__version__,
        torch_version=str(torch.__version__),
        python_version=platform.python_version(),
        model_type=f"{kind.__module__}.{kind.__qualname__}",
        execution_mode=execution_mode,
        training_before=training_before,
        devices=tuple(sorted({str(device) for device, _ in stored.kinds})),
        dtypes=tuple(sorted({str(dtype) for _, dtype in stored.kinds})),
        analysis_mode=plan.mode,
        execution=plan.execution,
        functional=plan.functional,
        metrics=tuple(sorted(plan.metrics)) if plan.selected else None,
        plugins=plugins,
    )
