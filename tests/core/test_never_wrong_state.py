"""A scan leaves nothing behind: not in tensors, attributes, containers, gradients or random generators."""

from __future__ import annotations

import contextlib
import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune, rnn

from torchscan import Scanner, measure_flops, scan

X = torch.ones(3, 4)

WAYS = [
    {},
    {"functional": "estimate"},
    {"functional": "skip"},
    {"mode": "structure"},
    {"execution": "fake"},
    {"execution": "fake", "mode": "structure"},
]


def everything(module):
    """Copy all that a model keeps, one level below its attributes."""
    found = {}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            key = f"{path}.{name}"
            if isinstance(value, (dict, list, set)):
                found[key] = [id(item) for item in value]
                if isinstance(value, dict):
                    found[key + " values"] = [
                        item.detach().clone() if isinstance(item, torch.Tensor) else id(item) for item in value.values()
                    ]
            else:
                found[key] = value.detach().clone() if isinstance(value, torch.Tensor) else value
    return found


def same(left, right):
    if isinstance(left, torch.Tensor):
        return left.device == right.device and torch.equal(left, right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left is right or left == right


class Writes(nn.Module):
    """Does one thing that outlives the call."""

    def __init__(self, act) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("buffer", torch.zeros(3, 4))
        self.constant = torch.zeros(3, 4)
        self.calls = 0
        self.cache: list[torch.Tensor] = []
        self.named: dict[str, torch.Tensor] = {}
        self.late = None
        self.act = act

    def forward(self, x):
        y = self.fc(x)
        self.act(self, y)
        return y


def make_late(module, y):
    if module.late is None:
        module.late = nn.Linear(4, 2)
    module.late(y)


def register_late(module, y):
    if not hasattr(module, "extra"):
        module.extra = nn.Linear(4, 2)
        module.register_buffer("more", y.detach())
        module.free = nn.Parameter(torch.zeros(2))
    module.extra(y)


def backward(module, y):
    with torch.enable_grad():
        module.fc(y.detach()).sum().backward()


def in_place_with_gradients(module, y):
    with torch.enable_grad():
        module.buffer[:] = module.fc(X)
        module.constant.mul_(module.fc.weight[0])


ACTS = {
    "in place with gradients": in_place_with_gradients,
    "in place": lambda module, y: module.buffer.add_(y),
    "through a view": lambda module, y: module.buffer[0].mul_(y[0] + 2),
    "out argument": lambda module, y: torch.mul(y, 2, out=module.buffer),
    "running statistics": lambda module, y: F.batch_norm(y, module.buffer[0], module.constant[0], training=True),
    "list of tensors": lambda module, y: torch._foreach_add_([module.buffer, module.constant], 1.0),
    "data assigned": lambda module, y: setattr(module.buffer, "data", torch.cat([module.buffer, y])),
    "parameter data assigned": lambda module, y: setattr(module.fc.weight, "data", module.fc.weight.data / 2),
    "parameter in place": lambda module, y: module.fc.weight.data.mul_(0.5),
    "resized": lambda module, y: module.buffer.resize_(6, 4).fill_(1),
    "buffer replaced": lambda module, y: setattr(module, "buffer", y),
    "attribute": lambda module, y: setattr(module, "calls", module.calls + 1),
    "attribute replaced": lambda module, y: setattr(module, "constant", y.exp()),
    "attribute in place": lambda module, y: module.constant.add_(1),
    "new attribute": lambda module, y: setattr(module, "seen", y),
    "attribute deleted": lambda module, y: delattr(module, "calls"),
    "list": lambda module, y: module.cache.append(y),
    "dictionary": lambda module, y: module.named.update(y=y),
    "late layer": make_late,
    "late registrations": register_late,
    "hook": lambda module, y: module.fc.register_forward_hook(lambda *args: None),
    "frozen": lambda module, y: module.fc.requires_grad_(False),
    "gradient": backward,
    "training": lambda module, y: module.train(),
    "forward replaced": lambda module, y: setattr(module.fc, "forward", lambda x: x),
}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("act", ACTS)
def test_what_a_forward_changes_is_put_back(act, way):
    model = Writes(ACTS[act])
    before = everything(model)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    ids = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    scan(model, args=(X,), **way)
    after = everything(model)
    assert before.keys() == after.keys()
    assert [key for key in before if not same(before[key], after[key])] == []
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert not model.buffer.requires_grad
    assert not model.constant.requires_grad
    assert [id(tensor) for tensor in (*model.parameters(), *model.buffers())] == ids
    assert all(parameter.grad is None for parameter in model.parameters())
    # and the model runs as if nothing had been
    with torch.no_grad():
        copy.deepcopy(model)(X)
        assert model(X).device == X.device


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_that_are_there_stay_as_they_are(way):
    model = Writes(backward)
    model.fc.weight.grad = torch.full((4, 4), 7.0)
    gradient = model.fc.weight.grad
    scan(model, args=(X,), **way)
    assert model.fc.weight.grad is gradient
    assert torch.equal(gradient, torch.full((4, 4), 7.0))
    assert model.fc.bias.grad is None


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.utils.weight_norm,
        torch.nn.utils.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5),
    ],
    ids=["weight norm", "spectral norm", "pruned"],
)
def test_weights_that_hooks_compute(wrap, way):
    layer = wrap(nn.Linear(4, 4))
    before = layer.weight
    scan(layer, args=(X,), **way)
    assert layer.weight is before
    assert layer(X).device == X.device


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_random_generators_do_not_move(way):
    class Draws(nn.Module):
        def forward(self, x):
            return x * random.random() + torch.rand(4) * float(np.random.rand())

    def draw():
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = draw()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    scan(Draws(), args=(X,), **way)
    assert draw() == expected


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_raises_leaves_nothing_either(way):
    class Fails(Writes):
        def forward(self, x):
            super().forward(x)
            raise KeyError("the model's own")

    def act(module, y):
        module.calls += 1
        module.buffer.add_(1)
        module.cache.append(y)
        make_late(module, y)

    model = Fails(act)
    before = everything(model)
    with pytest.raises(KeyError, match="the model's own"):
        scan(model, args=(X,), **way)
    after = everything(model)
    assert before.keys() == after.keys()
    assert [key for key in before if not same(before[key], after[key])] == []


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("kept", [False, True])
def test_a_first_state_made_in_the_forward_runs_in_a_fake_run_too(cell, kept):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = cell(4, 3, batch_first=True)
            self.first = torch.zeros(1, 2, 3)

        def forward(self, x):
            first = self.first if kept else torch.zeros(1, x.shape[0], 3)
            return self.layer(x, (first, first) if cell is nn.LSTM else first)[0]

    # 5 steps, batch 2: gates * 3 * (4 + 3) products each
    gates = {nn.RNN: 1, nn.GRU: 3, nn.LSTM: 4}[cell]
    for execution in ("real", "fake"):
        report = scan(Recurrent(), args=(torch.ones(2, 5, 4),), execution=execution)
        assert report.totals.macs.value == 5 * 2 * gates * 3 * 7


def process_wide():
    """Copy every dictionary of hooks that PyTorch keeps for all modules."""
    from torch.nn.modules import module

    return {
        name: dict(value)
        for name, value in vars(module).items()
        if name.startswith("_global") and isinstance(value, dict)
    }


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_hook_is_left_with_pytorch(way, fails):
    def act(module, y):
        if fails:
            raise KeyError("the model's own")

    before = process_wide()
    for _ in range(2):
        with pytest.raises(KeyError) if fails else contextlib.nullcontext():
            scan(Writes(act), args=(X,), **way)
    with Scanner().observe(nn.Linear(4, 4)) as observation:
        observation.report()
    measure_flops(lambda: X @ X.T)
    assert process_wide() == before


class Packs(nn.Module):
    def __init__(self, cell, *, enforce_sorted: bool) -> None:
        super().__init__()
        self.cell = cell(4, 3, batch_first=True)
        self.head = nn.Linear(3, 2)
        self.enforce_sorted = enforce_sorted

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.enforce_sorted)
        y, sizes = rnn.pad_packed_sequence(self.cell(packed)[0], batch_first=True)
        return self.head(y), sizes


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed_sequences_in_a_fake_run(cell, enforce_sorted):
    lengths = torch.tensor([3, 2] if enforce_sorted else [2, 3])
    reports = [
        scan(Packs(cell, enforce_sorted=enforce_sorted), args=(torch.ones(2, 3, 4), lengths), execution=execution)
        for execution in ("real", "fake")
    ]
    for report in reports:
        # the head alone is known: 2 * 3 rows of 3 * 2 products
        assert (report.totals.macs.status, report.totals.macs.known_value) == ("partial", 36)
        assert report.layers[-1].input.args[0].shape == (2, 3, 3)
    packed = rnn.pack_sequence([torch.ones(2, 4), torch.ones(3, 4)], enforce_sorted=False)
    for execution in ("real", "fake"):
        report = scan(cell(4, 3), args=(packed,), execution=execution)
        assert report.totals.macs.status == "unavailable"


class Graph:
    def __init__(self) -> None:
        self.x = torch.ones(2, 5, 4)
        self.edges = torch.tensor([[0, 1], [1, 0]])


def test_objects_that_hold_tensors_in_a_fake_run():
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(4, 3, batch_first=True)

        def forward(self, graph):
            assert graph.edges[0, 1].item() == 1
            return self.cell(graph.x)[0]

    graph = Graph()
    before = dict(vars(graph))
    for execution in ("real", "fake"):
        # 2 * 5 steps, three gates of 3 * (4 + 3)
        assert scan(Reads(), args=(graph,), execution=execution).totals.macs.value == 10 * 63
    assert all(vars(graph)[name] is value for name, value in before.items())
