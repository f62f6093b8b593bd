"""Calls that once were complete and wrong, or could be: each expected number with its arithmetic."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import torchscan
from core.never_wrong_support import W, X, macs
from torchscan import scan


class Numpy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() @ W.numpy())


class BesideNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(torch.from_numpy(x.numpy() @ W.numpy()))


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("functional", ["audit", "estimate"])
def test_values_that_leave_for_numpy_and_come_back(functional):
    assert macs(scan(Numpy(), args=(X,), functional=functional))[0] == "unavailable"
    assert macs(scan(BesideNumpy(), args=(X,), functional=functional)) == ("partial", 48)
    assert macs(scan(Constant(), args=(X,), functional=functional)) == ("complete", 48)


class Given(nn.Module):
    """Hands out a tensor that no operator made."""

    def __init__(self, make) -> None:
        super().__init__()
        self.make = make
        self.table = torch.ones(3, 4)

    def forward(self, x):
        return self.make(self, x)


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (lambda module, x: x, "complete"),
        (lambda module, x: module.table, "complete"),
        (lambda module, x: {"y": [x, (module.table, None)]}, "complete"),
        # what a compiled extension returns: a tensor that was never there before
        (lambda module, x: torch.from_dlpack(np.ones((3, 4), dtype=np.float32)), "unavailable"),
    ],
    ids=["argument", "attribute", "nested", "elsewhere"],
)
def test_a_leaf_without_operators_did_nothing_only_if_it_made_nothing(make, status):
    assert scan(Given(make), args=(X,), functional="estimate").totals.macs.status == status


class Picks(nn.Module):
    """Takes the rows that a mask names."""

    def __init__(self, *masks) -> None:
        super().__init__()
        self.masks = [torch.tensor(mask) for mask in masks]

    def forward(self, x):
        return [x[mask] for mask in self.masks]


def test_results_whose_size_is_a_matter_of_values():
    # Masks of 3 entries pick 1, 2 or 3 rows of 4: 3 positions read, and each entry read and written.
    # 3 + 2 * 4 = 11, 3 + 2 * 8 = 19, 3 + 2 * 12 = 27
    one, two, three = [True, False, False], [True, True, False], [True, True, True]
    for masks, dmas in (([one], 11), ([three], 27), ([two], 19), ([one, two, three, one], 11 + 19 + 27 + 11)):
        assert scan(Picks(*masks), args=(X,), functional="estimate").totals.dmas.value == dmas


def test_foreign_operators_that_answer_with_a_number():
    @torch.library.custom_op("never_wrong::inner_product", mutates_args=())
    def inner_product(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a * b).sum())

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            x = self.fc(x)
            return x, torch.ops.never_wrong.inner_product(x, x)

    for functional in ("audit", "estimate"):
        report = scan(Inner(), args=(X,), functional=functional)
        assert macs(report) == ("partial", 48)
        assert "never_wrong.inner_product" in {d.operator for d in report.diagnostics}
        assert report.totals.operator_flops.status == "partial"


def test_a_strict_failure_travels_between_processes():
    with pytest.raises(torchscan.IncompleteAnalysisError) as caught:
        scan(Numpy(), args=(X,), strict=True)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.report) == (str(caught.value), caught.value.report)


class Causal(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def test_causal_attention_costs_the_same_on_every_path():
    # batch 2, one head, 3 tokens of width 4: Q = J = V = O = 24, A = 2 * 9 = 18, R = 6
    # FLOPs: scaling 24 + 24, scores 18 * 7, select 9, add 18, softmax 5 * 18 - 2 * 6, weighted values 24 * 5
    flops = 48 + 126 + 9 + 18 + 78 + 120
    # DMAs: scaling 48 + 48, scores 24 + 24 + 18, select 9 + 2 + 9, add 9 + 18 + 18, softmax 8 * 18 + 4 * 6,
    # weighted values 18 + 24 + 24
    dmas = 96 + 66 + 20 + 45 + 168 + 66
    x = torch.ones(2, 1, 3, 4)
    for kernel in ([SDPBackend.MATH], [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        for execution in ("real", "fake"):
            with sdpa_kernel(kernel):
                totals = scan(Causal(), args=(x,), functional="estimate", execution=execution).totals
            # 18 scores of 4 terms, 24 values of 3
            assert (totals.macs.value, totals.module_flops.value, totals.dmas.value) == (72 + 72, flops, dmas)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.LayerNorm(4)
        self.third = nn.LayerNorm(4)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [
        (2**60 + 1, 0.5, 2**60 + 2),  # two halves
        (2**60 + 1, 1.0, 2**60 + 3),
        (0, 0.1, 0.2),
        (1, 1e308, 1 + 2 * int(1e308)),  # beyond what a float can hold, and whole
        (10**400, 0.25, 10**400),  # nothing but an integer can hold it: the half is rounded away
    ],
)
def test_a_float_costs_large_integers_nothing(first, others, expected):
    handlers = {nn.Linear: lambda call: {"macs": first}, nn.LayerNorm: lambda call: {"macs": others}}
    total = scan(Pair(), args=(X,), custom_modules=handlers).totals.macs
    assert (total.status, total.value) == ("complete", expected)
    assert type(total.value) is type(expected)


class Mapped(Mapping):
    """A result that computes what it holds when it is read."""

    def __init__(self, numbers) -> None:
        self.numbers = numbers

    def __getitem__(self, name):
        if self.numbers is None:
            raise ZeroDivisionError("late")
        return self.numbers[name]

    def __iter__(self):
        return iter(self.numbers or ["macs"])

    def __len__(self):
        return 1


def test_results_that_are_computed_when_they_are_read():
    class Items(dict):
        def items(self):
            raise ZeroDivisionError("late")

    for result in (Mapped(None), Items(macs=3)):
        report = scan(Pair(), args=(X,), custom_modules={nn.Linear: lambda call, result=result: result})
        # two affine norms of 12 elements, squares and weights: 4 * 12
        assert macs(report) == ("partial", 48)
        assert any("ZeroDivisionError: late" in d.message for d in report.diagnostics if d.path == "first")
    report = scan(Pair(), args=(X,), custom_modules={nn.Linear: lambda call: Mapped({"macs": 7})})
    assert macs(report) == ("complete", 7 + 48)
