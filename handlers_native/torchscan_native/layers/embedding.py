"""Lookups: `Embedding` and `EmbeddingBag`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import embedding as formulas
from torchscan_native.layers.guard import Refused, floating, indices, only, parameter, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import NOWHERE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("Embedding",), embedding)
    yield from offer(("EmbeddingBag",), embedding_bag)


def embedding(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Embedding`."""
    count = indices(only(call)).numel()
    return answer(formulas.embedding(count, _width(call, module)), NOWHERE)


def embedding_bag(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `EmbeddingBag`, with bags of one length or with offsets."""
    arguments = call.arguments
    count = indices(arguments["input"]).numel()
    weights, offsets = arguments["per_sample_weights"], arguments["offsets"]
    width = _width(call, module)
    if module.padding_idx is not None:
        raise Refused(_PADDING)
    if weights is not None:
        floating(weights)
    bags = call.output.shape[0]
    stored = 0 if offsets is None else indices(offsets).numel()
    mode, last_included = module.mode, bool(module.include_last_offset)
    if mode == "mean" and not last_included:
        return answer(formulas.bag_mean(count, width, bags, offsets=stored), NOWHERE)
    filled = (bags if count else 0) if offsets is None else _filled(call, offsets, count, last_included)
    if mode == "sum":
        counts = formulas.bag_sum(count, width, bags, filled, offsets=stored, weighted=weights is not None)
    elif mode == "max":
        counts = formulas.bag_maximum(count, width, bags, filled, offsets=stored)
    elif mode == "mean":
        counts = formulas.bag_mean(count, width, bags, offsets=stored)
    else:
        raise Refused(_MODE)
    return answer(counts, NOWHERE)


def _width(call: ModuleCall, module: Any) -> int:
    """Return the width of a table row; the output has it too."""
    if module.max_norm is not None:
        raise Refused(_RENORM)
    width = floating(call.output).shape[-1]
    weight = parameter(module, "weight", (module.num_embeddings, width))
    if weight is None or len(weight) != 2:
        raise Refused(_TABLE)
    return width


def _filled(call: ModuleCall, offsets: torch.Tensor, count: int, last_included: bool) -> int:
    """Return how many bags hold an index: the only count here that hangs on values."""
    readable = call.readable(offsets)
    if readable is None:
        raise Refused(_OFFSETS)
    starts = readable.tolist()
    if not last_included:
        starts.append(count)
    elif starts and starts[-1] != count:
        raise Refused(_LAST)
    return sum(1 for start, end in itertools.pairwise(starts) if end > start)


_RENORM = refusal("max_norm", "with max_norm the call also rescales table rows, which ones depends on their values")
_PADDING = refusal("padding_idx", "with padding_idx the number of added rows depends on the indices' values")
_OFFSETS = refusal("unreadable_offsets", "how many bags are empty depends on the offsets' values; scan a real call")
_LAST = refusal("last_offset", "the last offset leaves some indices out")
_MODE = refusal("mode", "there is no formula for this mode; supply the count with custom_modules")
_TABLE = refusal("weight_shape", "the formula describes a table of rows")
