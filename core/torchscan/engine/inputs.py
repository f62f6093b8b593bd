"""The arguments of the scanned call: generated from shapes, or the caller's own, untouched."""

from __future__ import annotations

import itertools
import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

__all__ = ["InputShape", "call_arguments", "generate_inputs"]

InputShape: TypeAlias = Sequence[int] | Sequence[Sequence[int]]


def call_arguments(
    module: nn.Module,
    input_shape: InputShape | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dtype: torch.dtype | Iterable[torch.dtype] | None,
    device: torch.device | str | None,
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Return (args, kwargs, generated) of the call to scan.

    Raises:
        TypeError: the module is no module, or an argument has the wrong type.
        ValueError: both a shape and arguments were given, or a shape is malformed.

    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"expected a torch.nn.Module to scan, got {type(module).__name__}")
    if args is None:
        args = ()
    if not isinstance(args, (tuple, list)):
        raise TypeError(f"args must be a tuple of positional arguments, got {type(args).__name__}; write args=(x,)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs must be a mapping of keyword arguments, got {type(kwargs).__name__}")
    if input_shape is None:
        if dtype is not None or device is not None:
            raise ValueError(
                "dtype= and device= apply to generated inputs only; pass input_shape=, or cast args yourself"
            )
        return tuple(args), dict(kwargs or {}), False
    if args or kwargs:
        raise ValueError("input_shape= generates the inputs; it cannot be combined with args= or kwargs=")
    shapes = _shapes(input_shape)
    dtypes = _dtypes(module, dtype, len(shapes))
    target = torch.device(device) if device is not None else _default(module).device
    return tuple(_generate((1, *shape), kind, target) for shape, kind in zip(shapes, dtypes, strict=True)), {}, True


def generate_inputs(
    module: nn.Module, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    """Return one generated tensor per shape, batch dimension included, as `input_shape=` would fill them."""
    like = _default(module)
    return tuple(_generate(shape, dtype or like.dtype, like.device) for shape in shapes)


def _shapes(input_shape: InputShape) -> list[tuple[int, ...]]:
    if isinstance(input_shape, str) or not isinstance(input_shape, Sequence):
        raise TypeError(f"input_shape must be a sequence of sizes, or a list of them, got {input_shape!r}")
    nested = len(input_shape) > 0 and all(isinstance(size, Sequence) for size in input_shape)
    shapes: list[tuple[Any, ...]]
    shapes = [tuple(shape) for shape in input_shape] if nested else [tuple(input_shape)]  # type: ignore[arg-type]
    for shape in shapes:
        for size in shape:
            if isinstance(size, bool) or not isinstance(size, numbers.Integral):
                raise TypeError(f"input_shape must hold integers, got {size!r} in {shape!r}")
            if size < 0:
                raise ValueError(f"input_shape must hold non-negative sizes, got {size} in {shape!r}")
    return [tuple(map(operator.index, shape)) for shape in shapes]


def _default(module: nn.Module) -> torch.Tensor:
    first = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.empty(0, dtype=torch.float32, device="cpu") if first is None else first


def _dtypes(module: nn.Module, dtype: torch.dtype | Iterable[torch.dtype] | None, count: int) -> list[torch.dtype]:
    if dtype is None:
        return [_default(module).dtype] * count
    if isinstance(dtype, torch.dtype):
        return [dtype] * count
    dtypes = [] if isinstance(dtype, str) or not isinstance(dtype, Iterable) else list(dtype)
    if not dtypes or not all(isinstance(each, torch.dtype) for each in dtypes):
        raise TypeError(f"dtype must be a torch.dtype, or one for each generated input, got {dtype!r}")
    if len(dtypes) != count:
        raise ValueError(f"dtype names {len(dtypes)} types for {count} generated inputs")
    return dtypes


def _generate(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # Zeros are valid token ids; floating inputs avoid zeros, on which some models divide.
    if dtype.is_floating_point or dtype.is_complex:
        return torch.ones(sizes, dtype=dtype, device=device)
    return torch.zeros(sizes, dtype=dtype, device=device)
