"""Operator formulas: what one dispatched operator costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from torchscan.contract.validators import one_of

if TYPE_CHECKING:
    import torch

__all__ = ["OPERATOR_KINDS", "OperatorCall", "OperatorFormula", "OperatorKind", "OperatorTerms", "TensorSpec"]

OperatorKind: TypeAlias = Literal["contraction", "arithmetic", "movement", "ignored"]
OperatorTerms: TypeAlias = Literal["products", "squares", "sums"]

#: What a kind of operator can make incomplete in a body that no handler accounts for.
OPERATOR_KINDS: Final[dict[str, frozenset[str]]] = {
    # product terms summed along an axis, and everything that may hide one
    "contraction": frozenset({"module_flops", "macs", "dmas"}),
    # floating-point work without a contraction axis
    "arithmetic": frozenset({"module_flops", "dmas"}),
    # elements rearranged or looked up by value, without arithmetic
    "movement": frozenset({"dmas"}),
    # views, allocation, layout copies, conversions: outside the model of the conventions
    "ignored": frozenset(),
}


@attrs.frozen
class TensorSpec:
    """A tensor argument without its values.

    Attributes:
        shape: its sizes, in elements.
        dtype: its type.

    """

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@attrs.frozen
class OperatorCall:
    """One dispatched operator, tensors replaced by `TensorSpec`.

    Attributes:
        name: the packet, such as `"aten.mm"`.
        overload: the overload, such as `"default"`.
        args: positional arguments; tensors (also inside lists) are `TensorSpec`.
        kwargs: keyword arguments, likewise.
        output: what it returned, likewise.

    """

    name: str
    overload: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any


@attrs.frozen
class OperatorFormula:
    """What one operator costs.

    Args:
        operator: the packet's name, `"aten.softmax"` form; every overload is meant.
        kind: what the operator is; decides which metrics it makes incomplete where nothing accounts for it.
        flops: the operator view's formula in PyTorch's shape contract, `flops(*arg_shapes, out_shape=..., **kwargs)`;
            `None` keeps PyTorch's own formula where it has one, else the operator stays uncounted (or ignored).
        estimate: `OperatorCall -> {"module_flops": ..., "macs": ..., "dmas": ...}` under the conventions of
            functional operators, used with `functional="estimate"`; a metric left out is not covered.
        known_gap: what the operator view's formula is known to miss, reported as `incomplete_operator_formula`.
        reason: why an ignored operator is no work.
        terms: what it does to the terms of a contraction that no single operator shows: it makes `products` of two
            tensors, or `squares`, element by element; or it `sums` elements along an axis. A body that sums what it
            multiplied holds a contraction whose product terms nobody counted.

    """

    operator: str
    kind: OperatorKind = attrs.field(validator=one_of(OPERATOR_KINDS))
    flops: Callable[..., int] | None = None
    estimate: Callable[[OperatorCall], Mapping[str, int]] | None = None
    known_gap: str | None = attrs.field(default=None, kw_only=True)
    reason: str | None = attrs.field(default=None, kw_only=True)
    terms: OperatorTerms | None = attrs.field(
        default=None, kw_only=True, validator=one_of(("products", "squares", "sums"), optional=True)
    )
