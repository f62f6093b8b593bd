"""Convolutions and transposed convolutions against a scalar interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, random, same_numbers

_CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "zeros": "constant"}


@st.composite
def convolutions(draw, *, transposed=False):
    """Draw (constructor arguments, input shape with batch)."""
    n = draw(st.sampled_from([1, 2] if transposed else [1, 2, 2, 3]))

    def per_axis(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(n))

    groups = draw(st.integers(1, 2))
    arguments = {
        "in_channels": groups * draw(st.integers(1, 2)),
        "out_channels": groups * draw(st.integers(1, 2)),
        "kernel_size": per_axis(1, 3 if n == 1 else 2),
        "stride": per_axis(1, 2),
        "padding": per_axis(0, 1),
        "dilation": per_axis(1, 2),
        "groups": groups,
        "bias": draw(st.booleans()),
    }
    spatial = per_axis(1, 3) if transposed else per_axis(3, 5 if n == 1 else 4)
    return n, arguments, (draw(st.integers(1, 2)), arguments["in_channels"], *spatial)


def convolve(machine, layer, x, sides):
    """Convolve a padded operand tap by tap; returns the output."""
    weight = layer.weight.detach().numpy()
    kernel = weight.shape[2:]
    mode = _NUMPY_MODES[layer.padding_mode]
    padded = np.pad(x, [(0, 0), (0, 0), *sides], mode=mode)
    operand = x
    if layer.padding_mode != "zeros":
        machine.stage([x], padded)
        operand = padded
    per_group = weight.shape[1]
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, layer.dilation, strict=True)]
    lengths = [(length - span) // s + 1 for length, span, s in zip(padded.shape[2:], spans, layer.stride, strict=True)]
    y = np.zeros((x.shape[0], weight.shape[0], *lengths))
    for b, o, *position in np.ndindex(*y.shape):
        first = o // (weight.shape[0] // layer.groups) * per_group
        taps = list(itertools.product(range(per_group), *map(range, kernel)))
        places = [
            (
                b,
                first + c,
                *(p * s + t * d for p, s, t, d in zip(position, layer.stride, at, layer.dilation, strict=True)),
            )
            for c, *at in taps
        ]
        y[b, o, *position] = machine.dot([padded[place] for place in places], [weight[o][tuple(tap)] for tap in taps])
    return finish(machine, layer, operand, weight, y)


def finish(machine, layer, operand, weight, y):
    operands = [operand, weight]
    if layer.bias is not None:
        bias = layer.bias.detach().numpy()
        operands.append(bias)
        for at in np.ndindex(*y.shape):
            y[at] = machine.add(y[at], bias[at[1]])
    machine.stage(operands, y)
    return y


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
def test_convolution(drawn, mode):
    n, arguments, shape = drawn
    layer = _CONV[n](**arguments, padding_mode=mode).double().eval()
    x = random(*shape)
    try:
        y = layer(x)
    except RuntimeError:
        assume(False)  # the kernel does not fit
    machine = Machine()
    computed = convolve(machine, layer, x.numpy(), [(p, p) for p in layer.padding])
    same_numbers(y, computed)
    assert counts(layer, x) == machine.counts


@settings(max_examples=40, deadline=None)
@given(convolutions(transposed=True), st.booleans())
def test_transposed_convolution(drawn, with_output_size):
    n, arguments, shape = drawn
    layer = _TRANSPOSED[n](**arguments).double().eval()
    x = random(*shape)
    kwargs = {}
    try:
        y = layer(x)
        if with_output_size:
            kwargs["output_size"] = [length + s - 1 for length, s in zip(y.shape[2:], layer.stride, strict=True)]
            y = layer(x, **kwargs)
    except RuntimeError:
        assume(False)  # nothing is left after cropping
    machine = Machine()
    weight = layer.weight.detach().numpy()
    kernel, per_group = weight.shape[2:], weight.shape[1]
    whole = [
        (length - 1) * s + d * (k - 1) + 1 + 4
        for length, s, d, k in zip(x.shape[2:], layer.stride, layer.dilation, kernel, strict=True)
    ]
    scattered = np.zeros((x.shape[0], per_group * layer.groups, *whole))
    values = x.numpy()
    for b, i, *position in np.ndindex(*x.shape):
        first = i // (x.shape[1] // layer.groups) * per_group
        for c, *tap in itertools.product(range(per_group), *map(range, kernel)):
            place = [p * s + t * d for p, s, t, d in zip(position, layer.stride, tap, layer.dilation, strict=True)]
            target = (b, first + c, *place)
            product = machine.term(values[(b, i, *position)], weight[(i, c, *tap)])
            scattered[target] = machine.add(scattered[target], product)
    crop = tuple(slice(p, p + length) for p, length in zip(layer.padding, y.shape[2:], strict=True))
    computed = finish(machine, layer, values, weight, scattered[(slice(None), slice(None), *crop)].copy())
    same_numbers(y, computed)
    assert counts(layer, x, **kwargs) == machine.counts


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 1), (2, 1), (2, 3), (1, 1)])
def test_padding_by_name(kernel, dilation):
    x = random(1, 2, 7)
    same = nn.Conv1d(2, 3, kernel, dilation=dilation, padding="same").double().eval()
    total = dilation * (kernel - 1)
    machine = Machine()
    computed = convolve(machine, same, x.numpy(), [(total // 2, total - total // 2)])
    same_numbers(same(x), computed)
    assert counts(same, x) == machine.counts
    valid = nn.Conv1d(2, 3, kernel, dilation=dilation, padding="valid").double().eval()
    machine = Machine()
    same_numbers(valid(x), convolve(machine, valid, x.numpy(), [(0, 0)]))
    assert counts(valid, x) == machine.counts


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("table", [_CONV, _TRANSPOSED])
def test_without_a_batch_axis(table, n):
    layer = table[n](4, 6, 2, groups=2)
    x = torch.ones(4, *(5, 4, 3)[:n])
    assert counts(layer, x) == counts(layer, x[None])


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_a_lazy_layer_is_the_plain_one_once_it_ran(kind, n):
    x = torch.ones(1, 2, *(3,) * n)
    layer = getattr(nn, f"Lazy{kind}{n}d")(3, 2)
    layer(x)
    assert "Lazy" not in type(layer).__name__
    plain = type(layer)(2, 3, 2)
    assert counts(layer, x) == counts(plain, x)
    assert counts(plain, x)[1] > 0


def test_an_empty_batch_is_nothing():
    assert counts(nn.Conv2d(1, 1, 3), torch.ones(0, 1, 4, 4)) == (0, 0, 0)
    assert counts(nn.ConvTranspose2d(1, 1, 3), torch.ones(0, 1, 4, 4)) == (0, 0, 0)


def test_an_attribute_changed_by_hand():
    layer = nn.Conv2d(1, 1, 3)
    layer.weight = nn.Parameter(torch.ones(1, 1, 2, 2))  # the kernel_size attribute still says 3
    layer.stride = 2
    # (4-2)/2+1 = 2: 4 outputs of 4 terms and a bias: 4*7 + 4; 16; 16 + 5 + 4
    assert counts(layer, torch.ones(1, 1, 4, 4)) == (32, 16, 25)
