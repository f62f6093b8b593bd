"""Operators in a fake run: what they write, and the shapes of those for which PyTorch has no rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch

from torchscan.engine.meta_shapes import collect_tensors

__all__ = ["SHORTCUTS", "Writes", "exchange", "written"]

#: Positions and names of the arguments that an operator writes in place.
Writes: TypeAlias = tuple[tuple[int, str], ...]


def written(writes: Writes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes in place, those in lists included."""
    found: list[torch.Tensor] = []
    collect_tensors([args[position] if position < len(args) else kwargs.get(name) for position, name in writes], found)
    return found


def exchange(out: Any, stood_in: list[torch.Tensor], targets: list[torch.Tensor], other: Callable[[Any], Any]) -> Any:
    """Return a result with the targets in place of what stood in for them; `other` treats what is new."""
    if isinstance(out, torch.Tensor):
        for mine, target in zip(stood_in, targets, strict=True):
            if out is mine:
                return target
        return other(out)
    if type(out) in (list, tuple):
        return type(out)([exchange(item, stood_in, targets, other) for item in out])
    return out


def _encoder_layer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.empty_like(args[0])


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    query, key, heads = args[0], args[1], args[4]
    need_weights = args[10] if len(args) > 10 else True
    average = args[11] if len(args) > 11 else True
    batch, length, _ = query.shape
    weights = query.new_empty((batch, length, key.shape[1]) if average else (batch, heads, length, key.shape[1]))
    return torch.empty_like(query), weights if need_weights else query.new_empty((0,))


def _grouped_product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    left, right = args[:2]
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    groups = () if offsets is None else offsets.shape
    if left.dim() == right.dim():  # a batch of products, or the groups cut the axis that is summed
        return left.new_empty((*(groups or left.shape[:1]), left.shape[-2], right.shape[-1]))
    return left.new_empty((left.shape[-2], right.shape[-1]))


#: Fused operators to which PyTorch gives no shape rule, or one that refuses what it runs.
SHORTCUTS: Final = {
    "aten._grouped_mm": _grouped_product,
    "aten._transformer_encoder_layer_fwd": _encoder_layer,
    "aten._native_multi_head_attention": _attention,
}
