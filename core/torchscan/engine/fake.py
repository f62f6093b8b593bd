"""`execution="fake"`: the model's own code runs, its arithmetic does not.

The model and its arguments stay the objects they are. An operator that touches a parameter, or anything computed from
one, runs on the meta device, where it has shapes and no values; what the caller passed or the model made from plain
numbers (masks, positions, token ids) keeps its values, so masks can still be inspected and branches on them taken.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchscan.contract.errors import FakeExecutionError
from torchscan.engine.tree import ModuleTree, own_tensors

__all__ = ["FakeExecutor"]

#: Values are kept up to this many elements; larger tensors would cost what a fake run is meant to save.
_KEEP: Final = 1 << 20
_META: Final = torch.device("meta")
_READS_VALUES: Final = frozenset(
    f"aten.{name}"
    for name in (
        "_local_scalar_dense item is_nonzero nonzero unique _unique _unique2 unique_dim unique_consecutive "
        "masked_select bincount equal"
    ).split()
)


class _NoMeta(Exception):
    """An argument has no form on the meta device (nested, sparse)."""


class FakeExecutor:
    """Runs operators without computing them.

    Args:
        tree: the model, whose parameters and buffers have no readable values in this run.

    """

    def __init__(self, tree: ModuleTree) -> None:
        self._unreadable: dict[int, Any] = {}  # storages, held so that an address is not used twice
        self._meta: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._outputs: dict[Any, Any] = {}
        self._plans: dict[Any, tuple[bool, tuple[int, ...], bool, str]] = {}
        for module in tree.modules:
            for registry in ("_parameters", "_buffers"):
                for tensor in own_tensors(module, registry):
                    if not is_lazy(tensor):
                        self._hide(tensor)

    def readable(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return `tensor` when its values are those of a real run."""
        return None if tensor.is_meta or self._hidden(tensor) else tensor

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

    def _plan(self, func: Any) -> tuple[bool, tuple[int, ...], bool, str]:
        """Return (is a view, argument positions written in place, may be cached, name) of an operator."""
        if not isinstance(func, torch._ops.OpOverload):
            return False, (), False, str(func)
        schema = func._schema
        writes = tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write)
        view = bool(schema.returns) and all(
            r.alias_info is not None and not r.alias_info.is_write for r in schema.returns
        )
        cacheable = not schema.is_mutable and all(r.alias_info is None for r in schema.returns)
        return view, writes, cacheable, f"{func.namespace}.{func._opname}"

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator."""
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = self._plan(func)
        view, writes, cacheable, name = plan
        tensors: list[torch.Tensor] = []
        _collect(args, tensors)
        if kwargs:
            _collect(tuple(kwargs.values()), tensors)
        if not tensors:
            return self._make(func, args, kwargs)
        valueless = False
        elements = 0
        for tensor in tensors:
            if tensor.is_meta or self._hidden(tensor):
                valueless = True
                break
            elements += tensor.numel() if not tensor.is_nested else 0
        if view:  # a view reads no element; where there are values it keeps them
            return func(*args, **kwargs)
        if not valueless and (elements <= _KEEP or name in _READS_VALUES):
            return func(*args, **self._placed(kwargs))
        if name in _READS_VALUES:
            raise _needs_values(name)
        try:
            meta_args = tuple([self._to_meta(arg) for arg in args])
            meta_kwargs = {key: self._to_meta(value) for key, value in kwargs.items()} if kwargs else {}
        except _NoMeta:
            if any(tensor.is_meta for tensor in tensors):
                raise FakeExecutionError(
                    f"execution='fake' cannot run {name} at {_user_line()}: it mixes nested or sparse tensors with "
                    "tensors that have no values. Use execution='real' for this model."
                ) from None
            return func(*args, **kwargs)
        if "device" in meta_kwargs and meta_kwargs["device"] is not None:
            meta_kwargs["device"] = _META
        if writes:
            return self._write(func, writes, args, meta_args, meta_kwargs)
        if cacheable:
            return self._cached(func, name, meta_args, meta_kwargs)
        return self._infer(func, name, meta_args, meta_kwargs)

    def _placed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Keep values where they are: a copy to the meta device would lose them."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "meta":
            return {key: value for key, value in kwargs.items() if key != "device"}
        return kwargs

    def _make(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator without tensor arguments: small results get values, wherever they were asked for."""
        device = kwargs.get("device")
        meta = device is not None and torch.device(device).type == "meta"
        sizes = [value for value in args if isinstance(value, (list, tuple))]
        count = 1
        for size in sizes[0] if sizes else ():
            if type(size) is int:
                count *= size
        if "arange" in str(func) and args:
            count = max([int(abs(value)) for value in args if isinstance(value, (int, float))], default=1)
        if count > _KEEP:
            return func(*args, **{**kwargs, "device": _META}) if "device" in kwargs else func(*args, **kwargs)
        if meta:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **kwargs)

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

    def _write(
        self, func: Any, writes: tuple[int, ...], args: tuple[Any, ...], meta_args: tuple[Any, ...], kwargs: Any
    ) -> Any:
        out = self._infer(func, str(func), meta_args, kwargs)
        for position in writes:
            if position < len(args) and isinstance(args[position], torch.Tensor):
                target = args[position]
                if not target.is_meta:
                    self._hide(target)  # its values are no longer those of a real run
                if out is meta_args[position]:
                    out = target
        return out

    def _cached(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            key = (func, *_strided(args), *_strided(tuple(kwargs.items())))
            plan = self._outputs.get(key)
        except TypeError:
            return self._infer(func, name, args, kwargs)
        if plan is None:
            out = self._infer(func, name, args, kwargs)
            plan = _recipe(out)
            self._outputs[key] = plan if plan is not None else False
            return out
        if plan is False:
            return self._infer(func, name, args, kwargs)
        return _cook(plan)

    def _infer(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shortcut = _SHORTCUTS.get(name)
        if shortcut is not None:
            return shortcut(args)
        try:
            return func(*args, **kwargs)
        except NotImplementedError as error:
            raise FakeExecutionError(
                f"execution='fake' cannot run {name} at {_user_line()}: PyTorch has no shape rule for it, or its "
                f"result depends on values. Use execution='real' for this model. ({str(error).splitlines()[0]})"
            ) from error


def _encoder_layer(args: tuple[Any, ...]) -> Any:
    return torch.empty_like(args[0])


def _attention(args: tuple[Any, ...]) -> Any:
    query, key, heads = args[0], args[1], args[4]
    need_weights = args[10] if len(args) > 10 else True
    average = args[11] if len(args) > 11 else True
    batch, length, _ = query.shape
    weights = query.new_empty((batch, length, key.shape[1]) if average else (batch, heads, length, key.shape[1]))
    return torch.empty_like(query), weights if need_weights else query.new_empty((0,))


#: Fused operators that PyTorch gives no shape rule.
_SHORTCUTS: Final = {
    "aten._transformer_encoder_layer_fwd": _encoder_layer,
    "aten._native_multi_head_attention": _attention,
}


def _collect(values: Any, found: list[torch.Tensor]) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, found)


def _strided(values: Any) -> tuple[Any, ...]:
    parts: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            parts.append(_strided(value))
        else:
            parts += (type(value), value)
    return tuple(parts)


def _recipe(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        if not out.is_meta or out.layout is not torch.strided:
            return None
        return (tuple(out.shape), out.stride(), out.dtype)
    if isinstance(out, tuple):
        parts = [_recipe(item) for item in out]
        return None if any(part is None for part in parts) else parts
    return None


def _cook(recipe: Any) -> Any:
    if isinstance(recipe, list):
        return tuple([_cook(part) for part in recipe])
    shape, stride, dtype = recipe
    return torch.empty_strided(shape, stride, dtype=dtype, device=_META)


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
