"""What a scan may not change: training flags, parameters, buffers, the random state, and other scans."""

from __future__ import annotations

import contextlib
import operator
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchscan.contract.errors import ConcurrentScanError
from torchscan.engine.tree import ModuleTree

__all__ = ["TensorGuard", "evaluation", "exclusive", "force_eager", "random_state"]

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
    before = [(module, module.training) for module in tree.modules]
    for module, training in before:
        if training:
            _set_training(module, False)
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before:
            if module.training is not training:
                _set_training(module, training)


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
        for index, state in cuda:
            torch.cuda.set_rng_state(state, index)


class TensorGuard:
    """Keeps parameters and buffers as they were, copying only what the model is about to write.

    The operator mode calls `before_write` for every operator that writes in place. `restore` puts values and
    registrations back.

    Args:
        tree: the model.
        copy_buffers: copy every buffer now, for a run without the operator mode.

    """

    def __init__(self, tree: ModuleTree, *, copy_buffers: bool) -> None:
        self._registered: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._empty: list[dict[str, Any]] = []
        self._by_storage: dict[int, list[torch.Tensor]] | None = None
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for module in tree.modules:
            if isinstance(module, torch.jit.ScriptModule):
                continue  # keeps its tensors in C++; nothing to compare by identity
            for registry in (module._parameters, module._buffers, module._modules):
                if registry:
                    self._registered.append((registry, dict(registry)))
                else:
                    self._empty.append(registry)
            if copy_buffers:
                for buffer in module._buffers.values():
                    if buffer is not None:
                        self._copy(buffer)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Hear that `tensor` is about to be written in place."""
        if self._by_storage is None:
            self._by_storage = self._storages()
        if self._by_storage:
            with contextlib.suppress(RuntimeError, NotImplementedError):  # no storage: sparse and opaque tensors
                for owner in self._by_storage.get(tensor.untyped_storage()._cdata, ()):
                    self._copy(owner)

    def _storages(self) -> dict[int, list[torch.Tensor]]:
        found: dict[int, list[torch.Tensor]] = {}
        for _, before in self._registered:
            for tensor in before.values():
                if isinstance(tensor, torch.Tensor) and not is_lazy(tensor) and not tensor.is_meta:
                    with contextlib.suppress(RuntimeError, NotImplementedError):
                        found.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        return found

    def _copy(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._copies and not is_lazy(tensor) and not tensor.is_meta:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._copies[id(tensor)] = (tensor, tensor.detach().clone())

    def restore(self) -> None:
        """Put everything back."""
        for registry, before in self._registered:
            if registry.keys() != before.keys() or not all(map(operator.is_, registry.values(), before.values())):
                registry.clear()
                registry.update(before)
        for registry in filter(None, self._empty):
            registry.clear()
        for tensor, copy in self._copies.values():
            if not torch.equal(tensor.data, copy):
                tensor.data.copy_(copy)


class _Stance:
    """PyTorch's compiler stance is process-wide: the first scan sets it, the last one puts it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._stance: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._active == 0:
                self._stance = torch.compiler.set_stance("force_eager")
                self._stance.__enter__()
            self._active += 1

    def leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self._stance.__exit__(None, None, None)
                self._stance = None


_stance = _Stance()


@contextlib.contextmanager
def force_eager(tree: ModuleTree) -> Iterator[None]:
    """Run compiled code eagerly, so that its calls and operators can be seen.

    Costs nothing where the compiler has not been loaded. Functions that compile themselves (flex attention) are
    compiled code too, and cannot be found in the module tree.
    """
    compiled = any(
        module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"
        for module in tree.modules
        if hasattr(module, "_compiled_call_impl")
    )
    if not (compiled or "torch._dynamo" in sys.modules) or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with warnings.catch_warnings() if compiled else contextlib.nullcontext():
        if compiled:  # PyTorch warns that process-wide hooks also hear the wrapper; its row is wanted
            warnings.filterwarnings("ignore", message="Using `torch.compile")
        _stance.enter()
        try:
            yield
        finally:
            _stance.leave()
