"""The arithmetic: integers in, integers out; no torch, no plugin machinery.

Derivations: README.md, "What is counted". F1, M1, D1 and the like are the rules of torchscan's conventions.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import attrs


class Counts(NamedTuple):
    """What some work costs.

    Attributes:
        module_flops: floating-point operations.
        macs: product terms of contractions, and the terms of norms (M2).
        dmas: logical element reads and writes.

    """

    module_flops: int
    macs: int
    dmas: int

    def plus(self, *others: Counts) -> Counts:
        """Return the sum."""
        return Counts(*(sum(column) for column in zip(self, *others, strict=True)))


NOTHING = Counts(0, 0, 0)


@attrs.frozen
class AttentionDims:
    """The integers of one attention call.

    Attributes:
        batch: B.
        heads: H, query heads.
        key_heads: heads of key and value; fewer than `heads` in grouped-query attention.
        target_length: T, queries.
        source_length: S, keys: those of this call and those a cache already held.
        head_dim: D.
        masks: the elements of each tensor that is added to the scores: an explicit mask, a position bias.
        rotary: the elements of the cosine table where rotary position embeddings are applied, else `None`.

    """

    batch: int
    heads: int
    key_heads: int
    target_length: int
    source_length: int
    head_dim: int
    masks: tuple[int, ...] = ()
    rotary: int | None = None


@functools.lru_cache(maxsize=4096)
def attention(d: AttentionDims) -> Counts:
    """Return the cost of everything between the projections of one attention call."""
    queries = d.batch * d.heads * d.target_length * d.head_dim
    keys = d.batch * d.key_heads * d.source_length * d.head_dim
    scores = d.batch * d.heads * d.target_length * d.source_length
    rows = d.batch * d.heads * d.target_length
    stages = [
        # H products (T, D) @ (D, S); a key head shared by several query heads is read once (D1)
        Counts(scores * (2 * d.head_dim - 1), scores * d.head_dim, queries + keys + scores),
        Counts(scores, 0, 2 * scores),  # the scores are scaled
        *(Counts(scores, 0, elements + 2 * scores) for elements in d.masks),
        softmax(scores, rows),
        # H products (T, S) @ (S, D)
        Counts(queries * (2 * d.source_length - 1), scores * d.head_dim, scores + keys + queries),
    ]
    if d.rotary is not None:
        new_keys = d.batch * d.key_heads * d.target_length * d.head_dim
        stages += [rotation(queries, d.rotary), rotation(new_keys, d.rotary)]
    return NOTHING.plus(*stages)


def softmax(elements: int, rows: int) -> Counts:
    """Return the cost of a softmax.

    Args:
        elements: the scores.
        rows: the rows that each sum to one.

    """
    return Counts(5 * elements - 2 * rows, 0, 8 * elements + 4 * rows)


def rotation(elements: int, table: int) -> Counts:
    """Return the cost of `x * cos + rotate_half(x) * sin`, one elementwise stage (D4).

    Args:
        elements: the elements of `x`, an even number.
        table: the elements of `cos`, and of `sin`.

    """
    # two products and a sum for each element, and the negation of one half
    return Counts(3 * elements + elements // 2, 0, 2 * elements + 2 * table)


def rotary_table(positions: int, frequencies: int, elements: int) -> Counts:
    """Return the cost of the cosine and sine tables of rotary position embeddings.

    Args:
        positions: the number of position indices read.
        frequencies: the number of inverse frequencies read.
        elements: the elements of each table.

    """
    # one half of a table's angles are products; the other half repeats them
    angles = Counts(elements // 2, 0, positions + frequencies + elements // 2)
    cosine = Counts(2 * elements, 0, 2 * elements)  # the function and a scale
    sine = Counts(2 * elements, 0, 2 * elements)
    return angles.plus(cosine, sine)


def rms_norm(elements: int, rows: int, weights: int) -> Counts:
    """Return the cost of an RMS norm with a weight, as `nn.RMSNorm`.

    Args:
        elements: the elements of the input.
        rows: the mean squares, one for each token.
        weights: the elements of the weight.

    """
    if not elements:
        return NOTHING
    normalise = Counts(3 * elements + 2 * rows, elements, 3 * elements + 4 * rows + 1)
    affine = Counts(elements, elements, 2 * elements + weights)
    return normalise.plus(affine)


def linear(rows: int, inputs: int, outputs: int, bias: int) -> Counts:
    """Return the cost of a linear map, as `nn.Linear`.

    Args:
        rows: all leading dimensions together.
        inputs: the width of a row.
        outputs: the results per row.
        bias: the elements of the bias, 0 without one.

    """
    results = rows * outputs
    if not results:
        return NOTHING
    products = results * (2 * inputs - 1) if inputs else 0
    flops = products + (results if bias else 0)
    return Counts(flops, results * inputs, rows * inputs + inputs * outputs + bias + results)


def combine(elements: int, operand: int | None = None) -> Counts:
    """Return the cost of adding or multiplying two tensors, one stage.

    Args:
        elements: the elements of the result and of the first operand.
        operand: the elements of the second operand where it is broadcast; `None` is as many.

    """
    return Counts(elements, 0, 2 * elements + (elements if operand is None else operand))


def elementwise(elements: int, operations: int) -> Counts:
    """Return the cost of an elementwise function of one tensor, one stage (D4).

    Args:
        elements: the elements of the tensor.
        operations: the operations for each; none is no stage.

    """
    return Counts(elements * operations, 0, 2 * elements if operations else 0)


def interpolation(inputs: int, outputs: int, taps: int) -> Counts:
    """Return the cost of resampling.

    Args:
        inputs: the values read.
        outputs: the results, each a weighted sum.
        taps: the terms of each sum.

    """
    return Counts(outputs * (2 * taps - 1), outputs * taps, inputs + outputs)


def replace_tokens(elements: int, tokens: int, width: int) -> Counts:
    """Return the cost of `x * (1 - mask) + mask_token * mask`, one elementwise stage.

    Args:
        elements: the elements of `x`.
        tokens: the elements of the mask, one per token.
        width: the elements of the mask token.

    """
    return Counts(tokens + 3 * elements, 0, 2 * elements + tokens + width)
