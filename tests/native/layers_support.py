"""What the tests of the layers share: one call's estimates, and a scalar interpreter that counts what it executes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from torchscan import ModuleCall
from torchscan_native.layers import registrations

COUNTS = ("module_flops", "macs", "dmas")
SPATIAL = ("receptive_field", "effective_stride", "effective_padding")

_HANDLERS = {registration.target: registration.handler for registration in registrations()}


def handler_for(cls: type) -> Any:
    """Return the handler of the closest registered class."""
    for base in cls.__mro__:
        for target in (base, f"{base.__module__}.{base.__qualname__}"):
            if target in _HANDLERS:
                return _HANDLERS[target]
    return None


def estimates(module: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Run one call without gradients and return what the handler says about it."""
    with torch.no_grad():
        output = module(*args, **kwargs)
        return dict(handler_for(type(module))(ModuleCall(module, args, kwargs, output)))


def counts(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Return (FLOPs, MACs, DMAs) of one evaluation call."""
    found = estimates(module.eval(), *args, **kwargs)
    return tuple(found[name] for name in COUNTS)


def spatial(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Return (receptive field, stride, padding) of one evaluation call; the reason in place of a missing one."""
    found = estimates(module.eval(), *args, **kwargs)
    return tuple(getattr(found[name], "reason", found[name]) for name in SPATIAL)


def reasons(module: nn.Module, *args: Any, **kwargs: Any) -> set[str]:
    """Return why the counts of one call are unavailable; a number among them fails."""
    found = estimates(module, *args, **kwargs)
    return {found[name].reason for name in COUNTS}


def size(value: Any) -> int:
    """Return the number of elements of an operand; a scalar has one."""
    return int(np.size(value))


def each(function: Any, *operands: np.ndarray) -> np.ndarray:
    """Return `function` of the elements, called exactly once for each."""
    spread = np.broadcast_arrays(*operands)
    out = np.empty(spread[0].shape)
    for at in np.ndindex(*out.shape):
        out[at] = function(*(operand[at] for operand in spread))
    return out


class Machine:
    """Executes scalars one operation at a time and counts. Nothing here knows a formula.

    A contraction's product is `term`, which counts as a MAC too. `stage` counts what a stage reads and writes.
    """

    def __init__(self) -> None:
        self.flops = self.macs = self.dmas = 0

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.flops, self.macs, self.dmas

    def _one(self, value: float) -> float:
        self.flops += 1
        return value

    def add(self, a: float, b: float) -> float:
        return self._one(a + b)

    def sub(self, a: float, b: float) -> float:
        return self._one(a - b)

    def mul(self, a: float, b: float) -> float:
        return self._one(a * b)

    def div(self, a: float, b: float) -> float:
        return self._one(a / b)

    def neg(self, a: float) -> float:
        return self._one(-a)

    def abs(self, a: float) -> float:
        return self._one(abs(a))

    def max(self, a: float, b: float) -> float:
        return self._one(max(a, b))

    def min(self, a: float, b: float) -> float:
        return self._one(min(a, b))

    def exp(self, a: float) -> float:
        return self._one(math.exp(a))

    def log(self, a: float) -> float:
        return self._one(math.log(a))

    def sqrt(self, a: float) -> float:
        return self._one(math.sqrt(a))

    def erf(self, a: float) -> float:
        return self._one(math.erf(a))

    def less(self, a: float, b: float) -> bool:
        return bool(self._one(a < b))

    def select(self, condition: bool, a: float, b: float) -> float:
        return self._one(a if condition else b)

    def term(self, a: float, b: float) -> float:
        self.macs += 1
        return self.mul(a, b)

    def square(self, a: float, *, mac: bool = False) -> float:
        self.macs += mac
        return self._one(a * a)

    def sum(self, values: Iterable[float]) -> float:
        values = list(values)
        total = values[0] if values else 0.0
        for value in values[1:]:
            total = self.add(total, value)
        return total

    def largest(self, values: Iterable[float]) -> float:
        best, *others = values
        for value in others:
            best = self.max(best, value)
        return best

    def dot(self, a: Iterable[float], b: Iterable[float]) -> float:
        return self.sum([self.term(x, y) for x, y in zip(a, b, strict=True)])

    def sigmoid(self, x: float) -> float:
        return self.div(1.0, self.add(1.0, self.exp(self.neg(x))))

    def tanh(self, x: float) -> float:
        up, down = self.exp(x), self.exp(self.neg(x))
        return self.div(self.sub(up, down), self.add(up, down))

    def stage(self, reads: Sequence[Any], writes: Any) -> None:
        self.dmas += sum(size(operand) for operand in reads) + size(writes)

    def map(self, function: Any, *operands: np.ndarray) -> np.ndarray:
        """Apply a scalar function to every element of one elementwise stage."""
        out = each(function, *operands)
        self.stage(operands, out)
        return out


def logsigmoid(m: Machine, x: float) -> float:
    return m.sub(m.min(0.0, x), m.log(m.add(1.0, m.exp(m.neg(m.abs(x))))))


def softmax(machine: Machine, x: np.ndarray, dim: int, *, log: bool = False) -> np.ndarray:
    """Return the softmax of an array along an axis, stage by stage."""
    rows = np.moveaxis(x, dim, -1)
    shape = rows.shape
    rows = rows.reshape(-1, shape[-1])
    top = np.array([machine.largest(row) for row in rows])
    machine.stage([rows], top)
    shifted = each(machine.sub, rows, top[:, None])
    machine.stage([rows, top], shifted)
    powers = machine.map(machine.exp, shifted)
    sums = np.array([machine.sum(row) for row in powers])
    machine.stage([powers], sums)
    if log:
        logarithms = machine.map(machine.log, sums)
        out = each(machine.sub, shifted, logarithms[:, None])
        machine.stage([shifted, logarithms], out)
    else:
        out = each(machine.div, powers, sums[:, None])
        machine.stage([powers, sums], out)
    return np.moveaxis(out.reshape(shape), -1, dim)


def random(*shape: int) -> torch.Tensor:
    """Return a float64 tensor, reproducible under hypothesis."""
    generator = torch.Generator().manual_seed(17 + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def same_numbers(output: torch.Tensor, computed: Any) -> None:
    """Check that the interpreter computed what PyTorch computed."""
    np.testing.assert_allclose(output.detach().numpy(), np.asarray(computed), rtol=1e-6, atol=1e-8)
