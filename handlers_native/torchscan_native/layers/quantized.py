"""Quantized layers: their arithmetic is not floating-point arithmetic, and that is not nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall, ModuleHandler
from torchscan_native.layers.guard import refusal

# Named, not imported: these packages load compiled backends. A subclass is covered by its base.
_STATIC = {
    "activation": ("ELU", "Hardswish", "LeakyReLU", "MultiheadAttention", "PReLU", "ReLU6", "Sigmoid", "Softmax"),
    "batchnorm": ("BatchNorm2d", "BatchNorm3d"),
    "conv": ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    "dropout": ("Dropout",),
    "embedding_ops": ("Embedding", "EmbeddingBag"),
    "linear": ("Linear",),
    "normalization": ("GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LayerNorm"),
    "rnn": ("LSTM",),
}
_DYNAMIC = {"rnn": ("GRU", "GRUCell", "LSTM", "LSTMCell", "RNNCell", "RNNBase", "RNNCellBase")}
_CONVERSIONS = ("Quantize", "DeQuantize")


def names() -> Iterator[str]:
    """Yield the dotted names of the classes that are declared unavailable."""
    for module, classes in _STATIC.items():
        yield from (f"torch.ao.nn.quantized.modules.{module}.{name}" for name in classes)
    for module, classes in _DYNAMIC.items():
        yield from (f"torch.ao.nn.quantized.dynamic.modules.{module}.{name}" for name in classes)
    yield from (f"torch.ao.nn.quantized.modules.{name}" for name in _CONVERSIONS)
    yield "torch.ao.nn.sparse.quantized.linear.Linear"


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    for name in names():
        yield HandlerRegistration(name, ModuleHandler(quantized))


def quantized(call: ModuleCall) -> dict[str, Any]:
    """Say that a quantized layer's work is not counted."""
    return _QUANTIZED


_QUANTIZED = refusal(
    "quantized_module",
    "quantized arithmetic has no built-in rule; scan the floating-point model, or supply the count with custom_modules",
)
