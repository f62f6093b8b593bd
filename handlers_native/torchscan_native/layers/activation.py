"""Elementwise activations and the gated linear unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import activation as formulas
from torchscan_native.layers.guard import TRAINING, Refused, floating, only, parameter, refusal
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import NOWHERE, POINTWISE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    for name, flops in formulas.FLOPS_PER_ELEMENT.items():
        if name not in _SPECIAL and hasattr(torch.nn, name):
            yield from offer((name,), _plain(flops))
    for name, adapter in _SPECIAL.items():
        yield from offer((name,), adapter)


def _plain(flops: int) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        return answer(formulas.activation(floating(only(call)).numel(), flops), POINTWISE)

    return adapter


def gelu(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `GELU`, exact or approximated."""
    elements = floating(only(call)).numel()
    flops = _GELU.get(module.approximate)
    if flops is None:
        raise Refused(_APPROXIMATION)
    return answer(formulas.activation(elements, flops), POINTWISE)


def prelu(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `PReLU`, which reads its slopes."""
    elements = floating(only(call)).numel()
    weight = parameter(module, "weight", (module.num_parameters,))
    if weight is None:
        raise Refused(_APPROXIMATION)
    return answer(formulas.activation(elements, _PRELU, weight[0] if weight else 1), POINTWISE)


def rrelu(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `RReLU`, whose slopes are drawn only in training."""
    if module.training:
        raise Refused(TRAINING)
    return answer(formulas.activation(floating(only(call)).numel(), _RRELU), POINTWISE)


def glu(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `GLU`."""
    floating(only(call))
    return answer(formulas.gated_linear_unit(floating(call.output).numel()), NOWHERE)


_SPECIAL: dict[str, Adapter] = {"GELU": gelu, "PReLU": prelu, "RReLU": rrelu, "GLU": glu}
_PRELU = formulas.FLOPS_PER_ELEMENT["PReLU"]
_RRELU = formulas.FLOPS_PER_ELEMENT["RReLU"]
_GELU = {"none": formulas.FLOPS_PER_ELEMENT["GELU"], "tanh": formulas.FLOPS_PER_ELEMENT["GELU (tanh)"]}
_APPROXIMATION = refusal("unknown_variant", "there is no formula for this variant; supply it with custom_modules")
