"""Parametrizations that PyTorch ships: the modules that compute a parameter before a layer uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils import parametrizations

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import parametrization as formulas
from torchscan_native.layers.guard import TRAINING, Refused, floating, only, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import NOWHERE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class; the list that holds them computes nothing itself."""
    yield from offer(("_WeightNorm",), weight_norm, home=parametrizations)
    yield from offer(("_SpectralNorm",), spectral_norm, home=parametrizations)
    yield from offer(("_Orthogonal",), orthogonal, home=parametrizations)


def weight_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one evaluation of a weight-normalised parameter."""
    arguments = call.arguments
    gain, direction = floating(arguments["weight_g"]), floating(arguments["weight_v"])
    return answer(formulas.weight_norm(direction.numel(), gain.numel()), NOWHERE)


def spectral_norm(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one evaluation of a spectrally normalised parameter, with the stored vectors."""
    weight: torch.Tensor = floating(only(call, "weight"))
    if weight.dim() == 1:
        return answer(formulas.normalized_vector(weight.numel()), NOWHERE)
    if module.training:
        raise Refused(TRAINING)
    height = weight.shape[module.dim]
    counts = formulas.spectral_norm(height, weight.numel() // height if height else 0)
    return answer(counts, NOWHERE)


def orthogonal(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Say that the factorisation behind an orthogonal parameter has no formula."""
    raise Refused(_FACTORISATION)


_FACTORISATION = refusal(
    "matrix_factorisation",
    "matrix exponentials, solves and Householder products have no formula; remove the parametrization before the scan "
    "with torch.nn.utils.parametrize.remove_parametrizations",
)
