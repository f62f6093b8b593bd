"""Write the reports of this folder with TorchScan 0.2.0, in an environment of its own; see tests/data/README.md."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict, namedtuple
from pathlib import Path

import torch
from torch import nn

import torchscan

assert torchscan.__version__ == "0.2.0", torchscan.__version__

HERE = Path(__file__).parent
Pair = namedtuple("Pair", "first second")


class Opaque:
    """A value torchscan knows nothing about."""


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("caught by the model")


class Mixed(nn.Module):
    """Repeated, failed and unsupported calls, and outputs of every kind."""

    def __init__(self):
        super().__init__()
        self.fails = Fails()
        self.linear = nn.Linear(4, 2)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.gelu = nn.GELU()

    def forward(self, x, *, options=None, flag=True, opaque=None):
        with contextlib.suppress(ValueError):
            self.fails(x)
        y = self.linear(x)
        self.linear(x)
        self.attention(x[None], x[None], x[None])
        return {
            "tensor": self.gelu(y),
            "tuple": (y, [1, None]),
            "pair": Pair(y, 0.5),
            "ordered": OrderedDict(a="text"),
            3: y.shape,
            True: x.dtype,
            (1, 2): {1},
            "not an identifier": opaque,
        }


def convolutions(width):
    return nn.Sequential(
        OrderedDict(
            stem=nn.Conv2d(3, width, 3, padding=1),
            norm=nn.BatchNorm2d(width),
            act=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            head=nn.Sequential(nn.Flatten(), nn.Linear(width * 16, 10)),
        )
    )


def write(name, report):
    (HERE / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")


def main():
    torch.manual_seed(0)
    write("convolutions", torchscan.crawl_module(convolutions(4), (3, 8, 8)))
    write("convolutions_wider", torchscan.crawl_module(convolutions(6), (3, 8, 8)))
    write("structure", torchscan.crawl_module(convolutions(4), (3, 8, 8), mode="structure"))
    x = torch.ones(2, 4)
    write("mixed", torchscan.crawl_module(Mixed(), args=(x,), kwargs={"options": {"a": 1}, "opaque": Opaque()}))
    transformer = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)
    write("transformer", torchscan.crawl_module(transformer, args=(torch.ones(1, 3, 4), torch.ones(1, 2, 4))))
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    query, memory = torch.ones(1, 2, 4), torch.ones(1, 3, 4)
    kwargs = {"need_weights": False}
    write("attention", torchscan.crawl_module(attention, args=(query, memory, memory), kwargs=kwargs))
    # Not reports of a scan: readers must say so.
    write("other_operator_report", torchscan.measure_flops(lambda: torch.ones(2, 2) @ torch.ones(2, 2)))
    first, second = (torchscan.crawl_module(convolutions(width), (3, 8, 8)) for width in (4, 6))
    write("other_comparison", torchscan.compare_reports(first, second))


if __name__ == "__main__":
    main()
