"""Losses with a plain formula; the others are listed in `unhandled`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import loss as formulas
from torchscan_native.layers.guard import EMPTY_ROW, NOT_MINE, Refused, floating, indices
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import NOWHERE, answer

#: The arguments that a loss per element reads, all of one shape, where they are not `input` and `target`.
_OPERANDS = {"MarginRankingLoss": ("input1", "input2", "target")}
_REDUCED = {"none": False, "mean": True, "sum": True, "batchmean": True}


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    for name, flops in formulas.FLOPS_PER_ELEMENT.items():
        yield from offer((name,), _elementwise(flops, _OPERANDS.get(name, ("input", "target"))))
    yield from offer(("NLLLoss",), _classes(log_softmax=False))
    yield from offer(("CrossEntropyLoss",), _classes(log_softmax=True))


def _elementwise(flops: int, names: tuple[str, ...]) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        arguments = call.arguments
        tensors = [floating(arguments[name]) for name in names]
        shape = tensors[0].shape
        reduced = _REDUCED.get(module.reduction)
        # Broadcast operands and weighted variants have no formula here; the operator audit may count them.
        if reduced is None or _weighted(module) or any(tensor.shape != shape for tensor in tensors):
            return NOT_MINE
        per_element = flops
        if getattr(module, "beta", None) == 0:  # SmoothL1Loss without its quadratic part
            per_element = formulas.FLOPS_PER_ELEMENT["L1Loss"]
        elements = tensors[0].numel()
        if reduced and not elements:
            raise Refused(EMPTY_ROW)
        mean = module.reduction in ("mean", "batchmean")
        counts = formulas.elementwise(elements, per_element, len(tensors), reduced=reduced, mean=mean)
        return answer(counts, NOWHERE)

    return adapter


def _classes(*, log_softmax: bool) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        arguments = call.arguments
        x, target = floating(arguments["input"]), arguments["target"]
        reduced = _REDUCED.get(module.reduction)
        probabilities = getattr(target, "dtype", None) is not None and target.dtype.is_floating_point
        if reduced is None or _weighted(module) or getattr(module, "label_smoothing", False) or probabilities:
            return NOT_MINE
        rows = indices(target).numel()
        elements = x.numel()
        if not x.shape[1 if x.dim() > 1 else 0] or (reduced and not rows):
            raise Refused(EMPTY_ROW)
        mean = module.reduction == "mean"
        if log_softmax:
            counts = formulas.cross_entropy(elements, rows, reduced=reduced, mean=mean)
        else:
            counts = formulas.negative_log_likelihood(rows, reduced=reduced, mean=mean)
        return answer(counts, NOWHERE)

    return adapter


def _weighted(module: Any) -> bool:
    buffers = module._buffers
    return buffers.get("weight") is not None or buffers.get("pos_weight") is not None
