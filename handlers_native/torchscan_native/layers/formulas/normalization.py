"""Normalisation layers. Derivation: docs/derivations/normalization.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import NOTHING, Counts

__all__ = ["local_response", "root_mean_square", "saved_statistics", "two_pass"]


def two_pass(elements: int, rows: int, *, weight: int | None, bias: int | None) -> Counts:
    """Count a norm that computes mean and variance. Derivation: docs/derivations/normalization.md#two-pass.

    Args:
        elements: all elements, `N`.
        rows: how many means and variances, `R`.
        weight: elements of the affine weight, `None` without one.
        bias: elements of the affine bias, `None` without one.

    """
    n, r = elements, rows
    if not n:
        return NOTHING
    scaled = n if weight is not None else 0
    shifted = n if bias is not None else 0
    mean = n  # N - R adds, R divides
    variance = 3 * n  # subtract, square, N - R adds, R divides
    epsilon_and_root = 2 * r
    normalise = 2 * n  # subtract, divide
    return Counts(
        mean + variance + epsilon_and_root + normalise + scaled + shifted,
        n + scaled,
        (n + r) + (n + r + r) + (n + 2 * r + 1 + n) + _affine(n, weight, bias),
    )


def saved_statistics(elements: int, channels: int, *, weight: int | None, bias: int | None) -> Counts:
    """Count a norm with stored mean and variance. Derivation: docs/derivations/normalization.md#saved-statistics.

    Args:
        elements: all elements, `N`.
        channels: how many stored means, `C`.
        weight: elements of the affine weight, `None` without one.
        bias: elements of the affine bias, `None` without one.

    """
    n, c = elements, channels
    if not n:
        return NOTHING
    scaled = n if weight is not None else 0
    shifted = n if bias is not None else 0
    epsilon_and_root = 2 * c
    normalise = 2 * n
    return Counts(
        normalise + epsilon_and_root + scaled + shifted, scaled, (n + 2 * c + 1 + n) + _affine(n, weight, bias)
    )


def root_mean_square(elements: int, rows: int, *, weight: int | None) -> Counts:
    """Count RMSNorm. Derivation: docs/derivations/normalization.md#root-mean-square.

    Args:
        elements: all elements, `N`.
        rows: how many mean squares, `R`.
        weight: elements of the weight, `None` without one.

    """
    n, r = elements, rows
    if not n:
        return NOTHING
    scaled = n if weight is not None else 0
    mean_square = 2 * n  # square, N - R adds, R divides
    epsilon_and_root = 2 * r
    scale = n
    return Counts(
        mean_square + epsilon_and_root + scale + scaled,
        n + scaled,
        (n + r) + (r + 1 + r) + (n + r + n) + _affine(n, weight, None),
    )


def local_response(elements: int, size: int, power: int) -> Counts:
    """Count LocalResponseNorm. Derivation: docs/derivations/normalization.md#local-response.

    Args:
        elements: all elements, `N`.
        size: channels in a window.
        power: FLOPs of raising one element to `beta`.

    """
    n = elements
    if not n:
        return NOTHING
    square = n
    window_sums = n * (size - 1)
    scale_and_shift = 2 * n
    powers = n * power
    divide = n
    return Counts(square + window_sums + scale_and_shift + powers + divide, square, (n + n) + (2 * n + n))


def _affine(elements: int, weight: int | None, bias: int | None) -> int:
    """DMAs of the affine stage."""
    if weight is None and bias is None:
        return 0
    return elements + (weight or 0) + (bias or 0) + elements
