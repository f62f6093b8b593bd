"""What a scan may not change: training flags, parameters, buffers, the random state, and other scans."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchscan.contract.errors import ConcurrentScanError

__all__ = ["TensorGuard", "evaluation", "exclusive", "force_eager", "random_state"]

_lock = threading.Lock()
_scanned: set[int] = set()


@contextlib.contextmanager
def exclusive(module: nn.Module) -> Iterator[None]:
    """Hold every module of the tree for this scan.

    Raises:
        ConcurrentScanError: another scan holds one of them.

    """
    held = {id(child) for child in module.modules()}
    with _lock:
        if _scanned & held:
            raise ConcurrentScanError(
                f"this {type(module).__name__} (or a module inside it) is already being scanned; "
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
def evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every flag is put back as it was.

    The flags are set one by one: a model's own `train()` may do more than set a flag (merge weights, freeze norms),
    and that would outlive the scan.
    """
    before = [(child, child.training) for child in module.modules()]
    for child, training in before:
        if training:
            child.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for child, training in before:
            if child.training is not training:
                child.training = training


@contextlib.contextmanager
def random_state(module: nn.Module) -> Iterator[None]:
    """Put the random generators back as they were, so that a scan does not shift later draws."""
    before = torch.get_rng_state()
    # Asking CUDA for its state would initialise it; a model without CUDA tensors must not pay for that.
    devices = {p.device.index for p in module.parameters() if p.device.type == "cuda"}
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
    """

    def __init__(self, module: nn.Module, *, copy_buffers: bool) -> None:
        self._registered: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._by_storage: dict[int, list[torch.Tensor]] = {}
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for child in module.modules():
            if isinstance(child, torch.jit.ScriptModule):
                continue  # keeps its tensors in C++; nothing to compare by identity
            for registry in (child._parameters, child._buffers):
                self._registered.append((registry, dict(registry)))
                for tensor in registry.values():
                    self._watch(tensor)
            self._registered.append((child._modules, dict(child._modules)))
            if copy_buffers:
                for buffer in child._buffers.values():
                    if buffer is not None:
                        self._copy(buffer)

    def _watch(self, tensor: torch.Tensor | None) -> None:
        if tensor is None or is_lazy(tensor) or tensor.is_meta:
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):  # no storage: sparse and opaque tensors
            self._by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)

    def before_write(self, tensor: torch.Tensor) -> None:
        """Hear that `tensor` is about to be written in place."""
        if not self._by_storage:
            return
        try:
            owners = self._by_storage.get(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):
            return
        for owner in owners or ():
            self._copy(owner)

    def _copy(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._copies and not is_lazy(tensor) and not tensor.is_meta:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._copies[id(tensor)] = (tensor, tensor.detach().clone())

    def restore(self) -> None:
        """Put everything back."""
        for registry, before in self._registered:
            if registry.keys() != before.keys() or any(registry[name] is not before[name] for name in before):
                registry.clear()
                registry.update(before)
        with torch.no_grad():
            for tensor, copy in self._copies.values():
                if not torch.equal(tensor.data, copy):
                    tensor.data.copy_(copy)


@contextlib.contextmanager
def force_eager(module: nn.Module) -> Iterator[None]:
    """Run compiled modules eagerly, so that their calls can be seen; costs nothing without one."""
    compiled = any(
        type(child).__name__ == "OptimizedModule" or getattr(child, "_compiled_call_impl", None) is not None
        for child in module.modules()
    )
    if not compiled or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
