"""One pair of process-wide module hooks, shared by all running observers.

Hooks on the modules themselves would switch PyTorch's Transformer fast path off and change what is measured; the
process-wide ones do not. They are installed while at least one observer runs. Each hears the calls of its own thread,
and of other threads no more than that something was called there.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

from torch import nn
from torch.nn.modules import module as _module

__all__ = ["Listener", "listen", "unlisten"]


class Listener(Protocol):
    """Hears the calls of its thread."""

    def enter(self, module: nn.Module) -> None:
        """Hear that a call begins, before the module's own pre-hooks."""

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Hear that `forward` returned, before the module's own hooks."""

    def failed(self, module: nn.Module) -> None:
        """Hear that the call raised."""

    def elsewhere(self, module: nn.Module) -> None:
        """Hear that a call begins in another thread."""


class _Listeners(threading.local):
    def __init__(self) -> None:
        self.running: tuple[Listener, ...] = ()


_here = _Listeners()
_lock = threading.Lock()
_count = 0
_everyone: tuple[Listener, ...] = ()
_handles: list[Any] = []
_depths: list[int] = []


def _before(module: nn.Module, args: tuple[Any, ...]) -> None:
    running = _here.running
    for listener in running:
        listener.enter(module)
    if len(_everyone) != len(running):
        for listener in _everyone:
            if listener not in running:
                listener.elsewhere(module)


_NO_OUTPUT = object()


def _after(module: nn.Module, args: tuple[Any, ...], kwargs: Any, output: Any = _NO_OUTPUT) -> None:
    # Where `forward` raised, PyTorch calls without keyword arguments: three values, and no output to speak of.
    if output is _NO_OUTPUT:
        for listener in _here.running:
            listener.failed(module)
    else:
        for listener in _here.running:
            listener.leave(module, args, kwargs, output)


_hears_keywords: Final = "with_kwargs" in inspect.signature(_module.register_module_forward_hook).parameters


def _install() -> list[Any]:
    if not _hears_keywords:
        raise RuntimeError(
            "this PyTorch has no process-wide forward hook with keyword arguments; torchscan needs a newer release"
        )
    return [
        _module.register_module_forward_pre_hook(_before),
        _module.register_module_forward_hook(_after, with_kwargs=True, always_call=True),
    ]


def _make_room() -> None:
    """Let Python go deeper: with hooks, PyTorch needs four frames for a call instead of three, and ours come on top."""
    before = sys.getrecursionlimit()
    _depths[:] = before, before + before // 2 + 200
    sys.setrecursionlimit(_depths[1])


def _take_room_back() -> None:
    before, ours = _depths
    if sys.getrecursionlimit() == ours:
        sys.setrecursionlimit(before)


def listen(listener: Listener) -> None:
    """Start to report the calls of this thread to `listener`."""
    global _count, _everyone
    with _lock:
        if _count == 0:
            _handles.extend(_install())
            _make_room()
        _count += 1
        _everyone = (*_everyone, listener)
    _here.running = (*_here.running, listener)


def unlisten(listener: Listener) -> None:
    """Stop; the last one out removes the hooks."""
    global _count, _everyone
    _here.running = tuple(other for other in _here.running if other is not listener)
    with _lock:
        _everyone = tuple(other for other in _everyone if other is not listener)
        _count -= 1
        if _count == 0:
            _take_room_back()
            while _handles:
                handle = _handles.pop()
                handle.remove()
                # PyTorch forgets to remove this note with the hook.
                getattr(_module, "_global_forward_hooks_with_kwargs", {}).pop(handle.id, None)
