"""Formulas of dispatched operators."""

from __future__ import annotations

from collections.abc import Iterator

from torchscan import OperatorFormula


def formulas() -> Iterator[OperatorFormula]:
    """Yield one formula per operator packet."""
    yield from ()
