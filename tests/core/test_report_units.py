"""Numbers as a table shows them: rounded, never up where they are bounds, and with their state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchscan.contract.states import Complete, Partial, Unavailable
from torchscan.report import units


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1000, "1.00 k"),
        (1234, "1.23 k"),
        (12_345, "12.3 k"),
        (123_456, "123 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),  # rounds to 1000 k
        (999_999_999, "1.00 G"),
        (1_230_000_000, "1.23 G"),
        (2**53 + 1, "9.01 P"),
        (10**30, "1.00 Q"),
        (10**33, "1.00e33"),
        (10**400, "1.00e400"),
        (0.5, "0.5"),
        (1.25, "1.25"),
        (1234.5, "1.23 k"),
    ],
)
def test_si(number, expected):
    assert units.si(number) == expected


PREFIX = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24, "R": 27, "Q": 30}


def read_back(shown: str) -> int:
    digits, _, prefix = shown.partition(" ")
    whole, _, fraction = digits.partition(".")
    return int(whole + fraction) * 10 ** PREFIX[prefix] // 10 ** len(fraction)


@settings(max_examples=60)
@given(st.integers(0, 10**32))
def test_a_lower_bound_is_never_rounded_up(number):
    assert 0.99 * number <= read_back(units.si(number, down=True)) <= number
    assert abs(read_back(units.si(number)) - number) <= number // 190  # three digits: at most 0.5 %


@settings(max_examples=30)
@given(st.floats(0, 1000, exclude_max=True))
def test_a_small_fraction_is_never_rounded_up(number):
    assert float(units.si(number, down=True)) <= number


def test_states_without_colour():
    assert units.state(Complete(0)) == "0"
    assert units.state(Complete(1_200_000_000)) == "1.20 G"
    assert units.state(Partial(1_209_999_999)) == ">= 1.20 G"
    assert units.state(Partial(0)) == ">= 0"
    assert units.state(Unavailable("x")) == "?"
    assert units.state(Unavailable("not_applicable")) == "n/a"
    assert units.state(Partial(1_209_999_999), full=True) == ">= 1,209,999,999"
    assert [units.delta(number) for number in (0, 5, -1234)] == ["0", "+5", "-1.23 k"]
