"""Padding, folding, shuffling and upsampling against a scalar interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, handler_for, random, reasons, same_numbers
from torchscan import ModuleCall

examples = settings(max_examples=40, deadline=None)


DROPOUTS = {
    "Dropout": (2, 3),
    "Dropout1d": (2, 3, 2),
    "Dropout2d": (2, 3, 2, 2),
    "Dropout3d": (2, 3, 2, 2, 2),
    "AlphaDropout": (2, 3),
    "FeatureAlphaDropout": (2, 3, 2, 2),
}


def touched(x, y):
    """Return how many distinct elements of `x` reach `y`; the elements of `x` are all different."""
    return len(set(x.flatten().tolist()) & set(y.flatten().tolist()))


def numbered(*shape):
    return torch.arange(1, 1 + int(np.prod(shape)), dtype=torch.float64).reshape(shape)


@examples
@given(data=st.data(), kind=st.sampled_from(["Constant", "Zero", "Reflection", "Replication", "Circular"]))
def test_padding(data, kind):
    n = data.draw(st.integers(1, 3 if kind != "Reflection" else 2))
    low = -1 if data.draw(st.booleans()) else 0
    sides = tuple(data.draw(st.integers(low, 2)) for _ in range(2 * n))
    shape = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)) + [
        data.draw(st.integers(3, 4)) for _ in range(n)
    ]
    layer = getattr(nn, f"{kind}Pad{n}d")(sides, *([-7.0] if kind == "Constant" else []))
    x = numbered(*shape)
    try:
        y = layer(x)
    except RuntimeError:
        assume(False)
    machine = Machine()
    machine.stage([np.empty(touched(x, y))], y.numpy())
    assert counts(layer, x) == machine.counts


def test_padding_that_leaves_nothing():
    assert counts(nn.ConstantPad1d((-4, 0), 0.0), torch.ones(2, 4)) == (0, 0, 0)


def test_padding_of_the_last_axes_only():
    # (1, 2, 3, 4): only the last axis grows to 6: 24 read, 36 written
    assert counts(nn.ConstantPad1d(1, 0.0), torch.ones(1, 2, 3, 4)) == (0, 0, 60)


@st.composite
def blocks(draw):
    def pair(low, high):
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    options = {"kernel_size": pair(1, 3), "dilation": pair(1, 2), "padding": pair(0, 1), "stride": pair(1, 3)}
    return options, pair(2, 5), draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))


@examples
@given(blocks())
def test_unfold_and_fold(drawn):
    options, size, lead = drawn
    x = numbered(*lead, *size)
    try:
        columns = nn.Unfold(**options)(x)
    except RuntimeError:
        assume(False)
    machine = Machine()
    machine.stage([x.numpy()], columns.numpy())
    assert counts(nn.Unfold(**options), x) == machine.counts

    fold = nn.Fold(size, **options)
    y = fold(columns)
    machine = Machine()
    lengths = [
        (size[a] + 2 * options["padding"][a] - options["dilation"][a] * (options["kernel_size"][a] - 1) - 1)
        // options["stride"][a]
        + 1
        for a in (0, 1)
    ]
    flat = columns.numpy().reshape(-1, lead[-1], *options["kernel_size"], *lengths)
    out = np.full((flat.shape[0], lead[-1], *size), np.nan)
    for b, c, *tap_and_block in np.ndindex(*flat.shape):
        tap, block = tap_and_block[:2], tap_and_block[2:]
        at = [block[a] * options["stride"][a] + tap[a] * options["dilation"][a] - options["padding"][a] for a in (0, 1)]
        if all(0 <= at[a] < size[a] for a in (0, 1)):
            entry = flat[(b, c, *tap, *block)]
            place = (b, c, *at)
            # the first entry of a pixel is written, every further one is added
            out[place] = entry if np.isnan(out[place]) else machine.add(out[place], entry)
    machine.stage([columns.numpy()], out)
    same_numbers(y.reshape(out.shape), np.nan_to_num(out))
    assert counts(fold, columns) == machine.counts


def test_shuffles():
    # every element is read and written once
    assert counts(nn.PixelShuffle(2), torch.ones(2, 8, 3, 1)) == (0, 0, 96)
    assert counts(nn.PixelUnshuffle(3), torch.ones(1, 3, 6)) == (0, 0, 36)
    assert counts(nn.ChannelShuffle(2), torch.ones(1, 4, 3)) == (0, 0, 24)


def weights_of(position, length, cubic):
    """Return (index, weight) of the neighbours along one axis; constants of the geometry."""
    base = int(np.floor(position))
    t = position - base
    if not cubic:
        pairs = [(base, 1 - t), (base + 1, t)]
    else:
        a = -0.75

        def near(d):
            return (a + 2) * d**3 - (a + 3) * d**2 + 1

        def far(d):
            return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a

        pairs = [(base - 1, far(t + 1)), (base, near(t)), (base + 1, near(1 - t)), (base + 2, far(2 - t))]
    return [(min(max(index, 0), length - 1), weight) for index, weight in pairs]


@examples
@given(data=st.data(), mode=st.sampled_from(["linear", "bilinear", "trilinear", "bicubic"]), corners=st.booleans())
def test_weighted_upsampling(data, mode, corners):
    n = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}[mode]
    lengths = [data.draw(st.integers(1, 3)) for _ in range(n)]
    targets = [data.draw(st.integers(1, 4 if n < 3 else 3)) for _ in range(n)]
    layer = nn.Upsample(size=tuple(targets), mode=mode, align_corners=corners)
    x = random(1, 2, *lengths)
    machine = Machine()
    out = np.empty((1, 2, *targets))
    for b, c, *place in np.ndindex(*out.shape):
        neighbours = []
        for axis, i in enumerate(place):
            length, target = lengths[axis], targets[axis]
            if corners:
                position = i * (length - 1) / (target - 1) if target > 1 else 0.0
            else:
                position = (i + 0.5) * length / target - 0.5
                if mode != "bicubic":
                    position = max(position, 0.0)
            neighbours.append(weights_of(position, length, mode == "bicubic"))
        taps = list(itertools.product(*neighbours))
        values = [x.numpy()[(b, c, *(index for index, _ in tap))] for tap in taps]
        out[(b, c, *place)] = machine.dot(values, [float(np.prod([weight for _, weight in tap])) for tap in taps])
    machine.stage([x.numpy()], out)
    same_numbers(layer(x), out)
    assert counts(layer, x) == machine.counts


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_nearest_upsampling(mode, n):
    x = torch.ones(1, 2, *(2,) * n)
    # all inputs read, all outputs written
    assert counts(nn.Upsample(scale_factor=2, mode=mode), x) == (0, 0, 2 * 2**n + 2 * 4**n)


def test_area_upsampling_is_adaptive_averaging():
    x = torch.ones(2, 3, 5, 4)
    assert counts(nn.Upsample(size=(3, 2), mode="area"), x) == counts(nn.AdaptiveAvgPool2d((3, 2)), x)


def test_the_two_legacy_classes():
    x = torch.ones(1, 1, 2, 2)
    assert counts(nn.UpsamplingNearest2d(scale_factor=2), x) == (0, 0, 20)
    # 16 outputs of 4 taps
    assert counts(nn.UpsamplingBilinear2d(scale_factor=2), x) == (112, 64, 20)


def test_modules_that_do_nothing():
    x = torch.ones(2, 3, 4)
    for layer in (nn.Identity(), nn.Flatten(), nn.Unflatten(1, (3, 1))):
        assert counts(layer, x) == (0, 0, 0)
    for name, shape in DROPOUTS.items():
        assert counts(getattr(nn, name)(0.5), torch.ones(shape)) == (0, 0, 0)
    # whatever they are given
    assert counts(nn.Identity(), "a string") == (0, 0, 0)
    assert counts(nn.Flatten(), torch.ones(2, 3, 4, dtype=torch.long)) == (0, 0, 0)
    assert counts(nn.Dropout(), torch.ones(2, dtype=torch.complex64)) == (0, 0, 0)


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_in_training(name):
    x = torch.ones(DROPOUTS[name])
    assert reasons(getattr(nn, name)(0.5).train(), x) == {"training_mode"}
    # with p = 0 training passes the input through
    layer = getattr(nn, name)(0.0)
    assert counts(layer, x) == (0, 0, 0)


def test_empty_calls():
    x = torch.ones(0, 4, 2, 2)
    for layer in (nn.PixelShuffle(2), nn.ZeroPad2d(1), nn.Unfold(2), nn.Upsample(scale_factor=2)):
        assert counts(layer, x) == (0, 0, 0)


def test_a_reflection_may_read_what_the_other_side_crops():
    x = numbered(1, 3)
    assert nn.ReflectionPad1d((-1, 2))(x).tolist() == [[2, 3, 2, 1]]
    # all 3 are read, 4 written
    assert counts(nn.ReflectionPad1d((-1, 2)), x) == (0, 0, 7)
    assert nn.ReflectionPad1d((2, -1))(x).tolist() == [[3, 2, 1, 2]]
    assert counts(nn.ReflectionPad1d((2, -1)), x) == (0, 0, 7)
    # the first two are read, 2 written
    assert nn.ReflectionPad1d((1, -2))(x).tolist() == [[2, 1]]
    assert counts(nn.ReflectionPad1d((1, -2)), x) == (0, 0, 4)
    # a copy of the edge or of the other end never reads it: 2 read, 4 written
    assert counts(nn.ReplicationPad1d((-1, 2)), x) == (0, 0, 6)
    assert counts(nn.CircularPad1d((-1, 2)), x) == (0, 0, 6)


def test_a_fold_whose_attributes_changed_after_the_call_is_refused():
    fold = nn.Fold((3, 3), 2)
    columns = torch.ones(1, 4, 4)
    call = ModuleCall(fold, (columns,), {}, fold(columns))
    fold.stride = 2
    assert handler_for(nn.Fold)(call)["module_flops"].reason == "block_count"
