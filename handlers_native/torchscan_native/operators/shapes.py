"""From dispatched operators to integers: one rule per operator serves the operator view and the estimates.

A rule is a plain function in PyTorch's shape contract: it has the parameters of the operator's schema, every tensor
replaced by its shape, plus `out_shape`. A shape is a tuple of integers; a list of integers (a kernel size, the axes of
a sum) stays a list, which is how the two are told apart. Derivation: docs/derivations/functional-operators.md#rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import attrs

from torchscan.contract.operators import OperatorCall, OperatorFormula, OperatorKind, OperatorTerms, TensorSpec
from torchscan_native.layers.formulas.rules import Counts

__all__ = [
    "NOTHING",
    "NotCovered",
    "Rule",
    "Shape",
    "Work",
    "axes_of",
    "numel",
    "offer",
    "optional_numel",
    "rows_of",
    "tensors",
    "unknown",
    "work",
]

Shape: TypeAlias = tuple[int, ...]


class NotCovered(ValueError):
    """A form of the operator that its rule does not describe; the message says which."""


class Work(NamedTuple):
    """What one operator call costs; `None` where the conventions say nothing.

    Attributes:
        flops: module FLOPs.
        macs: product terms of contractions.
        dmas: logical element reads and writes.
        executed: FLOPs of the operator view, where they differ from `flops`: a contraction of K terms is 2K there, and
            a fused bias is left out.

    """

    flops: int | None
    macs: int | None
    dmas: int | None
    executed: int | None = None

    def plus(self, *, flops: int = 0, dmas: int = 0, executed: int = 0) -> Work:
        """Return this work and some more; what is `None` stays `None`."""
        return Work(
            None if self.flops is None else self.flops + flops,
            self.macs,
            None if self.dmas is None else self.dmas + dmas,
            None if self.executed is None else self.executed + executed,
        )


Rule: TypeAlias = Callable[..., Work]

NOTHING = Work(0, 0, 0)


def work(counts: Counts, *, executed: int | None = None) -> Work:
    """Return the counts of a layer formula as the work of an operator."""
    return Work(counts.flops, counts.macs, counts.dmas, executed)


def unknown(*args: Any, **kwargs: Any) -> Work:
    """Count no contraction, and say nothing about FLOPs and accesses: the rule of an operator without a convention."""
    return Work(None, 0, None)


def numel(shape: Shape) -> int:
    """Return the number of elements."""
    return math.prod(shape)


def optional_numel(shape: Shape | None) -> int | None:
    """Return the number of elements of a tensor that may be left out, `None` where it is."""
    return None if shape is None else math.prod(shape)


def tensors(*values: Any) -> Iterator[Shape]:
    """Yield the shape of every tensor in `values`, also inside lists."""
    for value in values:
        if isinstance(value, tuple):
            if all(isinstance(size, int) for size in value):
                yield value
            else:
                yield from tensors(*value)
        elif isinstance(value, list):
            yield from tensors(*value)


def axes_of(shape: Shape, dim: int | Iterable[int] | None) -> tuple[int, ...]:
    """Return the axes that `dim` names, from 0; `None` and an empty list name all of them."""
    rank = len(shape)
    if dim is None:
        return tuple(range(rank))
    named = (dim,) if isinstance(dim, int) else tuple(dim)
    if not named:
        return tuple(range(rank))
    return tuple(sorted({axis % rank for axis in named})) if rank else ()


def rows_of(shape: Shape, dim: int | Iterable[int] | None) -> int:
    """Return how many results a reduction over `dim` leaves."""
    reduced = axes_of(shape, dim)
    return math.prod(size for axis, size in enumerate(shape) if axis not in reduced)


@attrs.frozen
class _Executed:
    """The operator view's formula of a rule."""

    rule: Rule

    def __call__(self, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
        found = self.rule(*args, out_shape=out_shape, **kwargs)
        flops = found.flops if found.executed is None else found.executed
        if flops is None:
            raise NotCovered("the conventions name no FLOPs for this form")
        return flops


@attrs.frozen
class _Estimate:
    """The estimate of a rule under the conventions of functional operators."""

    rule: Rule

    def __call__(self, call: OperatorCall) -> Mapping[str, int]:
        args = tuple(_shaped(value) for value in call.args)
        kwargs = {name: _shaped(value) for name, value in call.kwargs.items() if name != "out_shape"}
        found = self.rule(*args, out_shape=_shaped(call.output), **kwargs)
        dtypes = [spec.dtype for spec in _specs((call.args, tuple(call.kwargs.values()), call.output))]
        if any(str(dtype).startswith("torch.q") for dtype in dtypes):
            return {}  # packed integers with a scale: no convention
        if any(dtype.is_complex for dtype in dtypes):
            # No rule for complex arithmetic; but what has no contraction axis has no MAC, whatever its numbers are.
            return {"macs": 0} if found.macs == 0 else {}
        estimates: dict[str, int] = {}
        if found.flops is not None:
            floating = not dtypes or any(dtype.is_floating_point for dtype in dtypes)
            estimates["module_flops"] = found.flops if floating else 0  # integer and boolean arithmetic costs 0
        if found.macs is not None:
            estimates["macs"] = found.macs
        if found.dmas is not None:
            estimates["dmas"] = found.dmas
        return estimates


def _shaped(value: Any) -> Any:
    """Replace every `TensorSpec` by its shape, and every other sequence by a list."""
    if isinstance(value, TensorSpec):
        return tuple(value.shape)
    if isinstance(value, tuple | list):
        return [_shaped(item) for item in value]
    return value


def _specs(value: Any) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _specs(item)


def offer(
    names: str,
    kind: OperatorKind,
    rule: Rule | None = None,
    *,
    view: bool = True,
    estimate: bool = True,
    known_gap: str | None = None,
    reason: str | None = None,
    terms: OperatorTerms | None = None,
) -> Iterator[OperatorFormula]:
    """Yield one formula per operator of a family.

    Args:
        names: packet names without the namespace `aten.`, separated by blanks; a dotted name is taken as it is.
        kind: what these operators are.
        rule: their rule.
        view: whether the rule serves the operator view.
        estimate: whether the rule serves the estimates.
        known_gap: what PyTorch's own formula is known to miss.
        reason: why these operators are no work.
        terms: whether they make or sum the terms of a contraction that takes two operators to write.

    """
    for name in names.split():
        yield OperatorFormula(
            name if "." in name else f"aten.{name}",
            kind,
            # What moves data has no FLOPs; without a formula the view lists it among the operators that are no work.
            _Executed(rule) if rule is not None and view and kind != "movement" else None,
            _Estimate(rule) if rule is not None and estimate else None,
            known_gap=known_gap,
            reason=reason,
            terms=terms,
        )
