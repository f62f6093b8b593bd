"""A comparison in words: what text, markdown and HTML say about each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from torchscan.contract.tokens import TokenDependencies, describe
from torchscan.report import units
from torchscan.report.converter import converter
from torchscan.report.labels import place
from torchscan.report.schema import MetricResult

__all__ = ["Difference", "call_differences", "call_name", "total_differences"]

_WHY: Final = {
    "missing": "on one side only",
    "status": "not both complete",
    "unit": "units differ",
    "scope": "scopes differ",
    "method": "methods differ",
}


@attrs.frozen
class Difference:
    """One line of a comparison, in words.

    Args:
        name: what is compared.
        before: how it was.
        after: how it is.
        delta: the difference with its sign, or why there is none.
        changed: whether the two sides differ.

    """

    name: str
    before: str
    after: str
    delta: str
    changed: bool


def total_differences(comparison: Mapping[str, Any], *, full: bool = False) -> Iterator[Difference]:
    """Return the totals of a comparison, in the order of the page."""
    totals = comparison["totals"]
    for name, title in units.TITLES.items():
        if name in totals:
            yield _metric(title, totals[name], full=full)


def call_differences(call: Mapping[str, Any], *, full: bool = False) -> Iterator[Difference]:
    """Return what changed in one call: its type, parameters, metrics and token relation."""
    if (types := call.get("type")) is not None:
        yield Difference("type", types["before"], types["after"], "", True)
    if (parameters := call.get("parameters")) is not None:
        yield from _parameters(parameters["before"], parameters["after"], full=full)
    for name, entry in call["metrics"].items():
        yield _metric(units.TITLES.get(name, name.replace("_", " ")), entry, full=full)
    if (tokens := call.get("token_dependencies")) is not None:
        yield Difference("tokens", _tokens(tokens["before"]), _tokens(tokens["after"]), "", True)


def call_name(call: Mapping[str, Any]) -> str:
    """Return how a call of a comparison is named."""
    return place(call["path"], call["call_index"])


def _metric(title: str, entry: Mapping[str, Any], *, full: bool) -> Difference:
    before, after = _side(entry["before"], full=full), _side(entry["after"], full=full)
    number = entry["delta"]
    if number is None:
        change = f"withheld: {', '.join(_WHY[reason] for reason in entry['withheld'])}"
    else:
        change = units.delta(number, full=full) + _percent(number, entry["before"]["value"])
    return Difference(title, before, after, change, entry["before"] != entry["after"])


def _percent(number: float, before: float) -> str:
    """Return the change in percent of what was there; of nothing there is no percentage."""
    return f" ({100 * number / before:+.1f} %)" if number and before else ""


def _side(wire: Mapping[str, Any] | None, *, full: bool) -> str:
    if wire is None:
        return "none"
    return units.result(converter().structure(wire, MetricResult), full=full)


def _parameters(before: Mapping[str, int], after: Mapping[str, int], *, full: bool) -> Iterator[Difference]:
    for key, title in (("trainable", "trainable parameters"), ("frozen", "frozen parameters"), ("bytes", "bytes")):
        if before[key] != after[key]:
            number = after[key] - before[key]
            yield Difference(
                title,
                units.amount(before[key], full=full),
                units.amount(after[key], full=full),
                units.delta(number, full=full) + _percent(number, before[key]),
                True,
            )
    if before["shared"] != after["shared"]:
        yield Difference("shared", str(before["shared"]).lower(), str(after["shared"]).lower(), "", True)


def _tokens(wire: Mapping[str, Any] | None) -> str:
    """Return a relation in words; the lengths tell two relations of one word apart."""
    if wire is None:
        return "none given"
    tokens = converter().structure(wire, TokenDependencies)
    if tokens.output is None:
        return f"? ({tokens.reason})" if tokens.reason else "?"
    lengths = ", ".join(f"{'/'.join(source.arguments)}: {source.length}" for source in tokens.sources)
    return f"{describe(tokens)} ({lengths}; output: {tokens.output.length})"
