"""Matrix products and their kin. Derivation: docs/derivations/functional-operators.md#contractions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import linear as linear_formulas
from torchscan_native.layers.formulas.activation import FLOPS_PER_ELEMENT
from torchscan_native.layers.formulas.rules import dot
from torchscan_native.operators.shapes import NotCovered, Shape, Work, numel, offer, optional_numel, work

__all__ = ["formulas"]


def product(outputs: int, terms: int, *reads: Shape) -> Work:
    """Count `outputs` dot products of `terms` products each.

    Derivation: docs/derivations/functional-operators.md#contractions. The operator view counts `2 K` of the `2 K - 1`.

    Args:
        outputs: output elements.
        terms: product terms of each, `K`.
        reads: shapes of the operands.

    """
    return Work(outputs * dot(terms), outputs * terms, sum(map(numel, reads)) + outputs, executed=2 * outputs * terms)


def added(base: Work, outputs: int, self: Shape, beta: Any, alpha: Any) -> Work:
    """Add `beta * self + alpha * (...)`. Derivation: docs/derivations/functional-operators.md#scaled-operands.

    The operator view leaves the fused add and both factors out, as PyTorch's own formulas do. With `beta=0` the
    operand is not read.
    """
    scaled_products = outputs if alpha != 1 else 0
    if beta == 0:
        return base.plus(flops=scaled_products)
    scaled_self = numel(self) if beta != 1 else 0
    return base.plus(flops=scaled_products + scaled_self + outputs, dmas=numel(self))


def mm(self: Shape, mat2: Shape, **kwargs: Any) -> Work:
    """Count an (n, k) by (k, p) product."""
    (n, k), (_, p) = self, mat2
    return product(n * p, k, self, mat2)


def bmm(self: Shape, mat2: Shape, **kwargs: Any) -> Work:
    """Count a batch of products."""
    (b, n, k), (_, _, p) = self, mat2
    return product(b * n * p, k, self, mat2)


def mv(self: Shape, vec: Shape, **kwargs: Any) -> Work:
    """Count a matrix by vector product."""
    n, k = self
    return product(n, k, self, vec)


def inner(self: Shape, tensor: Shape, **kwargs: Any) -> Work:
    """Count `dot` and `vdot`."""
    return product(1, numel(self), self, tensor)


def addmm(self: Shape, mat1: Shape, mat2: Shape, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `beta * self + alpha * mat1 @ mat2`."""
    return added(mm(mat1, mat2), mat1[0] * mat2[1], self, beta, alpha)


def baddbmm(self: Shape, batch1: Shape, batch2: Shape, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `beta * self + alpha * batch1 @ batch2`."""
    return added(bmm(batch1, batch2), batch1[0] * batch1[1] * batch2[2], self, beta, alpha)


def addbmm(self: Shape, batch1: Shape, batch2: Shape, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `beta * self + alpha * sum(batch1 @ batch2)`: the batch is one more summed axis."""
    (b, n, k), (_, _, p) = batch1, batch2
    return added(product(n * p, b * k, batch1, batch2), n * p, self, beta, alpha)


def addmv(self: Shape, mat: Shape, vec: Shape, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `beta * self + alpha * mat @ vec`."""
    return added(mv(mat, vec), mat[0], self, beta, alpha)


def addr(self: Shape, vec1: Shape, vec2: Shape, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count `beta * self + alpha * outer(vec1, vec2)`: an outer product sums nothing, so it has no MAC."""
    outputs = numel(vec1) * numel(vec2)
    outer = Work(outputs, 0, numel(vec1) + numel(vec2) + outputs)
    return added(outer, outputs, self, beta, alpha)


def addmm_activation(
    self: Shape,
    mat1: Shape,
    mat2: Shape,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    use_gelu: bool = False,
    **kwargs: Any,
) -> Work:
    """Count `addmm` and the activation fused to it."""
    base = addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    outputs = mat1[0] * mat2[1]
    activation = outputs * FLOPS_PER_ELEMENT["GELU (tanh)" if use_gelu else "ReLU"]
    return base.plus(flops=activation, dmas=2 * outputs, executed=activation)


def linear(self: Shape, weight: Shape, bias: Shape | None = None, **kwargs: Any) -> Work:
    """Count `x W^T + b`. Derivation: docs/derivations/linear.md#linear."""
    out_features, in_features = weight
    rows = math.prod(self[:-1])
    counts = linear_formulas.linear(rows, in_features, out_features, bias=optional_numel(bias))
    return work(counts, executed=2 * counts.macs)


def grouped_mm(self: Shape, mat2: Shape, offs: Shape | None = None, *args: Any, **kwargs: Any) -> Work:
    """Count one product per group; where offsets cut the groups, how many rows they leave is a matter of values."""
    if offs is not None:
        raise NotCovered("groups cut by offsets")
    return bmm(self, mat2)


def packed_mm(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a product with a packed or scaled matrix; only its product terms are known."""
    outputs, terms = numel(out_shape), self[-1]
    return Work(None, outputs * terms, None, executed=2 * outputs * terms)


def trilinear(
    i1: Shape,
    i2: Shape,
    i3: Shape,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
    **kwargs: Any,
) -> Work:
    """Count `x1 W x2`, the form `bilinear` dispatches. Derivation: docs/derivations/linear.md#bilinear."""
    if (expand1, expand2, expand3, sumdim) != ([1, 3], [0], [1, 2], [2, 3]):
        raise NotCovered("a trilinear form other than x1 W x2")
    rows, in1 = i1
    out_features, _, in2 = i2
    counts = linear_formulas.bilinear(rows, in1, in2, out_features, bias=None)
    return work(counts, executed=2 * counts.macs)


def euclidean(x1: Shape, x2: Shape, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the MACs of distances by way of a matrix product.

    `[-2 x1, |x1|², 1] @ [x2, 1, |x2|²]ᵀ`: two terms more than a row is wide. Derivation:
    docs/derivations/functional-operators.md#distances.
    """
    outputs, terms = numel(out_shape), x1[-1] + 2
    return Work(None, outputs * terms, None)


def affine_grid(theta: Shape, size: list[int], *args: Any, **kwargs: Any) -> Work:
    """Count the product of the constant base grid with `theta`: (n, positions, d + 1) by (n, d + 1, d)."""
    batch, d, width = theta
    positions = math.prod(size[2:])
    return product(batch * positions * d, width, theta).plus(dmas=batch * positions * width)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of contractions."""
    for names, rule in (
        ("mm _int_mm", mm),  # product terms of integers are MACs too
        ("bmm", bmm),
        ("mv", mv),
        ("dot vdot", inner),
        ("addmm addmm_", addmm),
        ("baddbmm baddbmm_", baddbmm),
        ("addbmm addbmm_", addbmm),
        ("addmv addmv_", addmv),
        ("_addmm_activation", addmm_activation),
        ("mkldnn_linear", linear),
        ("_grouped_mm", grouped_mm),
        ("_scaled_mm _weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu", packed_mm),
        ("_trilinear", trilinear),
        ("affine_grid_generator", affine_grid),
    ):
        yield from offer(names, "contraction", rule)
    yield from offer("addr addr_", "arithmetic", addr, terms="products")
    yield from offer("_euclidean_dist", "contraction", euclidean, view=False)
