"""The algebra of token relations against boolean matrices, which know nothing of kinds and limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchscan.contract.tokens import Relation

KINDS = ("all", "same_position", "prefix")


def dense(relation: Relation, output_length: int, input_length: int) -> np.ndarray:
    """Write a relation out from the definition of its kind, entry by entry."""
    matrix = np.zeros((output_length, input_length), dtype=bool)
    limit = input_length if relation.limit is None else relation.limit
    for i in range(relation.first_position or 0, output_length):
        for j in range(min(limit, input_length)):
            matrix[i, j] = {"none": False, "all": True, "same_position": j == i, "prefix": j <= i}[relation.kind]
    return matrix


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left.astype(int) @ right.astype(int)) > 0


def every_relation(output_length: int, input_length: int) -> Iterator[Relation]:
    """Every kind with every limit (also beyond the input) and every first position (also beyond the output)."""
    yield Relation("none")
    limits = (None, *range(1, input_length + 2))
    firsts = (None, *range(output_length + 2))
    for kind, limit, first in itertools.product(KINDS, limits, firsts):
        yield Relation(kind, limit, first)


def distinct_relations(output_length: int, input_length: int) -> dict[bytes, Relation]:
    """One relation per distinct matrix."""
    return {dense(r, output_length, input_length).tobytes(): r for r in every_relation(output_length, input_length)}


LENGTHS = range(1, 7)


@pytest.mark.parametrize("output_length", LENGTHS)
@pytest.mark.parametrize("input_length", LENGTHS)
def test_canonical_forms_are_one_per_matrix(output_length: int, input_length: int) -> None:
    by_matrix: dict[bytes, set[Relation]] = {}
    for relation in every_relation(output_length, input_length):
        expected = dense(relation, output_length, input_length)
        assert np.array_equal(np.array(relation.matrix(output_length, input_length)), expected), relation
        canonical = relation.canonical(output_length, input_length)
        assert np.array_equal(dense(canonical, output_length, input_length), expected), relation
        by_matrix.setdefault(expected.tobytes(), set()).add(canonical)
        qualifiers = (canonical.limit is not None) + (canonical.first_position is not None)
        assert qualifiers <= (relation.limit is not None) + (relation.first_position is not None), relation
    assert all(len(forms) == 1 for forms in by_matrix.values())


@pytest.mark.parametrize("output_length", LENGTHS)
def test_composition_is_the_boolean_product(output_length: int) -> None:
    for middle_length, input_length in itertools.product(LENGTHS, LENGTHS):
        known = distinct_relations(output_length, input_length)
        outers = [
            (r, dense(r, output_length, middle_length))
            for r in distinct_relations(output_length, middle_length).values()
        ]
        inners = [
            (r, dense(r, middle_length, input_length)) for r in distinct_relations(middle_length, input_length).values()
        ]
        for (outer, left), (inner, right) in itertools.product(outers, inners):
            expected = product(left, right)
            found = outer.through(inner, output_length, middle_length, input_length)
            case = f"{outer} through {inner} at {(output_length, middle_length, input_length)}"
            if found is None:  # only where no relation at all has that matrix
                assert expected.tobytes() not in known, case
            else:
                assert np.array_equal(dense(found, output_length, input_length), expected), case
                assert found == found.canonical(output_length, input_length), case


@pytest.mark.parametrize("output_length", LENGTHS)
@pytest.mark.parametrize("input_length", LENGTHS)
def test_union_is_the_boolean_sum(output_length: int, input_length: int) -> None:
    known = distinct_relations(output_length, input_length)
    relations = [(r, dense(r, output_length, input_length)) for r in known.values()]
    for (left, a), (right, b) in itertools.product(relations, relations):
        found = left.union(right, output_length, input_length)
        case = f"{left} or {right} at {(output_length, input_length)}"
        if found is None:
            assert (a | b).tobytes() not in known, case
        else:
            assert np.array_equal(dense(found, output_length, input_length), a | b), case
            assert found == found.canonical(output_length, input_length), case


@pytest.mark.parametrize("lengths", [*itertools.product((1, 2, 3), repeat=3)])
def test_every_way_to_say_a_relation_composes_and_unites_alike(lengths: tuple[int, int, int]) -> None:
    output_length, middle_length, input_length = lengths
    for outer in every_relation(output_length, middle_length):
        for inner in every_relation(middle_length, input_length):
            short = outer.canonical(output_length, middle_length)
            again = inner.canonical(middle_length, input_length)
            assert outer.through(inner, *lengths) == short.through(again, *lengths)
    for left in every_relation(output_length, input_length):
        for right in every_relation(output_length, input_length):
            short, again = (r.canonical(output_length, input_length) for r in (left, right))
            assert left.union(right, output_length, input_length) == short.union(again, output_length, input_length)


@st.composite
def relations(draw: st.DrawFn, output_length: int, input_length: int) -> Relation:
    kind = draw(st.sampled_from(KINDS))
    limit = draw(st.none() | st.integers(1, input_length))
    first = draw(st.none() | st.integers(0, output_length))
    return Relation(kind, limit, first)


@given(st.data(), st.tuples(*[st.integers(1, 40)] * 3))
@settings(max_examples=60, deadline=None)
def test_the_algebra_holds_at_longer_lengths(data: st.DataObject, lengths: tuple[int, int, int]) -> None:
    output_length, middle_length, input_length = lengths
    outer = data.draw(relations(output_length, middle_length))
    inner = data.draw(relations(middle_length, input_length))
    other = data.draw(relations(output_length, input_length))
    composed = outer.through(inner, *lengths)
    if composed is not None:
        expected = product(dense(outer, output_length, middle_length), dense(inner, middle_length, input_length))
        assert np.array_equal(dense(composed, output_length, input_length), expected)
        together = composed.union(other, output_length, input_length)
        if together is not None:
            expected |= dense(other, output_length, input_length)
            assert np.array_equal(dense(together, output_length, input_length), expected)


def test_a_result_that_no_kind_can_say_is_refused_by_name() -> None:
    # Rows {0, 1}, {0, 1}, {0, 1, 2}: neither a constant, nor a diagonal, nor a growing set.
    assert Relation("all", limit=2).union(Relation("same_position"), 3, 3) is None
    # Rows {}, {1}, {1, 2}: a prefix that does not begin at the first input.
    assert Relation("prefix").through(Relation("same_position", first_position=1), 3, 3, 3) is None
    # Row 3 would be {0, 3}, an interval with a hole.
    assert Relation("all", limit=1).union(Relation("same_position", first_position=3), 4, 4) is None


def test_length_does_not_cost_time() -> None:
    # A matrix of these lengths would have 10**12 entries.
    length = 10**6
    assert Relation("prefix").through(Relation("prefix", limit=7), length, length, length) == Relation("prefix", 7)
    assert Relation("all").through(Relation("prefix"), length, length, 2 * length) == Relation("all", limit=length)
