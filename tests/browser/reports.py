"""The reports that the browser tests look at: scanned ones, and one of 5,000 calls."""

from __future__ import annotations

import functools

import torch
from torch import nn

from torchscan import scan
from torchscan.report.schema import Report


class Gate(nn.Module):
    """A composite with arithmetic of its own."""

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        return self.proj(x) * torch.sigmoid(x)


class Mystery(nn.Module):
    """A leaf that no handler knows."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, width))

    def forward(self, x):
        return torch.einsum("bld,de->ble", x, self.weight)


class Translator(nn.Module):
    """A native Transformer between embeddings and a head, with known, partial, unknown, covered and zero work."""

    def __init__(self, width, layers):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.core = nn.Transformer(width, 4, layers, layers, 4 * width, batch_first=True)
        self.gate = Gate(width)
        self.mystery = Mystery(width)
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(width, 100))

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        decoded = self.core(self.embed(source), self.embed(target), tgt_mask=mask)
        return self.head(self.mystery(self.gate(decoded)))


@functools.cache
def translator(width: int = 64, layers: int = 3) -> Report:
    """Return the scan of a translator of 40 source and 30 target tokens."""
    tokens = (torch.zeros(2, 40, dtype=torch.long), torch.zeros(2, 30, dtype=torch.long))
    return scan(Translator(width, layers), args=tokens)


@functools.cache
def tiny_transformer() -> Report:
    """Return the scan of the one-layer encoder and decoder that the derivations count by hand.

    Batch 1, width 4, two heads, hidden width 8, three source and two target tokens: 1088 MACs, 2144 DMAs, 2694 FLOPs.
    """
    return scan(nn.Transformer(4, 2, 1, 1, 8, batch_first=True), args=(torch.ones(1, 3, 4), torch.ones(1, 2, 4)))
