"""Parameters and buffers: each stored element once, whatever shows it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from torchscan import scan

X = torch.ones(3, 4)


class Holds(nn.Module):
    def __init__(self, *tensors) -> None:
        super().__init__()
        self.held = nn.ParameterList([nn.Parameter(tensor) for tensor in tensors])

    def forward(self, x):
        return x


def stored(module, *args, **kwargs):
    totals = scan(module, args=args or (X,), **kwargs).totals
    return totals.parameters.value, totals.parameter_bytes.value


MATRIX = torch.zeros(4, 6)
FLAT = torch.zeros(10)

VIEWS = {
    # 4 * 2 and 4 * 4 columns, none in common
    "columns side by side": ((MATRIX[:, :2], MATRIX[:, 2:]), 24),
    # columns 0, 1 and 1, 2: three in all
    "columns that overlap": ((MATRIX[:, :2], MATRIX[:, 1:3]), 4 * 3),
    "every other row": ((MATRIX[::2], MATRIX[1::2]), 24),
    "every other column": ((MATRIX[:, ::2], MATRIX[:, 1::2]), 24),
    "whole, then a part": ((MATRIX, MATRIX[:, 1:3]), 24),
    "a part, then the whole": ((MATRIX[:, 1:3], MATRIX), 24),
    "transposed": ((MATRIX.t(), MATRIX), 24),
    "a part alone": ((MATRIX[1:3, 1:4],), 2 * 3),
    "pieces of a flat buffer": ((FLAT[:4], FLAT[4:], FLAT[2:6]), 10),
    "expanded": ((torch.zeros(3, 1).expand(3, 7),), 3),
    "expanded twice": ((MATRIX[:, :1].expand(4, 9), MATRIX[:, :1]), 4),
    "empty": ((torch.zeros(0, 5), torch.zeros(2)), 2),
    "a single number": ((torch.zeros(()),), 1),
    "on meta": ((torch.zeros(4, 6, device="meta")[:, :2],), 8),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_one_storage(name):
    tensors, elements = VIEWS[name]
    assert stored(Holds(*tensors)) == (elements, 4 * elements)


def test_one_storage_under_two_types():
    floats = torch.zeros(8)
    model = Holds(floats)
    model.bits = nn.Parameter(floats.view(torch.int32), requires_grad=False)
    assert stored(model) == (8, 32)


def test_views_that_are_too_large_to_tell_apart_are_a_lower_bound():
    whole = torch.empty(20_000, 20_000, device="meta")
    report = scan(Holds(whole[:, :10_000], whole[:, 10_000:]), args=(X,))
    assert report.totals.parameters.status == "partial"
    assert report.totals.parameters.known_value <= 20_000 * 20_000


@pytest.mark.parametrize("named", ["a", "z"])
def test_a_buffer_that_shows_a_parameter(named):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.middle = nn.Linear(4, 4, bias=False)
            setattr(self, named, nn.Module())
            getattr(self, named).register_buffer("weight", self.middle.weight.data)
            self.register_buffer("own", torch.zeros(5))

        def forward(self, x):
            return self.middle(x)

    totals = scan(Tied(), args=(X,)).totals
    assert totals.parameters.value == 16
    assert totals.buffer_elements.value == 5


def test_layers_that_were_never_given_a_size():
    class Waits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 4)
            self.unused = nn.LazyBatchNorm1d()

        def forward(self, x):
            return self.used(x)

    for execution in ("real", "fake"):
        model = Waits()
        totals = scan(model, args=(X,), execution=execution).totals
        assert totals.macs.value == 48
        # 16 + 4 are known, and the counter of the norm's batches
        assert (totals.parameters.status, totals.parameters.known_value) == ("partial", 20)
        assert (totals.buffer_elements.status, totals.buffer_elements.known_value) == ("partial", 1)
        assert isinstance(model.unused, nn.LazyBatchNorm1d)


@pytest.mark.parametrize("execution", ["real", "fake"])
def test_lazy_layers_are_ready_after_a_scan(execution):
    model = nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(5))
    totals = scan(model, args=(X,), execution=execution).totals
    # 4 + 4 of the norm, 4 * 5 + 5 of the layer; one affine product for each of 12 elements, and 3 * 5 * 4
    assert totals.parameters.value == 33
    assert totals.macs.value == 12 + 60
    assert type(model[1]) is nn.Linear
    assert model(X).shape == (3, 5)


def test_frozen_trainable_and_typed():
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), nn.Linear(4, 4, dtype=torch.bfloat16))
    model[0].requires_grad_(False)
    model.codes = nn.Parameter(torch.zeros(3, dtype=torch.int8), requires_grad=False)
    totals = scan(model[0], args=(X.double(),)).totals
    assert (totals.frozen_parameters.value, totals.trainable_parameters.value) == (20, 0)
    model.forward = lambda x: x
    totals = scan(model, args=(X,)).totals
    assert (totals.frozen_parameters.value, totals.trainable_parameters.value) == (20 + 3, 20)
    assert totals.parameter_bytes.value == 20 * 8 + 20 * 2 + 3


def test_tied_by_data_is_one_storage_and_two_products():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight.data = model[0].weight.data
    report = scan(model, args=(X,))
    assert report.totals.parameters.value == 16
    assert report.totals.macs.value == 2 * 48
    assert [layer.parameters.trainable for layer in report.layers] == [0, 16, 0]


@pytest.mark.parametrize("execution", ["real", "fake"])
def test_spectral_norm_stores_its_vectors_as_buffers(execution):
    totals = scan(parametrizations.spectral_norm(nn.Linear(4, 3)), args=(X,), execution=execution).totals
    # weight 12 and bias 3; the vectors have 3 and 4 elements
    assert totals.parameters.value == 15
    assert totals.buffer_elements.value == 7
