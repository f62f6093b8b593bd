"""Checking what a handler returned, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from torchscan.contract.states import UNITS, Complete, MetricState, Partial, Unavailable, checked_number
from torchscan.contract.token_checks import check_token_dependencies
from torchscan.contract.tokens import TokenDependencies

if TYPE_CHECKING:
    from torchscan.contract.call import ModuleCall
    from torchscan.plugins.resolution import Candidate

__all__ = ["BadResult", "WireState", "checked_state", "checked_tokens", "failure_state"]

_WIRE_FIELDS: Final = ("status", "value", "known_value", "unit", "scope", "method")


class BadResult(ValueError):
    """One field of a handler's result breaks the contract."""


class WireState:
    """A state given in wire form, with the method the handler named."""

    __slots__ = ("method", "state")

    def __init__(self, state: MetricState, method: str) -> None:
        self.state = state
        self.method = method


def checked_state(name: str, value: Any) -> MetricState | WireState | int | float:
    """Return one field of a result as a state (a number stays a number).

    Raises:
        BadResult: the field breaks the contract; the message says how.

    """
    if value is None:
        return Unavailable("the handler said so")
    if isinstance(value, (Complete, Partial, Unavailable)):
        return value
    if isinstance(value, Mapping):
        return _wire(name, value)
    try:
        return checked_number(value)
    except (TypeError, ValueError) as error:
        raise BadResult(str(error)) from None


def _wire(name: str, value: Mapping[str, Any]) -> WireState:
    missing = [field for field in _WIRE_FIELDS if field not in value]
    unknown = [str(field) for field in value if field not in _WIRE_FIELDS]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has unknown fields {', '.join(unknown)}"
        raise BadResult(f"a metric in wire form has exactly the fields {', '.join(_WIRE_FIELDS)}; this one {what}")
    if value["unit"] != UNITS[name]:
        raise BadResult(f"the unit must be {UNITS[name]!r}, got {value['unit']!r}")
    if value["scope"] not in ("module_call", "subtree"):
        raise BadResult(f"the scope must be 'module_call' or 'subtree', got {value['scope']!r}")
    method = value["method"]
    if not isinstance(method, str):
        raise BadResult(f"the method must be a string, got {type(method).__name__}")
    status, number, known = value["status"], value["value"], value["known_value"]
    try:
        if status == "complete":
            if checked_number(number) != checked_number(known):
                raise BadResult(f"a complete metric has value == known_value, got {number!r} and {known!r}")
            return WireState(Complete(number), method)
        if status == "partial":
            if number is not None:
                raise BadResult(f"a partial metric has value None, got {number!r}")
            return WireState(Partial(known), method)
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, BadResult) else BadResult(str(error)) from None
    if status == "unavailable":
        if number is not None or known is not None:
            raise BadResult(f"an unavailable metric has no numbers, got {number!r} and {known!r}")
        return WireState(Unavailable("the handler said so"), method)
    raise BadResult(f"the status must be complete, partial or unavailable, got {status!r}")


_CODES: Final = {
    # cause -> (caller's code, code of packs and native)
    "raised": ("custom_handler_error", "module_metric_error"),
    "invalid": ("custom_handler_invalid", "module_metric_error"),
    "field": ("custom_metric_invalid", "module_metric_error"),
    "missing": ("custom_metric_unavailable", "unavailable_module_metric"),
}


def failure_state(candidate: Candidate, cause: str, message: str) -> Unavailable:
    """Return the unavailable state of a metric whose handler failed."""
    custom, other = _CODES[cause]
    return Unavailable(cause, code=custom if candidate.tier == "caller" else other, message=message)


def checked_tokens(value: Any, call: ModuleCall) -> TokenDependencies:
    """Return a handler's token dependencies, checked against the live call.

    Raises:
        BadResult: a name, axis, length or relation breaks the contract.

    """
    if value is None:
        return TokenDependencies.unavailable("unavailable", "the handler said so")
    try:
        return check_token_dependencies(value, call)
    except (TypeError, ValueError) as error:
        raise BadResult(str(error)) from None
