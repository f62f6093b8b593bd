"""What a scan may not change: training flags, the random state, the compiler's stance, and other scans."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn

from torchscan.contract.errors import ConcurrentScanError
from torchscan.engine.tree import ModuleTree

__all__ = ["evaluation", "exclusive", "force_eager", "is_training", "random_state"]

_lock = threading.Lock()
_scanned: set[int] = set()


@contextlib.contextmanager
def exclusive(tree: ModuleTree) -> Iterator[None]:
    """Hold every module of the tree for this scan.

    Raises:
        ConcurrentScanError: another scan holds one of them.

    """
    held = set(tree.places)
    with _lock:
        if not _scanned.isdisjoint(held):
            raise ConcurrentScanError(
                f"this {type(tree.root).__name__} (or a module inside it) is already being scanned; "
                "two scans cannot share a module, because each switches it to evaluation mode. "
                "Wait for the other scan, or scan a copy."
            )
        _scanned.update(held)
    try:
        yield
    finally:
        with _lock:
            _scanned.difference_update(held)


@contextlib.contextmanager
def evaluation(tree: ModuleTree) -> Iterator[None]:
    """Evaluation mode without gradients; every flag is put back as it was.

    The flags are set one by one: a model's own `train()` may do more than set a flag (merge weights, freeze norms),
    and that would outlive the scan.
    """
    before = [(module, is_training(module)) for module in tree.modules]
    for module, training in before:
        if training:
            _set_training(module, False)
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            if is_training(module) is not training:
                _set_training(module, training)


def is_training(module: nn.Module) -> bool:
    """Return a module's training flag; a frozen script module has none, and evaluates."""
    return bool(getattr(module, "training", False))


def _set_training(module: nn.Module, training: bool) -> None:
    # Past `nn.Module.__setattr__`, which looks for parameters and modules first; script modules keep the flag in C++.
    if "training" in module.__dict__ and not isinstance(module, torch.jit.ScriptModule):
        module.__dict__["training"] = training
    else:
        module.training = training


@contextlib.contextmanager
def random_state(tree: ModuleTree) -> Iterator[None]:
    """Put the random generators back as they were, so that a scan does not shift later draws."""
    before = torch.get_rng_state()
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy.random")  # asking NumPy itself would import it
    numpys = None if numpy is None else numpy.get_state()
    # Asking CUDA for its state would initialise it; a model without CUDA tensors must not pay for that.
    devices = (
        {parameter.device.index for parameter in tree.parameters() if parameter.is_cuda}
        if torch.cuda.is_initialized()
        else ()
    )
    cuda = [(index, torch.cuda.get_rng_state(index)) for index in devices]
    try:
        yield
    finally:
        torch.set_rng_state(before)
        random.setstate(python)
        if numpys is not None:
            numpy.set_state(numpys)
        for index, state in cuda:
            torch.cuda.set_rng_state(state, index)


class _ProcessWide:
    """A setting that holds for the whole process: the first scan sets it, the last one puts it back.

    Args:
        make: returns the context manager that sets it.

    """

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._active = 0
        self._set: contextlib.AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._active == 0:
                self._set = self._make()
                self._set.__enter__()
            self._active += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0 and self._set is not None:
                self._set.__exit__(None, None, None)
                self._set = None


_eager: Final = _ProcessWide(lambda: torch.compiler.set_stance("force_eager"))
# TorchScript would fuse operators out of sight, and dispatch what it folds while it optimizes.
_jit: Any = torch.jit
_as_written: Final = _ProcessWide(lambda: _jit.optimized_execution(False))


@contextlib.contextmanager
def force_eager(tree: ModuleTree) -> Iterator[None]:
    """Run compiled code eagerly and TorchScript as it is written, so that calls and operators can be seen.

    Costs nothing where the compiler has not been loaded. Functions that compile themselves (flex attention) are
    compiled code too, and cannot be found in the module tree.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_as_written)
        compiled = any(
            module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"
            for module in tree.modules
            if hasattr(module, "_compiled_call_impl")
        )
        if (compiled or "torch._dynamo" in sys.modules) and hasattr(torch.compiler, "set_stance"):
            if compiled:  # PyTorch warns that process-wide hooks also hear the wrapper; its row is wanted
                stack.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("ignore", message="Using `torch.compile")
            stack.enter_context(_eager)
        yield
