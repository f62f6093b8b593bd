"""A model may change a native layer between two of its calls; each call is counted as it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from native.transformer_modules import X, Y, decoder, decoder_layer, encoder, encoder_layer
from torchscan import scan

Change = Callable[[Any], None]


class Twice(nn.Module):
    """Calls `inner`, changes it, and calls it again."""

    def __init__(self, inner: nn.Module, change: Change) -> None:
        super().__init__()
        self.inner = inner
        self.change = change

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        self.inner(*args)
        self.change(next(m for m in self.inner.modules() if hasattr(m, "linear1")))
        return self.inner(*args)


def foreign(layer: Any) -> None:
    layer.activation = F.silu


def without_weight(layer: Any) -> None:
    layer.norm1.weight = None


def dropping(layer: Any) -> None:
    layer.dropout.train()


# how to build it, its inputs, its MACs, and the products of one norm's weight: 3*4 or 2*4
MODULES = {
    "encoder layer": (encoder_layer, (X,), 504, 12),
    "decoder layer": (decoder_layer, (Y, X), 544, 8),
    # two layers; the decoder has a final norm: 2*544 + 16
    "encoder": (encoder, (X,), 1008, 12),
    "decoder": (decoder, (Y, X), 1104, 8),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("metrics", [None, ("macs",)])
def test_a_norm_weight_taken_away(name: str, metrics: tuple[str, ...] | None) -> None:
    build, args, macs, products = MODULES[name]
    report = scan(Twice(build(), without_weight), args=args, metrics=metrics)
    found = [layer.metrics["macs"].value for layer in report.layers if layer.path == "inner"]
    assert found == [macs, macs - products]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("change", "reason"), [(foreign, "foreign_activation"), (dropping, "training_mode")])
def test_a_second_call_outside(name: str, change: Change, reason: str) -> None:
    build, args, macs, _ = MODULES[name]
    report = scan(Twice(build(), change), args=args)
    found = [layer.metrics["macs"] for layer in report.layers if layer.path == "inner"]
    assert [(result.status, result.known_value) for result in found] == [("complete", macs), ("unavailable", None)]
    assert {d.reason for d in report.diagnostics if d.code == "unsupported_native_call"} == {reason}
