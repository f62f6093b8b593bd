"""Which of PyTorch's paths a Transformer module takes, and which operators it dispatches there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def fast_path(enabled: bool) -> Iterator[None]:
    """Switch the fused path of attention and encoder layers on or off for a while."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class OperatorLog(TorchDispatchMode):
    """The operators that reach the dispatcher, whoever else is watching."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))
