"""Lookups. Derivation: docs/derivations/embedding.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import Counts

__all__ = ["bag_maximum", "bag_mean", "bag_sum", "embedding"]


def embedding(indices: int, width: int) -> Counts:
    """Count a table lookup. Derivation: docs/derivations/embedding.md#embedding.

    Args:
        indices: how many indices, `n`.
        width: elements of a table row, `D`.

    """
    return Counts(0, 0, indices + indices * width + indices * width)


def bag_sum(indices: int, width: int, bags: int, filled: int, *, offsets: int, weighted: bool) -> Counts:
    """Count sums of table rows. Derivation: docs/derivations/embedding.md#embedding-bag.

    Args:
        indices: how many indices, `n`.
        width: elements of a table row, `D`.
        bags: how many bags, `g`.
        filled: how many of them hold an index, `g'`.
        offsets: elements of the offsets tensor, 0 without one.
        weighted: whether every index has a weight.

    """
    scaling = indices * width if weighted else 0
    adds = (indices - filled) * width
    return Counts(scaling + adds, scaling, _bag_dmas(indices, width, bags, offsets, weighted))


def bag_mean(indices: int, width: int, bags: int, *, offsets: int) -> Counts:
    """Count means of table rows. Derivation: docs/derivations/embedding.md#embedding-bag.

    Args:
        indices: how many indices, `n`.
        width: elements of a table row, `D`.
        bags: how many bags, `g`.
        offsets: elements of the offsets tensor, 0 without one.

    """
    # (n - g') D adds and g' D divides: the number of filled bags cancels.
    return Counts(indices * width, 0, _bag_dmas(indices, width, bags, offsets, False))


def bag_maximum(indices: int, width: int, bags: int, filled: int, *, offsets: int) -> Counts:
    """Count maxima of table rows. Derivation: docs/derivations/embedding.md#embedding-bag.

    Args:
        indices: how many indices, `n`.
        width: elements of a table row, `D`.
        bags: how many bags, `g`.
        filled: how many of them hold an index, `g'`.
        offsets: elements of the offsets tensor, 0 without one.

    """
    return Counts((indices - filled) * width, 0, _bag_dmas(indices, width, bags, offsets, False))


def _bag_dmas(indices: int, width: int, bags: int, offsets: int, weighted: bool) -> int:
    return indices + indices * width + bags * width + offsets + (indices if weighted else 0)
