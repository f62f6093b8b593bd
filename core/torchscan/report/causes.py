"""Diagnostics grouped by cause: one entry per reason a reader can act on, with how often and where it was met."""

from __future__ import annotations

from typing import Final

import attrs

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import METRICS
from torchscan.report.schema import Report

__all__ = ["REMEDIES", "Cause", "causes", "headline", "listed"]

#: What a reader can do about each code.
REMEDIES: Final = {
    "unsupported_module_metric": (
        "Install a pack that handles this type, pass a handler in custom_modules, or scan with functional='estimate'."
    ),
    "unsupported_native_call": (
        "Change the call to one inside the documented boundaries, or pass your own formula in custom_modules."
    ),
    "unsupported_token_dependencies": (
        "Pass no mask or a canonical causal one, or describe the relation in a handler; the counts are unaffected."
    ),
    "module_metric_error": "The formula failed: tell whoever provides the handler, with the module's configuration.",
    "unavailable_module_metric": "Pass a handler for this module in custom_modules if you know the number.",
    "partial_module_metric": "The number is a lower bound; pass a handler in custom_modules if you know all of it.",
    "custom_handler_error": "Fix the handler: it raised.",
    "custom_handler_invalid": "Return a mapping from metric names to numbers or states.",
    "custom_metric_invalid": "Return a finite, non-negative number, Complete, Partial or Unavailable.",
    "custom_metric_partial": "The handler gave a lower bound; nothing is to be done if that is meant.",
    "custom_metric_unavailable": "The handler left it open; return a number to complete it.",
    "unattributed_operator": (
        "Move the arithmetic into a module, pass a handler for this one, or scan with functional='estimate'."
    ),
    "unobserved_call": "Call modules in the thread that calls the model, or scan the parts one by one.",
    "unaudited_module": "Scan with functional='audit' or 'estimate' to observe the module's own arithmetic.",
    "uncounted_operator": "It touches the operator view only; a pack can offer a formula for the operator.",
    "unsupported_operator_formula": "It touches the operator view only; a pack can offer a formula for this call.",
    "incomplete_operator_formula": "It touches the operator view only: the fused operator does more than is counted.",
    "module_forward_error": "The model caught an exception of this submodule; its work is unknown.",
    "handler_conflict": "Switch one of the two plugins off (--no-plugin NAME), or pass the handler in custom_modules.",
    "plugin_load_error": "Repair, upgrade or uninstall the named distribution, or switch the plugin off.",
    "plugin_contract_mismatch": "Upgrade torchscan or the named distribution.",
}


@attrs.frozen
class Cause:
    """One reason why something is incomplete.

    Args:
        code: the diagnostic code.
        severity: `error` if any of its diagnostics is one.
        count: how many calls, of modules or of the operator, it was met in.
        message: the message of the first of its diagnostics.
        remedy: what a reader can do; empty where the message says it, and for an unknown code.
        metrics: the metrics it touches.
        alone: whether all of its diagnostics have that message.
        places: the distinct module paths, in order.
        type: the module type, where it concerns modules.
        operators: the distinct operators, in order.
        plugin: the plugin, where there is one.
        reason: the machine-readable reason, where there is one.

    """

    code: str
    severity: str
    count: int
    message: str
    remedy: str
    metrics: tuple[str, ...]
    alone: bool
    places: tuple[str, ...]
    type: str | None
    operators: tuple[str, ...]
    plugin: str | None
    reason: str | None


def causes(report: Report) -> tuple[Cause, ...]:
    """Return why `report` is incomplete: errors first, then by how often."""
    # The operator view repeats its diagnostics at the top level, but not in every release.
    every = dict.fromkeys((*report.diagnostics, *report.operator_flops.diagnostics))
    types: dict[str, str] = {}
    for layer in report.layers:
        types.setdefault(layer.path, layer.type)
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for diagnostic in every:
        kind = None if diagnostic.path is None else types.get(diagnostic.path)
        key = (diagnostic.code, diagnostic.reason, diagnostic.plugin, kind)
        groups.setdefault(key, []).append(diagnostic)
    found = [_cause(group, kind) for (*_, kind), group in groups.items()]
    return tuple(sorted(found, key=lambda cause: (cause.severity != "error", -cause.count)))


def _cause(group: list[Diagnostic], kind: object) -> Cause:
    first = group[0]
    # One diagnostic per metric of one call counts once.
    calls: dict[tuple[str | None, int | None, str | None], int] = {}
    for diagnostic in group:
        place = (diagnostic.path, diagnostic.call_index, diagnostic.operator)
        calls[place] = max(calls.get(place, 1), diagnostic.calls or 1)
    named = [diagnostic.metric for diagnostic in group if diagnostic.metric is not None]
    reason = first.reason
    # A diagnostic that touches several metrics names one as its metric, and all of them as its reason.
    if reason is not None and set(touched := reason.split(",")) <= set(METRICS):
        named, reason = [*named, *touched], None
    return Cause(
        code=first.code,
        severity="error" if any(diagnostic.severity == "error" for diagnostic in group) else "warning",
        count=sum(calls.values()),
        message=first.message,
        # A message of several sentences brings its own remedy, made for the case at hand.
        remedy="" if ". " in first.message else REMEDIES.get(first.code, ""),
        metrics=tuple(dict.fromkeys(named)),
        alone=len({diagnostic.message for diagnostic in group}) == 1,
        places=tuple(dict.fromkeys(diagnostic.path for diagnostic in group if diagnostic.path is not None)),
        type=kind if isinstance(kind, str) else None,
        operators=tuple(dict.fromkeys(diagnostic.operator for diagnostic in group if diagnostic.operator is not None)),
        plugin=first.plugin,
        reason=reason,
    )


def headline(cause: Cause) -> str:
    """Return how often, what, and what it concerns, in one line."""
    subject = listed(cause.operators) or cause.type or ""
    reason = f" ({cause.reason})" if cause.reason else ""
    metrics = f" [{', '.join(cause.metrics)}]" if cause.metrics else ""
    return f"{cause.count:,} x {cause.code}{reason}{f': {subject}' if subject else ''}{metrics}"


def listed(names: tuple[str, ...], most: int = 3) -> str:
    """Return the first few of `names`, and how many more there are; the root is `(root)`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(name or "(root)" for name in names[:most]) + more
