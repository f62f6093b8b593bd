"""Formulas of dispatched operators, one file per family.

What they count: docs/derivations/functional-operators.md. How the operator view uses them:
docs/explanation/operator-view.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchscan.contract.operators import OperatorFormula

__all__ = ["formulas"]


def formulas() -> Iterator[OperatorFormula]:
    """Yield one formula per operator packet."""
    from torchscan_native.operators import (
        attention,
        backward,
        contractions,
        convolutions,
        elementwise,
        ignored,
        losses,
        movement,
        normalization,
        optimizers,
        pooling,
        recurrent,
        reductions,
    )

    for family in (
        elementwise,
        reductions,
        contractions,
        convolutions,
        normalization,
        attention,
        recurrent,
        pooling,
        movement,
        losses,
        backward,
        optimizers,
        ignored,
    ):
        yield from family.formulas()
