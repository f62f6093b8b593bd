"""Pooling. Derivation: docs/derivations/pooling.md."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscan_native.layers.formulas.rules import NOTHING, Counts

__all__ = ["adaptive_average", "adaptive_maximum", "average", "lp_norm", "maximum", "unpool", "visits"]


def maximum(inputs: int, outputs: int, window: int, *, indices: bool, samples: int = 0) -> Counts:
    """Count max pooling with windows of one size. Derivation: docs/derivations/pooling.md#fixed-windows.

    Args:
        inputs: input elements.
        outputs: output elements.
        window: values per window.
        indices: whether the positions of the maxima are returned.
        samples: elements of a tensor of random samples the caller stored on the module (fractional pooling).

    """
    if not outputs:
        return NOTHING
    return Counts(outputs * (window - 1), 0, inputs + samples + outputs + (outputs if indices else 0))


def average(inputs: int, outputs: int, window: int) -> Counts:
    """Count average pooling with windows of one size. Derivation: docs/derivations/pooling.md#fixed-windows.

    Args:
        inputs: input elements.
        outputs: output elements.
        window: values per window.

    """
    if not outputs:
        return NOTHING
    adds = outputs * (window - 1)
    divides = outputs
    return Counts(adds + divides, 0, inputs + outputs)


def visits(planes: int, lengths: Sequence[int], outputs: Sequence[int]) -> int:
    """Return how many values the adaptive windows visit. Derivation: docs/derivations/pooling.md#adaptive-windows.

    Args:
        planes: batch times channels.
        lengths: input length of each pooled axis.
        outputs: output length of each pooled axis.

    """
    total = planes
    for length, output in zip(lengths, outputs, strict=True):
        total *= length + output - math.gcd(length, output)
    return total


def adaptive_maximum(inputs: int, outputs: int, visited: int, *, indices: bool) -> Counts:
    """Count adaptive max pooling. Derivation: docs/derivations/pooling.md#adaptive-windows.

    Args:
        inputs: input elements.
        outputs: output elements.
        visited: values in all windows together.
        indices: whether the positions of the maxima are returned.

    """
    if not outputs:
        return NOTHING
    return Counts(visited - outputs, 0, inputs + outputs + (outputs if indices else 0))


def adaptive_average(inputs: int, outputs: int, visited: int) -> Counts:
    """Count adaptive average pooling. Derivation: docs/derivations/pooling.md#adaptive-windows.

    Args:
        inputs: input elements.
        outputs: output elements.
        visited: values in all windows together.

    """
    if not outputs:
        return NOTHING
    adds = visited - outputs
    divides = outputs
    return Counts(adds + divides, 0, inputs + outputs)


def lp_norm(inputs: int, outputs: int, window: int, *, power: int, root: int) -> Counts:
    """Count power-average pooling. Derivation: docs/derivations/pooling.md#power-average.

    Args:
        inputs: input elements.
        outputs: output elements.
        window: values per window.
        power: FLOPs of one power; 0 means that there is no such stage.
        root: FLOPs of one root; 0 means that there is no such stage.

    """
    if not outputs:
        return NOTHING
    return Counts(
        inputs * power + outputs * (window - 1) + outputs * root,
        0,
        (2 * inputs if power else 0) + (inputs + outputs) + (2 * outputs if root else 0),
    )


def unpool(inputs: int, outputs: int) -> Counts:
    """Count max unpooling: values and indices in, a plane out. Derivation: docs/derivations/pooling.md#unpooling.

    Args:
        inputs: input elements; there is one index for each.
        outputs: output elements.

    """
    if not outputs:
        return NOTHING
    return Counts(0, 0, 2 * inputs + outputs)
