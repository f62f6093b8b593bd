"""Diagnostics: why a number is incomplete, with a code that programs can branch on."""

from __future__ import annotations

from typing import Final, Literal

import attrs

__all__ = ["CODES", "Diagnostic"]

#: Every diagnostic code, and when it is reported. The reference page of the docs lists the remedy of each.
CODES: Final = {
    "unsupported_module_metric": "no handler in any tier has a formula for this leaf's metric",
    "unsupported_native_call": "a native Transformer call outside the supported boundaries; reason names the boundary",
    "unsupported_token_dependencies": "a mask or configuration outside the relation model; reason names it",
    "module_metric_error": "a native or pack formula raised or broke the contract",
    "unavailable_module_metric": "a native or pack formula said unavailable, or left out a metric it owns",
    "partial_module_metric": "a native or pack formula gave a lower bound",
    "custom_handler_error": "the caller's handler raised",
    "custom_handler_invalid": "the caller's handler returned no mapping, or an unknown name",
    "custom_metric_invalid": "one field of the caller's handler breaks the contract",
    "custom_metric_partial": "one field of the caller's handler is a lower bound",
    "custom_metric_unavailable": "one field of the caller's handler is unavailable, or an owned one is missing",
    "unattributed_operator": "arithmetic in a composite's own body that no handler accounts for",
    "unaudited_module": "a composite's own body or hooks were not observed, because the scan was asked not to",
    "unobserved_call": "the model called a module in another thread, where a scan sees nothing",
    "uncounted_operator": "the operator view: no formula for this operator",
    "unsupported_operator_formula": "the operator view: the formula does not cover this call",
    "incomplete_operator_formula": "the operator view: the formula is known to miss work",
    "module_forward_error": "a submodule raised and the model caught it",
    "handler_conflict": "two packs claim one class, or two distributions one name",
    "plugin_load_error": "a plugin failed to import, failed in a hook, or implements an unknown hook",
    "plugin_contract_mismatch": "a plugin was written for another contract, or requires another version of a library",
}


@attrs.frozen
class Diagnostic:
    """One reason why something is incomplete.

    Args:
        code: a key of `CODES`.
        message: a sentence for people, with the remedy where there is one.
        severity: `warning`, or `error` where something raised.
        metric: the metric it concerns; `None` when it concerns all of them.
        path: the module path (`""` is the root); `None` when it concerns no module.
        call_index: which call of that path, from 0.
        operator: the operator, such as `aten.mm`.
        plugin: the plugin's name.
        reason: a machine-readable cause, where a code has several.
        calls: how often it was observed, where it was counted.

    """

    code: str
    message: str
    severity: Literal["warning", "error"] = "warning"
    metric: str | None = None
    path: str | None = attrs.field(default=None, kw_only=True)
    call_index: int | None = attrs.field(default=None, kw_only=True)
    operator: str | None = attrs.field(default=None, kw_only=True)
    plugin: str | None = attrs.field(default=None, kw_only=True)
    reason: str | None = attrs.field(default=None, kw_only=True)
    calls: int | None = attrs.field(default=None, kw_only=True)
