"""The arithmetic: integers in, integers out. Derivations: README.md, "What is counted"."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """What one call costs.

    Attributes:
        module_flops: floating-point operations.
        macs: product terms of contractions.
        dmas: logical element reads and writes.

    """

    module_flops: int
    macs: int
    dmas: int


NOTHING = Counts(0, 0, 0)


def is_view(sizes: Sequence[int], groups: Sequence[Sequence[int]]) -> bool:
    """Say whether a rearrangement of a row-major tensor needs no copy.

    Args:
        sizes: the sizes of the elementary axes, in input order.
        groups: for each output axis the elementary axes (indices into `sizes`) it is composed of, outer first.

    Returns:
        True when every composed output axis can be walked with one stride. Splitting an axis and permuting axes never
        need a copy; merging needs one unless, among the axes longer than one, each inner axis follows its outer one
        in memory without a gap.

    """
    strides = [0] * len(sizes)
    step = 1
    for axis in range(len(sizes) - 1, -1, -1):
        strides[axis] = step
        step *= sizes[axis]
    for group in groups:
        walked = [axis for axis in group if sizes[axis] != 1]
        if any(strides[outer] != strides[inner] * sizes[inner] for outer, inner in itertools.pairwise(walked)):
            return False
    return True


def movement(elements: int, *, view: bool) -> Counts:
    """Return the cost of moving `elements`: nothing for a view, else each is read once and written once."""
    return NOTHING if view else Counts(0, 0, 2 * elements)


def reduction(operation: str, elements: int, outputs: int, *, floating: bool) -> Counts:
    """Return the cost of reducing `elements` values to `outputs` results in one stage.

    Args:
        operation: `sum`, `mean`, `max`, `min` or `prod`.
        elements: the number of values read.
        outputs: the number of results written.
        floating: whether the values are floating point; integer and boolean arithmetic costs nothing.

    """
    flops = 0
    if floating:
        combining = elements - outputs  # K - 1 adds, products or comparisons for each result of K values
        flops = combining + outputs if operation == "mean" else combining  # a mean divides each result
    return Counts(flops, 0, elements + outputs)


def contraction(inputs: int, lone: int, terms: int, outputs: int, weight: int, bias: int | None) -> Counts:
    """Return the cost of an EinMix.

    Args:
        inputs: the elements of the input.
        lone: the product of the input axes that neither the weight nor the output has; they are summed first.
        terms: the product of the axes that input and weight share and the output lacks: the terms per output element.
        outputs: the elements of the output.
        weight: the elements of the weight.
        bias: the elements of the bias, `None` without one.

    """
    summed = inputs // lone
    flops = inputs - summed  # the sum over the lone axes
    flops += outputs * (2 * terms - 1)  # dot products
    flops += 0 if bias is None else outputs
    macs = outputs * terms
    dmas = 0 if lone == 1 else inputs + summed  # a reduction is a stage of its own
    dmas += summed + weight + (bias or 0) + outputs
    return Counts(flops, macs, dmas)
