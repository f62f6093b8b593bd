"""Parameters that are computed before a call: parametrizations, weight norm, spectral norm, pruning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils import spectral_norm as old_spectral_norm

from native.layers_support import Machine, counts, each, estimates, handler_for, random, reasons, same_numbers
from torchscan import ModuleCall

examples = settings(max_examples=30, deadline=None)


def weight_norm_by_hand(machine, gain, direction, axis):
    """Return g v / |v| with a norm for each slice along `axis`, or one for all (axis -1)."""
    rows = np.moveaxis(direction, axis, 0).reshape(direction.shape[axis], -1) if axis >= 0 else direction.reshape(1, -1)
    squares = np.array([machine.sum([machine.square(v) for v in row]) for row in rows])
    machine.stage([rows], squares)
    norms = machine.map(machine.sqrt, squares)
    gains = gain.reshape(-1, 1)
    out = each(lambda v, g, n: machine.div(machine.mul(g, v), n), rows, gains, norms[:, None])
    machine.stage([rows, gain, norms], out)
    if axis < 0:
        return out.reshape(direction.shape)
    moved = (direction.shape[axis], *np.delete(direction.shape, axis))
    return np.moveaxis(out.reshape(moved), 0, axis)


@examples
@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), data=st.data())
def test_weight_norm(shape, data):
    axis = data.draw(st.sampled_from([-1, 0, len(shape) - 1]))
    weight = random(*shape)
    step = parametrizations._WeightNorm(axis)
    gain, direction = step.right_inverse(weight)
    gain = gain * 1.5
    machine = Machine()
    out = weight_norm_by_hand(machine, gain.numpy(), direction.numpy(), axis)
    same_numbers(step(gain, direction), out)
    assert counts(step, gain, direction) == machine.counts


@examples
@given(shape=st.lists(st.integers(1, 3), min_size=1, max_size=3), data=st.data())
def test_spectral_norm(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    weight = random(*shape)
    step = parametrizations._SpectralNorm(weight, dim=axis).eval()
    machine = Machine()
    values = weight.numpy()
    if len(shape) == 1:
        square = machine.sum([machine.square(v) for v in values])
        machine.stage([values], square)
        norm = machine.sqrt(square)
        machine.stage([square], norm)
        bound = machine.max(norm, step.eps)
        out = each(lambda v: machine.div(v, bound), values)
        machine.stage([values, norm, step.eps], out)
    else:
        u, v = step._u.numpy(), step._v.numpy()
        matrix = np.moveaxis(values, axis, 0).reshape(shape[axis], -1)
        product = np.array([machine.dot(row, v) for row in matrix])
        machine.stage([matrix, v], product)
        sigma = machine.dot(u, product)
        machine.stage([u, product], sigma)
        out = each(lambda w: machine.div(w, sigma), values)
        machine.stage([values, sigma], out)
    same_numbers(step(weight), out)
    assert counts(step, weight) == machine.counts


def test_spectral_norm_in_training_iterates():
    step = parametrizations._SpectralNorm(torch.rand(2, 3)).train()
    assert reasons(step, torch.rand(2, 3)) == {"training_mode"}


def test_a_weight_normed_convolution_counts_like_the_plain_one():
    layer = parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
    assert type(layer) is not nn.Conv1d
    # 3*4 outputs of 4 terms: 12*7 + 12; 48; 10 + 15 + 12
    assert counts(layer, torch.ones(1, 2, 5)) == (96, 48, 37)


def test_asking_does_not_compute_the_parameter_again():
    layer = parametrizations.weight_norm(nn.Linear(4, 2)).eval()
    x = torch.ones(3, 4)
    output = layer(x)
    runs = []
    layer.parametrizations.weight[0].register_forward_hook(lambda *_: runs.append(1))
    handler_for(type(layer))(ModuleCall(layer, (x,), {}, output))
    assert runs == []


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: nn.Linear(4, 2), (3, 4)),
        (lambda: nn.Conv2d(2, 3, 2, stride=2), (1, 2, 5, 5)),
        (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 5)),
        (lambda: nn.LayerNorm(4), (3, 4)),
    ],
)
def test_a_parametrized_layer_counts_like_the_plain_one(build, shape):
    layer = build()
    for name in ("weight", "bias"):
        parametrize.register_parametrization(layer, name, nn.Identity())
    assert counts(layer, torch.ones(shape)) == counts(build(), torch.ones(shape))


class Repeat(nn.Module):
    def forward(self, weight):
        return weight.repeat(1, 1, 2)


def test_a_parametrization_that_may_change_the_shape_is_refused():
    layer = nn.Conv1d(1, 1, 2).eval()
    parametrize.register_parametrization(layer, "weight", Repeat(), unsafe=True)
    assert layer(torch.ones(1, 1, 5)).shape == (1, 1, 2)  # four taps, whatever kernel_size says
    assert reasons(layer, torch.ones(1, 1, 5)) == {"unsafe_parametrization"}


def test_orthogonal_parameters_are_refused():
    layer = parametrizations.orthogonal(nn.Linear(3, 3)).eval()
    assert reasons(layer.parametrizations.weight[0], torch.eye(3)) == {"matrix_factorisation"}
    # the layer itself is as always: 9*5 + 9; 27; 9 + 12 + 9
    assert counts(layer, torch.ones(3, 3)) == (54, 27, 30)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_the_older_weight_norm_is_a_hook_of_the_layer():
    layer = nn.utils.weight_norm(nn.Conv1d(2, 3, 2))
    # the convolution, and N=12, R=3: 24-3+3+24; 0; (12+3) + 6 + (12+3+3+12)
    assert counts(layer, torch.ones(1, 2, 5)) == (96 + 48, 48, 37 + 51)


@pytest.mark.filterwarnings("ignore:.*spectral_norm. is deprecated:FutureWarning")
def test_the_older_spectral_norm_is_a_hook_of_the_layer():
    layer = old_spectral_norm(nn.Linear(4, 2))
    # the layer, and h=2, w=4: 2*7 + 3 + 8; 8 + 2; (8+4+2) + (2+2+1) + (8+1+8)
    assert counts(layer, torch.ones(3, 4)) == (48 + 25, 24 + 10, 28 + 36)
    assert reasons(layer.train(), torch.ones(3, 4)) == {"training_mode"}


def test_pruning_masks_the_parameter_in_every_call():
    layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", amount=2)
    # the layer, and 8 products; 0; 8 + 8 + 8. Pruned weights are multiplied all the same.
    assert counts(layer, torch.ones(3, 4)) == (48 + 8, 24, 28 + 24)


def test_other_hooks_are_not_the_layers_work():
    layer = nn.Linear(4, 2)
    layer.register_forward_pre_hook(lambda module, args: None)
    assert counts(layer, torch.ones(3, 4)) == (48, 24, 28)
    assert estimates(layer, torch.ones(3, 4))["macs"] == 24
