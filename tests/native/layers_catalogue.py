"""One small call of every `torch.nn` layer that has a formula, for the tests that walk all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

#: They do nothing, to whatever they are given.
PASSIVE = (
    *("Identity", "Flatten", "Unflatten", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d"),
    *("AlphaDropout", "FeatureAlphaDropout"),
)
_ELEMENTWISE = (
    *("ReLU", "ReLU6", "Hardtanh", "Softsign", "Hardshrink", "Sigmoid", "LeakyReLU", "PReLU", "RReLU", "Hardsigmoid"),
    *("SiLU", "GELU", "Hardswish", "Softshrink", "Tanh", "ELU", "CELU", "SELU", "LogSigmoid", "Softplus"),
    *("Tanhshrink", "Mish", "GLU"),
)

Call = tuple[Callable[[], nn.Module], tuple[Any, ...]]


def f(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) * 0.5 + 0.25


def catalogue() -> Iterator[tuple[str, Call]]:
    """Yield (class name, (constructor, arguments)); the arguments are float32 on the CPU."""
    flat, image = (2, 4), (2, 4, 6, 6)
    yield "Linear", (lambda: nn.Linear(4, 3), (f(*flat),))
    yield "Bilinear", (lambda: nn.Bilinear(4, 3, 2), (f(2, 4), f(2, 3)))
    for n in (1, 2, 3):
        x = f(2, 4, *(6,) * n)
        small = f(2, 4, *(3,) * n)
        for name, arguments in {
            f"Conv{n}d": (4, 6, 3),
            f"ConvTranspose{n}d": (4, 6, 3),
            f"MaxPool{n}d": (2,),
            f"AvgPool{n}d": (2,),
            f"LPPool{n}d": (2, 2),
            f"AdaptiveAvgPool{n}d": (4,),
            f"AdaptiveMaxPool{n}d": (4,),
            f"BatchNorm{n}d": (4,),
            f"InstanceNorm{n}d": (4,),
            f"ConstantPad{n}d": (1, 0.0),
            f"ZeroPad{n}d": (1,),
            f"ReflectionPad{n}d": (1,),
            f"ReplicationPad{n}d": (1,),
            f"CircularPad{n}d": (1,),
            f"Dropout{n}d": (),
        }.items():
            yield name, (_build(name, *arguments), (small if "Transpose" in name else x,))
        places = torch.arange(3**n).reshape(1, 1, *(3,) * n).expand(2, 4, *(3,) * n).contiguous()
        yield f"MaxUnpool{n}d", (_build(f"MaxUnpool{n}d", 2), (small, places))
    yield "FractionalMaxPool2d", (lambda: nn.FractionalMaxPool2d(2, output_size=3), (f(*image),))
    yield "FractionalMaxPool3d", (lambda: nn.FractionalMaxPool3d(2, output_size=3), (f(1, 2, 6, 6, 6),))
    yield "SyncBatchNorm", (lambda: nn.SyncBatchNorm(4), (f(*image),))
    yield "LayerNorm", (lambda: nn.LayerNorm(4), (f(*flat),))
    yield "RMSNorm", (lambda: nn.RMSNorm(4), (f(*flat),))
    yield "GroupNorm", (lambda: nn.GroupNorm(2, 4), (f(*image),))
    yield "LocalResponseNorm", (lambda: nn.LocalResponseNorm(2), (f(*image),))
    yield "Threshold", (lambda: nn.Threshold(0.1, 1.0), (f(*flat),))
    for name in (*_ELEMENTWISE, "Identity", "Flatten", "Dropout", "AlphaDropout", "FeatureAlphaDropout"):
        yield name, (_build(name), (f(*flat),))
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        yield name, (_build(name, -1), (f(*flat),))
    yield "Softmax2d", (nn.Softmax2d, (f(*image),))
    indices = torch.tensor([[0, 1, 2], [2, 1, 0]])
    yield "Embedding", (lambda: nn.Embedding(5, 4), (indices,))
    yield "EmbeddingBag", (lambda: nn.EmbeddingBag(5, 4), (indices,))
    for name in ("RNN", "LSTM", "GRU"):
        yield name, (_build(name, 3, 2), (f(4, 2, 3),))
        yield f"{name}Cell", (_build(f"{name}Cell", 3, 2), (f(2, 3),))
    yield "Fold", (lambda: nn.Fold((3, 3), 2), (f(1, 4, 4),))
    yield "Unfold", (lambda: nn.Unfold(2), (f(*image),))
    yield "PixelShuffle", (lambda: nn.PixelShuffle(2), (f(*image),))
    yield "PixelUnshuffle", (lambda: nn.PixelUnshuffle(2), (f(*image),))
    yield "ChannelShuffle", (lambda: nn.ChannelShuffle(2), (f(*image),))
    yield "Upsample", (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (f(*image),))
    yield "UpsamplingNearest2d", (lambda: nn.UpsamplingNearest2d(scale_factor=2), (f(*image),))
    yield "UpsamplingBilinear2d", (lambda: nn.UpsamplingBilinear2d(scale_factor=2), (f(*image),))
    yield "Unflatten", (lambda: nn.Unflatten(1, (2, 2)), (f(*flat),))
    yield "CosineSimilarity", (nn.CosineSimilarity, (f(*flat), f(*flat)))
    yield "PairwiseDistance", (nn.PairwiseDistance, (f(*flat), f(*flat)))
    for name in ["L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "BCELoss", "BCEWithLogitsLoss"]:
        yield name, (_build(name), (f(*flat), f(*flat)))
    yield "KLDivLoss", (lambda: nn.KLDivLoss(reduction="sum"), (f(*flat), f(*flat)))
    yield "MarginRankingLoss", (nn.MarginRankingLoss, (f(4), f(4), f(4)))
    yield "NLLLoss", (nn.NLLLoss, (f(*flat), torch.tensor([0, 1])))
    yield "CrossEntropyLoss", (nn.CrossEntropyLoss, (f(*flat), torch.tensor([0, 1])))


def _build(name: str, *arguments: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(nn, name)(*arguments)


CATALOGUE = dict(catalogue())
