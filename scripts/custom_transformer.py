"""Count a model of one native and one custom part: an encoder layer, and a head with a formula of its own.

    python scripts/custom_transformer.py --json custom.json

torchscan knows the encoder. Of the head it knows nothing: `sin` and the scaling happen in its own `forward`. The
caller describes the head in a `ModuleHandler` and passes it as `custom_modules=` for this one scan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from torchscan import MetricResult, ModuleCall, ModuleHandler, Report, scan


class Head(nn.Module):
    """A projection without bias, its sine, and a scalar multiple."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, outputs, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (batch, tokens, width) to (batch, tokens, outputs)."""
        return torch.sin(self.projection(tokens)) * 0.5


class Model(nn.Module):
    """An encoder layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = Head(4, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (batch, tokens, 4) to (batch, tokens, 2)."""
        return self.head(self.encoder(tokens))


def head_estimates(call: ModuleCall) -> dict[str, int]:
    """Estimate one call of the head, its projection included.

    Args:
        call: the call; its input is (batch, tokens, width).

    Returns:
        Module FLOPs, MACs and DMAs.

    """
    tokens = call.arguments["tokens"].numel()
    weight = call.module.projection.weight
    outputs, width = weight.shape
    results = tokens // width * outputs
    return {
        # a dot product of `width` terms, a sine and a product per result
        "module_flops": results * (2 * width - 1) + results + results,
        "macs": results * width,
        # the projection reads its input and its weight; the sine and the product read and write the results
        "dmas": (tokens + weight.numel() + results) + 2 * results + 2 * results,
    }


HANDLER = ModuleHandler(head_estimates, subtree_metrics=("module_flops", "macs", "dmas"))


def scan_model() -> Report:
    """Scan the model on three tokens, with the head's formula for this call alone."""
    return scan(Model(), args=(torch.ones(1, 3, 4),), custom_modules={Head: HANDLER})


def row(name: str, metrics: Mapping[str, MetricResult], parameters: float | None) -> str:
    """Return one line of the table.

    Args:
        name: the part.
        metrics: its module FLOPs, MACs and DMAs.
        parameters: its number of parameters.

    """
    flops, macs, dmas = (metrics[metric].value for metric in ("module_flops", "macs", "dmas"))
    return f"{name:<10}{flops!s:>13}{macs!s:>7}{dmas!s:>7}{parameters!s:>12}"


def main(argv: list[str] | None = None) -> int:
    """Print both parts and the total, and save the report.

    Args:
        argv: command-line arguments; by default those of the process.

    Returns:
        0.

    """
    parser = argparse.ArgumentParser(description="Count a model of one native and one custom part.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save the full report to FILE")
    options = parser.parse_args(argv)

    report = scan_model()
    print(f"{'part':<10}{'module FLOPs':>13}{'MACs':>7}{'DMAs':>7}{'parameters':>12}")
    for path in ("encoder", "head"):
        part = next(layer for layer in report.layers if layer.path == path)
        below = [layer for layer in report.layers if layer.path == path or layer.path.startswith(f"{path}.")]
        parameters = sum(layer.parameters.total for layer in below)
        print(row(path, part.metrics, parameters))
    totals = dict(report.totals)
    print(row("total", totals, totals["parameters"].value))
    if options.json is not None:
        options.json.write_text(report.to_json(indent=2) + "\n", encoding="utf-8")
        print(f"report in {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
