"""Draw the picture of a report that the documentation shows.

    python scripts/make_report_picture.py [docs/assets/report.svg]

The model has a bit of everything: a native Transformer whose estimate covers its inside, plain layers, a composite
with arithmetic of its own, and a leaf that no handler knows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from torchscan import render_report, scan


class Gate(nn.Module):
    """A composite with arithmetic in its own body, which makes its FLOPs a lower bound."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, 2 * width)
        self.gate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the gated projection of `x`."""
        return self.output(self.value(x) * torch.sigmoid(self.gate(x)))


class TokenMixer(nn.Module):
    """A leaf that no handler knows."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tokens, tokens))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a weighted sum over the tokens of `x`."""
        return torch.einsum("ts,bsd->btd", self.weight, x)


class Translator(nn.Module):
    """Embeddings, a native Transformer, and a head."""

    def __init__(self, width: int = 128, words: int = 2000, tokens: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.core = nn.Transformer(width, 8, 2, 2, 4 * width, batch_first=True)
        self.mixer = TokenMixer(tokens)
        self.gate = Gate(width)
        self.head = nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next words."""
        decoded = self.core(self.embed(source), self.embed(target))
        return self.head(self.gate(self.mixer(decoded)))


def main(file: Path) -> None:
    """Scan the model and write its picture to `file`."""
    tokens = torch.zeros(1, 48, dtype=torch.long), torch.zeros(1, 32, dtype=torch.long)
    report = scan(Translator(), args=tokens)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render_report(report, format="svg", metric="module_flops", title="Translator"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/assets/report.svg"))
