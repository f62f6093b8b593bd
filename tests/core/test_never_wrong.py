"""Calls that once were complete and wrong, or could be: each expected number with its arithmetic."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchscan import scan

X = torch.ones(3, 4)
W = torch.ones(4, 4)


def times_w(value):
    return value @ W


def macs(report):
    return report.totals.macs.status, report.totals.macs.known_value


class TestHooks:
    """What hooks compute is work that no handler explains, wherever the hook sits."""

    # Linear(4, 4) on 3 rows: 3 * 4 * 4 = 48 products; a hook that multiplies by a (4, 4) matrix: 48 more.

    @pytest.mark.parametrize("hooked", [0, 1])
    def test_pre_hook_beside_an_equal_call_without_one(self, hooked):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[hooked].register_forward_pre_hook(lambda module, args: (times_w(args[0]),))
        assert macs(scan(model, args=(X,))) == ("partial", 96)
        assert macs(scan(model, args=(X,), functional="estimate")) == ("complete", 144)


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
