"""Builders that other processes can import."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn


def linear(width: int, rows: int = 1):
    """Cost: rows * width * width MACs."""
    if width < 0:
        raise ValueError("width must not be negative")
    return nn.Linear(width, width, bias=False), (torch.ones(rows, width),), {}


def bare(width: int):
    return nn.Linear(width, width, bias=False)


def rows_of(width: int, rows: int):
    return (torch.ones(rows, width),)


def deadly(width: int):
    """Ends its process without a word, as the system does when memory runs out."""
    if width == 3:
        os._exit(9)
    return linear(width)


def counted(width: int, folder: str):
    """Leaves a file behind each time it is built."""
    (Path(folder) / f"{width}-{len(os.listdir(folder))}").touch()
    return linear(width)


def no_module(width: int):
    return width


def sleepy(width: int):
    """Takes its time."""
    time.sleep(0.5)
    return linear(width)


class RaisesInForward(nn.Module):
    def forward(self, x):
        raise ArithmeticError("no such thing")


def raising(width: int):
    return RaisesInForward(), (torch.ones(1, width),), {}


class Masked(nn.Module):
    """Reads its own mask while it runs, and would not run if the mask had no values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width, bias=False)
        self.register_buffer("mask", torch.ones(width, dtype=torch.bool))
        self.scale = float(torch.linspace(0, 1, 3)[1].item())

    def forward(self, x):
        return self.fc(x)


def masked(width: int):
    model = Masked(width)
    assert bool(model.mask.all())
    return model, (torch.ones(1, width),), {}


def reads_its_weights(width: int):
    layer = nn.Linear(width, width, bias=False)
    layer.largest = layer.weight.max().item()
    return layer, (torch.ones(1, width),), {}


def quits(width: int):
    raise SystemExit("enough")


def enormous(width: int = 1_000_000, layers: int = 4):
    """Sixteen terabytes of parameters."""
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(layers)]), (torch.ones(1, width),), {}
