"""Activations and the softmax family against a scalar interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, each, logsigmoid, random, reasons, same_numbers, softmax

examples = settings(max_examples=40, deadline=None)
shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def elu(m, x, alpha, *, divide=False):
    inner = m.min(0.0, x)
    if divide:
        inner = m.div(inner, alpha)
    # max(0, x) + min(0, alpha * (exp(x) - 1)); the exponential of a positive x is cut by the minimum
    return m.add(m.max(0.0, x), m.mul(alpha, m.sub(m.exp(inner), 1.0)))


def hardsigmoid(m, x):
    return m.div(m.min(m.max(m.add(x, 3.0), 0.0), 6.0), 6.0)


def sloped(m, x, slope):
    return m.add(m.max(0.0, x), m.mul(slope, m.min(0.0, x)))


def gelu(m, x):
    return m.mul(m.mul(0.5, x), m.add(1.0, m.erf(m.mul(x, 1 / math.sqrt(2)))))


def gelu_tanh(m, x):
    cube = m.mul(m.mul(x, x), x)
    inner = m.mul(math.sqrt(2 / math.pi), m.add(x, m.mul(0.044715, cube)))
    return m.mul(m.mul(0.5, x), m.add(1.0, m.tanh(inner)))


def softplus(m, x, beta, threshold):
    scaled = m.mul(x, beta)
    smooth = m.div(m.log(m.add(1.0, m.exp(scaled))), beta)
    return m.select(m.less(threshold, scaled), x, smooth)


def mish(m, x):
    return m.mul(x, m.tanh(m.log(m.add(1.0, m.exp(x)))))


ACTIVATIONS = {
    "ReLU": (nn.ReLU, lambda m, x: m.max(0.0, x)),
    "ReLU6": (nn.ReLU6, lambda m, x: m.min(m.max(x, 0.0), 6.0)),
    "Hardtanh": (nn.Hardtanh, lambda m, x: m.min(m.max(x, -1.0), 1.0)),
    "Threshold": (lambda: nn.Threshold(0.1, 20.0), lambda m, x: m.select(m.less(0.1, x), x, 20.0)),
    "Softsign": (nn.Softsign, lambda m, x: m.div(x, m.add(1.0, m.abs(x)))),
    "Hardshrink": (nn.Hardshrink, lambda m, x: m.select(m.less(0.5, m.abs(x)), x, 0.0)),
    "Sigmoid": (nn.Sigmoid, lambda m, x: m.sigmoid(x)),
    "LeakyReLU": (nn.LeakyReLU, lambda m, x: sloped(m, x, 0.01)),
    "RReLU": (nn.RReLU, lambda m, x: sloped(m, x, (1 / 8 + 1 / 3) / 2)),
    "Hardsigmoid": (nn.Hardsigmoid, hardsigmoid),
    "SiLU": (nn.SiLU, lambda m, x: m.mul(x, m.sigmoid(x))),
    "GELU": (nn.GELU, gelu),
    "GELU (tanh)": (lambda: nn.GELU(approximate="tanh"), gelu_tanh),
    "Hardswish": (nn.Hardswish, lambda m, x: m.mul(x, hardsigmoid(m, x))),
    "Softshrink": (
        nn.Softshrink,
        lambda m, x: m.add(m.max(m.sub(x, 0.5), 0.0), m.min(m.add(x, 0.5), 0.0)),
    ),
    "Tanh": (nn.Tanh, lambda m, x: m.tanh(x)),
    "ELU": (lambda: nn.ELU(0.7), lambda m, x: elu(m, x, 0.7)),
    "CELU": (lambda: nn.CELU(0.7), lambda m, x: elu(m, x, 0.7, divide=True)),
    "SELU": (
        nn.SELU,
        lambda m, x: m.mul(1.0507009873554805, elu(m, x, 1.6732632423543772)),
    ),
    "LogSigmoid": (nn.LogSigmoid, logsigmoid),
    "Softplus": (lambda: nn.Softplus(2.0, 3.0), lambda m, x: softplus(m, x, 2.0, 3.0)),
    "Tanhshrink": (nn.Tanhshrink, lambda m, x: m.sub(x, m.tanh(x))),
    "Mish": (nn.Mish, mish),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=15, deadline=None)
@given(shape=shapes)
def test_activation(name, shape):
    build, scalar = ACTIVATIONS[name]
    x = random(*shape) * 3
    machine = Machine()
    y = machine.map(lambda v: scalar(machine, v), x.numpy())
    same_numbers(build().eval()(x), y)
    assert counts(build(), x) == machine.counts


@pytest.mark.parametrize("name", [n for n, (b, _) in ACTIVATIONS.items() if hasattr(b(), "inplace")])
def test_in_place_counts_the_same(name):
    build, _ = ACTIVATIONS[name]
    written_over = build()
    written_over.inplace = True
    x = random(2, 3)
    assert counts(written_over, x.clone()) == counts(build(), x)


@examples
@given(shape=shapes, channels=st.booleans())
def test_prelu(shape, channels):
    slopes = shape[1] if channels and len(shape) > 1 else 1
    layer = nn.PReLU(slopes).double().eval()
    x = random(*shape)
    machine = Machine()
    slope = layer.weight.detach().numpy()
    spread = slope.reshape(-1, *(1,) * (len(shape) - 2)) if slopes > 1 else slope
    y = each(lambda v, s: sloped(machine, v, s), x.numpy(), np.broadcast_to(spread, x.shape))
    machine.stage([x.numpy(), slope], y)
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(shape=shapes, data=st.data())
def test_glu(shape, data):
    dim = data.draw(st.integers(0, len(shape) - 1))
    shape[dim] *= 2
    x = random(*shape)
    machine = Machine()
    a, b = np.split(x.numpy(), 2, axis=dim)
    y = machine.map(lambda v, g: machine.mul(v, machine.sigmoid(g)), a, b)
    same_numbers(nn.GLU(dim)(x), y)
    assert counts(nn.GLU(dim), x) == machine.counts


@examples
@given(shape=shapes, kind=st.sampled_from(["Softmax", "LogSoftmax", "Softmin"]), data=st.data())
def test_softmax(shape, kind, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    layer = getattr(nn, kind)(dim)
    x = random(*shape)
    machine = Machine()
    values = x.numpy()
    if kind == "Softmin":
        values = machine.map(machine.neg, values)
    y = softmax(machine, values, dim, log=kind == "LogSoftmax")
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (3, 2, 1)])
def test_softmax2d(shape):
    x = random(*shape)
    machine = Machine()
    y = softmax(machine, x.numpy(), -3)
    same_numbers(nn.Softmax2d()(x), y)
    assert counts(nn.Softmax2d(), x) == machine.counts


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(("shape", "dim"), [((3,), 0), ((2, 3), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1)])
def test_without_a_dim_pytorch_picks_one(shape, dim):
    x = random(*shape)
    assert torch.equal(nn.Softmax()(x), nn.Softmax(dim)(x))
    assert counts(nn.Softmax(), x) == counts(nn.Softmax(dim), x)


def test_empty_calls():
    empty = torch.ones(0, 4)
    assert counts(nn.ReLU(), empty) == counts(nn.PReLU(), empty) == counts(nn.GLU(), empty) == (0, 0, 0)
    assert counts(nn.Softmax(1), empty) == counts(nn.LogSoftmax(1), empty) == counts(nn.Softmin(1), empty) == (0, 0, 0)
    assert reasons(nn.Softmax(0), empty) == {"empty_row"}
    # a number is a row of one element: 5 - 2; 8 + 4
    assert counts(nn.Softmax(0), torch.tensor(1.0)) == (3, 0, 12)


def test_training():
    assert reasons(nn.RReLU().train(), torch.ones(3)) == {"training_mode"}
    layer = nn.PReLU().train()
    assert counts(layer, torch.ones(8)) == (32, 0, 17)
