"""Similarities and distances of paired rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import distance as formulas
from torchscan_native.layers.formulas.rules import norm
from torchscan_native.layers.guard import EMPTY_ROW, NOT_MINE, Refused, floating
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import NOWHERE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("CosineSimilarity",), cosine_similarity)
    yield from offer(("PairwiseDistance",), pairwise_distance)


def cosine_similarity(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `CosineSimilarity` of two tensors of one shape."""
    x = _pair(call)
    if x is None:
        return NOT_MINE
    width = x.shape[module.dim] if x.dim() else 1
    return answer(formulas.cosine_similarity(_rows(x, width), width), NOWHERE)


def pairwise_distance(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `PairwiseDistance` of two tensors of one shape."""
    x = _pair(call)
    found = norm(module.norm)
    if x is None or found is None:
        return NOT_MINE
    per_power, per_root = found
    width = x.shape[-1] if x.dim() else 1
    return answer(formulas.pairwise_distance(_rows(x, width), width, power=per_power, root=per_root), NOWHERE)


def _pair(call: ModuleCall) -> torch.Tensor | None:
    """Return the first input if both have its shape; broadcast pairs are left to the operator audit."""
    arguments = call.arguments
    x1, x2 = floating(arguments["x1"]), floating(arguments["x2"])
    floating(call.output)
    return x1 if x1.shape == x2.shape else None


def _rows(x: torch.Tensor, width: int) -> int:
    if not width:
        raise Refused(EMPTY_ROW)
    return x.numel() // width
