"""Receptive field, stride and padding along a chain of calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchscan import scan

NAMES = ("receptive_field", "effective_stride", "effective_padding")


def geometry(report, path=""):
    row = next(layer for layer in report.layers if layer.path == path)
    return tuple(row.metrics[name].value if name in row.metrics else None for name in NAMES)


def touched(module, size, position):
    """Return the input positions that one output position depends on, by gradients."""
    x = torch.zeros(1, 1, size, dtype=torch.float64, requires_grad=True)
    module.double().eval()(x)[0, :, position].sum().backward()
    positions = x.grad[0, 0].nonzero().flatten().tolist()
    module.float()
    return positions[0], positions[-1]


def ones(module):
    for parameter in module.parameters():
        nn.init.ones_(parameter)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv1d(1, 1, 3, stride=2, padding=1), nn.Conv1d(1, 1, 3, dilation=2), nn.AvgPool1d(2)),
        nn.Sequential(nn.Conv1d(1, 2, 5), nn.Sequential(nn.Conv1d(2, 1, 3, stride=3), nn.AvgPool1d(3, 2))),
        nn.Sequential(nn.AvgPool1d(2), nn.Identity(), nn.Conv1d(1, 1, 3, padding=2)),
    ],
)
def test_a_chain_accumulates_what_gradients_see(module):
    ones(module)
    size = 60
    field, stride, padding = geometry(scan(module, args=(torch.ones(1, 1, size),)))
    # inner positions: the window is as wide as the field, moves by the stride, and begins padding before position 0
    first, last = touched(module, size, 3)
    assert last - first + 1 == field
    assert touched(module, size, 4)[0] - first == stride
    assert first == 3 * stride - padding


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv1d(1, 1, 3, padding=1)
        self.narrow = nn.Conv1d(1, 1, 1)

    def forward(self, x):
        return self.wide(x) + self.narrow(x)


def test_a_join_of_different_paths_is_unavailable_and_so_is_what_follows():
    report = scan(nn.Sequential(Joined(), nn.Conv1d(1, 1, 3)), args=(torch.ones(1, 1, 9),))
    for path in ("", "0"):
        row = next(layer for layer in report.layers if layer.path == path)
        assert {row.metrics[name].status for name in NAMES} == {"unavailable"}
        assert {row.metrics[name].method for name in NAMES} == {"not_applicable"}
    assert geometry(report, "0.wide") == (3, 1, 1)
    assert not [d for d in report.diagnostics if d.metric in NAMES]


def test_a_chain_that_skips_its_own_input_is_no_chain():
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(1, 1, 3)

        def forward(self, x):
            return self.conv(x.roll(1, -1))

    assert geometry(scan(Shifted(), args=(torch.ones(1, 1, 9),))) == (None, None, None)
