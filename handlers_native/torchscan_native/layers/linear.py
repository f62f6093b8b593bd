"""`Linear` and `Bilinear`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch.nn.modules.linear

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import linear as formulas
from torchscan_native.layers.guard import Refused, floating, only, parameter, parameter_numel, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import NOWHERE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("Linear", "NonDynamicallyQuantizableLinear"), linear, home=torch.nn.modules.linear)
    yield from offer(("Bilinear",), bilinear)


def linear(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Linear`; the sizes are those of the tensors, whatever the attributes say."""
    x = floating(only(call))
    y = floating(call.output)
    shape = x.shape
    weight = parameter(module, "weight", (y.shape[-1], shape[-1]))
    if weight is None or len(weight) != 2:
        raise Refused(_NO_MATRIX)
    out_features, in_features = weight
    bias = parameter(module, "bias", (out_features,))
    counts = formulas.linear(
        math.prod(shape[:-1]), in_features, out_features, bias=None if bias is None else math.prod(bias)
    )
    return answer(counts, NOWHERE)


def bilinear(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Bilinear`."""
    arguments = call.arguments
    x1, x2, y = floating(arguments["input1"]), floating(arguments["input2"]), floating(call.output)
    weight = parameter(module, "weight", (y.shape[-1], x1.shape[-1], x2.shape[-1]))
    if weight is None or len(weight) != 3:
        raise Refused(_NO_MATRIX)
    out_features, in1, in2 = weight
    bias = parameter_numel(module, "bias", (out_features,))
    counts = formulas.bilinear(math.prod(x1.shape[:-1]), in1, in2, out_features, bias=bias)
    return answer(counts, NOWHERE)


_NO_MATRIX = refusal("weight_shape", "the formula describes a weight with one axis per feature axis")
