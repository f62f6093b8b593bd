"""Similarities and distances of paired rows. Derivation: docs/derivations/distance.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import NOTHING, Counts, dot

__all__ = ["cosine_similarity", "pairwise_distance"]


def cosine_similarity(rows: int, width: int) -> Counts:
    """Count `x1 x2 / max(|x1| |x2|, eps)` per row. Derivation: docs/derivations/distance.md#cosine-similarity.

    Args:
        rows: pairs of rows, `n`.
        width: elements of a row, `D`.

    """
    if not rows:
        return NOTHING
    elements = rows * width
    product = rows * dot(width)
    square_sums = 2 * rows * dot(width)
    roots = 2 * rows
    quotient = 3 * rows  # product of the norms, maximum with epsilon, divide
    return Counts(
        product + square_sums + roots + quotient,
        elements,
        (2 * elements + rows) + 2 * (elements + rows) + (3 * rows + 1 + rows),
    )


def pairwise_distance(rows: int, width: int, *, power: int, root: int) -> Counts:
    """Count `|x1 - x2 + eps|_p` per row. Derivation: docs/derivations/distance.md#pairwise-distance.

    Args:
        rows: pairs of rows, `n`.
        width: elements of a row, `D`.
        power: FLOPs per element before the reduction: the absolute value where the norm needs it, and the power.
        root: FLOPs of one root; 0 means that there is no such stage.

    """
    if not rows:
        return NOTHING
    elements = rows * width
    difference = 2 * elements  # subtract, add epsilon
    powers = elements * power
    reduction = elements - rows  # adds, or comparisons of the maximum norm
    roots = rows * root
    return Counts(
        difference + powers + reduction + roots,
        0,
        (2 * elements + 1 + elements) + (elements + rows) + (2 * rows if root else 0),
    )
