"""The operator view: what the dispatcher executed, under PyTorch's formulas first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from torch import nn

from torchscan.contract.diagnostics import Diagnostic
from torchscan.engine.operators import OperatorCost
from torchscan.engine.records import CallRecord
from torchscan.report.schema import IgnoredOperator, MetricResult, OperatorContext, OperatorReport

__all__ = ["METHOD", "not_requested", "operator_report", "tally_report"]

METHOD: Final = "torch.utils.flop_counter.FlopCounterMode"


def not_requested() -> OperatorReport:
    """Return the view of a scan that did not ask for it."""
    return OperatorReport(
        OperatorContext(str(torch.__version__), "not_requested"),
        MetricResult("unavailable", None, None, "FLOPs", "workload", "not_requested"),
    )


def operator_report(
    records: Iterable[CallRecord], root: nn.Module, unobserved: Iterable[Diagnostic] = ()
) -> OperatorReport:
    """Return the view of observed calls, summed per module path and operator.

    Args:
        records: the calls.
        root: the model.
        unobserved: what is known to have run out of sight.

    """
    name = type(root).__name__
    return tally_report(
        (((f"{name}.{record.place.path}" if record.place.path else name), record.ran()) for record in records),
        unobserved,
    )


def tally_report(
    tallies: Iterable[tuple[str, Mapping[OperatorCost, int]]], unobserved: Iterable[Diagnostic] = ()
) -> OperatorReport:
    """Return the view of (dotted module name, operators of its own body) pairs; parents include their children."""
    by_module: dict[str, int] = {}
    by_operator: dict[str, int] = {}
    ignored: dict[str, tuple[int, str]] = {}
    uncounted: dict[str, int] = {}
    unsupported: dict[str, tuple[int, str]] = {}
    gaps: dict[str, tuple[int, str]] = {}
    total = 0
    for path, tally in tallies:
        own = 0
        for cost, count in tally.items():
            info = cost.info
            name = info.name
            if cost.flops is not None:
                own += cost.flops * count
                by_operator[name] = by_operator.get(name, 0) + cost.flops * count
                if info.known_gap:
                    gaps[name] = (gaps.get(name, (0, ""))[0] + count, info.known_gap)
            elif info.kind == "ignored":
                ignored[name] = (ignored.get(name, (0, ""))[0] + count, info.reason or "No arithmetic.")
            elif info.flops is not None:
                unsupported[name] = (unsupported.get(name, (0, ""))[0] + count, cost.failure or "")
            elif not cost.floating:
                ignored[name] = (ignored.get(name, (0, ""))[0] + count, "Integer or boolean arithmetic.")
            elif info.kind == "movement":
                ignored[name] = (ignored.get(name, (0, ""))[0] + count, "Moves data without arithmetic.")
            else:
                uncounted[name] = uncounted.get(name, 0) + count
        total += own
        if own and path:
            parts = path.split(".")
            for end in range(1, len(parts) + 1):
                prefix = ".".join(parts[:end])
                by_module[prefix] = by_module.get(prefix, 0) + own
    diagnostics = list(unobserved)
    diagnostics += [
        Diagnostic(
            "uncounted_operator",
            f"{name} was observed {count} time(s), but no FLOP formula is registered.",
            metric="operator_flops",
            operator=name,
            calls=count,
        )
        for name, count in uncounted.items()
    ]
    diagnostics += [
        Diagnostic(
            "unsupported_operator_formula",
            f"{name} was observed {count} time(s) in a form that its FLOP formula does not cover ({why}).",
            metric="operator_flops",
            operator=name,
            calls=count,
        )
        for name, (count, why) in unsupported.items()
    ]
    diagnostics += [
        Diagnostic(
            "incomplete_operator_formula",
            f"{name} was observed {count} time(s); its FLOP formula is known to miss work: {why}",
            metric="operator_flops",
            operator=name,
            calls=count,
        )
        for name, (count, why) in gaps.items()
    ]
    if not diagnostics:
        result = MetricResult("complete", total, total, "FLOPs", "workload", METHOD)
    elif total:
        result = MetricResult("partial", None, total, "FLOPs", "workload", METHOD)
    else:
        result = MetricResult("unavailable", None, None, "FLOPs", "workload", METHOD)
    return OperatorReport(
        OperatorContext(str(torch.__version__), METHOD),
        result,
        by_module,
        by_operator,
        {name: IgnoredOperator(count, reason) for name, (count, reason) in ignored.items()},
        tuple(diagnostics),
    )
