"""Ask every counter about the same six calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from benchmarks.cases import Call
from benchmarks.counters import OURS, PEERS, installed, ours, version
from benchmarks.tables import table


class Functional(nn.Module):
    """Attention written with functions, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        scores = query @ key.transpose(-2, -1) / 4
        return self.out(scores.softmax(-1) @ value)


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(ids)))


class SelfAttention(nn.Module):
    """Self-attention inside a model, in the form that PyTorch has a fast path for."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return out


class Recurrent(nn.Module):
    """Two recurrent layers inside a model."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.lstm(x)[0]
        return out


class ByKeyword(nn.Module):
    """Cross-attention whose key and value are given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, query: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.attention(query, key=memory, value=memory, need_weights=False)[0]
        return out


def calls() -> dict[str, tuple[Call, int, str]]:
    """Return name -> (call, its multiply-accumulates by hand, how they come about)."""
    x, memory = torch.ones(1, 8, 16), torch.ones(1, 6, 16)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return {
        "self-attention, fast path": (
            Call(SelfAttention().eval(), (x,)),
            4 * 8 * 16**2 + 2 * 8**2 * 16,
            "4 L E² + 2 L² E, with L = 8, E = 16",
        ),
        "cross-attention by keyword": (
            Call(ByKeyword().eval(), (x, memory)),
            2 * 8 * 16**2 + 2 * 6 * 16**2 + 2 * 8 * 6 * 16,
            "2 T E² + 2 S E² + 2 T S E, with T = 8, S = 6",
        ),
        "encoder layer, evaluation": (
            Call(layer.eval(), (x,)),
            4 * 8 * 16**2 + 2 * 8**2 * 16 + 2 * 8 * 16 * 32 + 2 * 2 * 8 * 16,
            "attention + 2 L E F + 2 norms of 2 L E, with F = 32",
        ),
        "functional attention": (
            Call(Functional().eval(), (x,)),
            8 * 16 * 48 + 2 * 8**2 * 16 + 8 * 16 * 16,
            "3 L E² + 2 L² E + L E²",
        ),
        "LSTM, two layers": (
            Call(Recurrent().eval(), (x,)),
            2 * 8 * 4 * 2 * 16**2,
            "2 layers · L · 4 gates · 2 E²",
        ),
        "tied embedding and head": (
            Call(Tied().eval(), (torch.zeros(1, 8, dtype=torch.long),)),
            8 * 16**2 + 8 * 16 * 100,
            "L E² + L E V, with V = 100",
        ),
    }


def answers() -> dict[str, dict[str, Any]]:
    """Return call -> tool -> what it prints, in multiply-accumulates, or its exception."""
    tools = {
        "torchscan": OURS["torchscan"],
        "torchscan, estimate": ours(functional="estimate"),
        **installed(),
    }
    found: dict[str, dict[str, Any]] = {}
    for name, (call, expected, _) in calls().items():
        found[name] = {"by hand": expected}
        for tool, count in tools.items():
            try:
                counted = count(call)
                found[name][tool] = None if counted is None else round(counted)
            except Exception as error:
                found[name][tool] = type(error).__name__
    return found


def cell(value: Any, expected: int, tool: str, state: str | None) -> str:
    if isinstance(value, str):
        return f"`{value}`"
    if value is None:
        return "unavailable"
    text = f"{value:,}"
    if state == "partial":
        return f"≥ {text}"
    return f"**{text}**" if value == expected else text


def table_of(found: Mapping[str, Mapping[str, Any]]) -> str:
    six = calls()
    tools = [tool for tool in next(iter(found.values())) if tool != "by hand"]
    rows = []
    for name, values in found.items():
        call, expected, _ = six[name]
        states = {tool: state(call, tool) for tool in tools if tool.startswith("torchscan")}
        rows.append([name, f"{expected:,}", *(cell(values[tool], expected, tool, states.get(tool)) for tool in tools)])
    return table(["call", "by hand", *tools], rows)


def state(call: Call, tool: str) -> str:
    import torchscan

    functional = "estimate" if tool.endswith("estimate") else "audit"
    return torchscan.scan(call.model, args=call.args, kwargs=call.kwargs, functional=functional).totals.macs.status


def table_text() -> str:
    """Return the table and what it was made with."""
    torch.set_num_threads(1)
    versions = ", ".join(
        f"{name} {version(distribution)}" for name, (_, distribution) in PEERS.items() if name in installed()
    )
    hand = "\n".join(f"- {name}: {how}" for name, (_, _, how) in calls().items())
    return (
        f"{table_of(answers())}\n\nMultiply-accumulates. Bold: the number by hand. `≥`: reported as a lower bound, "
        f"with the reason. PyTorch {torch.__version__}, {versions}; two FLOPs of `FlopCounterMode` are one "
        f"multiply-accumulate here. By hand:\n\n{hand}"
    )
