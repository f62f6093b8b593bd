"""How a number, a state and a difference are written in a table, with the state visible without colour."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from torchscan.contract.states import Complete, MetricState, Number, Partial
from torchscan.report.schema import MetricResult

__all__ = ["TITLES", "amount", "delta", "exact", "result", "si", "state"]

#: The heading of each total, in the order of the page.
TITLES: Final = {
    "parameters": "parameters",
    "trainable_parameters": "trainable parameters",
    "frozen_parameters": "frozen parameters",
    "parameter_bytes": "parameter bytes",
    "buffer_elements": "buffer elements",
    "buffer_bytes": "buffer bytes",
    "module_flops": "module FLOPs",
    "macs": "MACs",
    "dmas": "DMAs",
    "operator_flops": "operator FLOPs",
}

_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


def si(number: Number, *, down: bool = False) -> str:
    """Return `number` in three significant digits with an SI prefix, such as `1.23 G`.

    Args:
        number: a finite number, not negative.
        down: round down instead of to the nearest, so that a lower bound stays one.

    """
    if number < 1000:
        return str(number) if isinstance(number, int) else _small(number, down=down)
    whole = int(number)
    digits = len(str(whole)) if whole < 10**4000 else int(Decimal(whole).adjusted()) + 1
    # Integers all the way: counts above 2**53 are rounded as they are.
    unit = 10 ** (digits - 3)
    leading = whole // unit if down else (whole + unit // 2) // unit
    if leading == 1000:
        leading, digits = 100, digits + 1
    power, before_point = divmod(digits - 1, 3)
    if power >= len(_PREFIXES):
        return f"{leading // 100}.{leading % 100:02d}e{digits - 1}"
    text = str(leading)
    point = before_point + 1
    return f"{text[:point]}.{text[point:]} {_PREFIXES[power]}" if point < 3 else f"{text} {_PREFIXES[power]}"


def _small(number: float, *, down: bool) -> str:
    text = f"{number:.3g}"
    return f"{number:.17g}" if down and float(text) > number else text


def exact(number: Number) -> str:
    """Return `number` in full, its digits in groups of three."""
    return f"{number:,}"


def amount(number: Number, *, full: bool = False, down: bool = False) -> str:
    """Return `number` in full or in SI units."""
    return exact(number) if full else si(number, down=down)


def state(value: MetricState, *, full: bool = False) -> str:
    """Return a state: `1.23 G`, `>= 1.23 G` for a lower bound, `?` for unavailable, `n/a` where it has no meaning."""
    if isinstance(value, Complete):
        return amount(value.value, full=full)
    if isinstance(value, Partial):
        return f">= {amount(value.known_value, full=full, down=True)}"
    return "n/a" if value.reason == "not_applicable" else "?"


def result(value: MetricResult | None, *, full: bool = False) -> str:
    """Return a metric result as `state` does, and nothing where there is none."""
    return "" if value is None else state(value.state, full=full)


def delta(number: Number, *, full: bool = False) -> str:
    """Return a difference with its sign; no difference is `0`."""
    if number == 0:
        return "0"
    return f"{'+' if number > 0 else '-'}{amount(abs(number), full=full)}"
