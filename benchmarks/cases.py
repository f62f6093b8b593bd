"""The models that are measured. Imports torch, and transformers where a case needs it; never torchscan."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn


class Call(NamedTuple):
    """One call of a model in evaluation mode."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never written

    def __call__(self) -> Any:
        with torch.no_grad():
            return self.model(*self.args, **self.kwargs)


def transformer(smoke: bool = False) -> Call:
    if smoke:
        model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        return Call(model.eval(), (torch.ones(1, 4, 16), torch.ones(1, 4, 16)))
    model = nn.Transformer(batch_first=True)  # d_model 512, 8 heads, 6 + 6 layers, feed-forward 2048
    return Call(model.eval(), (torch.randn(2, 64, 512), torch.randn(2, 64, 512)))


def encoder(layers: int) -> Call:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return Call(nn.TransformerEncoder(layer, layers).eval(), (torch.randn(2, 16, 64),))


def linears(layers: int) -> Call:
    return Call(nn.Sequential(*[nn.Linear(16, 16) for _ in range(layers)]).eval(), (torch.randn(1, 16),))


def hugging_face() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    return transformers


def bert(smoke: bool = False) -> Call:
    library = hugging_face()
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = library.BertModel(library.BertConfig(**(small if smoke else {})))
    return Call(model.eval(), (), {"input_ids": torch.ones(1, 4 if smoke else 64, dtype=torch.long)})


class Block(nn.Module):
    """A bottleneck block of a residual network."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
            if stride > 1 or inside != outside
            else nn.Identity()
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(x) + self.shortcut(x))


def cnn(smoke: bool = False) -> Call:
    """A residual network of the shape of ResNet-50."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    stages = ((8, 1, 1),) if smoke else ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
    for width, blocks, stride in stages:
        for index in range(blocks):
            layers.append(Block(inside, width, stride if index == 0 else 1))
            inside = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000)]
    size = 32 if smoke else 224
    return Call(nn.Sequential(*layers).eval(), (torch.randn(1, 3, size, size),))


def llama(smoke: bool = False, *, device: str = "meta") -> Call:
    """A decoder of the shape of LLaMA-2 70B, whose parameters are on meta; its token ids are on `device`."""
    library = hugging_face()
    config = library.LlamaConfig(
        hidden_size=16 if smoke else 8192,
        intermediate_size=32 if smoke else 28672,
        num_hidden_layers=1 if smoke else 80,
        num_attention_heads=2 if smoke else 64,
        num_key_value_heads=1 if smoke else 8,
        vocab_size=32 if smoke else 32000,
    )
    with torch.device("meta"):
        model = library.LlamaForCausalLM(config)
    return Call(model.eval(), (), {"input_ids": torch.ones(1, 4 if smoke else 64, dtype=torch.long, device=device)})


class Chain(nn.Module):
    """Layers whose outputs come to `mebibytes` together, two of them alive at a time."""

    def __init__(self, mebibytes: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(layers // 2) for layer in (nn.Linear(64, 64), nn.Tanh())])
        self.rows = mebibytes * 2**20 // (4 * 64 * layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def chain(smoke: bool = False) -> Call:
    model = Chain(4 if smoke else 1024, 64)
    return Call(model.eval(), (torch.randn(model.rows, 64),))


#: What is timed over its own bare forward; `smoke` gives the size for CI.
TIMED: dict[str, Callable[[bool], Call]] = {
    "transformer": transformer,
    "encoder 8": lambda smoke: encoder(1 if smoke else 8),
    "encoder 32": lambda smoke: encoder(2 if smoke else 32),
    "encoder 128": lambda smoke: encoder(3 if smoke else 128),
    "bert": bert,
    "cnn": cnn,
    "llama 70B on meta": llama,
}
