"""Small native modules and tensors for the Transformer tests: E = 4, H = 2, F = 8, sequence first."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchscan import crawl_module
from torchscan_native.transformer import handlers
from torchscan_native.transformer.boundaries import BOUNDARIES

COUNTS = ("module_flops", "macs", "dmas")
X = torch.ones(3, 1, 4)  # three tokens, one batch entry
Y = torch.ones(2, 1, 4)

HANDLERS = {
    nn.MultiheadAttention: handlers.attention,
    nn.TransformerEncoderLayer: handlers.encoder_layer,
    nn.TransformerDecoderLayer: handlers.decoder_layer,
    nn.TransformerEncoder: handlers.encoder,
    nn.TransformerDecoder: handlers.decoder,
    nn.Transformer: handlers.transformer,
}


def attention(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(4, 2, **options)


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(4, 2, 8, **options)


def decoder_layer(**options: Any) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(4, 2, 8, **options)


def encoder(layers: int = 2, **options: Any) -> nn.TransformerEncoder:
    options.setdefault("enable_nested_tensor", False)
    return nn.TransformerEncoder(encoder_layer(), layers, **options)


def decoder(layers: int = 2) -> nn.TransformerDecoder:
    return nn.TransformerDecoder(decoder_layer(), layers, norm=nn.LayerNorm(4))


def transformer(**options: Any) -> nn.Transformer:
    return nn.Transformer(4, 2, 1, 1, 8, **options)


def parameter(*shape: int, **options: Any) -> nn.Parameter:
    return nn.Parameter(torch.ones(*shape, **options), requires_grad=False)


def same_forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return type(self).forward(self, *args, **kwargs)


def replace_forward(module: nn.Module) -> None:
    module.forward = types.MethodType(same_forward, module)  # type: ignore[method-assign]


Build = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


class Cases(dict[str, tuple[str, Build]]):
    """Calls that PyTorch runs outside a boundary: name -> the boundary, and how to build the call."""

    def outside(self, reason: str) -> Callable[[Build], Build]:
        """Register a function that returns the module, its positional and its keyword arguments."""

        def register(build: Build) -> Build:
            self[build.__name__] = (reason, build)
            return build

        return register

    def check(self, name: str) -> None:
        """Scan one of them: no number anywhere, and a diagnostic that names the boundary."""
        reason, build = self[name]
        module, args, kwargs = build()
        report = crawl_module(module, args=args, kwargs=kwargs)
        for metric in COUNTS:
            total = report["totals"][metric]
            assert (total["status"], total["value"], total["known_value"]) == ("unavailable", None, None)
            found = [d for d in report["diagnostics"] if d["metric"] == metric]
            found = [d for d in found if d["code"] == "unsupported_native_call"]
            assert {d["reason"] for d in found} == {reason}
            assert BOUNDARIES[reason] in found[0]["message"]
