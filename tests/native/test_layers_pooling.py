"""Pooling against a scalar interpreter."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, random, reasons, same_numbers

examples = settings(max_examples=40, deadline=None)


@st.composite
def pools(draw, *, dilated, padded=True):
    n = draw(st.sampled_from([1, 2, 2, 3]))

    def per_axis(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(n))

    kernel = per_axis(1, 3)
    arguments = {"kernel_size": kernel, "stride": per_axis(1, 3)}
    if padded:
        arguments["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    if dilated:
        arguments["dilation"] = per_axis(1, 2)
    batch = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))  # channels, with or without a batch
    return n, arguments, (*batch, *per_axis(2, 4))


def windows(planes, kernel, stride, dilation, lengths):
    """Yield (place of the output, values of its window) over a padded array."""
    n = len(kernel)
    for place in np.ndindex(*planes.shape[:-n], *lengths):
        lead, position = place[:-n], place[-n:]
        values = []
        for tap in itertools.product(*map(range, kernel)):
            at = tuple(p * s + t * d for p, s, t, d in zip(position, stride, tap, dilation, strict=True))
            values.append(planes[lead + at])
        yield place, values


@examples
@given(drawn=pools(dilated=True), with_indices=st.booleans())
def test_max_pool(drawn, with_indices):
    n, arguments, shape = drawn
    layer = getattr(nn, f"MaxPool{n}d")(**arguments, return_indices=with_indices)
    x = random(*shape)
    try:
        y = layer(x)
    except RuntimeError:
        assume(False)  # the window does not fit
    pooled = y[0] if with_indices else y
    machine = Machine()
    padded = np.pad(
        x.numpy(),
        [(0, 0)] * (len(shape) - n) + [(p, p) for p in arguments["padding"]],
        constant_values=-math.inf,
    )
    computed = np.empty(pooled.shape)
    lengths = pooled.shape[-n:]
    for place, values in windows(padded, arguments["kernel_size"], arguments["stride"], arguments["dilation"], lengths):
        computed[place] = machine.largest(values)
    machine.stage([x.numpy()], computed)
    if with_indices:
        machine.stage([], y[1].numpy())
    same_numbers(pooled, computed)
    assert counts(layer, x) == machine.counts


@examples
@given(drawn=pools(dilated=False))
def test_average_pool(drawn):
    n, arguments, shape = drawn
    layer = getattr(nn, f"AvgPool{n}d")(**arguments)
    x = random(*shape)
    try:
        y = layer(x)
    except RuntimeError:
        assume(False)
    machine = Machine()
    padded = np.pad(x.numpy(), [(0, 0)] * (len(shape) - n) + [(p, p) for p in arguments["padding"]])
    computed = np.empty(y.shape)
    size = math.prod(arguments["kernel_size"])
    for place, values in windows(padded, arguments["kernel_size"], arguments["stride"], (1,) * n, y.shape[-n:]):
        computed[place] = machine.div(machine.sum(values), size)
    machine.stage([x.numpy()], computed)
    same_numbers(y, computed)
    assert counts(layer, x) == machine.counts


@examples
@given(drawn=pools(dilated=False, padded=False), norm=st.sampled_from([1, 2, 3, 4.0, 2.5]))
def test_lp_pool(drawn, norm):
    n, arguments, shape = drawn
    layer = getattr(nn, f"LPPool{n}d")(norm, **(arguments if n > 1 else {k: v[0] for k, v in arguments.items()}))
    x = random(*shape).abs() + 0.1
    try:
        y = layer(x)
    except RuntimeError:
        assume(False)
    machine = Machine()
    values = x.numpy()

    def power(v):
        if norm != int(norm):
            return machine.exp(machine.mul(norm, machine.log(v)))
        out = v
        for _ in range(int(norm) - 1):
            out = machine.mul(out, v)
        return out

    def root(v):
        return machine.sqrt(v) if norm == 2 else machine.exp(machine.mul(1 / norm, machine.log(v)))

    if norm != 1:
        values = machine.map(power, values)
    sums = np.empty(y.shape)
    for place, window in windows(values, arguments["kernel_size"], arguments["stride"], (1,) * n, y.shape[-n:]):
        sums[place] = machine.sum(window)
    machine.stage([values], sums)
    computed = machine.map(root, sums) if norm != 1 else sums
    same_numbers(y, computed)
    assert counts(layer, x) == machine.counts


@examples
@given(data=st.data(), kind=st.sampled_from(["Max", "Avg"]), with_indices=st.booleans())
def test_adaptive_pool(data, kind, with_indices):
    n = data.draw(st.sampled_from([1, 2, 2, 3]))
    lengths = [data.draw(st.integers(1, 6)) for _ in range(n)]
    targets = [data.draw(st.integers(1, 5)) for _ in range(n)]
    asked = [None if n > 1 and data.draw(st.booleans()) else target for target in targets]
    shape = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)) + lengths
    options = {"return_indices": with_indices} if kind == "Max" else {}
    layer = getattr(nn, f"Adaptive{kind}Pool{n}d")(asked[0] if n == 1 else tuple(asked), **options)
    x = random(*shape)
    y = layer(x)
    pooled = y[0] if kind == "Max" and with_indices else y
    machine = Machine()
    computed = np.empty(pooled.shape)
    for place in np.ndindex(*pooled.shape):
        spans = []
        for axis in range(n):
            length, count, i = lengths[axis], pooled.shape[-n:][axis], place[-n:][axis]
            spans.append(slice(i * length // count, -(-(i + 1) * length // count)))
        window = list(x.numpy()[place[:-n]][tuple(spans)].ravel())
        computed[place] = machine.largest(window) if kind == "Max" else machine.div(machine.sum(window), len(window))
    machine.stage([x.numpy()], computed)
    if pooled is not y:
        machine.stage([], y[1].numpy())
    same_numbers(pooled, computed)
    assert counts(layer, x) == machine.counts


def test_a_number_stands_for_every_axis():
    x = torch.ones(1, 1, 4, 4)
    assert counts(nn.MaxPool2d(2), x) == counts(nn.MaxPool2d((2, 2)), x) == counts(nn.MaxPool2d((2,)), x)
    # 1 window of 2*2*2: 7 comparisons; 8 + 1
    assert counts(nn.MaxPool3d(2), torch.ones(1, 2, 2, 2)) == (7, 0, 9)


def test_edges_count_as_full_windows():
    # rounding up keeps a third window of one value: 3 outputs of 2; 5 + 3
    assert counts(nn.MaxPool1d(2, ceil_mode=True), torch.ones(1, 5)) == (3, 0, 8)
    assert counts(nn.AvgPool1d(2, ceil_mode=True), torch.ones(1, 5)) == (6, 0, 8)
    x = torch.ones(1, 1, 4, 4)
    # 3*3 outputs of 4: the divisor is a constant whatever it is; 16 + 9
    for options in ({"count_include_pad": False}, {"divisor_override": 3}):
        assert counts(nn.AvgPool2d(2, padding=1, **options), x) == (36, 0, 25)


def test_fractional_pool():
    x = torch.rand(1, 2, 5, 5)
    # 2*2*2 outputs of 3*2 values: 8*5; 50 + 8 (+ 8 indices)
    assert counts(nn.FractionalMaxPool2d((3, 2), output_size=2), x) == (40, 0, 58)
    assert counts(nn.FractionalMaxPool2d((3, 2), output_size=2, return_indices=True), x) == (40, 0, 66)
    # and a tensor of samples the caller stored: 1*2*2
    samples = torch.rand(1, 2, 2)
    assert counts(nn.FractionalMaxPool2d((3, 2), output_size=2, _random_samples=samples), x) == (40, 0, 62)
    # 1 output of 8 values; 27 + 1
    assert counts(nn.FractionalMaxPool3d(2, output_size=1), torch.rand(1, 1, 3, 3, 3)) == (7, 0, 28)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_unpool(n):
    x = torch.rand(1, 2, *(4,) * n)
    values, places = getattr(nn, f"MaxPool{n}d")(2, return_indices=True)(x)
    unpool = getattr(nn, f"MaxUnpool{n}d")(2)
    # values and indices read, the plane written
    assert counts(unpool, values, places) == (0, 0, 2 * 2 * 2**n + 2 * 4**n)
    # one element more per axis, as asked
    assert counts(unpool, values, places, output_size=(5,) * n) == (0, 0, 2 * 2 * 2**n + 2 * 5**n)


@pytest.mark.parametrize("norm", [-2, math.inf])
def test_a_norm_without_a_rule(norm):
    assert reasons(nn.LPPool1d(norm, 2), torch.ones(1, 1, 4)) == {"norm_type"}


def test_an_empty_batch_is_nothing():
    x = torch.ones(0, 1, 4, 4)
    for layer in (
        nn.MaxPool2d(2),
        nn.AvgPool2d(2),
        nn.LPPool2d(2, 2),
        nn.AdaptiveAvgPool2d(2),
        nn.AdaptiveMaxPool2d(2),
    ):
        assert counts(layer, x) == (0, 0, 0)
