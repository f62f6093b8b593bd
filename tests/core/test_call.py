"""`ModuleCall.arguments`: the call bound to `forward`, as `inspect` binds it."""

from __future__ import annotations

import functools
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscan.contract.call import bind


class Forms:
    def plain(self, a, b=2): ...
    def keyword(self, a, *, c, d=4): ...
    def rest(self, a, b=2, **options): ...
    def many(self, *args, **kwargs): ...
    def positional(self, a, /, b): ...
    def nothing(self): ...

    @functools.wraps(plain)
    def wrapped(self, *args, **kwargs): ...


@pytest.mark.parametrize("name", ["plain", "keyword", "rest", "many", "positional", "nothing", "wrapped"])
@given(
    args=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    kwargs=st.dictionaries(st.sampled_from("abcdx"), st.integers(10, 19), max_size=3),
)
def test_it_binds_as_inspect_does(name, args, kwargs):
    method = getattr(Forms(), name)
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
        bound.apply_defaults()
        expected = dict(bound.arguments)
    except TypeError:
        with pytest.raises(TypeError):
            bind(method, args, kwargs)
    else:
        assert bind(method, args, kwargs) == expected
