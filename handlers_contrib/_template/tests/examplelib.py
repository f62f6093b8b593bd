"""Stands in for the library that the pack models."""

from __future__ import annotations

import torch
from torch import nn


class LowRank(nn.Module):
    """A linear map through a narrow middle."""

    def __init__(self, inner: int, rank: int, outer: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.ones(inner, rank))
        self.up = nn.Parameter(torch.ones(rank, outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.down) @ self.up
