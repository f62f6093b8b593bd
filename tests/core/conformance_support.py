"""What the tests of the conformance kit share: a module, a handler that keeps the contract, and its calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchscan import Output, Partial, Relation, Source, TokenDependencies, Unavailable
from torchscan.testing import Sample


class Projection(nn.Module):
    """`Linear` with a child that runs twice, and a mask it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 4))
        self.act = nn.ReLU()
        self.cache = {"calls": 0}

    def forward(self, x, mask=None, *, scale=1.0):
        return self.act(self.act(x @ self.weight.t()))


def make():
    return Projection(), (torch.ones(3, 4), torch.zeros(3, 3)), {"scale": 2.0}


def make_without_options():
    return Projection(), (torch.ones(1, 4),), {}


def make_unsupported():
    return Projection(), (torch.ones(1, 3, 4),), {}


def good(call):
    x = call.arguments["x"]
    if x.dim() != 2 or x.layout is not torch.strided or not x.is_floating_point():
        return {"macs": Unavailable("not_a_matrix", message="Pass a dense real matrix.")}
    rows, out = x.shape[0], call.module.weight.shape[0]
    # (rows, in) @ (in, out)
    found: dict[str, Any] = {"macs": rows * x.shape[1] * out, "dmas": Partial(rows * out, "the reads are not counted")}
    if "token_dependencies" in call.requested:
        found["token_dependencies"] = TokenDependencies(
            "complete", (Source(("x",), 0, rows, Relation("same_position")),), Output(0, rows), ("rows stay apart",)
        )
    return found


CALLS = {
    "with-mask": make,
    "plain": make_without_options,
    "unsupported": Sample(make_unsupported, supported=False),
}


def float_count(call):
    """Give a count as a float."""
    return {
        name: float(value) if name == "macs" and type(value) is int else value for name, value in good(call).items()
    }
