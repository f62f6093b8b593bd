"""The rules every formula is built from. Derivation: docs/derivations/rules.md."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOTHING", "Counts", "dot", "norm", "power", "root"]


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


def norm(order: float) -> tuple[int, int] | None:
    """FLOPs that a vector norm adds to the sum (or the maximum) of a row. Derivation: docs/derivations/rules.md#powers.

    Args:
        order: the order of the norm.

    Returns:
        FLOPs of `|x| ** order` for one element, and of the root of one row; `None` without a rule.

    """
    if order == float("inf"):
        return 1, 0  # the absolute value
    per_element, per_row = power(order), root(order)
    if per_element is None or per_row is None:
        return None
    absolute = 0 if order % 2 == 0 else 1  # an even power needs none
    return absolute + per_element, per_row
