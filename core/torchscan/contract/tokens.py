"""Token relations: which input positions may affect an output position.

The meaning of each relation, its algebra and pictures: docs/explanation/token-relations.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import attrs

__all__ = ["Output", "Relation", "RelationKind", "Source", "TokenDependencies", "describe"]

RelationKind = Literal["all", "same_position", "prefix", "none"]
_KINDS = get_args(RelationKind)

#: A row of a relation: the input positions from the first number up to, not including, the second.
_Interval = tuple[int, int]
_EMPTY: _Interval = (0, 0)


def _integer(minimum: int) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        where = f"{type(instance).__name__}.{attribute.name}"
        if type(value) is not int:  # a bool is an int to isinstance
            raise TypeError(f"{where} must be an int, got {type(value).__name__}")
        if value < minimum:
            raise ValueError(f"{where} must be at least {minimum}, got {value}")

    return check


def _kind(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str) or value not in _KINDS:
        raise ValueError(f"Relation.kind must be one of {', '.join(_KINDS)}, got {value!r}")


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

    kind: RelationKind = attrs.field(validator=_kind)
    limit: int | None = attrs.field(default=None, validator=attrs.validators.optional(_integer(1)))
    first_position: int | None = attrs.field(default=None, validator=attrs.validators.optional(_integer(0)))

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


# The objects of a report row.


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"Source.arguments must be a tuple of argument names, got {value!r}")
    names = tuple(value)
    if not names:
        raise ValueError("Source.arguments must name at least one argument")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"Source.arguments must be strings, got {type(name).__name__}")
    if len(set(names)) != len(names):
        raise ValueError(f"Source.arguments names an argument twice: {', '.join(names)}")
    return names


def _within(relation: Relation, name: str, output_length: int | None, input_length: int) -> None:
    """Refuse a limit beyond the input, or a first position beyond the output."""
    if relation.limit is not None and relation.limit > input_length:
        raise ValueError(f"{name}: relation.limit is {relation.limit}, but the input has {input_length} positions")
    if output_length is not None and (relation.first_position or 0) >= output_length:
        raise ValueError(
            f"{name}: relation.first_position is {relation.first_position}, "
            f"but the output has {output_length} positions; use the kind 'none'"
        )


@attrs.frozen
class Source:
    """One distinct input tensor.

    Args:
        arguments: the argument names that are this same tensor object, in signature order.
        sequence_axis: its token axis, counted from the front.
        length: its number of tokens.
        relation: how output positions depend on it; its limit lies within the length.

    Raises:
        TypeError, ValueError: a field is not of that form; the message names it.

    """

    arguments: tuple[str, ...] = attrs.field(converter=_names)
    sequence_axis: int = attrs.field(validator=_integer(0))
    length: int = attrs.field(validator=_integer(1))
    relation: Relation = attrs.field(validator=attrs.validators.instance_of(Relation))

    def __attrs_post_init__(self) -> None:
        _within(self.relation, f"source {'/'.join(self.arguments)}", None, self.length)


@attrs.frozen
class Output:
    """The token axis of the main output tensor.

    Args:
        sequence_axis: the axis, counted from the front.
        length: its number of tokens.

    """

    sequence_axis: int = attrs.field(validator=_integer(0))
    length: int = attrs.field(validator=_integer(1))


def _sources(value: object) -> tuple[Source, ...]:
    if not isinstance(value, Iterable):
        raise TypeError(f"TokenDependencies.sources must be a tuple of Source, got {type(value).__name__}")
    sources = tuple(value)
    for source in sources:
        if not isinstance(source, Source):
            raise TypeError(f"TokenDependencies.sources must be Source objects, got {type(source).__name__}")
    names = [name for source in sources for name in source.arguments]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"TokenDependencies.sources: {twice!r} belongs to two sources")
    return sources


def _sentences(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"TokenDependencies.assumptions must be a tuple of sentences, got {value!r}")
    sentences = tuple(value)
    for sentence in sentences:
        if not isinstance(sentence, str):
            raise TypeError(f"TokenDependencies.assumptions must be strings, got {type(sentence).__name__}")
    return sentences


@attrs.frozen
class TokenDependencies:
    """Structural dependencies of a call's main output tensor on its input tokens.

    Args:
        status: `complete`, or `unavailable`, which has neither output nor sources.
        sources: per distinct tensor, in signature order; at least one where the status is `complete`.
        output: the token axis of the main output.
        assumptions: what the relation rests on, one sentence each.
        method: who derived it; filled in by the scan when empty.
        scope: `module_call`: it describes that call alone.
        reason: why it is unavailable, machine-readable.
        message: the same for people; becomes the diagnostic and is not part of the report row.

    Raises:
        TypeError, ValueError: a field is not of that form; the message names it.

    """

    status: Literal["complete", "unavailable"] = attrs.field()
    sources: tuple[Source, ...] = attrs.field(default=(), converter=_sources)
    output: Output | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(Output))
    )
    assumptions: tuple[str, ...] = attrs.field(default=(), converter=_sentences)
    method: str = attrs.field(default="", validator=attrs.validators.instance_of(str))
    scope: str = attrs.field(default="module_call", validator=attrs.validators.instance_of(str))
    reason: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str))
    )
    message: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(str))
    )

    @status.validator
    def _check_status(self, attribute: attrs.Attribute[Any], value: object) -> None:
        if value not in ("complete", "unavailable"):
            raise ValueError(f"TokenDependencies.status must be 'complete' or 'unavailable', got {value!r}")

    def __attrs_post_init__(self) -> None:
        if self.status == "unavailable":
            if self.sources or self.output is not None:
                raise ValueError("an unavailable TokenDependencies has neither sources nor output")
            return
        if self.output is None:
            raise ValueError("a complete TokenDependencies needs its output")
        if not self.sources:
            raise ValueError("a complete TokenDependencies needs a source; no dependency is the relation 'none'")
        if self.reason is not None:
            raise ValueError(f"a complete TokenDependencies has no reason, got {self.reason!r}")
        for source in self.sources:
            _within(source.relation, f"source {'/'.join(source.arguments)}", self.output.length, source.length)

    @classmethod
    def unavailable(cls, reason: str, message: str | None = None) -> TokenDependencies:
        """Return an unavailable relation.

        Args:
            reason: why, as a short machine-readable name.
            message: why, as a sentence, with the remedy where there is one.

        """
        return cls("unavailable", reason=reason, message=message)

    def canonical(self) -> TokenDependencies:
        """Return the same dependencies with every relation in its canonical form."""
        if self.output is None:
            return self
        length = self.output.length
        relations = [source.relation.canonical(length, source.length) for source in self.sources]
        if all(source.relation == relation for source, relation in zip(self.sources, relations, strict=True)):
            return self
        pairs = zip(self.sources, relations, strict=True)
        return attrs.evolve(self, sources=tuple(attrs.evolve(source, relation=found) for source, found in pairs))


_WORDS = {"all": "all", "same_position": "local", "prefix": "causal", "none": "none"}
_SOURCE_WORDS = {"all": "source", "same_position": "local source", "prefix": "causal source"}
#: What PyTorch calls the tensor whose positions are those of the output.
_TARGETS = frozenset(("query", "tgt"))


def describe(dependencies: TokenDependencies | None) -> str:
    """Return the dependencies in a word or two, for a table cell.

    Args:
        dependencies: those of one call, or `None` where there are none.

    Returns:
        `all`, `causal`, `local` or `none` for the tensor whose positions the output has, then what the other tensors
        add, such as `local + source` (cross-attention) or `causal + source` (a decoder). `[:4]` says that only the
        first four positions matter. `?` where it is unavailable, and nothing where there are no dependencies at all.

    """
    if dependencies is None:
        return ""
    if dependencies.status != "complete":
        return "?"
    sources = dependencies.sources
    target = next((source for source in sources if not _TARGETS.isdisjoint(source.arguments)), sources[0])
    words: list[str] = []
    for source in (target, *(other for other in sources if other is not target)):
        relation = source.relation
        if relation.kind == "none":
            continue
        word = (_WORDS if source is target else _SOURCE_WORDS)[relation.kind]
        word += "" if relation.limit is None else f"[:{relation.limit}]"
        if word not in words:
            words.append(word)
    return " + ".join(words) or "none"
