"""Backward operators, for the operator view alone: the conventions describe evaluation.

Derivation: docs/derivations/functional-operators.md#backward. Convolutions and the products of fused attention are
PyTorch's own formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.operators.pooling import visits
from torchscan_native.operators.shapes import NotCovered, Rule, Shape, Work, numel, offer, rows_of

__all__ = ["formulas"]

#: FLOPs per element of the gradient.
_PER_ELEMENT = {
    "threshold_backward": 2,  # compare, select
    "leaky_relu_backward": 3,  # compare, multiply, select
    "hardtanh_backward softshrink_backward hardshrink_backward": 3,  # two comparisons, select
    "hardsigmoid_backward": 4,  # two comparisons, multiply, select
    "sigmoid_backward": 3,  # 1 - y, two products
    "tanh_backward": 3,  # square, 1 - y², product
    "silu_backward": 9,  # sigmoid (4), 1 - s, product with x, add 1, two products
    "softplus_backward": 7,  # scale, exp, add, divide, product, compare, select
    "hardswish_backward": 7,  # two comparisons, divide, add, multiply, two selections
    "_prelu_kernel_backward": 5,  # compare, two products, two selections
    "native_dropout_backward": 2,  # mask, rescale
    "mse_loss_backward": 3,  # subtract, scale, product
    "diagonal_backward select_backward slice_backward": 0,  # copies into zeros
}


def per_element(count: int) -> Rule:
    """Return the rule of a derivative of `count` FLOPs for each element of the first operand."""

    def rule(grad_output: Shape, *others: Any, out_shape: Any = None, **kwargs: Any) -> Work:
        elements = max(numel(grad_output), *(numel(value) for value in others if isinstance(value, tuple)), 0)
        return Work(count * elements, None, None)

    return rule


def gelu(grad_output: Shape, self: Shape, *, approximate: str = "none", **kwargs: Any) -> Work:
    """Count the derivative of GELU."""
    # Exact. Distribution: scale, erf, add, half; density: square, scale, exp, scale; x times density, add, product.
    exact = 4 + 4 + 3
    # Tanh. Inner: square, cube, scale, add, scale, tanh (6); both factors 2 and the left's slope 1; 1 - t² 2; the
    # inner's slope 3; their product 2; add and product 2.
    approximated = 11 + 2 + 1 + 2 + 3 + 2 + 2
    return Work((exact if approximate == "none" else approximated) * numel(self), None, None)


def elu(
    grad_output: Shape,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: Shape,
    **kwargs: Any,
) -> Work:
    """Count the derivative of ELU: compare, exp or add, multiply, select, and the factors of SELU and CELU."""
    return Work((4 + (scale != 1) + (input_scale != 1)) * numel(grad_output), None, None)


def softmax(grad_output: Shape, output: Shape, dim: int, *args: Any, **kwargs: Any) -> Work:
    """Count `y (g - sum(g y))`: product, sum, subtract, product."""
    n, r = numel(output), rows_of(output, dim)
    return Work(n + (n - r) + n + n, None, None)


def log_softmax(grad_output: Shape, output: Shape, dim: int, *args: Any, **kwargs: Any) -> Work:
    """Count `g - exp(y) sum(g)`: sum, exp, product, subtract."""
    n, r = numel(output), rows_of(output, dim)
    return Work((n - r) + n + n + n, None, None)


def _norm(n: int, r: int, parameters: int, *, weight: bool, mask: list[bool]) -> Work:
    normalised = 2 * n  # subtract the mean, multiply by the inverse deviation
    flops = normalised
    if mask[0]:
        scaled = n if weight else 0
        gradient_sum = n - r
        projected_sum = n + (n - r)
        averages = 2 * r
        combined = 4 * n  # x̂ times its mean, add, subtract, multiply by the inverse deviation
        flops += scaled + gradient_sum + projected_sum + averages + combined
    if mask[1]:
        flops += n + (n - parameters)
    if mask[2]:
        flops += n - parameters
    return Work(flops, None, None)


def layer_norm(
    grad_out: Shape,
    input: Shape,
    normalized_shape: list[int],
    mean: Shape,
    rstd: Shape,
    weight: Shape | None,
    bias: Shape | None,
    output_mask: list[bool],
    **kwargs: Any,
) -> Work:
    """Count the gradients of LayerNorm."""
    width = numel(tuple(normalized_shape))
    return _norm(numel(input), numel(mean), width, weight=weight is not None, mask=output_mask)


def group_norm(
    grad_out: Shape,
    input: Shape,
    mean: Shape,
    rstd: Shape,
    weight: Shape | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: list[bool],
    **kwargs: Any,
) -> Work:
    """Count the gradients of GroupNorm."""
    return _norm(numel(input), N * group, C, weight=weight is not None, mask=output_mask)


def batch_norm(
    grad_out: Shape,
    input: Shape,
    weight: Shape | None,
    running_mean: Shape | None,
    running_var: Shape | None,
    save_mean: Shape | None,
    save_invstd: Shape | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
    **kwargs: Any,
) -> Work:
    """Count the gradients of batch norm with the statistics of the batch."""
    if not train:
        raise NotCovered("stored statistics")
    channels = input[1]
    return _norm(numel(input), channels, channels, weight=weight is not None, mask=output_mask)


def embedding(grad_output: Shape, *args: Any, **kwargs: Any) -> Work:
    """Count one add per element that is scattered back."""
    return Work(numel(grad_output), None, None)


def average_pool(axes: int) -> Rule:
    """Return the rule of a divide per window and an add per value of it."""

    def rule(grad_output: Shape, self: Shape, kernel_size: list[int], *args: Any, **kwargs: Any) -> Work:
        window = kernel_size[0] ** axes if len(kernel_size) == 1 else numel(tuple(kernel_size))
        return Work(numel(grad_output) * (1 + window), None, None)

    return rule


def adaptive_average_pool(axes: int) -> Rule:
    """Return the rule of a divide per window and an add per value of it."""

    def rule(grad_output: Shape, self: Shape, **kwargs: Any) -> Work:
        return Work(numel(grad_output) + visits(self, grad_output, axes), None, None)

    return rule


def interpolation(taps: int) -> Rule:
    """Return the rule of a product and an add per neighbour; nearest only adds."""

    def rule(grad_output: Shape, *args: Any, **kwargs: Any) -> Work:
        return Work(numel(grad_output) * (1 if taps == 1 else 2 * taps), None, None)

    return rule


def picked(grad_output: Shape, self: Shape, target: Shape, *args: Any, **kwargs: Any) -> Work:
    """Count one negation or quotient per row."""
    return Work(numel(target), None, None)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of backward operators."""
    for names, count in _PER_ELEMENT.items():
        yield from offer(names, "arithmetic", per_element(count), estimate=False)
    for names, rule in (
        ("gelu_backward", gelu),
        ("elu_backward", elu),
        ("_softmax_backward_data", softmax),
        ("_log_softmax_backward_data", log_softmax),
        ("native_layer_norm_backward", layer_norm),
        ("native_group_norm_backward", group_norm),
        ("native_batch_norm_backward", batch_norm),
        ("embedding_dense_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward", embedding),
        ("avg_pool2d_backward", average_pool(2)),
        ("avg_pool3d_backward", average_pool(3)),
        ("_adaptive_avg_pool2d_backward", adaptive_average_pool(2)),
        ("_adaptive_avg_pool3d_backward", adaptive_average_pool(3)),
        ("nll_loss_backward nll_loss2d_backward", picked),
        ("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward", interpolation(1)),
        ("upsample_linear1d_backward", interpolation(2)),
        ("upsample_bilinear2d_backward", interpolation(4)),
        ("upsample_trilinear3d_backward", interpolation(8)),
        ("upsample_bicubic2d_backward", interpolation(16)),
    ):
        yield from offer(names, "arithmetic", rule, estimate=False)
