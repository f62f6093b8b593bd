"""Pictures of token relations, against the relation written out position by position."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.report_builder import layer
from torchscan.contract.tokens import Output, Relation, Source, TokenDependencies
from torchscan.report.token_pictures import CELLS, picture, token_cards


@st.composite
def relations(draw):
    outputs, inputs = draw(st.integers(1, 75)), draw(st.integers(1, 75))
    kind = draw(st.sampled_from(["all", "same_position", "prefix", "none"]))
    if kind == "none":
        return Relation(kind), outputs, inputs
    limit = draw(st.none() | st.integers(1, inputs))
    return Relation(kind, limit, draw(st.none() | st.integers(0, outputs - 1))), outputs, inputs


@settings(max_examples=60, deadline=None)
@given(relations())
def test_every_cell_says_whether_all_some_or_none_of_its_pairs_are_related(case):
    relation, outputs, inputs = case
    drawn = picture(Source(("x",), 1, inputs, relation), outputs)
    matrix = relation.matrix(outputs, inputs)
    height, width = drawn.cell
    assert max(len(drawn.rows), len(drawn.rows[0])) <= CELLS
    for y, row in enumerate(drawn.rows):
        for x, mark in enumerate(row):
            block = [
                pair for line in matrix[y * height : (y + 1) * height] for pair in line[x * width : (x + 1) * width]
            ]
            assert mark == ("#" if all(block) else "+" if any(block) else "."), (y, x)


@pytest.mark.parametrize(
    ("relation", "rows"),
    [
        (Relation("all"), ("####", "####", "####")),
        (Relation("all", limit=2), ("##..", "##..", "##..")),
        (Relation("same_position"), ("#...", ".#..", "..#.")),
        (Relation("prefix"), ("#...", "##..", "###.")),
        (Relation("prefix", first_position=1), ("....", "##..", "###.")),
        (Relation("none"), ("....", "....", "....")),
    ],
)
def test_small_pictures_by_hand(relation, rows):
    assert picture(Source(("x",), 1, 4, relation), 3).rows == rows


def test_a_run_of_cells_is_one_rectangle():
    drawn = picture(Source(("x",), 1, 4, Relation("prefix")), 3)
    assert drawn.outline("#") == "M0 0h1v1H0zM0 1h2v1H0zM0 2h3v1H0z"
    assert drawn.outline("+") == ""


def complete(kind):
    return TokenDependencies("complete", (Source(("query",), 1, 4, Relation(kind)),), Output(1, 4), ("a",), "m")


def test_calls_with_the_same_relations_share_a_card_and_unknown_ones_have_no_picture():
    rows = [
        layer("", "Model"),
        layer("a", "Attention", token_dependencies=TokenDependencies("unavailable", reason="padding_mask")),
        layer("b", "Attention", token_dependencies=complete("all")),
        layer("c", "Layer", token_dependencies=complete("all")),
        layer("d", "Attention", token_dependencies=complete("prefix")),
    ]
    full, causal, open_ = token_cards(rows)
    assert (full.types, full.paths, full.calls, len(full.pictures)) == (("Attention", "Layer"), ("b", "c"), 2, 1)
    assert causal.paths == ("d",)
    assert (open_.pictures, open_.reason) == ((), "padding_mask")
