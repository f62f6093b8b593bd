"""torchscan: how much does one call of a PyTorch model cost, and how sure are we?

Public names are resolved on first use: importing this package, or reading a stored report, imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchscan._version import __version__

_HOME = {
    "CONTRACT_VERSION": "torchscan.contract.handler",
    "HandlerRegistration": "torchscan.contract.handler",
    "ModuleEstimates": "torchscan.contract.handler",
    "ModuleHandler": "torchscan.contract.handler",
    "ModuleCall": "torchscan.contract.call",
    "Complete": "torchscan.contract.states",
    "NOT_APPLICABLE": "torchscan.contract.states",
    "Partial": "torchscan.contract.states",
    "Unavailable": "torchscan.contract.states",
    "OperatorCall": "torchscan.contract.operators",
    "OperatorFormula": "torchscan.contract.operators",
    "TensorSpec": "torchscan.contract.operators",
    "Output": "torchscan.contract.tokens",
    "Relation": "torchscan.contract.relations",
    "Source": "torchscan.contract.tokens",
    "TokenDependencies": "torchscan.contract.tokens",
    "hookimpl": "torchscan.contract.hookspecs",
    "ConcurrentScanError": "torchscan.contract.errors",
    "FakeExecutionError": "torchscan.contract.errors",
    "IncompleteAnalysisError": "torchscan.contract.errors",
    "ReportError": "torchscan.contract.errors",
    "TorchScanError": "torchscan.contract.errors",
    "Diagnostic": "torchscan.contract.diagnostics",
    "MetricResult": "torchscan.report.schema",
    "Report": "torchscan.report.schema",
    "ReportFormat": "torchscan.report.formats",
    "compare_reports": "torchscan.report.compare",
    "render_report": "torchscan.report.render",
    "Scanner": "torchscan.engine.scanner",
    "crawl_module": "torchscan.engine.scanner",
    "measure_flops": "torchscan.engine.scanner",
    "scan": "torchscan.engine.scanner",
    "summary": "torchscan.engine.scanner",
    "check_causal": "torchscan.engine.causality",
    "sweep": "torchscan.engine.sweeps",
}

# Spelt out, because a type checker does not evaluate `*_HOME`.
__all__ = [
    "CONTRACT_VERSION",
    "HandlerRegistration",
    "ModuleEstimates",
    "ModuleHandler",
    "ModuleCall",
    "Complete",
    "NOT_APPLICABLE",
    "Partial",
    "Unavailable",
    "OperatorCall",
    "OperatorFormula",
    "TensorSpec",
    "Output",
    "Relation",
    "Source",
    "TokenDependencies",
    "hookimpl",
    "ConcurrentScanError",
    "FakeExecutionError",
    "IncompleteAnalysisError",
    "ReportError",
    "TorchScanError",
    "Diagnostic",
    "MetricResult",
    "Report",
    "ReportFormat",
    "compare_reports",
    "render_report",
    "Scanner",
    "crawl_module",
    "measure_flops",
    "scan",
    "summary",
    "check_causal",
    "sweep",
    "__version__",
    "testing",
]

if TYPE_CHECKING:
    from torchscan import testing
    from torchscan.contract.call import ModuleCall
    from torchscan.contract.diagnostics import Diagnostic
    from torchscan.contract.errors import (
        ConcurrentScanError,
        FakeExecutionError,
        IncompleteAnalysisError,
        ReportError,
        TorchScanError,
    )
    from torchscan.contract.handler import CONTRACT_VERSION, HandlerRegistration, ModuleEstimates, ModuleHandler
    from torchscan.contract.hookspecs import hookimpl
    from torchscan.contract.operators import OperatorCall, OperatorFormula, TensorSpec
    from torchscan.contract.relations import Relation
    from torchscan.contract.states import NOT_APPLICABLE, Complete, Partial, Unavailable
    from torchscan.contract.tokens import Output, Source, TokenDependencies
    from torchscan.engine.causality import check_causal
    from torchscan.engine.scanner import Scanner, crawl_module, measure_flops, scan, summary
    from torchscan.engine.sweeps import sweep
    from torchscan.report.compare import compare_reports
    from torchscan.report.formats import ReportFormat
    from torchscan.report.render import render_report
    from torchscan.report.schema import MetricResult, Report


def __getattr__(name: str) -> Any:
    if name == "testing":
        return importlib.import_module("torchscan.testing")
    if (home := _HOME.get(name)) is None:
        raise AttributeError(f"module 'torchscan' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
