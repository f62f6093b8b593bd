"""Small models that look ahead, or do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def triangle(length: int) -> tuple[tuple[bool, ...], ...]:
    return tuple(tuple(j <= i for j in range(length)) for i in range(length))


def square(length: int) -> tuple[tuple[bool, ...], ...]:
    return ((True,) * length,) * length


class Block(nn.Module):
    """A GPT block of custom code. It masks keys from `i + ahead` on; `None` forgets the mask."""

    def __init__(self, width: int, heads: int, ahead: int | None = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.ahead = heads, ahead
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.ahead is not None:
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(self.ahead)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.dropout(self.out(mixed))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    def __init__(self, *aheads: int | None, vocabulary: int = 11, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(Block(width, 2, ahead, dropout) for ahead in aheads)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))


class Wrap(nn.Module):
    """A model from a function."""

    def __init__(self, function: Any, *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.parts)
