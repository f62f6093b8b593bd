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
#: Structure deeper than this is described by its type; it also ends cyclic containers.
_DEPTH = 8

# Tensors of a model repeat their metadata; one object per distinct description.
_TENSORS: dict[tuple[Any, ...], TensorValue] = {}
_TENSORS_LIMIT = 4096
_INPUTS: dict[tuple[Any, ...], CallInput] = {}


def describe(value: Any, depth: int = 0) -> Value:
    """Return the metadata of any argument or output, without keeping a reference to it."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if value is None:
        return _NONE
    if (scalar := _SCALARS.get(type(value))) is not None:
        return scalar
    if depth >= _DEPTH:
        return ObjectValue(type(value).__qualname__)
    if isinstance(value, (tuple, list)):
        items = tuple([describe(item, depth + 1) for item in value])
        return SequenceValue(items, "tuple" if isinstance(value, tuple) else "list")
    if isinstance(value, Mapping) and (len(value) or not dataclasses.is_dataclass(value)):
        return MappingValue(type(value).__name__, tuple([_item(key, item, depth) for key, item in value.items()]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return MappingValue(
            type(value).__name__,
            tuple(
                [
                    MappingItem(describe(getattr(value, field.name, None), depth + 1), "str", field.name)
                    for field in dataclasses.fields(value)
                ]
            ),
            "dataclass",
        )
    if isinstance(value, (bool, int, float, complex, str, bytes)):
        return Scalar(type(value).__name__)
    return ObjectValue(type(value).__qualname__)


def _item(key: object, value: Any, depth: int) -> MappingItem:
    # A key can carry a file name or a user's text; integers and identifiers are structure.
    kept = key if type(key) is int or (isinstance(key, str) and key.isidentifier()) else None
    return MappingItem(describe(value, depth + 1), type(key).__name__, kept)


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
