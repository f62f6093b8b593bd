"""Receptive field, stride and padding of one call, against which inputs an output really sees."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import spatial

NONE = ("not_applicable",) * 3
IMAGE = torch.ones(1, 4, 6, 6)


def seen_by(layer, length, channels=1):
    """Return, per output position, the input positions that its value depends on; one spatial axis."""
    x = torch.rand(1, channels, length, dtype=torch.float64, requires_grad=True)
    y = layer.double().eval()(x)
    positions = []
    for i in range(y.shape[-1]):
        (gradient,) = torch.autograd.grad(y[..., i].sum(), x, retain_graph=True)
        positions.append(torch.nonzero(gradient.abs().sum((0, 1))).flatten().tolist())
    return positions


def predicted(scalars, count, length):
    """Return the spans that (receptive field, stride, padding) promise, cut to the input."""
    field, stride, padding = scalars
    spans = []
    for i in range(count):
        first = i * stride - padding
        spans.append((max(first, 0), min(first + field, length) - 1))
    return spans


@st.composite
def sliding(draw):
    kind = draw(st.sampled_from(["conv", "avg", "lp", "same"]))
    kernel, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    stride, padding = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    if kind == "conv":
        return nn.Conv1d(1, 2, kernel, stride=stride, padding=padding, dilation=dilation)
    if kind == "same":
        return nn.Conv1d(1, 2, 3, padding="same", dilation=dilation)
    if kind == "avg":
        return nn.AvgPool1d(kernel, stride=stride, padding=min(padding, kernel // 2))
    return nn.LPPool1d(2, kernel, stride=stride)


@settings(max_examples=60, deadline=None)
@given(sliding(), st.integers(6, 9))
def test_sliding_windows_see_what_the_scalars_say(layer, length):
    scalars = spatial(layer.double(), torch.rand(1, 1, length, dtype=torch.float64))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.5)  # no weight is zero by accident
    seen = seen_by(layer, length)
    dilation = layer.dilation[0] if isinstance(layer, nn.Conv1d) else 1
    for positions, (first, last) in zip(seen, predicted(scalars, len(seen), length), strict=True):
        if dilation == 1 and positions:
            assert (min(positions), max(positions)) == (first, last)
        assert all(first <= position <= last for position in positions)
    # an interior output sees the whole span
    whole = [p for p in seen if p and max(p) - min(p) + 1 == scalars[0]]
    assert whole or scalars[0] > length - 1 or scalars[2] > 0


@settings(max_examples=30, deadline=None)
@given(kernel=st.integers(1, 3), padding=st.integers(0, 2), dilation=st.integers(1, 2))
def test_a_transposed_convolution_with_stride_one_is_a_convolution(kernel, padding, dilation):
    layer = nn.ConvTranspose1d(1, 2, kernel, padding=padding, dilation=dilation)
    with torch.no_grad():
        layer.weight.fill_(0.5)
    scalars = spatial(layer, torch.ones(1, 1, 7))
    if padding > dilation * (kernel - 1):
        assert scalars == ("fractional_stride",) * 3
        return
    seen = seen_by(layer, 7)
    for positions, (first, last) in zip(seen, predicted(scalars, len(seen), 7), strict=True):
        assert all(first <= position <= last for position in positions)
        if dilation == 1:
            assert (min(positions), max(positions)) == (first, last)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 8), target=st.integers(1, 8))
def test_adaptive_windows_have_scalars_only_where_they_are_regular(length, target):
    layer = nn.AdaptiveAvgPool1d(target)
    scalars = spatial(layer, torch.ones(1, 1, length))
    seen = seen_by(layer, length)
    widths, starts = {len(p) for p in seen}, [p[0] for p in seen]
    regular = len(widths) == 1 and len({b - a for a, b in itertools.pairwise(starts)} | widths) == 1
    if regular and length % target == 0:
        assert scalars == (len(seen[0]), len(seen[0]), 0)
    else:
        assert scalars == ("irregular_windows", "irregular_windows", 0)


def test_convolutions():
    # dilation * (kernel - 1) + 1, stride, padding
    assert spatial(nn.Conv2d(4, 2, 3, stride=2, padding=1, dilation=2), IMAGE) == (5, 2, 1)
    assert spatial(nn.Conv2d(4, 2, 3), IMAGE[0]) == (3, 1, 0)
    assert spatial(nn.Conv2d(4, 2, 3, padding="valid"), IMAGE) == (3, 1, 0)
    assert spatial(nn.Conv2d(4, 2, 3, padding="same"), IMAGE) == (3, 1, 1)
    assert spatial(nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"), IMAGE) == (3, 1, 1)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_one_number_is_not_made_of_two():
    assert spatial(nn.Conv2d(4, 2, (3, 1), padding=(1, 0)), IMAGE) == ("anisotropic", 1, "anisotropic")
    assert spatial(nn.Conv2d(4, 2, 3, stride=(1, 2)), IMAGE) == (3, "anisotropic", 0)
    assert spatial(nn.MaxPool2d((2, 3)), IMAGE) == ("anisotropic", "anisotropic", 0)
    assert spatial(nn.Conv1d(4, 2, 2, padding="same"), IMAGE[0, :, 0]) == (2, 1, "asymmetric_padding")
    assert spatial(nn.AdaptiveAvgPool2d((3, 2)), IMAGE) == ("anisotropic", "anisotropic", 0)


def test_pooling():
    assert spatial(nn.MaxPool2d(3, stride=2, padding=1, dilation=2), IMAGE) == (5, 2, 1)
    assert spatial(nn.MaxPool2d(2), IMAGE) == (2, 2, 0)
    assert spatial(nn.AvgPool2d(3, stride=1, padding=1), IMAGE) == (3, 1, 1)
    assert spatial(nn.LPPool2d(2, 2), IMAGE) == (2, 2, 0)
    # the whole plane for one output, halves for two, and uneven parts for four
    assert spatial(nn.AdaptiveAvgPool2d(1), IMAGE) == (6, 6, 0)
    assert spatial(nn.AdaptiveMaxPool2d(3), IMAGE) == (2, 2, 0)
    assert spatial(nn.AdaptiveAvgPool2d(4), IMAGE) == ("irregular_windows", "irregular_windows", 0)
    assert spatial(nn.FractionalMaxPool2d(2, output_size=3), IMAGE) == (2, "irregular_windows", 0)


def test_position_by_position():
    for layer in (nn.ReLU(), nn.GELU(), nn.PReLU(), nn.Dropout(), nn.Identity(), nn.BatchNorm2d(4), nn.Softmax2d()):
        assert spatial(layer, IMAGE) == (1, 1, 0)
    assert spatial(nn.ChannelShuffle(2), IMAGE) == (1, 1, 0)
    assert spatial(nn.LocalResponseNorm(2), IMAGE) == (1, 1, 0)


def test_statistics_of_the_whole_plane_see_the_whole_plane():
    whole = ("global_statistics",) * 3
    assert spatial(nn.GroupNorm(2, 4), IMAGE) == whole
    assert spatial(nn.InstanceNorm2d(4), IMAGE) == whole
    assert spatial(nn.BatchNorm2d(4, track_running_stats=False), IMAGE) == whole
    assert spatial(nn.InstanceNorm2d(4, track_running_stats=True), IMAGE) == (1, 1, 0)


def test_padding_modules():
    assert spatial(nn.ZeroPad2d(2), IMAGE) == (1, 1, 2)
    assert spatial(nn.ReflectionPad2d(1), IMAGE) == (1, 1, 1)
    assert spatial(nn.ZeroPad2d((1, 0, 1, 1)), IMAGE) == (1, 1, "asymmetric_padding")
    assert spatial(nn.ZeroPad2d((1, 1, 0, 0)), IMAGE) == (1, 1, "anisotropic")
    assert spatial(nn.ZeroPad1d(1), IMAGE) == (1, 1, "anisotropic")  # the other axis is not padded
    assert spatial(nn.ZeroPad2d(-1), IMAGE) == (1, 1, "cropping")


def test_finer_grids():
    finer = ("fractional_stride",) * 3
    assert spatial(nn.ConvTranspose2d(4, 2, 2, stride=2), IMAGE) == finer
    assert spatial(nn.Upsample(scale_factor=2), IMAGE) == finer
    assert spatial(nn.PixelShuffle(2), IMAGE) == finer
    assert spatial(nn.PixelUnshuffle(2), IMAGE) == (2, 2, 0)
    assert spatial(nn.Upsample(size=3, mode="area"), IMAGE) == (2, 2, 0)


def test_modules_without_a_spatial_axis():
    assert spatial(nn.Linear(6, 2), IMAGE) == NONE  # it mixes the last axis, whatever that is
    assert spatial(nn.LayerNorm(6), IMAGE) == NONE
    assert spatial(nn.Softmax(1), IMAGE) == NONE
    assert spatial(nn.Flatten(), IMAGE) == NONE
    assert spatial(nn.Unfold(2), IMAGE) == NONE
    assert spatial(nn.Embedding(5, 2), torch.ones(3, dtype=torch.long)) == NONE
    assert spatial(nn.LSTM(6, 2), torch.ones(4, 1, 6)) == NONE
