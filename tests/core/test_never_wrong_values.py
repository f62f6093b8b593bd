"""Any argument and any output can be described, whatever it is and however large."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

from torchscan import scan
from torchscan.report.schema import MappingValue, NestedTensorValue, ObjectValue, SequenceValue, TensorValue

X = torch.ones(3, 4)
Point = namedtuple("Point", "x y")


class Takes(nn.Module):
    """Hands its second argument back."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, other=None):
        return self.fc(x), other


class Hostile:
    """Raises whatever it is asked."""

    __hash__ = None

    @property
    def __class__(self):
        raise RuntimeError("no class")

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __repr__(self):
        raise RuntimeError("no text")


class ClosedMapping(dict):
    def items(self):
        raise RuntimeError("closed")

    def __len__(self):
        raise RuntimeError("closed")


class NoShape(torch.Tensor):
    @property
    def shape(self):
        raise RuntimeError("no shape")


class NoFunction(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("no function")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    gone: int = 0


def holds_itself():
    found: list = []
    found.extend([found] * 6)
    return found


def laughs():
    found: list = [1] * 10
    for _ in range(12):
        found = [found] * 10
    return found


def without_a_field():
    batch = Batch(X)
    del batch.gone
    return batch


VALUES = {
    "hostile": (Hostile, ObjectValue),
    "closed mapping": (lambda: ClosedMapping(a=1), ObjectValue),
    "holds itself": (holds_itself, SequenceValue),
    "mapping that holds itself": (lambda: (lambda d: d.update(d=d) or d)({}), MappingValue),
    "laughs": (laughs, SequenceValue),
    "a million numbers": (lambda: list(range(1_000_000)), ObjectValue),
    "a million keys": (lambda: dict.fromkeys(range(1_000_000)), ObjectValue),
    "dataclass that lacks a field": (without_a_field, MappingValue),
    "named tuple": (lambda: Point(X, None), SequenceValue),
    "ordered": (lambda: OrderedDict(b=X, a=1), MappingValue),
    "no shape": (lambda: torch.ones(2).as_subclass(NoShape), NestedTensorValue),
    "no function": (lambda: torch.ones(2).as_subclass(NoFunction), ObjectValue),
    "a class": (lambda: Batch, ObjectValue),
    "a module": (lambda: nn.Linear(2, 2), ObjectValue),
    "a generator": (lambda: (i for i in range(3)), ObjectValue),
    "parameter": (lambda: nn.Parameter(X), TensorValue),
}


@pytest.mark.parametrize("execution", ["real", "fake"])
@pytest.mark.parametrize("name", VALUES)
def test_what_it_is_and_never_what_it_holds(name, execution):
    make, kind = VALUES[name]
    report = scan(Takes(), args=(X, make()), execution=execution)
    text = json.dumps(report.to_dict())
    assert type(report.inputs.args[1]) is kind
    assert type(report.layers[0].output.items[1]) is kind
    assert report.totals.macs.value == 48
    # 1e12 numbers are reached through 120 lists; at most 10,000 values are described, in the call and in its output,
    # each in less than 100 characters
    assert len(text) < 2_000_000
    assert type(report).from_dict(json.loads(text)) == report


def test_structure_is_kept():
    report = scan(Takes(), args=(X, {"a": [X, (1, None)], 3: {"b": True}}))
    value = report.inputs.args[1]
    assert [(item.key, item.key_type) for item in value.items] == [("a", "str"), (3, "int")]
    assert value.items[0].value.items[0].shape == (3, 4)
    assert [item.kind for item in value.items[0].value.items[1].items] == ["scalar", "none"]
    # the same object twice is no cycle
    twice = [X]
    report = scan(Takes(), args=(X, [twice, twice]))
    assert [type(item) for item in report.inputs.args[1].items] == [SequenceValue, SequenceValue]
