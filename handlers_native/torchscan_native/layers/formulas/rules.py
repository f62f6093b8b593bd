"""The rules every formula is built from. Derivation: docs/derivations/rules.md."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOTHING", "Counts", "dot", "power", "root"]


class Counts(NamedTuple):
    """What one call costs.

    Attributes:
        flops: scalar real floating-point operations.
        macs: product terms of contractions.
        dmas: logical element reads and writes.

    """

    flops: int
    macs: int
    dmas: int


#: An empty batch, or a module that does nothing.
NOTHING = Counts(0, 0, 0)


def dot(terms: int) -> int:
    """FLOPs of a dot product of `terms` products. Derivation: docs/derivations/rules.md#dot-products."""
    return 2 * terms - 1 if terms else 0


def power(exponent: float) -> int | None:
    """FLOPs of `x ** exponent` for one element, `None` without a rule. Derivation: docs/derivations/rules.md#powers."""
    if exponent <= 0 or exponent == float("inf"):
        return None
    if exponent == int(exponent):
        return int(exponent) - 1  # repeated multiplication: one for a square, two for a cube, none for x itself
    return 1 if exponent == 0.5 else 3  # a square root, or logarithm, multiply and exponential


def root(degree: float) -> int | None:
    """FLOPs of the `degree`-th root of one element. Derivation: docs/derivations/rules.md#powers."""
    return None if degree <= 0 or degree == float("inf") else power(1 / degree)
