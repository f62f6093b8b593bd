"""Lookups against a scalar interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import Machine, counts, reasons, same_numbers

examples = settings(max_examples=40, deadline=None)


def table(kind, width, **options):
    generator = torch.Generator().manual_seed(width)
    weight = torch.randn(5, width, dtype=torch.float64, generator=generator)
    return kind.from_pretrained(weight, **options).eval()


@examples
@given(shape=st.lists(st.integers(1, 3), max_size=2), width=st.integers(1, 3), data=st.data())
def test_embedding(shape, width, data):
    layer = table(nn.Embedding, width)
    x = torch.tensor(data.draw(st.lists(st.integers(0, 4), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    x = x.reshape(shape)
    machine = Machine()
    rows = layer.weight.detach().numpy()[x.numpy()]
    machine.stage([x.numpy(), rows], rows)
    same_numbers(layer(x), rows)
    assert counts(layer, x) == machine.counts


def pool_bags(machine, layer, bags, weights):
    """Return one row per bag; `bags` are lists of indices, `weights` matching lists or `None`."""
    rows = layer.weight.detach().numpy()
    out = np.zeros((len(bags), rows.shape[1]))
    for number, bag in enumerate(bags):
        for column in range(rows.shape[1] if bag else 0):
            values = [rows[index, column] for index in bag]
            if weights is not None:
                out[number, column] = machine.dot(values, weights[number])
            elif layer.mode == "max":
                out[number, column] = machine.largest(values)
            else:
                total = machine.sum(values)
                out[number, column] = machine.div(total, len(bag)) if layer.mode == "mean" else total
    return out


@examples
@given(bags=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4), data=st.data())
def test_bags_by_offsets(bags, data):
    mode = data.draw(st.sampled_from(["sum", "mean", "max"]))
    last = data.draw(st.booleans())
    width = data.draw(st.integers(1, 2))
    layer = table(nn.EmbeddingBag, width, mode=mode, include_last_offset=last)
    flat = [index for bag in bags for index in bag]
    x = torch.tensor(flat, dtype=torch.long)
    ends = list(np.cumsum([len(bag) for bag in bags]))
    offsets = torch.tensor([0, *ends] if last else [0, *ends[:-1]])
    weighted = mode == "sum" and data.draw(st.booleans())
    weights = [[1.5 + i for i, _ in enumerate(bag)] for bag in bags] if weighted else None
    flat_weights = torch.tensor([w for bag in weights for w in bag], dtype=torch.float64) if weighted else None
    machine = Machine()
    out = pool_bags(machine, layer, bags, weights)
    gathered = layer.weight.detach().numpy()[flat]
    operands = [x.numpy(), gathered, offsets.numpy()]
    machine.stage(operands + ([flat_weights.numpy()] if weighted else []), out)
    same_numbers(layer(x, offsets, flat_weights), out)
    assert counts(layer, x, offsets, per_sample_weights=flat_weights) == machine.counts


@examples
@given(count=st.integers(1, 3), length=st.integers(1, 3), mode=st.sampled_from(["sum", "mean", "max"]), data=st.data())
def test_bags_of_one_length(count, length, mode, data):
    layer = table(nn.EmbeddingBag, 2, mode=mode)
    bags = [[data.draw(st.integers(0, 4)) for _ in range(length)] for _ in range(count)]
    x = torch.tensor(bags)
    machine = Machine()
    out = pool_bags(machine, layer, bags, None)
    machine.stage([x.numpy(), layer.weight.detach().numpy()[x.numpy().ravel()]], out)
    same_numbers(layer(x), out)
    assert counts(layer, x) == machine.counts


def test_a_mean_needs_no_values():
    layer = nn.EmbeddingBag(5, 2, mode="mean", device="meta")
    x, offsets = torch.zeros(3, dtype=torch.long, device="meta"), torch.zeros(2, dtype=torch.long, device="meta")
    # 3 rows of 2; 3 + 6 + 4 + 2
    assert counts(layer, x, offsets) == (6, 0, 15)
    layer.mode = "sum"
    assert reasons(layer, x, offsets) == {"unreadable_offsets"}


def test_indices_of_32_bits():
    # 2 + 2*3 + 2*3
    assert counts(nn.Embedding(5, 3), torch.ones(2, dtype=torch.int32)) == (0, 0, 14)


@pytest.mark.parametrize("build", [nn.Embedding, nn.EmbeddingBag])
def test_rescaled_rows_are_refused(build):
    assert reasons(build(5, 2, max_norm=1.0), torch.ones(2, 2, dtype=torch.long)) == {"max_norm"}


def test_skipped_rows_are_refused():
    x = torch.ones(2, 2, dtype=torch.long)
    assert reasons(nn.EmbeddingBag(5, 2, padding_idx=1), x) == {"padding_idx"}
    # a lookup reads the padding row like any other: 4 + 8 + 8
    assert counts(nn.Embedding(5, 2, padding_idx=1), x) == (0, 0, 20)


def test_indices_after_the_last_offset_are_refused():
    bag = nn.EmbeddingBag(5, 2, mode="sum", include_last_offset=True)
    assert reasons(bag, torch.ones(4, dtype=torch.long), torch.tensor([0, 2])) == {"last_offset"}


def test_nothing_to_look_up():
    nothing = torch.ones(0, dtype=torch.long)
    assert counts(nn.Embedding(5, 2), nothing) == (0, 0, 0)
    # two bags of nothing: two rows of zeros written, two offsets read
    assert counts(nn.EmbeddingBag(5, 2, mode="sum"), nothing, torch.tensor([0, 0])) == (0, 0, 6)
