"""Random functional models: their MACs against a count of every contraction that PyTorch dispatches unfused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import torchscan
from native.operator_log import Function, one
from torchscan.testing import count_contractions

sizes = st.integers(1, 4)


# -- random models ---------------------------------------------------------------------------------------------------

WIDTH, HEADS = 4, 2


def attend(x: torch.Tensor) -> torch.Tensor:
    q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (x, x.roll(1, 1), x.flip(1)))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def attend_causally(x: torch.Tensor) -> torch.Tensor:
    q = x.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)


def attend_by_hand(x: torch.Tensor) -> torch.Tensor:
    scores = (x @ x.mT / WIDTH**0.5).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e9)
    return scores.softmax(-1) @ x


def expert(x: torch.Tensor) -> torch.Tensor:
    chosen = x.argmax(-1)
    return torch.where((chosen % 2 == 0)[..., None], x, x.roll(1, -1))


def convolve(x: torch.Tensor) -> torch.Tensor:
    return F.conv1d(x.mT, torch.ones(WIDTH, 2, 3), padding=1, groups=2).mT


#: Steps that keep (batch, tokens, WIDTH); none of them sums along an axis what another may have multiplied.
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "attend": attend,
    "attend causally": attend_causally,
    "attend by hand": attend_by_hand,
    "einsum": lambda x: torch.einsum("bti,bsi,bsj->btj", x, x, x),
    "weight": lambda x: x @ torch.ones(WIDTH, WIDTH),
    "broadcast weight": lambda x: (
        torch.ones(x.shape[0], WIDTH, WIDTH) @ x.mT @ torch.ones(x.shape[1], WIDTH) if x.shape[1] == WIDTH else x
    ),
    "added product": lambda x: torch.baddbmm(x, x, torch.ones(x.shape[0], WIDTH, WIDTH), beta=0.5),
    "outer": lambda x: x + torch.outer(torch.ones(x.shape[1]), torch.ones(WIDTH)),
    "convolve": convolve,
    "gate": lambda x: x.sigmoid() * x,
    "glu": lambda x: F.glu(torch.cat([x, x], -1)),
    "pool and add": lambda x: x + x.amax(1, keepdim=True),
    "position": lambda x: x + torch.arange(x.shape[1])[:, None] / 10,
    "route": expert,
    "nothing": lambda x: x.contiguous().view_as(x),
}
MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "feed forward": lambda: nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "bare norm": lambda: nn.LayerNorm(WIDTH, elementwise_affine=False),
}


class Model(nn.Module):
    """Runs steps one after the other; a step may be shared, residual or a model of its own."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__()
        self.steps = steps
        shared: dict[str, nn.Module] = {}
        self.parts = nn.ModuleList()
        self.plan: list[tuple[Any, bool]] = []
        for step, residual, share in steps:
            if isinstance(step, list):
                part: Any = Model(step)
            elif step in MODULES:
                part = shared.setdefault(step, MODULES[step]()) if share else MODULES[step]()
            else:
                part = FUNCTIONS[step]
            if isinstance(part, nn.Module):
                self.parts.append(part)
            self.plan.append((part, residual))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part, residual in self.plan:
            x = x + part(x) if residual else part(x)
        return x

    def norm_terms(self, elements: int) -> int:
        """A square per element, and a product where the norm has a weight; once per call."""
        total = 0
        for part, _ in self.plan:
            if isinstance(part, Model):
                total += part.norm_terms(elements)
            elif isinstance(part, nn.LayerNorm):
                total += elements * (1 + part.elementwise_affine)
        return total


def flat(step: Any) -> list[str]:
    return [name for inner, _, _ in step for name in (flat(inner) if isinstance(inner, list) else [inner])]


names = st.sampled_from(sorted(FUNCTIONS) + sorted(MODULES))
steps = st.recursive(
    st.lists(st.tuples(names, st.booleans(), st.booleans()), min_size=1, max_size=4),
    lambda inner: st.lists(st.tuples(st.one_of(names, inner), st.booleans(), st.booleans()), min_size=1, max_size=3),
    max_leaves=4,
)


def check(program: list[Any], batch: int, tokens: int) -> None:
    torch.manual_seed(0)
    model = Model(program).eval()
    x = torch.rand(batch, tokens, WIDTH)
    expected = count_contractions(model, x).total + model.norm_terms(x.numel())
    estimated = torchscan.scan(model, args=(x,), functional="estimate").totals.macs
    assert (estimated.status, estimated.value) == ("complete", expected)
    audited = torchscan.scan(model, args=(x,)).totals.macs
    if audited.status == "complete":
        assert audited.value == expected
    else:
        assert (audited.known_value or 0) <= expected
        assert any(FUNCTIONS.get(name) for name in flat(program))


@given(program=steps, batch=st.integers(1, 2), tokens=sizes)
@settings(max_examples=40, deadline=None)
def test_random_models(program, batch, tokens):
    check(program, batch, tokens)


@pytest.mark.slow
@given(program=steps, batch=st.integers(1, 3), tokens=st.integers(1, 6))
@settings(max_examples=3000, deadline=None)
def test_many_random_models(program, batch, tokens):
    check(program, batch, tokens)


@given(program=steps, tokens=st.integers(2, 4), at=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_a_sum_of_products_anywhere_keeps_macs_open(program, tokens, at):
    def hidden(x: torch.Tensor) -> torch.Tensor:
        return x + (x * x.flip(1)).sum(-1, keepdim=True)

    torch.manual_seed(0)
    model = Model(program)
    model.plan.insert(min(at, len(model.plan)), (hidden, False))
    x = torch.rand(1, tokens, WIDTH)
    expected = count_contractions(model, x).total + model.norm_terms(x.numel())
    for functional in ("audit", "estimate"):
        found = torchscan.scan(model, args=(x,), functional=functional).totals.macs
        assert found.status != "complete"
        assert (found.known_value or 0) <= expected


# -- single operators against brute force ----------------------------------------------------------------------------


@given(
    left=st.lists(st.integers(1, 3), max_size=2),
    right=st.lists(st.integers(1, 3), max_size=2),
    n=sizes,
    k=st.integers(0, 4),
    p=sizes,
)
@settings(max_examples=60, deadline=None)
def test_matmul_with_broadcasting(left, right, n, k, p):
    joined = (
        [max(a, b) for a, b in zip([1] * 2 + left, [1] * 2 + right, strict=False)] if len(left) == len(right) else None
    )
    if joined is not None and any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        right = left
    elif joined is None:
        right = left[-len(right) :] if len(right) < len(left) else right
        left = right[-len(left) :] if left and len(left) < len(right) else left
    a, b = torch.rand(*left, n, k), torch.rand(*right, k, p)
    terms = 0
    out = a @ b
    for _ in np.ndindex(*out.shape):
        terms += k  # one product for every element of the row and its partner in the column
    found = torchscan.scan(Function(torch.matmul), args=(a, b), functional="estimate").totals
    assert (found.macs.status, found.macs.value) == ("complete", terms)
    # K products and K - 1 adds for every output
    assert found.module_flops.value == sum(2 * k - 1 if k else 0 for _ in np.ndindex(*out.shape))


@given(
    summed=st.lists(st.sampled_from("ijk"), min_size=1, max_size=2, unique=True),
    kept_left=st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    kept_right=st.lists(st.sampled_from("cde"), max_size=2, unique=True),
    size=st.fixed_dictionaries(
        # PyTorch writes an einsum over an axis of one element as a product, which sums nothing
        {letter: st.integers(2 if letter in "ijk" else 1, 3) for letter in "abcdeijk"}
    ),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_einsum_of_two_operands(summed, kept_left, kept_right, size, order):
    left, right = [*kept_left, *summed], [*kept_right, *summed]
    kept = list(dict.fromkeys([*kept_left, *kept_right]))
    for letters in (left, right, kept):
        order.shuffle(letters)
    a, b = (torch.rand(*(size[letter] for letter in letters)) for letters in (left, right))
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    # one product for every choice of every index
    terms = math.prod(size[letter] for letter in {*left, *right})
    found = torchscan.scan(
        Function(lambda *operands: torch.einsum(equation, *operands)), args=(a, b), functional="estimate"
    ).totals.macs
    assert (found.status, found.value) == ("complete", terms)


binary = st.sampled_from([torch.add, torch.mul, torch.sub, torch.maximum, torch.lt])


@given(
    function=binary,
    shape=st.lists(sizes, min_size=1, max_size=3),
    ones_left=st.lists(st.booleans(), min_size=3, max_size=3),
    ones_right=st.lists(st.booleans(), min_size=3, max_size=3),
    drop=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_elementwise_with_broadcasting(function, shape, ones_left, ones_right, drop):
    left = [1 if one_ else n for one_, n in zip(ones_left, shape, strict=False)]
    right = [1 if one_ else n for one_, n in zip(ones_right, shape, strict=False)][min(drop, len(shape) - 1) :]
    a, b = torch.rand(*left), torch.rand(*right)
    operations = reads = writes = 0
    for _ in np.ndindex(*np.broadcast_shapes(left, right)):
        operations += 1
        writes += 1
    for operand in (left, right):
        for _ in np.ndindex(*operand):
            reads += 1
    assert one(lambda: function(a, b)).counts == (operations, 0, reads + writes)


@given(shape=st.lists(sizes, min_size=1, max_size=3), data=st.data())
@settings(max_examples=60, deadline=None)
def test_reductions_add_one_less_than_they_read(shape, data):
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    keep = data.draw(st.booleans())
    x = torch.rand(*shape)
    adds = divides = 0
    rows: dict[tuple[int, ...], int] = {}
    for index in np.ndindex(*shape):
        row = tuple(i for axis, i in enumerate(index) if axis not in axes)
        if row in rows:
            adds += 1  # the first value of a row is taken as it is
        rows[row] = rows.get(row, 0) + 1
    divides = len(rows)
    accesses = x.numel() + len(rows)
    assert one(lambda: x.sum(axes, keepdim=keep)).counts == (adds, 0, accesses)
    assert one(lambda: x.amax(axes, keepdim=keep)).counts == (adds, 0, accesses)
    assert one(lambda: x.mean(axes, keepdim=keep)).counts == (adds + divides, 0, accesses)
    # mean, then subtract, square, add and divide
    assert one(lambda: x.var(axes, correction=0)).counts[:2] == (
        adds + divides + 2 * x.numel() + adds + divides,
        x.numel(),
    )
