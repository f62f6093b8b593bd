"""The softmax family."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import softmax as formulas
from torchscan_native.layers.formulas.rules import Counts
from torchscan_native.layers.guard import EMPTY_ROW, Refused, floating, only
from torchscan_native.layers.offer import Adapter, offer
from torchscan_native.layers.spatial import NOWHERE, POINTWISE, answer


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("Softmax",), _along_dim(formulas.softmax))
    yield from offer(("LogSoftmax",), _along_dim(formulas.log_softmax))
    yield from offer(("Softmin",), _along_dim(formulas.softmin))
    yield from offer(("Softmax2d",), softmax2d)


def _along_dim(formula: Callable[[int, int], Counts]) -> Adapter:
    def adapter(call: ModuleCall, module: Any) -> dict[str, Any]:
        x = floating(only(call))
        shape = x.shape
        dim = module.dim
        if dim is None:  # what PyTorch picks, with a warning
            dim = 0 if len(shape) in (0, 1, 3) else 1
        return answer(_rows(formula, x.numel(), shape[dim] if shape else 1), NOWHERE)

    return adapter


def softmax2d(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `Softmax2d`: the channels of each position are a row."""
    x = floating(only(call))
    return answer(_rows(formulas.softmax, x.numel(), x.shape[-3]), POINTWISE)


def _rows(formula: Callable[[int, int], Counts], elements: int, width: int) -> Counts:
    if not width:
        raise Refused(EMPTY_ROW)
    return formula(elements, elements // width)
