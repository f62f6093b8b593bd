"""The three states of a metric and their sum.

A number that torchscan reports is `Complete` (the value), `Partial` (a lower bound) or `Unavailable` (no number
at all). Three classes rather than one with optional fields: an impossible state cannot be built, and a reader must
branch before a number is found.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs

from torchscan.contract.validators import instance

__all__ = [
    "COUNT_METRICS",
    "METRICS",
    "NOT_APPLICABLE",
    "SPATIAL_METRICS",
    "UNITS",
    "Complete",
    "MetricState",
    "Number",
    "Partial",
    "Unavailable",
    "add",
    "checked_number",
    "exact_sum",
    "total",
]

Number: TypeAlias = int | float

COUNT_METRICS: Final = ("module_flops", "macs", "dmas")
SPATIAL_METRICS: Final = ("receptive_field", "effective_stride", "effective_padding")
METRICS: Final = COUNT_METRICS + SPATIAL_METRICS
UNITS: Final = {
    "module_flops": "FLOPs",
    "macs": "MACs",
    "dmas": "DMAs",
    "receptive_field": "elements",
    "effective_stride": "elements",
    "effective_padding": "elements",
}


def checked_number(value: object) -> Number:
    """Return `value` as an `int` where it is whole, else as a `float`.

    Args:
        value: a finite, non-negative real number that is no `bool`; NumPy scalars are welcome.

    Raises:
        TypeError: `value` is no real number, or is a `bool`.
        ValueError: `value` is negative, infinite or NaN.

    """
    if type(value) is int:  # the common case, first
        number: Number = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"expected a real number that is no bool, got {type(value).__name__}")
    elif isinstance(value, numbers.Integral):
        number = operator.index(value)
    else:
        try:
            number = float(value)
        except OverflowError:
            raise ValueError("expected a number that a float can hold, or an integer") from None
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number, got {number}")
        if number.is_integer():
            number = int(value)  # type: ignore[call-overload]
    if number < 0:
        raise ValueError(f"expected a non-negative number, got {number}")
    return number


def exact_sum(values: Iterable[Number]) -> Number:
    """Return the sum, rounded once at the end: a float among them costs large integers nothing.

    Args:
        values: numbers as `checked_number` returns them.

    Returns:
        An `int` where the sum is whole or no float can hold it, else the nearest `float`.

    """
    whole = 0
    floats: list[float] = []
    for value in values:
        if type(value) is int:
            whole += value
        else:
            floats.append(value)
    if not floats:
        return whole
    from fractions import Fraction

    found = whole + sum(map(Fraction, floats))
    if found.denominator == 1:
        return found.numerator
    try:
        return float(found)
    except OverflowError:
        return round(found)


@attrs.frozen
class Complete:
    """The metric is known.

    Args:
        value: a finite, non-negative number that is no `bool`; zero is a value.

    """

    value: Number = attrs.field(converter=checked_number)


@attrs.frozen
class Partial:
    """Only a lower bound is known.

    Args:
        known_value: the finite, non-negative lower bound.
        reason: what is missing, in words.

    Raises:
        TypeError: the number is none, or the reason is no text.
        ValueError: the number is negative or not finite.

    """

    known_value: Number = attrs.field(converter=checked_number)
    reason: str = attrs.field(default="", validator=instance(str))


@attrs.frozen(cache_hash=True)
class Unavailable:
    """Nothing is known, not even a lower bound.

    Args:
        reason: why, as a short machine-readable name or in words.
        code: the diagnostic code to report it under; by default the one of the handler's tier.
        message: the sentence for people, with the remedy where there is one.
        expected: the metric has no meaning for this module (the receptive field of a token module): reported as
            `not_applicable`, without a diagnostic, and no failure under `strict=True`.

    Raises:
        TypeError: the reason, the code or the message is no text.

    """

    reason: str = attrs.field(default="", validator=instance(str))
    code: str | None = attrs.field(default=None, kw_only=True, validator=instance(str, optional=True))
    message: str | None = attrs.field(default=None, kw_only=True, validator=instance(str, optional=True))
    expected: bool = attrs.field(default=False, kw_only=True)


NOT_APPLICABLE: Final = Unavailable("not_applicable", expected=True)

MetricState: TypeAlias = Complete | Partial | Unavailable


def add(left: MetricState, right: MetricState) -> MetricState:
    """Return the sum of two states, as `total` does."""
    return total((left, right))


def total(states: Iterable[MetricState]) -> MetricState:
    """Return the sum of any number of states; the sum of none is complete and zero.

    Of complete states alone it is complete. Anything incomplete makes it partial with what is known, and with nothing
    known it is unavailable. A lower bound of zero says nothing, so it makes nothing known.
    """
    known: list[Number] = []
    incomplete = False
    reason = ""
    for state in states:
        if isinstance(state, Complete):
            known.append(state.value)
            continue
        incomplete = True
        reason = reason or state.reason
        if isinstance(state, Partial) and state.known_value:
            known.append(state.known_value)
    if not incomplete:
        return Complete(exact_sum(known))
    return Partial(exact_sum(known), reason) if known else Unavailable(reason)
