"""Value metadata: structure, never contents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from torchscan.report.schema import (
    CallInput,
    MappingItem,
    MappingValue,
    NestedTensorValue,
    NoneValue,
    ObjectValue,
    Scalar,
    SequenceValue,
    TensorValue,
    Value,
)

__all__ = ["describe", "describe_call"]

_NONE = NoneValue()
_SCALARS = {kind: Scalar(kind.__name__) for kind in (bool, int, float, complex, str, bytes)}
#: Structure deeper than this is described by its type, and so are containers once so many values have been described.
_DEPTH = 8
_LARGEST = 10_000

# Tensors of a model repeat their metadata; one object per distinct description.
_TENSORS: dict[tuple[Any, ...], TensorValue] = {}
_TENSORS_LIMIT = 4096
_INPUTS: dict[tuple[Any, ...], CallInput] = {}


def describe(value: Any) -> Value:
    """Return the metadata of any argument or output, without keeping a reference to it."""
    if type(value) is torch.Tensor:
        return _tensor(value)
    return _Structure().describe(value)


class _Structure:
    """Describes one value with all that it holds, up to a size."""

    __slots__ = ("left", "within")

    def __init__(self) -> None:
        self.left = _LARGEST
        self.within: list[int] = []  # the containers around the value at hand; one that holds itself ends there

    def describe(self, value: Any) -> Value:
        """Return the metadata of a value."""
        kind = type(value)
        if value is None:
            return _NONE
        if (scalar := _SCALARS.get(kind)) is not None:
            return scalar
        if issubclass(kind, torch.Tensor):  # some objects raise when their own `__class__` is asked for
            return _tensor(value)
        self.left -= 1
        if len(self.within) < _DEPTH and self.left > 0 and id(value) not in self.within:
            self.within.append(id(value))
            try:
                if (found := self._container(value, kind)) is not None:
                    return found
            except Exception:  # an object that will not be looked into is described by its type
                return ObjectValue(kind.__qualname__)
            finally:
                self.within.pop()
        return ObjectValue(kind.__qualname__)

    def _container(self, value: Any, kind: type) -> Value | None:
        if issubclass(kind, (tuple, list)):
            self.left -= len(value)
            if self.left <= 0:
                return None
            items = tuple([self.describe(item) for item in value])
            return SequenceValue(items, "tuple" if issubclass(kind, tuple) else "list")
        if isinstance(value, Mapping) and (len(value) or not dataclasses.is_dataclass(kind)):
            self.left -= len(value)
            if self.left <= 0:
                return None
            return MappingValue(kind.__name__, tuple([self._item(key, item) for key, item in value.items()]))
        if dataclasses.is_dataclass(kind):
            fields = [
                MappingItem(self.describe(getattr(value, field.name, None)), "str", field.name)
                for field in dataclasses.fields(kind)
            ]
            return MappingValue(kind.__name__, tuple(fields), "dataclass")
        if isinstance(value, (bool, int, float, complex, str, bytes)):
            return Scalar(kind.__name__)
        return None

    def _item(self, key: object, value: Any) -> MappingItem:
        # A key can carry a file name or a user's text; integers and identifiers are structure.
        kept = key if type(key) is int or (isinstance(key, str) and key.isidentifier()) else None
        return MappingItem(self.describe(value), type(key).__name__, kept)


def _tensor(value: torch.Tensor) -> Value:
    try:
        key = (value.shape, value.dtype, value.device, value.requires_grad)
        found = _TENSORS.get(key)
        if found is None:
            if value.is_nested or not all(type(size) is int for size in value.shape):
                return _nested(value)
            found = TensorValue(tuple(value.shape), str(value.dtype), str(value.device), value.requires_grad)
            if len(_TENSORS) >= _TENSORS_LIMIT:
                _TENSORS.clear()
                _INPUTS.clear()
            _TENSORS[key] = found
        return found
    except Exception:  # nested tensors and foreign subclasses refuse to name a shape; the scan goes on
        return _nested(value)


def _nested(value: torch.Tensor) -> Value:
    try:
        return NestedTensorValue(str(value.dtype), str(value.device), value.requires_grad)
    except Exception:
        return ObjectValue(type(value).__qualname__)


def describe_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CallInput:
    """Return the metadata of a call's arguments."""
    if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
        value = args[0]
        try:
            key = (value.shape, value.dtype, value.device, value.requires_grad)
            found = _INPUTS.get(key)
        except Exception:
            return CallInput((_nested(value),))
        if found is None:
            only = _tensor(value)
            found = CallInput((only,))
            if type(only) is TensorValue:
                _INPUTS[key] = found
        return found
    return CallInput(
        tuple([describe(arg) for arg in args]),
        {name: describe(value) for name, value in kwargs.items()} if kwargs else _NO_KWARGS,
    )


_NO_KWARGS: dict[str, Value] = {}
