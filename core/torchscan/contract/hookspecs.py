"""The hooks of torchscan. A pack author reads this page first.

A plugin is a module (or object) with functions of these names, each marked with `torchscan.hookimpl`, declared under
the entry-point group `torchscan`. An implementation may leave out arguments it does not need; it may not ask for
others.

A plugin that fails in a registering hook is set aside as a whole, with a diagnostic that names its distribution and
the cause; one that fails while it listens is told nothing more. Neither ends a scan nor changes what other plugins
offer, and `strict=True` turns both into an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from torchscan.contract.call import ModuleCall
    from torchscan.contract.handler import HandlerRegistration
    from torchscan.contract.operators import OperatorFormula
    from torchscan.report.formats import ReportFormat
    from torchscan.report.schema import LayerRecord, Report

__all__ = [
    "hookimpl",
    "torchscan_call_estimated",
    "torchscan_register_handlers",
    "torchscan_register_operator_formulas",
    "torchscan_register_report_formats",
    "torchscan_report_ready",
]

hookspec = pluggy.HookspecMarker("torchscan")
hookimpl: Callable[..., Any] = pluggy.HookimplMarker("torchscan")


@hookspec
def torchscan_register_handlers() -> Iterable[HandlerRegistration]:  # type: ignore[empty-body]
    """Offer handlers for the module types this plugin understands.

    Called once per scanner, in no promised order; the offers of all plugins are kept. Name types as text, so that
    the modelled library is imported only inside a handler.

    Returns:
        Registrations. Two packs that claim one class are a reported conflict that names both.

    Example:
        ```python
        @torchscan.hookimpl
        def torchscan_register_handlers():
            yield torchscan.HandlerRegistration("mylib.Attention", attention, match="exact")
        ```

    """


@hookspec
def torchscan_register_operator_formulas() -> Iterable[OperatorFormula]:  # type: ignore[empty-body]
    """Offer formulas for dispatched operators.

    PyTorch's own registry comes first for the operator view; an offer adds what it lacks, says what kind of work the
    operator is, and how a functional call of it counts. The offers hold for the scans of that scanner and change
    nothing in PyTorch.

    Returns:
        One `OperatorFormula` per operator packet.

    Example:
        ```python
        @torchscan.hookimpl
        def torchscan_register_operator_formulas():
            yield torchscan.OperatorFormula("mylib.scale", "arithmetic", flops=scale_flops)
        ```

    """


@hookspec
def torchscan_register_report_formats() -> Iterable[ReportFormat]:  # type: ignore[empty-body]
    """Offer named report formats. Must not import torch: stored reports are rendered without it.

    Returns:
        One `ReportFormat` per format name. A name that is taken keeps its first owner, and the report says so.

    Example:
        ```python
        @torchscan.hookimpl
        def torchscan_register_report_formats():
            yield torchscan.ReportFormat("wiki", "torchscan_mylib.wiki:render", (".wiki",))
        ```

    """


@hookspec
def torchscan_call_estimated(call: ModuleCall, layer: LayerRecord) -> None:
    """Say that one module call finished and was estimated, as it happens.

    Called in the thread of the model, inside its forward, once per call, children before parents. Ownership and the
    audit of the parents are not decided yet: the record shows what this call alone supplied.

    Args:
        call: the live call; treat it as read-only and keep no reference.
        layer: its record so far.

    Example:
        ```python
        @torchscan.hookimpl
        def torchscan_call_estimated(layer):
            print(layer.path, layer.metrics.get("macs"))
        ```

    """


@hookspec
def torchscan_report_ready(report: Report) -> None:
    """Say that a scan has finished and its report is built.

    Args:
        report: the typed report that the caller is about to get.

    Example:
        ```python
        @torchscan.hookimpl
        def torchscan_report_ready(report):
            database.save(report.to_dict())
        ```

    """
