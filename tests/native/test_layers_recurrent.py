"""Recurrent layers and cells against a scalar interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from native.layers_support import Machine, counts, each, random, reasons, same_numbers

examples = settings(max_examples=30, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


def project(machine, x, weight, bias):
    """Multiply every row of `x` by a weight, in one stage."""
    out = np.array([[machine.dot(row, column) for column in weight] for row in x])
    operands = [x, weight]
    if bias is not None:
        out = each(machine.add, out, bias[None])
        operands.append(bias)
    machine.stage(operands, out)
    return out


def step(machine, kind, gates, h, c, weights):
    """Return the state after one step; `gates` is the step's share of the input projection."""
    mine = project(machine, h, weights["hh"], weights["b_hh"])
    if kind in ("tanh", "relu"):
        total = machine.map(machine.add, gates, mine)
        return machine.map(machine.tanh if kind == "tanh" else lambda v: machine.max(v, 0.0), total), c
    if kind == "LSTM":
        total = machine.map(machine.add, gates, mine)
        i, f, g, o = np.split(total, 4, axis=1)
        active = [each(machine.sigmoid, i), each(machine.sigmoid, f), each(machine.tanh, g), each(machine.sigmoid, o)]
        machine.stage([total], np.concatenate(active, 1))
        i, f, g, o = active
        c = machine.map(lambda f, c, i, g: machine.add(machine.mul(f, c), machine.mul(i, g)), f, c, i, g)
        return machine.map(machine.mul, o, machine.map(machine.tanh, c)), c
    (ri, zi, ni), (rh, zh, nh) = np.split(gates, 3, axis=1), np.split(mine, 3, axis=1)
    both = machine.map(machine.add, np.concatenate([ri, zi], 1), np.concatenate([rh, zh], 1))
    r, z = np.split(machine.map(machine.sigmoid, both), 2, axis=1)
    candidate = machine.map(machine.add, ni, machine.map(machine.mul, r, nh))
    n = machine.map(machine.tanh, candidate)

    def update(z, n, h):
        return machine.add(machine.mul(machine.sub(1.0, z), n), machine.mul(z, h))

    return machine.map(update, z, n, h), c


def run(machine, kind, x, weights, hidden, reverse):
    """Run one layer in one direction over a (steps, batch, width) array."""
    steps, batch, width = x.shape
    projected = project(machine, x.reshape(-1, width), weights["ih"], weights["b_ih"]).reshape(steps, batch, -1)
    h = np.zeros((batch, weights["hh"].shape[1]))
    c = np.zeros((batch, hidden))
    outputs = []
    for t in reversed(range(steps)) if reverse else range(steps):
        h, c = step(machine, kind, projected[t], h, c, weights)
        if weights["hr"] is not None:
            h = project(machine, h, weights["hr"], None)
        outputs.append(h)
    return np.stack(outputs[::-1] if reverse else outputs)


def weights_of(layer, suffix):
    found = {}
    for short, name in {
        "ih": "weight_ih",
        "hh": "weight_hh",
        "b_ih": "bias_ih",
        "b_hh": "bias_hh",
        "hr": "weight_hr",
    }.items():
        parameter = getattr(layer, name + suffix, None)
        found[short] = None if parameter is None else parameter.detach().numpy()
    return found


@examples
@given(data=st.data(), kind=st.sampled_from(["tanh", "relu", "LSTM", "GRU"]))
def test_layers(data, kind):
    small = st.integers(1, 2)
    steps, batch, width, layers = (data.draw(small) for _ in range(4))
    hidden = data.draw(st.integers(2, 3))
    options = {
        "num_layers": layers,
        "bias": data.draw(st.booleans()),
        "bidirectional": data.draw(st.booleans()),
        "batch_first": data.draw(st.booleans()),
    }
    if kind == "LSTM" and data.draw(st.booleans()):
        options["proj_size"] = 1
    build = {"LSTM": nn.LSTM, "GRU": nn.GRU}.get(kind)
    layer = build(width, hidden, **options) if build else nn.RNN(width, hidden, nonlinearity=kind, **options)
    layer = layer.double().eval()
    x = random(steps, batch, width)
    machine = Machine()
    values = x.numpy()
    for number in range(layers):
        directions = ["", "_reverse"] if options["bidirectional"] else [""]
        outputs = [run(machine, kind, values, weights_of(layer, f"_l{number}{d}"), hidden, bool(d)) for d in directions]
        values = np.concatenate(outputs, 2)
    if options["batch_first"]:
        same_numbers(layer(x.transpose(0, 1))[0].transpose(0, 1), values)
        assert counts(layer, x.transpose(0, 1)) == machine.counts
    else:
        same_numbers(layer(x)[0], values)
        assert counts(layer, x) == machine.counts
    if batch == 1:
        assert counts(layer, x[:, 0]) == machine.counts


@examples
@given(data=st.data(), kind=st.sampled_from(["tanh", "relu", "LSTM", "GRU"]))
def test_cells(data, kind):
    batch, width, hidden = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    bias = data.draw(st.booleans())
    build = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell}.get(kind)
    cell = build(width, hidden, bias=bias) if build else nn.RNNCell(width, hidden, bias=bias, nonlinearity=kind)
    cell = cell.double().eval()
    x = random(batch, width)
    machine = Machine()
    values = run(machine, kind, x.numpy()[None], weights_of(cell, ""), hidden, False)[0]
    output = cell(x)
    same_numbers(output[0] if kind == "LSTM" else output, values)
    assert counts(cell, x) == machine.counts


def test_a_given_state_changes_nothing():
    x, h = torch.ones(2, 1, 2), torch.ones(1, 1, 3)
    assert counts(nn.GRU(2, 3), x, h) == counts(nn.GRU(2, 3), x)
    assert counts(nn.LSTM(2, 3), x, (h, h)) == counts(nn.LSTM(2, 3), x)


def test_twice_the_steps_is_twice_the_matrices():
    layer = nn.GRU(3, 2)
    short, long = counts(layer, torch.ones(10, 1, 3)), counts(layer, torch.ones(100, 1, 3))
    assert long[0] == 10 * short[0]
    assert long[1] == 10 * short[1]
    # the input weights are read once: 18 + 6 elements less than ten times
    assert long[2] == 10 * short[2] - 9 * 24


def test_packed_sequences_are_refused():
    packed = pack_padded_sequence(torch.ones(3, 2, 2), torch.tensor([3, 1]))
    for layer in (nn.RNN(2, 3), nn.LSTM(2, 3), nn.GRU(2, 3)):
        assert reasons(layer.eval(), packed) == {"packed_sequence"}


def test_dropout_between_layers_in_training():
    x = torch.ones(2, 1, 2)
    assert reasons(nn.LSTM(2, 3, num_layers=2, dropout=0.5).train(), x) == {"training_mode"}
    layer = nn.LSTM(2, 3, num_layers=2)
    assert counts(nn.LSTM(2, 3, num_layers=2, dropout=0.5), x) == counts(layer, x)


def test_an_empty_batch_is_nothing():
    assert counts(nn.LSTM(2, 3), torch.ones(2, 0, 2)) == (0, 0, 0)
    assert counts(nn.GRUCell(2, 3), torch.ones(0, 2)) == (0, 0, 0)


def test_a_missing_bias_vector_is_refused():
    cell = nn.GRUCell(2, 3)
    cell.bias_hh = None
    assert reasons(cell.eval(), torch.ones(1, 2)) == {"weight_shape"}
