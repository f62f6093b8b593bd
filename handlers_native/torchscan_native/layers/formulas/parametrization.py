"""Parameters that are computed before a call. Derivation: docs/derivations/parametrization.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import Counts, dot

__all__ = ["mask", "normalized_vector", "spectral_norm", "weight_norm"]


def weight_norm(elements: int, rows: int) -> Counts:
    """Count `g v / |v|`. Derivation: docs/derivations/parametrization.md#weight-norm.

    Args:
        elements: elements of `v`, `N`.
        rows: elements of `g`, `R`; there is one norm for each.

    """
    n, r = elements, rows
    square_sums = n + (n - r)
    roots = r
    scale = 2 * n  # multiply by g, divide by the norm
    return Counts(square_sums + roots + scale, 0, (n + r) + (r + r) + (n + r + r + n))


def spectral_norm(height: int, width: int) -> Counts:
    """Count `W / (u W v)` with stored `u` and `v`. Derivation: docs/derivations/parametrization.md#spectral-norm.

    Args:
        height: rows of the weight as a matrix, `h`.
        width: its columns, `w`.

    """
    elements = height * width
    matrix_vector = height * dot(width)
    inner = dot(height)
    divide = elements
    return Counts(
        matrix_vector + inner + divide,
        elements + height,
        (elements + width + height) + (height + height + 1) + (elements + 1 + elements),
    )


def normalized_vector(elements: int) -> Counts:
    """Count `w / max(|w|, eps)` of a vector. Derivation: docs/derivations/parametrization.md#spectral-norm.

    Args:
        elements: elements of the vector, `N`.

    """
    square_sum = dot(elements)
    root = 1
    maximum = 1
    divide = elements
    return Counts(square_sum + root + maximum + divide, 0, (elements + 1) + (1 + 1) + (elements + 1 + 1 + elements))


def mask(elements: int) -> Counts:
    """Count the product of a parameter and its pruning mask. Derivation: docs/derivations/parametrization.md#pruning.

    Args:
        elements: elements of the parameter.

    """
    return Counts(elements, 0, 2 * elements + elements)
