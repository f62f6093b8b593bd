"""Data movement and lookup. Derivation: docs/derivations/functional-operators.md#movement-and-lookup."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas import embedding as lookup_formula
from torchscan_native.layers.formulas import movement as formula
from torchscan_native.operators.shapes import NOTHING, NotCovered, Shape, Work, numel, offer, tensors, work

__all__ = ["formulas"]

_REASON = "Moves data without arithmetic."


def moved(*args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count one copying stage: every operand read once, the result written once."""
    read = sum(map(numel, tensors(*args)))
    return work(formula.move(read, sum(map(numel, tensors(out_shape)))))


def rearranged(self: Shape, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count one copying stage of one tensor, whatever else describes it."""
    return work(formula.move(numel(self), numel(out_shape)))


def copied(self: Shape, src: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> Work:
    """Count an assignment: the source is read, the target written."""
    return work(formula.move(sum(map(numel, tensors(src))), numel(self)))


def padded(self: Shape, pad: list[int], *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a constant pad: what it keeps is read."""
    return work(formula.move(formula.cropped(self, pad), numel(out_shape)))


def looked_up(*args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a lookup: the positions are read once, and one entry per result.

    The table itself is the first operand; which of its entries repeat is a matter of values.
    """
    positions = sum(map(numel, tensors(*args[1:])))
    results = numel(out_shape)
    return Work(0, 0, positions + results + results)


def repeated(self: Shape, repeats: Any = None, *args: Any, out_shape: Shape, **kwargs: Any) -> Work:
    """Count the positions of repeated entries; a fixed number of repeats is a view that is copied."""
    if repeats is None:
        return moved(self, out_shape=out_shape)
    if isinstance(repeats, tuple):
        raise NotCovered("a number of repeats for each entry")
    return NOTHING


def masked(self: Shape, mask: Shape, *, out_shape: Shape, **kwargs: Any) -> Work:
    """Count a selection by truth values: the mask is read, and one entry per result."""
    results = numel(out_shape)
    return Work(0, 0, numel(mask) + results + results)


def positions(self: Shape, *args: Any, out_shape: Any, **kwargs: Any) -> Work:
    """Count the search for entries that are not zero."""
    return Work(0, 0, numel(self) + sum(map(numel, tensors(out_shape))))


def index_add(self: Shape, dim: int, index: Shape, source: Shape, *, alpha: Any = 1, **kwargs: Any) -> Work:
    """Count one add per source element. Derivation: docs/derivations/functional-operators.md#scattered-sums."""
    added = numel(source)
    scaled = added if alpha != 1 else 0
    return Work(added + scaled, 0, numel(self) + numel(index) + added + numel(self))


def scatter_add(self: Shape, dim: int, index: Shape, src: Shape, **kwargs: Any) -> Work:
    """Count one add per position; the source may be larger than the positions are many."""
    return Work(numel(index), 0, numel(self) + numel(index) + numel(src) + numel(self))


def scatter_reduce(
    self: Shape, dim: int, index: Shape, src: Any, reduce: str = "", *, include_self: bool = True, **kwargs: Any
) -> Work:
    """Count one operation per source element; a mean, or a start without `self`, depends on the indices' values."""
    if not isinstance(src, tuple):
        raise NotCovered("a reduction with a Python number")
    dmas = 2 * numel(self) + numel(index) + numel(src)
    if reduce not in ("sum", "prod", "amax", "amin", "add", "multiply") or not include_self:
        return Work(None, 0, dmas)
    return Work(numel(index), 0, dmas)


def scatter(self: Shape, dim: int, index: Shape, src: Any, *args: Any, **kwargs: Any) -> Work:
    """Count `scatter`, which replaces, or reduces where a reduction is named."""
    if "reduce" in kwargs:
        return scatter_reduce(self, dim, index, src, kwargs["reduce"])
    return moved(self, index, src, out_shape=self)


def index_put(
    self: Shape, indices: list[Any], values: Shape, accumulate: bool = False, *args: Any, **kwargs: Any
) -> Work:
    """Count an indexed assignment, or an indexed sum: one add per element that the indices name.

    How many those are is a matter of values where an index may be a mask, unless there is one value for each.
    """
    dmas = 2 * numel(self) + sum(map(numel, tensors(indices))) + numel(values)
    if not accumulate:
        return Work(0, 0, dmas)
    positions = math.prod(
        max(sizes) for sizes in zip_longest(*(shape[::-1] for shape in tensors(indices)), fillvalue=1)
    )
    kept = [size for size, index in zip_longest(self, indices) if index is None]
    return Work(numel(values) if numel(values) == positions * math.prod(kept) else None, 0, dmas)


def put(self: Shape, index: Shape, source: Shape, accumulate: bool = False, **kwargs: Any) -> Work:
    """Count an assignment by flat positions, or a sum by them."""
    return moved(self, index, source, out_shape=self).plus(flops=numel(source) if accumulate else 0)


def embedding(weight: Shape, indices: Shape, *args: Any, **kwargs: Any) -> Work:
    """Count a table lookup. Derivation: docs/derivations/embedding.md#embedding."""
    return work(lookup_formula.embedding(numel(indices), weight[-1]))


def embedding_bag(
    weight: Shape,
    indices: Shape,
    offsets: Shape,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Shape | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    out_shape: Any,
    **kwargs: Any,
) -> Work:
    """Count sums, means or maxima of table rows. Derivation: docs/derivations/embedding.md#embedding-bag.

    How many bags are empty is a matter of values: sums and maxima have no FLOPs here, a mean has them.
    """
    if padding_idx >= 0:
        raise NotCovered("indices that are skipped")
    count, width = numel(indices), weight[-1]
    bags = next(tensors(out_shape))[0]
    weighted = per_sample_weights is not None
    if mode == 1:
        return work(lookup_formula.bag_mean(count, width, bags, offsets=numel(offsets)))
    known = lookup_formula.bag_sum(count, width, bags, 0, offsets=numel(offsets), weighted=weighted)
    return Work(None, known.macs, known.dmas)


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of data movement."""
    for names, rule in (
        (
            "cat stack _stack _chunk_cat repeat roll flip rot90 tril tril_ triu triu_ pixel_shuffle pixel_unshuffle "
            "channel_shuffle diag_embed block_diag im2col slice_scatter select_scatter "
            "diagonal_scatter as_strided_scatter index_copy index_copy_ index_fill index_fill_",
            moved,
        ),
        (
            "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d",
            rearranged,
        ),
        ("copy_ copy", copied),
        ("constant_pad_nd", padded),
        ("index _unsafe_index index_select gather take", looked_up),
        ("repeat_interleave", repeated),
        ("masked_select", masked),
        ("nonzero nonzero_static", positions),
        ("embedding", embedding),
    ):
        yield from offer(names, "movement", rule, reason=_REASON)
    yield from offer("masked_scatter masked_scatter_", "movement", reason=_REASON)
    # These can also sum what they scatter, so they count as arithmetic.
    yield from offer("scatter scatter_", "arithmetic", scatter, terms="sums")
    yield from offer("index_put index_put_ _index_put_impl_", "arithmetic", index_put, terms="sums")
    yield from offer("put put_", "arithmetic", put, terms="sums")
    yield from offer("index_add index_add_", "arithmetic", index_add, terms="sums")
    yield from offer("scatter_add scatter_add_", "arithmetic", scatter_add, terms="sums")
    yield from offer("scatter_reduce scatter_reduce_", "arithmetic", scatter_reduce, terms="sums")
    # With a weight per sample it is a weighted sum, so it may be a contraction.
    yield from offer("_embedding_bag _embedding_bag_forward_only", "contraction", embedding_bag, terms="sums")
