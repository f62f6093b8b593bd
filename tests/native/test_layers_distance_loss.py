"""Distances and losses against a scalar interpreter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.layers_support import (
    Machine,
    counts,
    each,
    estimates,
    logsigmoid,
    random,
    reasons,
    same_numbers,
    softmax,
)

examples = settings(max_examples=30, deadline=None)
shapes = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def other(x):
    return (x * 0.7 + 0.3).flip(0)


@examples
@given(shape=shapes, data=st.data())
def test_cosine_similarity(shape, data):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    layer = nn.CosineSimilarity(dim)
    x1 = random(*shape)
    x2 = other(x1)
    machine = Machine()
    a, b = (np.moveaxis(t.numpy(), dim, -1).reshape(-1, shape[dim]) for t in (x1, x2))
    products = np.array([machine.dot(u, v) for u, v in zip(a, b, strict=True)])
    machine.stage([a, b], products)
    squares = []
    for rows in (a, b):
        squares.append(np.array([machine.sum([machine.square(v) for v in row]) for row in rows]))
        machine.stage([rows], squares[-1])

    def quotient(product, first, second):
        return machine.div(product, machine.max(machine.mul(machine.sqrt(first), machine.sqrt(second)), layer.eps))

    out = each(quotient, products, *squares)
    machine.stage([products, *squares, layer.eps], out)
    same_numbers(layer(x1, x2).reshape(-1), out)
    assert counts(layer, x1, x2) == machine.counts


@examples
@given(shape=shapes, p=st.sampled_from([1.0, 2.0, 3.0, 4.0, 2.5, math.inf]), keepdim=st.booleans())
def test_pairwise_distance(shape, p, keepdim):
    layer = nn.PairwiseDistance(p, eps=1e-3, keepdim=keepdim)
    x1 = random(*shape)
    x2 = other(x1)
    machine = Machine()
    a, b = (t.numpy().reshape(-1, shape[-1]) for t in (x1, x2))
    difference = each(lambda u, v: machine.add(machine.sub(u, v), layer.eps), a, b)
    machine.stage([a, b, layer.eps], difference)

    def power(v):
        if p not in (2.0, 4.0):
            v = machine.abs(v)
        if p in (1.0, math.inf):
            return v
        if p == 2.5:
            return machine.exp(machine.mul(p, machine.log(v)))
        out = v
        for _ in range(int(p) - 1):
            out = machine.mul(out, v)
        return out

    combine = machine.sum if p != math.inf else machine.largest
    out = np.array([combine([power(v) for v in row]) for row in difference])
    machine.stage([difference], out)
    if p not in (1.0, math.inf):
        roots = machine.sqrt if p == 2.0 else lambda v: machine.exp(machine.mul(1 / p, machine.log(v)))
        out = machine.map(roots, out)
    same_numbers(layer(x1, x2).reshape(-1), out)
    assert counts(layer, x1, x2) == machine.counts


def test_a_pair_that_broadcasts_is_left_to_others():
    assert estimates(nn.CosineSimilarity(), torch.ones(2, 3), torch.ones(1, 3)) == {}
    assert estimates(nn.PairwiseDistance(), torch.ones(2, 3), torch.ones(3)) == {}
    assert estimates(nn.PairwiseDistance(p=0.0), torch.ones(2, 3), torch.ones(2, 3)) == {}


def test_empty_pairs():
    assert counts(nn.CosineSimilarity(), torch.ones(0, 3), torch.ones(0, 3)) == (0, 0, 0)
    assert counts(nn.PairwiseDistance(), torch.ones(0, 3), torch.ones(0, 3)) == (0, 0, 0)
    assert reasons(nn.CosineSimilarity(), torch.ones(2, 0), torch.ones(2, 0)) == {"empty_row"}
    assert reasons(nn.PairwiseDistance(), torch.ones(2, 0), torch.ones(2, 0)) == {"empty_row"}


def smooth_l1(m, x, y):
    distance = m.abs(m.sub(x, y))
    below, above = m.mul(0.5 / 2.0, m.square(distance)), m.sub(distance, 0.5 * 2.0)
    return m.select(m.less(distance, 2.0), below, above)


def huber(m, x, y):
    distance = m.abs(m.sub(x, y))
    below, above = m.mul(0.5, m.square(distance)), m.mul(2.0, m.sub(distance, 0.5 * 2.0))
    return m.select(m.less(distance, 2.0), below, above)


def binary(m, x, y):
    first = m.mul(y, m.max(m.log(x), -100.0))
    second = m.mul(m.sub(1.0, y), m.max(m.log(m.sub(1.0, x)), -100.0))
    return m.neg(m.add(first, second))


LOSSES = {
    "L1Loss": (nn.L1Loss, lambda m, x, y: m.abs(m.sub(x, y))),
    "MSELoss": (nn.MSELoss, lambda m, x, y: m.square(m.sub(x, y))),
    "SmoothL1Loss": (lambda **o: nn.SmoothL1Loss(beta=2.0, **o), smooth_l1),
    "SmoothL1Loss without a quadratic part": (
        lambda **o: nn.SmoothL1Loss(beta=0.0, **o),
        lambda m, x, y: m.abs(m.sub(x, y)),
    ),
    "HuberLoss": (lambda **o: nn.HuberLoss(delta=2.0, **o), huber),
    "KLDivLoss": (nn.KLDivLoss, lambda m, x, y: m.mul(y, m.sub(m.log(y), x))),
    "KLDivLoss of logarithms": (
        lambda **o: nn.KLDivLoss(log_target=True, **o),
        lambda m, x, y: m.mul(m.exp(y), m.sub(y, x)),
    ),
    "SoftMarginLoss": (nn.SoftMarginLoss, lambda m, x, y: m.log(m.add(1.0, m.exp(m.neg(m.mul(y, x)))))),
    "BCELoss": (nn.BCELoss, binary),
    "BCEWithLogitsLoss": (
        nn.BCEWithLogitsLoss,
        lambda m, x, y: m.sub(m.mul(m.sub(1.0, y), x), logsigmoid(m, x)),
    ),
}


def reduce(machine, values, reduction, divisor):
    """Reduce the per-element losses in a stage of their own."""
    if reduction == "none":
        return values
    total = machine.sum(values.ravel())
    if reduction != "sum":
        total = machine.div(total, divisor)
    machine.stage([values], total)
    return total


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=12, deadline=None)
@given(shape=shapes, reduction=st.sampled_from(["none", "mean", "sum"]))
def test_loss(name, shape, reduction):
    build, scalar = LOSSES[name]
    x = torch.sigmoid(random(*shape))  # probabilities suit every one of them
    y = torch.sigmoid(other(x))
    machine = Machine()
    values = machine.map(lambda a, b: scalar(machine, a, b), x.numpy(), y.numpy())
    out = reduce(machine, values, reduction, x.numel())
    same_numbers(build(reduction=reduction)(x, y), out)
    assert counts(build(reduction=reduction), x, y) == machine.counts


def test_batchmean_and_margin_ranking():
    # 6 elements of 3; 5 adds and a divide; 18 + 6 + 1
    assert counts(nn.KLDivLoss(reduction="batchmean"), torch.ones(2, 3), torch.ones(2, 3)) == (24, 0, 25)
    # 3 elements of 5; 2 adds and a divide; 9 + 3 + 3 + 1
    three = torch.ones(3)
    assert counts(nn.MarginRankingLoss(), three, three, three) == (18, 0, 16)


@examples
@given(
    lead=st.integers(1, 3),
    classes=st.integers(1, 4),
    tail=st.lists(st.integers(1, 2), max_size=1),
    reduction=st.sampled_from(["none", "mean", "sum"]),
    kind=st.sampled_from(["NLLLoss", "CrossEntropyLoss"]),
)
def test_class_losses(lead, classes, tail, reduction, kind):
    x = random(lead, classes, *tail)
    target = torch.arange(lead * int(np.prod(tail))).reshape(lead, *tail) % classes
    machine = Machine()
    scores = x.numpy() if kind == "NLLLoss" else softmax(machine, x.numpy(), 1, log=True)
    rows = np.moveaxis(scores, 1, -1).reshape(-1, classes)
    picked = rows[np.arange(len(rows)), target.numpy().ravel()]
    values = each(machine.neg, picked)
    machine.stage([target.numpy(), picked], values)
    out = reduce(machine, values, reduction, len(rows))
    layer = getattr(nn, kind)(reduction=reduction)
    same_numbers(layer(x, target).reshape(-1), np.ravel(out))
    assert counts(layer, x, target) == machine.counts


def test_a_single_row_of_classes():
    # N=3, R=1: log-softmax 15-1, negate 1, mean 1; 0; 24+6, 3, 2
    assert counts(nn.CrossEntropyLoss(), torch.ones(3), torch.tensor(1)) == (16, 0, 35)


def test_variants_without_a_formula_are_left_to_others():
    x, target = torch.ones(2, 3), torch.ones(2, dtype=torch.long)
    for layer in (
        nn.CrossEntropyLoss(weight=torch.ones(3)),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.NLLLoss(weight=torch.ones(3)),
    ):
        assert estimates(layer, x, target) == {}
    assert estimates(nn.CrossEntropyLoss(), x, torch.ones(2, 3)) == {}
    assert estimates(nn.BCEWithLogitsLoss(pos_weight=torch.ones(3)), x, x) == {}
    assert estimates(nn.BCELoss(weight=torch.ones(3)), x, x) == {}


def test_empty_losses():
    empty = torch.ones(0, 3)
    assert counts(nn.L1Loss(reduction="none"), empty, empty) == (0, 0, 0)
    assert reasons(nn.L1Loss(), empty, empty) == {"empty_row"}
    assert reasons(nn.CrossEntropyLoss(), empty, torch.ones(0, dtype=torch.long)) == {"empty_row"}
