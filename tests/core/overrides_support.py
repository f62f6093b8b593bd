"""What the tests of caller overrides share: small modules, and one scan."""

from __future__ import annotations

import torch
from torch import nn

from torchscan import Report, scan

METRICS = ("module_flops", "macs", "dmas")
X = torch.ones(3, 4)


class Leaf(nn.Module):
    def forward(self, x, mask=None, *, scale=1.0):
        return x * 2


class Other(Leaf):
    pass


class Block(nn.Module):
    """Two children and no arithmetic of its own."""

    def __init__(self, first: nn.Module | None = None, second: nn.Module | None = None) -> None:
        super().__init__()
        self.first = Leaf() if first is None else first
        self.second = Leaf() if second is None else second

    def forward(self, x):
        return self.second(self.first(x))


def constant(**metrics):
    return lambda call: metrics


def run(module, custom, *, args=(X,), kwargs=None, **options) -> Report:
    return scan(module, args=args, kwargs=kwargs or {}, custom_modules=custom, **options)


def row(report: Report, path: str = "", call_index: int = 0):
    (found,) = [layer for layer in report.layers if (layer.path, layer.call_index) == (path, call_index)]
    return found


def about(report: Report, metric: str, path: str = "") -> list:
    return [d for d in report.diagnostics if d.path == path and d.metric in (metric, None)]


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)
