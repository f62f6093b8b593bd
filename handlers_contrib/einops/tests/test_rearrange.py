"""Rearrange: a view is nothing, a copy is one stage, whatever the memory of the input looks like."""

from __future__ import annotations

import pytest
import torch
from einops.layers.torch import Rearrange
from einops_harness import counts, estimate
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import torchscan


# N elements: a view costs 0, a copy reads N and writes N.
@pytest.mark.parametrize(
    ("pattern", "lengths", "shape", "dmas"),
    [
        ("b c -> b c", {}, (2, 3), 0),
        ("b c h w -> b h w c", {}, (2, 3, 4, 5), 0),  # a permutation is a view
        ("b (h d) -> b h d", {"h": 2}, (3, 8), 0),  # so is a split
        ("b h w c -> b (h w) c", {}, (2, 3, 4, 5), 0),  # h and w are neighbours
        ("b c h w -> b c (h w)", {}, (2, 3, 4, 5), 0),
        ("b c h w -> (b c h w)", {}, (2, 3, 4, 5), 0),
        ("b c h w -> b (h w) c", {}, (2, 3, 4, 5), 0),  # (h w) still walks with one stride
        ("b c h w -> b (w h) c", {}, (2, 3, 4, 5), 240),  # 120 elements, w before h
        ("b c h w -> b (h w c)", {}, (2, 3, 4, 5), 240),
        ("b c h w -> b (h w c)", {}, (2, 1, 4, 5), 0),  # one channel: nothing to interleave
        ("b c h w -> (b h) (w c)", {}, (1, 3, 1, 1), 0),
        ("b h t d -> b t (h d)", {}, (2, 3, 4, 5), 240),  # the heads come together again
        ("b t (h d) -> b h t d", {"h": 2}, (2, 3, 8), 0),
        ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 2}, (1, 3, 4, 4), 96),  # 48 elements
        ("b c -> b 1 c", {}, (2, 3), 0),
        ("b 1 c -> b c", {}, (2, 1, 3), 0),
        ("b c -> b () c ()", {}, (2, 3), 0),
        ("... c -> c ...", {}, (2, 3, 4), 0),
        ("... c -> (...) c", {}, (2, 3, 4), 0),
        ("b ... c -> b (c ...)", {}, (2, 3, 4), 48),  # 24 elements
        ("b ... -> b (...)", {}, (2, 3, 4), 0),
        ("b c ... -> b c ...", {}, (2, 3), 0),  # an ellipsis of no axes
        ("a b -> b a", {}, (0, 3), 0),
        ("a b -> (b a)", {}, (0, 3), 0),
        (" -> 1 1", {}, (), 0),
    ],
)
def test_vectors(pattern, lengths, shape, dmas):
    assert counts(Rearrange(pattern, **lengths), torch.ones(shape)) == (0, 0, dmas)


@st.composite
def patterns(draw):
    """A random pattern with its lengths and the shape of its input."""
    names = draw(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=5, unique=True))
    sizes = {name: draw(st.sampled_from((1, 2, 3))) for name in names}

    def grouped(order):
        groups, rest = [], list(order)
        while rest:
            take = draw(st.integers(1, len(rest)))
            groups.append(rest[:take])
            rest = rest[take:]
        return groups

    left = grouped(names)
    right = grouped(draw(st.permutations(names)))
    ones = draw(st.integers(0, 2))
    for _ in range(ones):
        right.insert(draw(st.integers(0, len(right))), [])

    def text(groups):
        return " ".join(f"({' '.join(group)})" if len(group) != 1 else group[0] for group in groups)

    shape = []
    for group in left:
        size = 1
        for name in group:
            size *= sizes[name]
        shape.append(size)
    return f"{text(left)} -> {text(right)}", sizes, tuple(shape)


@settings(max_examples=60, deadline=None)
@given(patterns())
def test_a_row_major_input_is_copied_exactly_where_the_count_says_so(case):
    pattern, sizes, shape = case
    tensor = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    layer = Rearrange(pattern, **sizes)
    shared = layer(tensor).untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert counts(layer, tensor) == (0, 0, 0 if shared else 2 * tensor.numel())


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(patterns())
def test_a_row_major_input_is_copied_exactly_where_the_count_says_so_at_length(case):
    test_a_row_major_input_is_copied_exactly_where_the_count_says_so.hypothesis.inner_test(case)


@pytest.mark.parametrize("pattern", ["b c h w -> b (h w c)", "b c h w -> b h w c", "b c h w -> b c (h w)"])
def test_memory_format_and_device_change_nothing(pattern):
    layer = Rearrange(pattern)
    plain = torch.ones(2, 3, 4, 5)
    expected = counts(layer, plain)
    assert counts(layer, plain.to(memory_format=torch.channels_last)) == expected
    assert counts(layer, torch.ones(4, 5, 2, 3).permute(2, 3, 0, 1)) == expected
    assert counts(layer, plain.to("meta")) == expected
    with FakeTensorMode():
        assert counts(layer, torch.ones(2, 3, 4, 5)) == expected


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float64, torch.complex64])
def test_elements_are_moved_whatever_they_are(dtype):
    assert counts(Rearrange("a b -> (b a)"), torch.ones(2, 3).to(dtype)) == (0, 0, 12)


def test_spatial_scalars_have_no_meaning():
    found = estimate(Rearrange("a b -> b a"), torch.ones(2, 3))
    for name in ("receptive_field", "effective_stride", "effective_padding"):
        assert found[name] is torchscan.NOT_APPLICABLE
