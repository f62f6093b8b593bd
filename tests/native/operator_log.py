"""What the tests of operator formulas share: the operators a function dispatches, and what the table says of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import shape_wrapper

from torchscan import OperatorCall, OperatorFormula, TensorSpec
from torchscan_native.operators import formulas

TABLE: dict[str, OperatorFormula] = {formula.operator: formula for formula in formulas()}
METRICS = ("module_flops", "macs", "dmas")


@attrs.frozen(eq=False)
class Dispatched:
    """One operator that ran.

    Attributes:
        operator: the overload that ran.
        call: what the estimate sees.
        view: FLOPs of the operator view; the exception where the formula does not cover the call.

    """

    operator: Any
    call: OperatorCall
    view: int | Exception | None

    @property
    def formula(self) -> OperatorFormula | None:
        """The table's entry."""
        return TABLE.get(self.call.name)

    @property
    def estimate(self) -> Mapping[str, int]:
        """What the table estimates."""
        assert self.formula is not None, f"{self.call.name} is not in the table"
        assert self.formula.estimate is not None, f"{self.call.name} has no estimate"
        return self.formula.estimate(self.call)

    @property
    def counts(self) -> tuple[int | None, ...]:
        """FLOPs, MACs and DMAs; `None` for what is left out."""
        return tuple(self.estimate.get(name) for name in METRICS)


class Function(nn.Module):
    """Runs a function as the body of a module without children."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def specs(value: Any) -> Any:
    """Replace tensors as the engine does."""
    if isinstance(value, torch.Tensor):
        return TensorSpec(tuple(value.shape), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(specs(item) for item in value)
    return value


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


class _Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Dispatched] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = f"{func.namespace}.{func._opname}"
        call = OperatorCall(name, func._overloadname, specs(args), {k: specs(v) for k, v in kwargs.items()}, specs(out))
        view: int | Exception | None = None
        formula = TABLE.get(name)
        if formula is not None and formula.flops is not None:
            try:
                view = shape_wrapper(formula.flops)(*args, **kwargs, out_val=out)
            except Exception as error:
                view = error
        self.seen.append(Dispatched(func, call, view))
        return out


def dispatched(function: Callable[[], Any], *, grad: bool = False) -> list[Dispatched]:
    """Run `function` and return its operators in order."""
    with torch.set_grad_enabled(grad), _Log() as log:
        function()
    return log.seen


def one(function: Callable[[], Any], name: str | None = None) -> Dispatched:
    """Run `function` and return its one operator that is work, or the one of that name."""
    found = [
        op
        for op in dispatched(function)
        if (op.call.name == f"aten.{name}" if name else op.formula is not None and op.formula.kind != "ignored")
    ]
    assert len(found) == 1, [op.call.name for op in found]
    return found[0]


def any_floating(call: OperatorCall) -> bool:
    """Say whether a call reads or makes a floating-point number in a tensor."""
    stack: list[Any] = [call.args, tuple(call.kwargs.values()), call.output]
    while stack:
        value = stack.pop()
        if isinstance(value, TensorSpec) and (value.dtype.is_floating_point or value.dtype.is_complex):
            return True
        if isinstance(value, tuple | list):
            stack.extend(value)
    return False


def total(function: Callable[[], Any]) -> tuple[int, ...]:
    """Run `function` and return the FLOPs, MACs and DMAs of everything it dispatched; a gap fails."""
    sums = dict.fromkeys(METRICS, 0)
    for op in dispatched(function):
        schema = op.operator._schema
        view = bool(schema.returns) and all(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        )
        if op.formula is None:
            assert view, f"{op.call.name} is neither a view nor in the table"
            continue
        if op.formula.kind == "ignored":
            continue
        if op.formula.kind != "contraction" and not any_floating(op.call):
            continue  # integers and truth values: index work
        for name in METRICS:
            sums[name] += op.estimate[name]
    return tuple(sums.values())
