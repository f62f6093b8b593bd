"""Work that no single operator shows.

Contractions: a body that multiplies two tensors and then sums along an axis.

`(a * b).sum(-1)` is a contraction, but the dispatcher sees an elementwise product and a reduction, each without a
product term of its own. Which sum gets which product would take following every tensor; the operators of one body, in
the order they first ran, are enough to never call such a body's MACs complete.

Round trips: a body that hands values to NumPy and makes a tensor of what comes back. What NumPy computed is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchscan.contract.operators import TensorSpec
from torchscan.engine.operators import OperatorCost

__all__ = ["hidden_sums", "round_trips"]

#: Operators that hand on some of the elements of a tensor, or more of them, or many tensors at once: after these, sizes
#: say nothing.
_RESIZING = frozenset(
    {
        "aten.slice",
        "aten.select",
        "aten.expand",
        "aten.unbind",
        "aten.split",
        "aten.split_with_sizes",
        "aten.unsafe_split",
        "aten.unsafe_split_with_sizes",
        "aten.unfold",
        "aten.as_strided",
        "aten.diagonal",
        "aten.cat",
        "aten.stack",
        "aten.index",
        "aten._unsafe_index",
        "aten.index_select",
        "aten.gather",
        "aten.take",
        "aten.masked_select",
        "aten.repeat",
        "aten.repeat_interleave",
        "aten.constant_pad_nd",
        "aten.im2col",
        "aten._foreach_mul",
        "aten._foreach_mul_",
        "aten._foreach_addcmul",
        "aten._foreach_addcmul_",
    }
)

#: Operators that put elements in their places, or add them up there where the call says so.
_PLACING = frozenset(
    {
        "aten.index_put",
        "aten.index_put_",
        "aten._index_put_impl_",
        "aten.put",
        "aten.put_",
        "aten.scatter",
        "aten.scatter_",
    }
)

_BAGS = frozenset({"aten._embedding_bag", "aten._embedding_bag_forward_only"})


def hidden_sums(operators: Mapping[OperatorCost, int]) -> frozenset[OperatorCost]:
    """Return the reductions of a body that may sum products the same body made.

    A reduction is meant when a product of two tensors, or a square, of the same kind of number came before it, or it
    ran more than once, and when the sizes fit: the product has as many elements as the reduction reads, unless the
    body also took elements apart or put them together.

    Args:
        operators: what the body dispatched, in the order of first dispatch, with the number of calls.

    """
    found: set[OperatorCost] = set()
    products: set[tuple[bool, int]] = set()
    for cost in operators:
        if (made := _made(cost)) is not None:
            products.add((cost.floating, made))
    if not products:
        return frozenset()
    resized = any(cost.info.name in _RESIZING for cost in operators)
    earlier: set[tuple[bool, int]] = set()
    for cost, count in operators.items():
        if (made := _made(cost)) is not None:
            earlier.add((cost.floating, made))
        elif (summed := _summed(cost)) is not None:
            candidates = products if count > 1 else earlier
            if any(cost.floating == floating and (resized or made == summed) for floating, made in candidates):
                found.add(cost)
    return frozenset(found)


def round_trips(operators: Mapping[OperatorCost, int]) -> frozenset[OperatorCost]:
    """Return the operators of a body that made tensors of values from outside, after others had left for it.

    `Tensor.numpy()` dispatches a detach, and `torch.from_numpy()` or `torch.tensor()` a lift; a lift alone makes a
    constant.

    Args:
        operators: what the body dispatched, in the order of first dispatch.

    """
    found: set[OperatorCost] = set()
    left = False
    for cost in operators:
        name = cost.info.name
        if name not in ("aten.detach", "aten.lift_fresh") or cost.call is None:
            continue
        many = any(spec.numel > 1 for spec in _specs(cost.call.args))
        if name == "aten.detach":
            left |= many
        elif left and many and cost.floating:
            found.add(cost)
    return frozenset(found)


def _terms(cost: OperatorCost) -> str | None:
    formula = cost.info.formula
    return None if formula is None else formula.terms


def _made(cost: OperatorCost) -> int | None:
    """Return how many products of two tensors, or squares, an operator made; `None` for none."""
    terms, call = _terms(cost), cost.call
    if call is None or terms not in ("products", "squares"):
        return None
    result = next(_specs(call.output), None) or next(_specs(call.args), None)
    if result is None:
        return None
    if terms == "squares":
        return result.numel if len(call.args) > 1 and call.args[1] == 2 else None
    factors = sum(1 for argument in call.args if any(spec.numel > 1 for spec in _specs(argument)))
    return result.numel if factors > 1 else None  # a single number only scales


def _summed(cost: OperatorCost) -> int | None:
    """Return how many elements a reduction reads; `None` for another operator, or one that sums nothing."""
    call = cost.call
    if call is None or _terms(cost) != "sums":
        return None
    if cost.info.name in _PLACING and cost.estimate().get("module_flops") == 0:
        return None
    # A scattered sum names what it adds last, its first operand is where; a bag names its table first.
    operands = list(_specs(call.args))
    summed = operands[0 if cost.info.name in _BAGS else -1].numel if operands else 0
    return summed if summed > 1 else None


def _specs(value: Any) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _specs(item)
