"""Normalisation layers against a scalar interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, each, random, reasons, same_numbers
from torch_versions import before

small = st.integers(1, 3)
some = st.lists(small, min_size=1, max_size=2)
examples = settings(max_examples=40, deadline=None)


def affine(machine, y, weight, bias):
    """Scale and shift the last result; `weight` and `bias` are already spread over the elements of `y`."""
    if weight is None and bias is None:
        return y
    parameters = []
    if weight is not None:
        parameters.append(weight[0])
        y = each(machine.mul, y, weight[1])
        machine.macs += y.size
    if bias is not None:
        parameters.append(bias[0])
        y = each(machine.add, y, bias[1])
    machine.stage([y, *parameters], y)
    return y


def two_pass(machine, rows, eps):
    """Normalise each row of a (rows, elements) array."""
    count = rows.shape[1]
    mean = np.array([machine.div(machine.sum(row), count) for row in rows])
    machine.stage([rows], mean)
    variance = np.array(
        [
            machine.div(machine.sum([machine.square(machine.sub(v, m), mac=True) for v in row]), count)
            for row, m in zip(rows, mean, strict=True)
        ]
    )
    machine.stage([rows, mean], variance)
    roots = [machine.sqrt(machine.add(v, eps)) for v in variance]
    out = np.array(
        [[machine.div(machine.sub(v, m), s) for v in row] for row, m, s in zip(rows, mean, roots, strict=True)]
    )
    machine.stage([rows, mean, variance, eps], out)
    return out


def saved(machine, x, mean, variance, eps):
    """Normalise channel by channel with stored statistics; the channels are axis 1."""
    roots = [machine.sqrt(machine.add(v, eps)) for v in variance]
    out = np.empty_like(x)
    for at in np.ndindex(*x.shape):
        out[at] = machine.div(machine.sub(x[at], mean[at[1]]), roots[at[1]])
    machine.stage([x, mean, variance, eps], out)
    return out


def spread(parameter, shape):
    """Return a channel parameter and its value for every element of a (batch, channels, ...) array."""
    if parameter is None:
        return None
    values = parameter.detach().numpy()
    return values, np.broadcast_to(values.reshape(1, -1, *(1,) * (len(shape) - 2)), shape)


def randomise(layer):
    for tensor in [*layer.parameters(), *layer.buffers()]:
        if tensor.dtype.is_floating_point:
            tensor.data = tensor.data + torch.rand_like(tensor)
    return layer.double().eval()


@examples
@given(lead=some, shape=some, data=st.data())
def test_layer_norm(lead, shape, data):
    use_affine, use_bias = data.draw(st.booleans()), data.draw(st.booleans())
    layer = randomise(nn.LayerNorm(shape, elementwise_affine=use_affine, bias=use_bias))
    x = random(*lead, *shape)
    machine = Machine()
    rows = x.numpy().reshape(-1, math.prod(shape))
    y = two_pass(machine, rows, layer.eps).reshape(x.shape)
    weight, bias = (
        None if p is None else (p.detach().numpy(), np.broadcast_to(p.detach().numpy(), x.shape))
        for p in (layer.weight, layer.bias)
    )
    y = affine(machine, y, weight, bias)
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(
    lead=st.lists(small, min_size=1, max_size=2), shape=st.lists(small, min_size=1, max_size=2), weight=st.booleans()
)
def test_rms_norm(lead, shape, weight):
    layer = randomise(nn.RMSNorm(shape, eps=1e-3, elementwise_affine=weight))
    x = random(*lead, *shape)
    machine = Machine()
    rows = x.numpy().reshape(-1, math.prod(shape))
    squares = np.array([machine.div(machine.sum([machine.square(v, mac=True) for v in row]), len(row)) for row in rows])
    machine.stage([rows], squares)
    scales = np.array([machine._one(1 / math.sqrt(machine.add(v, layer.eps))) for v in squares])
    machine.stage([squares, layer.eps], scales)
    y = np.array([[machine.mul(v, s) for v in row] for row, s in zip(rows, scales, strict=True)]).reshape(x.shape)
    machine.stage([rows, scales], y)
    if weight:
        values = layer.weight.detach().numpy()
        y = affine(machine, y, (values, np.broadcast_to(values, x.shape)), None)
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(
    batch=st.integers(2, 3), groups=small, per_group=small, tail=st.lists(small, max_size=2), use_affine=st.booleans()
)
def test_group_norm(batch, groups, per_group, tail, use_affine):
    layer = randomise(nn.GroupNorm(groups, groups * per_group, affine=use_affine))
    x = random(batch, groups * per_group, *tail)
    machine = Machine()
    y = two_pass(machine, x.numpy().reshape(batch * groups, -1), layer.eps).reshape(x.shape)
    y = affine(machine, y, spread(layer.weight, x.shape), spread(layer.bias, x.shape))
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(batch=st.integers(2, 3), channels=small, tail=st.lists(small, max_size=3), data=st.data())
def test_batch_norm(batch, channels, tail, data):
    use_affine, track = data.draw(st.booleans()), data.draw(st.booleans())
    kind = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(tail)]
    if data.draw(st.booleans()):
        kind = nn.SyncBatchNorm
    layer = randomise(kind(channels, affine=use_affine, track_running_stats=track))
    x = random(batch, channels, *tail)
    machine = Machine()
    values = x.numpy()
    if track:
        y = saved(machine, values, layer.running_mean.numpy(), layer.running_var.numpy(), layer.eps)
    else:
        rows = np.moveaxis(values, 1, 0)
        y = np.moveaxis(two_pass(machine, rows.reshape(channels, -1), layer.eps).reshape(rows.shape), 0, 1)
    y = affine(machine, y, spread(layer.weight, x.shape), spread(layer.bias, x.shape))
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(
    batch=st.integers(0, 2), channels=small, tail=st.lists(st.integers(2, 3), min_size=1, max_size=2), data=st.data()
)
def test_instance_norm(batch, channels, tail, data):
    use_affine, track = data.draw(st.booleans()), data.draw(st.booleans())
    kind = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d}[len(tail)]
    layer = randomise(kind(channels, affine=use_affine, track_running_stats=track))
    x = random(batch, channels, *tail) if batch else random(channels, *tail)  # a batch of 0 here means no batch axis
    values = x.numpy().reshape(max(batch, 1), channels, *tail)
    machine = Machine()
    if track:
        y = saved(machine, values, layer.running_mean.numpy(), layer.running_var.numpy(), layer.eps)
    else:
        y = two_pass(machine, values.reshape(max(batch, 1) * channels, -1), layer.eps).reshape(values.shape)
    y = affine(machine, y, spread(layer.weight, values.shape), spread(layer.bias, values.shape)).reshape(x.shape)
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


@examples
@given(batch=small, channels=st.integers(1, 4), tail=st.lists(small, min_size=1, max_size=2), data=st.data())
def test_local_response_norm(batch, channels, tail, data):
    width = data.draw(st.integers(1, 3))
    beta = data.draw(st.sampled_from([0.75, 0.5, 1.0, 2.0, 3.0]))
    layer = nn.LocalResponseNorm(width, alpha=0.3, beta=beta, k=1.5).eval()
    x = random(batch, channels, *tail)
    machine = Machine()
    values = x.numpy()
    squares = each(lambda v: machine.square(v, mac=True), values)
    before, after = width // 2, (width - 1) // 2
    padded = np.pad(squares, [(0, 0), (before, after), *[(0, 0)] * len(tail)])
    sums = np.empty_like(values)
    for b, c, *at in np.ndindex(*values.shape):
        sums[(b, c, *at)] = machine.sum([padded[(b, c + offset, *at)] for offset in range(width)])
    machine.stage([values], sums)
    scale = layer.alpha / width  # constants alone cost nothing

    def finish(a, s):
        base = machine.add(machine.mul(s, scale), layer.k)
        if beta == 0.75:
            power = machine.exp(machine.mul(beta, machine.log(base)))
        elif beta == 0.5:
            power = machine.sqrt(base)
        else:
            power = base
            for _ in range(int(beta) - 1):
                power = machine.mul(power, base)
        return machine.div(a, power)

    y = machine.map(finish, values, sums)
    same_numbers(layer(x), y)
    assert counts(layer, x) == machine.counts


def test_the_buffers_decide_which_statistics_batch_norm_uses():
    layer = nn.BatchNorm1d(3).eval()
    layer.running_mean = layer.running_var = None  # the flag still says that they are tracked
    # batch statistics, N=24, R=3: 144 + 6 + 48; 48; 96 + 15 + 1 + 48 + 6
    assert counts(layer, torch.ones(2, 3, 4)) == (198, 48, 166)


def test_an_empty_batch_is_nothing_and_an_empty_row_is_unavailable():
    assert counts(nn.LayerNorm(4), torch.ones(0, 4)) == (0, 0, 0)
    assert counts(nn.RMSNorm(4), torch.ones(0, 4)) == (0, 0, 0)
    assert counts(nn.GroupNorm(1, 3), torch.ones(0, 3, 2)) == (0, 0, 0)
    assert counts(nn.BatchNorm1d(3), torch.ones(0, 3, 2)) == (0, 0, 0)
    assert counts(nn.InstanceNorm1d(3), torch.ones(0, 3, 2)) == (0, 0, 0)
    assert reasons(nn.LayerNorm(0).eval(), torch.ones(2, 0)) == {"empty_row"}
    assert reasons(nn.RMSNorm(0).eval(), torch.ones(2, 0)) == {"empty_row"}
    if before("2.14"):  # which refuses such a call itself
        assert reasons(nn.GroupNorm(1, 3).eval(), torch.ones(2, 3, 0)) == {"empty_row"}
    # the rows of batch statistics are the channels: they are there, and empty
    untracked = nn.BatchNorm1d(3, track_running_stats=False).eval()
    assert reasons(untracked, torch.ones(0, 3, 2)) == {"empty_row"}


def test_training_changes_the_statistics():
    x = torch.ones(2, 3, 4)
    assert reasons(nn.BatchNorm1d(3).train(), x) == {"training_mode"}
    assert reasons(nn.InstanceNorm1d(3, track_running_stats=True).train(), x) == {"training_mode"}
    # without stored statistics training is the same call: 144 + 12, 24, 96 + 30 + 1
    layer = nn.InstanceNorm1d(3)
    assert counts(layer, x) == (156, 24, 127)


def test_an_exponent_without_a_rule():
    assert reasons(nn.LocalResponseNorm(2, beta=-1.0).eval(), torch.ones(1, 2, 3)) == {"exponent"}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["BatchNorm", "InstanceNorm"])
def test_a_lazy_norm_is_the_plain_one_once_it_ran(kind, n):
    x = torch.rand(2, 3, *(2,) * n)
    layer = getattr(nn, f"Lazy{kind}{n}d")()  # affine, and it tracks statistics
    layer(x)
    assert "Lazy" not in type(layer).__name__
    elements = x.numel()
    # saved statistics of 3 channels, weight and bias
    assert counts(layer, x) == (2 * elements + 6 + 2 * elements, elements, 2 * elements + 7 + 2 * elements + 6)
