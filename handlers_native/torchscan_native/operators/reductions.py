"""Reductions and the softmax family. Derivation: docs/derivations/functional-operators.md#reductions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import softmax as softmax_formulas
from torchscan_native.layers.formulas.rules import norm
from torchscan_native.operators.elementwise import elementwise
from torchscan_native.operators.shapes import (
    NotCovered,
    Rule,
    Shape,
    Work,
    axes_of,
    numel,
    offer,
    rows_of,
    tensors,
    unknown,
    work,
)

__all__ = ["formulas"]

Dim = int | Sequence[int] | None


def total(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a sum, a product or a maximum: one operation less than there are values."""
    elements, results = numel(self), numel(out_shape)
    return Work(max(0, elements - results), 0, elements + results)


def mean(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a mean: the sum, and a divide per result."""
    elements, results = numel(self), numel(out_shape)
    if results and not elements:
        raise NotCovered("the mean of an empty row")
    return Work(elements, 0, elements + results)


def truth(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count `any` and `all`: boolean arithmetic."""
    return Work(0, 0, numel(self) + numel(out_shape))


def count_nonzero(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a comparison per element; the adds are integers."""
    return Work(numel(self), 0, numel(self) + numel(out_shape))


def extremum(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count `max` and `min`: of two tensors, of all values, or along one axis with the positions."""
    if args and isinstance(args[0], tuple):
        return elementwise(1)(self, args[0], out_shape=out_shape)
    found = list(tensors(out_shape))
    elements, results = numel(self), numel(found[0])
    return Work(elements - results, 0, elements + results * len(found))


def both_extrema(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count `aminmax`: two reductions."""
    elements, results = numel(self), sum(map(numel, tensors(out_shape)))
    return Work(2 * elements - results, 0, 2 * elements + results)


def variance(*, deviation: bool) -> Rule:
    """Return the rule of `var`, `std`, `var_mean` and `std_mean`: the first passes of a norm.

    Derivation: docs/derivations/functional-operators.md#variance.
    """

    def rule(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
        elements, results = numel(self), numel(next(tensors(out_shape)))
        if results and not elements:
            raise NotCovered("the variance of an empty row")
        averages = elements  # N - R adds, R divides
        squares = 3 * elements  # subtract, square, N - R adds, R divides
        roots = results if deviation else 0
        accesses = (elements + results) + (elements + 2 * results) + 2 * roots
        return Work(averages + squares + roots, elements, accesses)

    return rule


def vector_norm(self: Shape, ord: Any = 2, dim: Dim = None, *args: Any, **kwargs: Any) -> Work:
    """Count a vector norm. Derivation: docs/derivations/functional-operators.md#vector-norms."""
    elements, results = numel(self), rows_of(self, dim)
    per_element, per_row = _norm(2.0 if ord is None else float(ord))
    sums = max(0, elements - results)
    roots = 2 * results if per_row else 0
    return Work(elements * per_element + sums + results * per_row, 0, elements + results + roots)


def _norm(order: float) -> tuple[int, int]:
    """Return the FLOPs of a norm's power for one element, and of its root for one row.

    Raises:
        NotCovered: there is no rule for a norm of that order.

    """
    if order == 0:
        return 1, 0  # a comparison with zero
    found = norm(abs(order) if math.isinf(order) else order)
    if found is None:
        raise NotCovered(f"no rule for a norm of order {order}")
    return found


def list_norm(self: list[Shape], ord: Any = 2, *args: Any, **kwargs: Any) -> Work:
    """Count one norm per tensor of a list."""
    norms = [vector_norm(shape, ord) for shape in tensors(self)]
    return Work(sum(found.flops or 0 for found in norms), 0, sum(found.dmas or 0 for found in norms))


def distance(self: Shape, other: Shape, p: Any = 2, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the norm of a difference."""
    widest = self if numel(self) >= numel(other) else other
    difference = numel(widest)
    return vector_norm(widest, p).plus(flops=difference, dmas=numel(self) + numel(other) + difference)


def pair_distances(pairs: int, width: int, p: float) -> Work:
    """Count norms of differences of rows. Derivation: docs/derivations/functional-operators.md#distances.

    Args:
        pairs: pairs of rows.
        width: elements of a row.
        p: order of the norm.

    """
    elements = pairs * width
    difference = elements
    per_element, per_row = _norm(p)
    sums = max(0, elements - pairs)
    return Work(difference + elements * per_element + sums + pairs * per_row, 0, None)


def cdist(x1: Shape, x2: Shape, p: float, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the distances of all pairs of rows."""
    return pair_distances(numel(out_shape), x1[-1], p)


def pdist(self: Shape, p: float = 2, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the distances of the pairs within one set."""
    return pair_distances(numel(out_shape), self[-1], p)


def logsumexp(self: Shape, dim: Dim, *args: Any, **kwargs: Any) -> Work:
    """Count the stable logarithm of a sum. Derivation: docs/derivations/functional-operators.md#logsumexp."""
    n, r = numel(self), rows_of(self, dim)
    if r and not n:
        raise NotCovered("the logarithm of an empty sum")
    maximum, subtract, exponential, row_sum, logarithm, add = n - r, n, n, n - r, r, r
    return Work(
        maximum + subtract + exponential + row_sum + logarithm + add,
        0,
        (n + r) + (2 * n + r) + (n + n) + (n + r) + (r + r) + (2 * r + r),
    )


def running(self: Shape, dim: int, *args: Any, **kwargs: Any) -> Work:
    """Count `cumsum` and `cumprod`: one operation for every element but the first of a row."""
    elements = numel(self)
    return Work(max(0, elements - rows_of(self, dim)), 0, 2 * elements)


def trace(self: Shape, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the sum of a diagonal."""
    length = min(self)
    return Work(max(0, length - 1), 0, length + 1)


def softmax(self: Shape, dim: int, *args: Any, **kwargs: Any) -> Work:
    """Count a softmax. Derivation: docs/derivations/softmax.md#softmax."""
    return work(softmax_formulas.softmax(numel(self), _softmax_rows(self, dim)))


def log_softmax(self: Shape, dim: int, *args: Any, **kwargs: Any) -> Work:
    """Count a log-softmax. Derivation: docs/derivations/softmax.md#log-softmax."""
    return work(softmax_formulas.log_softmax(numel(self), _softmax_rows(self, dim)))


def masked_softmax(self: Shape, mask: Shape, dim: int | None = None, *args: Any, **kwargs: Any) -> Work:
    """Count a mask pass over the scores and a softmax."""
    scores = numel(self)
    return softmax(self, -1 if dim is None else dim).plus(flops=scores, dmas=numel(mask) + 2 * scores)


def _softmax_rows(shape: Shape, dim: int) -> int:
    if axes_of(shape, dim) and not shape[dim] and rows_of(shape, dim):
        raise NotCovered("the softmax of an empty row")
    return rows_of(shape, dim)


def equal(self: Shape, other: Shape, **kwargs: Any) -> Work:
    """Count a comparison per element; the answer is a Python truth value."""
    return Work(numel(self), 0, numel(self) + numel(other))


def ordered(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count reads and results of a sort or selection; how many comparisons it takes is the algorithm's choice."""
    return Work(None, 0, numel(self) + sum(map(numel, tensors(out_shape))))


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of reductions."""
    yield from offer("sum", "arithmetic", total, terms="sums")
    yield from offer("mean", "arithmetic", mean, terms="sums")
    yield from offer("prod amax amin argmax argmin", "arithmetic", total)
    yield from offer("any all", "arithmetic", truth)
    yield from offer("count_nonzero", "arithmetic", count_nonzero)
    yield from offer("max min", "arithmetic", extremum)
    yield from offer("aminmax", "arithmetic", both_extrema)
    # The squares of a variance are MACs, so these count as contractions.
    yield from offer("var var_mean", "contraction", variance(deviation=False))
    yield from offer("std std_mean", "contraction", variance(deviation=True))
    yield from offer("linalg_vector_norm norm", "arithmetic", vector_norm)
    yield from offer("_foreach_norm", "arithmetic", list_norm)
    yield from offer("dist", "arithmetic", distance)
    yield from offer("_cdist_forward", "arithmetic", cdist)
    yield from offer("_pdist_forward", "arithmetic", pdist)
    yield from offer("logsumexp", "arithmetic", logsumexp)
    yield from offer("cumsum cumsum_", "arithmetic", running, terms="sums")
    yield from offer("cumprod cumprod_", "arithmetic", running)
    yield from offer("trace", "arithmetic", trace, terms="sums")
    yield from offer("nansum bincount", "arithmetic", unknown, view=False, terms="sums")
    yield from offer("_softmax _safe_softmax", "arithmetic", softmax)
    yield from offer("_log_softmax", "arithmetic", log_softmax)
    yield from offer("_masked_softmax", "arithmetic", masked_softmax)
    yield from offer("equal", "arithmetic", equal)
    yield from offer("sort topk kthvalue median nanmedian mode", "arithmetic", ordered, view=False)
    yield from offer(
        "_unique2 unique_dim unique_consecutive histc searchsorted bucketize isin logcumsumexp "
        "_logcumsumexp _cummax_helper _cummin_helper cummax cummin allclose",
        "arithmetic",
        unknown,
        view=False,
    )
