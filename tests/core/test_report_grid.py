"""Aligned columns: what is kept, cut and left out where there is no room."""

from __future__ import annotations

from torchscan.report.grid import Column, grid


def lines(*columns: Column, width: int | None = None) -> list[str]:
    return grid(columns, width, color=False, ellipsis="~")[0]


def test_two_columns_of_one_title_have_their_own_widths():
    assert lines(Column("n", ["12345678"], right=True), Column("n", ["1"])) == ["       n  n", "12345678  1"]


def test_the_widest_gives_first_and_none_more_than_it_can():
    wide, narrow = Column("a", ["x" * 12], minimum=4), Column("b", ["y" * 6], minimum=4)
    # 12 + 2 + 6 = 20; the first gives what is missing
    assert lines(wide, narrow, width=17)[1] == "xxxxxxxx~  yyyyyy"
    # then both, one after the other, down to their minimum
    assert lines(wide, narrow, width=10)[1] == "xxx~  yyy~"
    assert lines(wide, narrow, width=5)[1] == "xxx~  yyy~"


def test_a_column_of_the_highest_rank_is_left_out_first():
    columns = (Column("a", ["1234"]), Column("b", ["1234"], rank=1), Column("c", ["1234"], rank=2))
    kept, width, dropped = grid(columns, 11, color=False, ellipsis="~")
    assert (kept, width, dropped) == (["a     b", "1234  1234"], 10, ["c"])
