"""What a model keeps is put back after a scan: what it registered, what it noted in attributes, and every value.

A forward may write a cache, count its calls, or make a layer when it first sees an input. Putting back a part of that
would leave a model that contradicts itself, such as one that has noted a layer which is gone.
"""

from __future__ import annotations

import collections
import contextlib
import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from torchscan.engine.tree import ModuleTree, own_tensors

__all__ = ["ModelGuard"]

_HOLDERS: Final = frozenset((dict, collections.OrderedDict, list, set, collections.deque, torch.Tensor))
#: A longer attribute is data rather than something a forward would change.
_LONGEST: Final = 10_000


class ModelGuard:
    """Keeps modules, parameters and buffers as they were, copying only what the model is about to write.

    The operator mode calls `before_write` for every operator that writes in place. `restore` puts everything back.

    Args:
        tree: the model.
        copy_buffers: copy every buffer now, for a run without the operator mode.

    """

    def __init__(self, tree: ModuleTree, *, copy_buffers: bool) -> None:
        # Flat lists and few steps: a deep model has a thousand modules, each with twenty attributes.
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._by_storage: dict[int, list[torch.Tensor]] | None = None
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        held: list[Any] = []
        self._tree = tree
        self._passive = _changes_nothing(tree)
        for module in () if self._passive else tree.modules:
            state = module.__dict__
            if isinstance(module, torch.jit.ScriptModule):
                continue  # keeps its tensors in C++; nothing to compare by identity
            if isinstance(module, LazyModuleMixin):  # becomes what it was made to become, whoever calls it first
                held += (module._parameters, module._buffers, module._modules)
                continue
            self._attributes.append((state, state.copy()))
            held += [value for value in state.values() if type(value) in _HOLDERS]
        self._containers = [value for value in held if type(value) is not torch.Tensor]
        self._filled = [(value, value.copy()) for value in filter(None, self._containers) if len(value) <= _LONGEST]
        self._note_tensors(value for value in held if type(value) is torch.Tensor)
        if copy_buffers:
            for module in tree.modules:
                for buffer in own_tensors(module, "_buffers"):
                    self._copy(buffer)

    def _note_tensors(self, plain: Iterable[torch.Tensor]) -> None:
        tensors = {id(tensor): tensor for tensor in plain}
        for container, _ in self._filled:
            for item in container.values() if isinstance(container, dict) else container:
                if isinstance(item, torch.Tensor):
                    tensors[id(item)] = item
        self._others: list[torch.Tensor] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor, int, torch.Size, bool, torch.Tensor | None]] = []
        for tensor in tensors.values():
            kind = type(tensor)
            if (kind is nn.Parameter or (kind is torch.Tensor and tensor.is_leaf)) and tensor.layout is torch.strided:
                self._tensors.append(
                    (tensor, tensor.data, tensor.data_ptr(), tensor.shape, tensor.requires_grad, tensor.grad)
                )
            else:
                self._others.append(tensor)

    def before_write(self, value: Any) -> None:
        """Hear that a tensor, or each of a list, is about to be written in place."""
        if isinstance(value, (list, tuple)):
            for item in value:
                self.before_write(item)
            return
        if not isinstance(value, torch.Tensor):
            return
        if self._by_storage is None:
            self._by_storage = self._storages()
        if self._by_storage:
            with contextlib.suppress(RuntimeError, NotImplementedError):  # no storage: sparse and opaque tensors
                for owner in self._by_storage.get(value.untyped_storage()._cdata, ()):
                    self._copy(owner)

    def _storages(self) -> dict[int, list[torch.Tensor]]:
        found: dict[int, list[torch.Tensor]] = {}
        for tensor in self._with_gradients():
            if not tensor.is_meta and not is_lazy(tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    found.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        return found

    def _with_gradients(self) -> Iterator[torch.Tensor]:
        if self._passive:
            for module in self._tree.modules:
                yield from own_tensors(module, "_parameters")
                yield from own_tensors(module, "_buffers")
        yield from self._others
        for tensor, *_, grad in self._tensors:
            yield tensor
            if grad is not None:
                yield grad

    def _copy(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._copies and not is_lazy(tensor) and not tensor.is_meta:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                self._copies[id(tensor)] = (tensor, tensor.detach().clone())

    def restore(self) -> None:
        """Put everything back."""
        for state, before in self._attributes:
            if not _same(state, before):
                _refill(state, before)
        for container, items in self._filled:
            if not _same(container, items):
                _refill(container, items)
        if sum(map(bool, self._containers)) != len(self._filled):
            known = {id(container) for container, _ in self._filled}
            for container in self._containers:
                if container and id(container) not in known and len(container) <= _LONGEST:
                    container.clear()
        for tensor, alias, address, shape, trainable, grad in self._tensors:
            if tensor.data_ptr() != address or tensor.shape != shape:
                # Assigned anew, or resized where it lay: then its values were copied before.
                tensor.data = alias if alias.shape == shape else alias.new_empty(shape)
            if tensor.requires_grad is not trainable:
                # Written in place with gradients enabled, it is no leaf any more; a view stays one of the graph's.
                with contextlib.suppress(RuntimeError):
                    tensor.detach_().requires_grad_(trainable)
            if tensor.grad is not grad:
                tensor.grad = grad
        for tensor, copy in self._copies.values():
            if not torch.equal(tensor.data, copy):
                tensor.data.copy_(copy)


def _changes_nothing(tree: ModuleTree) -> bool:
    """Say whether nothing but PyTorch's own layers will run, which note nothing of an evaluation call.

    What they write in place (an embedding that renormalizes, a norm in training) goes through `before_write`.
    """
    native: dict[type, bool] = {}
    for module in tree.modules:
        kind = type(module)
        if kind not in native:
            forward = getattr(kind, "forward", None)
            native[kind] = (
                kind.__module__.startswith("torch.nn.modules.")
                and getattr(forward, "__module__", "").startswith("torch.")
                and not issubclass(kind, LazyModuleMixin)
            )
        state = module.__dict__
        if not native[kind] or state["_forward_pre_hooks"] or state["_forward_hooks"] or "forward" in state:
            return False
    return True


def _same(now: Any, before: Any) -> bool:
    if len(now) != len(before):
        return False
    if isinstance(now, dict):
        # What is the same object costs no comparison, so this is one pass in C where nothing changed.
        with contextlib.suppress(Exception):  # tensors that differ have no one truth value
            return bool(now == before)
        return False
    if isinstance(now, set):
        return {id(item) for item in now} == {id(item) for item in before}
    return all(map(operator.is_, now, before))


def _refill(container: Any, items: Any) -> None:
    container.clear()
    if isinstance(container, (dict, set)):
        container.update(items)
    else:
        container.extend(items)
