"""`execution="fake"`: the model's own code runs, its arithmetic does not.

Meta tensors stand in for parameters, buffers and arguments while the model runs. An operator that touches one, or
anything computed from one, runs on the meta device, where it has shapes and no values; what the caller passed or the
model made from plain numbers (masks, positions, token ids) keeps its values, so masks can still be inspected and
branches on them taken.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.weak import WeakIdKeyDictionary

from torchscan.contract.errors import FakeExecutionError
from torchscan.engine.fake_operators import SHORTCUTS, Writes, exchange, written
from torchscan.engine.meta_shapes import ShapeCache, collect_tensors, makes_new_tensors
from torchscan.engine.tree import ModuleTree, own_tensors

__all__ = ["NOTE", "FakeExecutor"]

#: Added to whatever a model raises in a fake run: the plain call may well work.
NOTE: Final = (
    "This was a run with execution='fake', in which tensors are on the meta device and have no values. "
    "If the plain call works, scan it with execution='real'."
)

#: Values are kept up to this many elements; larger tensors would cost what a fake run is meant to save.
_KEEP: Final = 1 << 20
_META: Final = torch.device("meta")
_SCALARS: Final = frozenset((bool, int, float, complex, str, bytes))
_READS_VALUES: Final = frozenset(
    (
        "aten._local_scalar_dense",
        "aten.item",
        "aten.is_nonzero",
        "aten.nonzero",
        "aten.unique",
        "aten._unique",
        "aten._unique2",
        "aten.unique_dim",
        "aten.unique_consecutive",
        "aten.masked_select",
        "aten.bincount",
        "aten.equal",
    )
)


class _NoMeta(Exception):
    """An argument has no form on the meta device (nested, sparse)."""


class FakeExecutor:
    """Runs operators without computing them.

    A tensor has values when it is real and nothing unknown was written into it, or when it is on the meta device and
    was made from such tensors: then a small real twin is kept beside it, so that a mask made for the device of the
    activations can still be read.

    Args:
        tree: the model, whose parameters and buffers have no readable values in this run.
        before_write: told of a tensor that a twin writes to.

    """

    def __init__(self, tree: ModuleTree, before_write: Callable[[torch.Tensor], None]) -> None:
        self._unreadable: dict[int, Any] = {}  # storages, held so that an address is not used twice
        self._twins: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._paired: set[int] = set()  # ids of tensors that got a twin: most have none, and a look there is cheap
        self._meta: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._shapes = ShapeCache()
        self._plans: dict[int, tuple[Any, bool, Writes, bool, str]] = {}
        self._known: list[Any] = []  # the operators themselves, held so that an address is not used twice
        self._tree = tree
        self._before_write = before_write
        self._lazy: list[Any] = [module for module in tree.modules if isinstance(module, LazyModuleMixin)]
        for module in tree.modules:
            for registry in ("_parameters", "_buffers"):
                for tensor in own_tensors(module, registry):
                    if not is_lazy(tensor):
                        self._hide(tensor)

    @contextlib.contextmanager
    def stand_ins(self) -> Iterator[None]:
        """Register meta tensors in place of parameters and buffers, as long as the model runs.

        PyTorch's composite functions compare devices before they dispatch; a model whose activations are on the meta
        device must find its parameters there too.
        """
        replaced: list[tuple[Any, Any, Any]] = []
        try:
            for module in self._tree.modules:
                if isinstance(module, torch.jit.ScriptModule):
                    continue  # out of reach, and unreadable anyway
                for registry in (module._parameters, module._buffers):
                    for name, tensor in registry.items():
                        self._replace(registry, name, tensor, replaced)
                # Recurrent layers keep a second list of their weights.
                flat = module.__dict__.get("_flat_weights")
                if isinstance(flat, list):
                    for index, tensor in enumerate(flat):
                        self._replace(flat, index, tensor, replaced)
                # Constants that were not registered keep their values.
                for name, value in [item for item in module.__dict__.items() if type(item[1]) is torch.Tensor]:
                    replaced.append((module.__dict__, name, value))
                    module.__dict__[name] = self._stand_in(value)
            yield
        finally:
            for registry, name, tensor in replaced:
                registry[name] = tensor

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the call's arguments with a meta tensor in place of each tensor; small ones keep their values."""

        memo: dict[int, tuple[Any, Any]] = {}
        swapped = tuple([self._swap(value, memo) for value in args])
        return swapped, {name: self._swap(value, memo) for name, value in kwargs.items()}

    def _swap(self, value: Any, memo: dict[int, tuple[Any, Any]]) -> Any:
        """Return a value with stand-ins in place of the tensors it holds, each object once."""
        kind = type(value)
        if value is None or kind in _SCALARS:
            return value
        if (known := memo.get(id(value))) is not None:
            return known[1]
        memo[id(value)] = (value, value)  # a container that holds itself ends here
        children: list[Any] = [value]
        if not issubclass(kind, (torch.Tensor, PackedSequence)):
            first = iter((False,))  # one level at a time: what is asked for first is the value itself
            children, spec = tree_flatten(value, is_leaf=lambda _: next(first, True))
        if len(children) == 1 and children[0] is value:
            found = self._stand_in(value)
        else:
            inner = [self._swap(child, memo) for child in children]
            changed = any(new is not old for new, old in zip(inner, children, strict=True))
            found = tree_unflatten(inner, spec) if changed else value
        memo[id(value)] = (value, found)
        return found

    def _stand_in(self, value: Any) -> Any:
        """Return a meta tensor for a plain tensor, whose values a small one keeps; anything else as it is."""
        kind = type(value)  # some objects raise when their own `__class__` is asked for
        if issubclass(kind, PackedSequence):  # its batch sizes are read on the CPU
            indices = self._stand_in(value.sorted_indices), self._stand_in(value.unsorted_indices)
            return PackedSequence(self._stand_in(value.data), value.batch_sizes, *indices)
        if not issubclass(kind, torch.Tensor):
            return self._copy_with_stand_ins(value)
        if kind not in (torch.Tensor, nn.Parameter) or value.is_meta or value.is_nested:
            return value
        if value.layout is not torch.strided:
            return value
        known = self._meta.get(id(value))
        if known is None:  # one object stays one object
            meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
            meta.requires_grad_(value.requires_grad)
            known = self._meta[id(value)] = (value, meta)
            if value.numel() <= _KEEP and not self._hidden(value):
                self._pair(meta, value.detach())
        return known[1]

    def _copy_with_stand_ins(self, value: Any) -> Any:
        """Return an object that holds tensors (a graph, a batch) as a copy that holds their stand-ins."""
        held = getattr(value, "__dict__", None)
        if type(held) is not dict or issubclass(type(value), (nn.Module, type)):
            return value
        if not any(issubclass(type(item), torch.Tensor) for item in held.values()):
            return value
        try:
            copied = copy.copy(value)
            copied.__dict__.update({name: self._stand_in(item) for name, item in held.items()})
        except Exception:  # an object that will not be copied stays what it is
            return value
        return copied

    def _replace(self, registry: Any, name: Any, tensor: Any, replaced: list[tuple[Any, Any, Any]]) -> None:
        if not isinstance(tensor, torch.Tensor) or tensor.is_meta or is_lazy(tensor):
            return
        known = self._meta.get(id(tensor))
        if known is None:
            try:
                meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
            except (RuntimeError, NotImplementedError):
                return  # sparse and opaque tensors stay, unreadable
            if isinstance(tensor, nn.Parameter):
                meta = nn.Parameter(meta, requires_grad=tensor.requires_grad)
            known = self._meta[id(tensor)] = (tensor, meta)
        replaced.append((registry, name, tensor))
        registry[name] = known[1]

    def readable(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor that holds the values `tensor` has in a real run, or `None`."""
        if tensor.is_meta:
            if id(tensor) not in self._paired:
                return None
            tensor = self._twins.get(tensor)
            if tensor is None:
                return None
        return None if self._hidden(tensor) else tensor

    def _hide(self, tensor: torch.Tensor) -> None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return
        self._unreadable[storage._cdata] = storage

    def _hidden(self, tensor: torch.Tensor) -> bool:
        try:
            return tensor.untyped_storage()._cdata in self._unreadable
        except (RuntimeError, NotImplementedError):
            return False

    def _plan(self, func: Any) -> tuple[Any, bool, Writes, bool, str]:
        """Return (what runs it, is a view, arguments written in place, may be cached, name) of an operator."""
        if not isinstance(func, torch._ops.OpOverload):
            return func, False, (), False, str(func)
        schema = func._schema
        writes = tuple(
            (i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        view = bool(schema.returns) and all(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        )
        run = func._op if type(func) is torch._ops.OpOverload else func
        return run, view, writes, makes_new_tensors(func), f"{func.namespace}.{func._opname}"

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator."""
        plan = self._plans.get(id(func))  # by identity: an overload's own hash is Python code
        if plan is None:
            plan = self._plans[id(func)] = self._plan(func)
            self._known.append(func)
        run, view, writes, cacheable, name = plan
        tensors: list[torch.Tensor] = []
        collect_tensors(args, tensors)
        if kwargs:
            collect_tensors(tuple(kwargs.values()), tensors)
        if not tensors:
            return self._make(func, args, kwargs)
        if name == "aten._pack_padded_sequence" and args[0].is_meta:
            return self._pack(*args)
        valued, any_meta = self._look(tensors, reads=name in _READS_VALUES)
        if valued:
            return self._compute(func, view, writes, args, kwargs, any_meta)
        if view:  # a view reads no element
            return run(*args, **kwargs)
        if name in _READS_VALUES:
            raise _needs_values(name)
        meta_args, meta_kwargs = args, dict(kwargs)
        try:
            if not all(tensor.is_meta for tensor in tensors):
                meta_args = tuple([self._to_meta(arg) for arg in args])
                meta_kwargs = {key: self._to_meta(value) for key, value in kwargs.items()}
        except _NoMeta:
            if any_meta:
                raise FakeExecutionError(
                    f"execution='fake' cannot run {name} at {_user_line()}: it mixes nested or sparse tensors with "
                    "tensors that have no values. Use execution='real' for this model."
                ) from None
            return func(*args, **kwargs)
        if "device" in meta_kwargs and meta_kwargs["device"] is not None:
            meta_kwargs["device"] = _META
        if writes:
            out = self._infer(func, name, meta_args, meta_kwargs)
            return self._write(out, written(writes, args, kwargs), written(writes, meta_args, meta_kwargs))
        if cacheable:
            return self._shapes.run(
                func, meta_args, meta_kwargs, lambda: self._infer(func, name, meta_args, meta_kwargs)
            )
        return self._infer(func, name, meta_args, meta_kwargs)

    def _look(self, tensors: list[torch.Tensor], *, reads: bool) -> tuple[bool, bool]:
        """Return whether the operator can be computed from small known values, and whether one is on meta."""
        elements = 0
        any_meta = False
        for tensor in tensors:
            if tensor.is_meta:
                any_meta = True
                if self.readable(tensor) is None:
                    return False, True
            elif self._hidden(tensor):
                return False, any_meta or any(other.is_meta for other in tensors)
            if not tensor.is_nested:
                elements += tensor.numel()
        return elements <= _KEEP or (reads and not any_meta), any_meta

    def _compute(
        self, func: Any, view: bool, writes: Writes, args: tuple[Any, ...], kwargs: Any, any_meta: bool
    ) -> Any:
        """Run an operator on known values; a result that belongs on the meta device goes there, with its twin."""
        device = kwargs.get("device")
        to_meta = device is not None and torch.device(device).type == "meta"
        if not any_meta and not to_meta:
            return func(*args, **kwargs)
        if device is not None:
            kwargs = {**kwargs, "device": torch.device("cpu")} if to_meta or any_meta else kwargs
        twins = self._twin_of(args)
        twin_kwargs = {key: self._twin_of(value) for key, value in kwargs.items()}
        for target in written(writes, twins, twin_kwargs):
            self._before_write(target)
        out = func(*twins, **twin_kwargs)
        if writes:
            return self._written_through(out, written(writes, args, kwargs), written(writes, twins, twin_kwargs))
        if view:
            # The views must alias their own bases, on both sides.
            meta = func(*args, **kwargs)
            self._pair(meta, out)
            return meta
        return self._to_meta_with_twin(out)

    def _pack(self, padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
        """Pack a batch of sequences: the sizes of the steps follow from the lengths, and are read on the CPU."""
        values = self.readable(lengths)
        if values is None:
            raise _needs_values("aten._pack_padded_sequence")
        outline = torch.empty((*padded.shape[:2], 1), device="cpu")
        data, batch_sizes = torch.ops.aten._pack_padded_sequence(outline, values, batch_first)
        return torch.empty((data.shape[0], *padded.shape[2:]), dtype=padded.dtype, device=_META), batch_sizes

    def _written_through(self, out: Any, targets: list[torch.Tensor], twins: list[torch.Tensor]) -> Any:
        """Return the result of an operator that wrote to tensors through their twins."""
        for target, twin in zip(targets, twins, strict=True):
            if target.is_meta and target.shape != twin.shape:
                target.resize_(twin.shape)
        return exchange(out, twins, targets, self._to_meta_with_twin)

    def _twin_of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._twins[value] if value.is_meta else value
        if type(value) in (list, tuple):
            return type(value)([self._twin_of(item) for item in value])
        return value

    def _pair(self, meta: Any, real: Any) -> None:
        if isinstance(meta, torch.Tensor):
            if meta.is_meta:
                self._twins[meta] = real
                self._paired.add(id(meta))
        elif isinstance(meta, (list, tuple)):
            for left, right in zip(meta, real, strict=True):
                self._pair(left, right)

    def _to_meta_with_twin(self, out: Any) -> Any:
        if isinstance(out, torch.Tensor):
            if out.layout is not torch.strided or out.is_nested:
                return out
            meta = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype, device=_META)
            self._pair(meta, out)
            return meta
        if isinstance(out, (list, tuple)):
            return type(out)([self._to_meta_with_twin(item) for item in out])
        return out

    def _make(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator without tensor arguments: small results have values, wherever they were asked for."""
        device = kwargs.get("device")
        meta = device is not None and torch.device(device).type == "meta"
        count = 1
        sizes = next((value for value in args if isinstance(value, (list, tuple))), ())
        for size in sizes:
            if type(size) is int:
                count *= size
        if "arange" in str(func):
            count = max([int(abs(value)) for value in args if isinstance(value, (int, float))], default=1)
        if count > _KEEP:
            return func(*args, **{**kwargs, "device": _META}) if "device" in kwargs else func(*args, **kwargs)
        if meta:
            return self._to_meta_with_twin(func(*args, **{**kwargs, "device": torch.device("cpu")}))
        out = func(*args, **kwargs)
        # Floating numbers meet activations (a first hidden state, a bias), and some of PyTorch's functions compare
        # devices before they dispatch. Integers and truth values stay where code that reads them expects them.
        if not isinstance(out, torch.Tensor) or not (out.is_floating_point() or out.is_complex()):
            return out
        # A lazy layer takes its parameters from here, and those outlive the run.
        lazy = any(isinstance(module, LazyModuleMixin) for module in self._lazy)
        return out if lazy else self._to_meta_with_twin(out)

    def _to_meta(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return value
            known = self._meta.get(id(value))
            if known is not None and known[0] is value:
                return known[1]
            if value.is_nested or value.layout is not torch.strided:
                raise _NoMeta
            meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
            if isinstance(value, nn.Parameter):  # lives as long as the model; anything else may be freed
                self._meta[id(value)] = (value, meta)
            return meta
        if isinstance(value, (list, tuple)):
            return type(value)([self._to_meta(item) for item in value]) if type(value) in (list, tuple) else value
        return value

    def _write(self, out: Any, targets: list[torch.Tensor], metas: list[torch.Tensor]) -> Any:
        for target, meta in zip(targets, metas, strict=True):
            # What was written is unknown: the values there, and in every view of them, are no longer to be read.
            known = self._twins.get(target) if target.is_meta else target
            if known is not None:
                self._hide(known)
            if target is not meta and target.shape != meta.shape:
                target.resize_(meta.shape)
        return exchange(out, metas, targets, lambda value: value)

    def _infer(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shortcut = SHORTCUTS.get(name)
        if shortcut is not None:
            return shortcut(args, kwargs)
        try:
            return func(*args, **kwargs)
        except NotImplementedError as error:
            raise FakeExecutionError(
                f"execution='fake' cannot run {name} at {_user_line()}: PyTorch has no shape rule for it, or its "
                f"result depends on values. Use execution='real' for this model. ({str(error).splitlines()[0]})"
            ) from error


def _user_line() -> str:
    """Return file and line of the model's code that is running: the innermost frame outside torch and torchscan."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in ("torch", "torchscan", "torchscan_native"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "an unknown line"


def _needs_values(name: str) -> FakeExecutionError:
    return FakeExecutionError(
        f"execution='fake' has no values to give {name} at {_user_line()}: the model's code reads a tensor's values "
        "there (.item(), bool(tensor), nonzero, boolean indexing ...). Use execution='real', or make the branch "
        "independent of computed values."
    )
