"""`Linear` and `Bilinear` against a scalar interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, random, reasons, same_numbers

small = st.integers(1, 3)


@settings(max_examples=40, deadline=None)
@given(lead=st.lists(small, max_size=2), width=st.integers(0, 3), out=small, bias=st.booleans())
def test_linear(lead, width, out, bias):
    layer = nn.Linear(max(width, 1), out, bias=bias).double().eval()
    if not width:
        layer.weight = nn.Parameter(torch.empty(out, 0, dtype=torch.float64))
    x = random(*lead, width)
    machine = Machine()
    weight = layer.weight.detach().numpy()
    rows = x.numpy().reshape(-1, width) if width else np.zeros((int(np.prod(lead)), 0))
    y = np.array([[machine.dot(row, column) for column in weight] for row in rows])
    parameters = [weight]
    if bias:
        parameters.append(layer.bias.detach().numpy())
        y = np.array([[machine.add(value, b) for value, b in zip(row, parameters[1], strict=True)] for row in y])
    machine.stage([x.numpy(), *parameters], y)
    same_numbers(layer(x), y.reshape(*lead, out))
    assert counts(layer, x) == machine.counts


@settings(max_examples=40, deadline=None)
@given(lead=st.lists(small, min_size=1, max_size=2), in1=small, in2=small, out=small, bias=st.booleans())
def test_bilinear(lead, in1, in2, out, bias):
    layer = nn.Bilinear(in1, in2, out, bias=bias).double().eval()
    x1, x2 = random(*lead, in1), random(*lead, in2)
    machine = Machine()
    weight = layer.weight.detach().numpy()
    rows = list(zip(x1.numpy().reshape(-1, in1), x2.numpy().reshape(-1, in2), strict=True))
    inner = np.array([[[machine.dot(a, weight[o, :, j]) for j in range(in2)] for o in range(out)] for a, _ in rows])
    machine.stage([x1.numpy(), weight], inner)
    y = np.array([[machine.dot(t[o], b) for o in range(out)] for t, (_, b) in zip(inner, rows, strict=True)])
    second = [inner, x2.numpy()]
    if bias:
        second.append(layer.bias.detach().numpy())
        y = np.array([[machine.add(value, b) for value, b in zip(row, second[2], strict=True)] for row in y])
    machine.stage(second, y)
    same_numbers(layer(x1, x2), y.reshape(*lead, out))
    assert counts(layer, x1, x2) == machine.counts


def test_a_call_by_keyword_is_the_same_call():
    assert counts(nn.Linear(4, 2), input=torch.ones(3, 4)) == (48, 24, 28)
    assert counts(nn.Bilinear(2, 3, 2), torch.ones(2, 2), input2=torch.ones(2, 3)) == (60, 36, 52)


def test_the_sizes_are_those_of_the_tensors():
    layer = nn.Linear(4, 2)
    layer.weight = nn.Parameter(torch.ones(1, 4))  # cut by hand; the attributes still say 2
    layer.bias = nn.Parameter(torch.ones(1))
    # 3 dot products of 4 terms and 3 biases; 3*4; 12 + 5 + 3
    assert counts(layer, torch.ones(3, 4)) == (24, 12, 20)


def test_an_empty_batch_is_nothing():
    assert counts(nn.Linear(4, 2), torch.ones(0, 4)) == (0, 0, 0)
    assert counts(nn.Bilinear(2, 3, 2), torch.ones(0, 2), torch.ones(0, 3)) == (0, 0, 0)


def test_lazy_linear_is_linear_once_it_ran():
    layer = nn.LazyLinear(2)
    layer(torch.ones(3, 4))
    assert counts(layer, torch.ones(3, 4)) == (48, 24, 28)


def test_a_weight_without_two_axes_is_refused():
    layer = nn.Linear(4, 2, bias=False).eval()
    layer.weight = nn.Parameter(torch.ones(4))
    assert reasons(layer, torch.ones(3, 4)) == {"weight_shape"}


@pytest.mark.parametrize("bias", [True, False])
def test_the_output_projection_of_attention_is_a_linear(bias):
    layer = nn.MultiheadAttention(4, 2, bias=bias).out_proj
    # as Linear(4, 4) on 3 rows: 12*7 (+ 12); 48; 12 + 16 (+ 4) + 12
    expected = (96, 48, 44) if bias else (84, 48, 40)
    assert counts(layer, torch.ones(3, 4)) == expected
