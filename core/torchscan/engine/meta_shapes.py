"""Running operators on the meta device, where only shapes are worked out: each signature once.

PyTorch works the result of a meta operator out anew for every call, much of it in Python. A model repeats its layers,
so the recipe of a result (sizes, strides, type) is kept for the next call of the same signature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

from torchscan.engine.tree import ModuleTree, own_tensors

__all__ = ["MetaExecutor", "ShapeCache", "collect_tensors", "is_on_meta", "makes_new_tensors"]

_META: Final = torch.device("meta")
_PLAIN: Final = frozenset((torch.Tensor, nn.Parameter))


class ShapeCache:
    """Recipes of the results of meta operators."""

    def __init__(self) -> None:
        self._recipes: dict[Any, Any] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], infer: Callable[[], Any]) -> Any:
        """Return what `func` returns for meta arguments.

        Args:
            func: an operator that aliases none of its arguments.
            args: its positional arguments.
            kwargs: its keyword arguments.
            infer: works the result out where no recipe is known.

        """
        try:
            key = (id(func), *_signature(args), *_signature(tuple(kwargs.items())))
            recipe = self._recipes.get(key)
        except TypeError:  # an argument that cannot be a key
            return infer()
        if recipe is None:
            out = infer()
            self._recipes[key] = _recipe(out) or False
            return out
        return infer() if recipe is False else _cook(recipe)


class MetaExecutor:
    """Runs the operators of a model that is on the meta device itself.

    Nothing but time differs from a plain run: an operator without a recipe runs as ever, and so does one that PyTorch
    refuses there.
    """

    def __init__(self) -> None:
        self._shapes = ShapeCache()
        self._cacheable: dict[int, tuple[Any, bool]] = {}

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator."""
        known = self._cacheable.get(id(func))
        if known is None:
            known = self._cacheable[id(func)] = (func, makes_new_tensors(func))
        if known[1]:
            tensors: list[torch.Tensor] = []
            collect_tensors(args, tensors)
            if kwargs:
                collect_tensors(tuple(kwargs.values()), tensors)
            if tensors and all(type(tensor) in _PLAIN and tensor.is_meta for tensor in tensors):
                return self._shapes.run(func, args, kwargs, lambda: func(*args, **kwargs))
        return func(*args, **kwargs)


def is_on_meta(tree: ModuleTree) -> bool:
    """Say whether a model has parameters or buffers and all of them are on the meta device."""
    found = False
    for module in tree.modules:
        for registry in ("_parameters", "_buffers"):
            for tensor in own_tensors(module, registry):
                if not tensor.is_meta:
                    return False
                found = True
    return found


def makes_new_tensors(func: Any) -> bool:
    """Say whether an operator writes nothing and returns tensors of its own."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    schema = func._schema
    return not schema.is_mutable and all(result.alias_info is None for result in schema.returns)


def collect_tensors(values: Any, found: list[torch.Tensor]) -> None:
    """Append the tensors among `values`, also those inside lists and tuples."""
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            collect_tensors(value, found)


def _signature(values: Any) -> tuple[Any, ...]:
    parts: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            parts += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            parts.append(_signature(value))
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
