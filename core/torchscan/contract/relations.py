"""`Relation`: which input positions may affect an output position, and how relations compose.

The meaning of each relation, its algebra and pictures: docs/explanation/token-relations.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, get_args

import attrs

from torchscan.contract.validators import integer, one_of

__all__ = ["Relation", "RelationKind"]

RelationKind = Literal["all", "same_position", "prefix", "none"]
_KINDS = get_args(RelationKind)

#: A row of a relation: the input positions from the first number up to, not including, the second.
_Interval = tuple[int, int]
_EMPTY: _Interval = (0, 0)


@attrs.frozen
class Relation:
    """The input positions that may affect output position `i`, zero-based.

    Args:
        kind: `all` (positions 0 to limit-1), `same_position` (position i, where there is one below limit), `prefix`
            (positions 0 to min(i+1, limit)-1) or `none` (no position; it has neither limit nor first_position).
        limit: the number of input positions that can matter; `None` is the input length.
        first_position: the first output position with a dependency; `None` is 0.

    Raises:
        TypeError: a limit or first position that is no `int`.
        ValueError: an unknown kind, a limit below 1, a first position below 0, or `none` with either of them.

    """

    kind: RelationKind = attrs.field(validator=one_of(_KINDS))
    limit: int | None = attrs.field(default=None, validator=attrs.validators.optional(integer(1)))
    first_position: int | None = attrs.field(default=None, validator=attrs.validators.optional(integer(0)))

    def __attrs_post_init__(self) -> None:
        if self.kind == "none" and not (self.limit is None and self.first_position is None):
            raise ValueError("a relation of kind 'none' has neither limit nor first_position")

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"[:{self.limit}]"
        return self.kind + limit + ("" if self.first_position is None else f" from {self.first_position}")

    def matrix(self, output_length: int, input_length: int) -> tuple[tuple[bool, ...], ...]:
        """Return the relation written out: `[i][j]` says whether input j may affect output i.

        Args:
            output_length: T, the number of output positions.
            input_length: S, the number of input positions.

        Returns:
            T rows of S booleans.

        """
        _lengths(output_length, input_length)
        rows = (_row(self, i, input_length) for i in range(output_length))
        return tuple(tuple(low <= j < high for j in range(input_length)) for low, high in rows)

    def canonical(self, output_length: int, input_length: int) -> Relation:
        """Return the one form that every relation with the same matrix shares at these lengths.

        Of the ways to say it, the one with the fewest qualifiers, and of these the first kind in the order `none`,
        `all`, `same_position`, `prefix`. So a causal relation of one token is `all`, and a limit that cuts nothing
        is left out.

        Args:
            output_length: T, the number of output positions.
            input_length: S, the number of input positions.

        """
        found = _canonical(self, output_length, input_length)
        assert found is not None, "a relation describes itself"
        return found

    def through(self, inner: Relation, output_length: int, middle_length: int, input_length: int) -> Relation | None:
        """Return the composition: output i depends on input j where some middle position passes j on to i.

        Args:
            inner: how the middle positions depend on the input.
            output_length: T, the output positions of this relation.
            middle_length: M, the input positions of this relation and the output positions of `inner`.
            input_length: S, the input positions of `inner`.

        Returns:
            The canonical relation of (T, S), or `None` where the four kinds cannot say it, such as a causal relation
            through one that begins at a later position.

        """
        return _through(self, inner, output_length, middle_length, input_length)

    def union(self, other: Relation, output_length: int, input_length: int) -> Relation | None:
        """Return what either relation allows, as for a residual path or one tensor passed under two names.

        Args:
            other: another relation between the same positions.
            output_length: T, the output positions of both.
            input_length: S, the input positions of both.

        Returns:
            The canonical relation, or `None` where the four kinds cannot say it, such as the first two positions
            together with the own position.

        """
        return _union(self, other, output_length, input_length)


# The algebra. Every row of every relation is an interval that moves with the output position in straight lines
# between a handful of positions, so that a relation is known from those positions and their neighbours, at any length.


def _lengths(*lengths: int) -> None:
    for length in lengths:
        if type(length) is not int:
            raise TypeError(f"a length must be an int, got {type(length).__name__}")
        if length < 1:
            raise ValueError(f"a length must be at least 1, got {length}")


def _limit(relation: Relation, input_length: int) -> int:
    return input_length if relation.limit is None else min(relation.limit, input_length)


def _image(relation: Relation, low: int, high: int, input_length: int) -> _Interval:
    """Return the inputs that may affect any of the output positions from `low` up to, not including, `high`."""
    low = max(low, relation.first_position or 0)
    limit = _limit(relation, input_length)
    if low >= high or relation.kind == "none":
        return _EMPTY
    if relation.kind == "all":
        return 0, limit
    if relation.kind == "prefix":
        return 0, min(high, limit)
    return (low, min(high, limit)) if low < limit else _EMPTY


def _row(relation: Relation, i: int, input_length: int) -> _Interval:
    return _image(relation, i, i + 1, input_length)


def _marks(relations: Iterable[Relation], lengths: Iterable[int], output_length: int) -> list[int]:
    """Return every output position where a row may start to move differently, and its neighbours."""
    marks = {0, output_length, *lengths}
    for relation in relations:
        marks.add(relation.first_position or 0)
        marks.add(relation.limit or 0)
    return sorted({i for mark in marks for i in (mark - 1, mark, mark + 1) if 0 <= i < output_length})


def _recognise(rows: dict[int, _Interval], output_length: int, input_length: int) -> Relation | None:
    """Return the canonical relation with these rows at the marked positions, or `None` where there is none."""
    occupied = [i for i, (low, high) in rows.items() if low < high]
    if not occupied:
        return Relation("none")
    first, last = occupied[0], occupied[-1]
    reach = min(output_length, input_length)
    start = first or None

    def limit(value: int, whole: int) -> int | None:
        return value if value < whole else None

    candidates = [
        Relation("all", limit(rows[first][1], input_length), start),
        Relation("same_position", limit(last + 1, reach), start),
    ]
    if (highest := rows[output_length - 1][1]) > 0:
        candidates.append(Relation("prefix", limit(highest, reach), start))
    matching = [
        candidate for candidate in candidates if all(_row(candidate, i, input_length) == row for i, row in rows.items())
    ]
    return min(matching, key=lambda r: (r.limit is not None) + (r.first_position is not None), default=None)


@functools.lru_cache(maxsize=4096)
def _canonical(relation: Relation, output_length: int, input_length: int) -> Relation | None:
    _lengths(output_length, input_length)
    marks = _marks((relation,), (input_length,), output_length)
    return _recognise({i: _row(relation, i, input_length) for i in marks}, output_length, input_length)


@functools.lru_cache(maxsize=4096)
def _through(
    outer: Relation, inner: Relation, output_length: int, middle_length: int, input_length: int
) -> Relation | None:
    _lengths(output_length, middle_length, input_length)
    marks = _marks((outer, inner), (middle_length, input_length), output_length)
    rows = {i: _image(inner, *_row(outer, i, middle_length), input_length) for i in marks}
    return _recognise(rows, output_length, input_length)


@functools.lru_cache(maxsize=4096)
def _union(left: Relation, right: Relation, output_length: int, input_length: int) -> Relation | None:
    _lengths(output_length, input_length)
    rows: dict[int, _Interval] = {}
    for i in _marks((left, right), (input_length,), output_length):
        (low, high), (other_low, other_high) = sorted((_row(left, i, input_length), _row(right, i, input_length)))
        if low == high:
            rows[i] = (other_low, other_high)
        elif other_low == other_high:
            rows[i] = (low, high)
        elif other_low > high:
            return None  # a gap between the two: no relation has one
        else:
            rows[i] = (low, max(high, other_high))
    return _recognise(rows, output_length, input_length)
