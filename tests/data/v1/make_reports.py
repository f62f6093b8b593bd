"""Write the reports of this folder with the torchscan of this repository; see tests/data/README.md."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import torchscan

HERE = Path(__file__).parent


class Functional(nn.Module):
    """Arithmetic of its own, and a leaf that nobody handles."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.unknown = Unknown()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.unknown(self.linear(x) @ x.T)


class Unknown(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def head(call: torchscan.ModuleCall) -> dict[str, object]:
    """Give one number, a lower bound, and nothing."""
    return {"macs": 32, "dmas": torchscan.Partial(40), "module_flops": None}


def main() -> None:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    query, memory = torch.ones(1, 2, 4), torch.ones(1, 3, 4)
    padding = torch.tensor([[False, False, True]])
    transformer = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)
    causal = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(2)}
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    reports = {
        "attention": torchscan.scan(attention, args=(query, memory, memory), kwargs={"need_weights": False}),
        "attention_padded": torchscan.scan(
            attention, args=(query, memory, memory), kwargs={"key_padding_mask": padding}
        ),
        "transformer": torchscan.scan(transformer, args=(memory, query), kwargs=causal),
        "functional": torchscan.scan(Functional(), args=(torch.ones(3, 4),)),
        "custom": torchscan.scan(Functional(), args=(torch.ones(3, 4),), custom_modules={Unknown: head}),
        "convolutions": torchscan.scan(convolutions, (3, 8, 8)),
        "structure": torchscan.scan(convolutions, (3, 8, 8), mode="structure"),
    }
    for name, report in reports.items():
        (HERE / f"{name}.json").write_text(report.to_json(indent=1) + "\n")


if __name__ == "__main__":
    main()
