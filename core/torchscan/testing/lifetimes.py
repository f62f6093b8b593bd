"""What outlives a handler's answer, seen through weak references."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import torch
from torch.utils._pytree import tree_flatten, tree_map

from torchscan.testing.samples import Sample, ask, completed

__all__ = ["alive_after"]


def alive_after(handler: Any, sample: Sample) -> set[str]:
    """Return the names of what is still there after the handler has answered.

    Args:
        handler: the handler.
        sample: the call to ask about.

    Returns:
        The call itself, and the tensors of its arguments and output, as far as something keeps them alive.

    """
    watched = _watched(handler, sample)
    if any(reference() is not None for _, reference in watched):
        gc.collect()  # only a cycle, perhaps
    return {name for name, reference in watched if reference() is not None}


def _watched(handler: Any, sample: Sample) -> list[tuple[str, weakref.ref[Any]]]:
    """Ask the handler and return weak references to everything that must be gone afterwards."""
    module, args, kwargs = sample.make()
    lasting = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    # The caller may hold on to the arguments of a call given as a tuple; nobody holds these.
    args, kwargs = _copied(args, kwargs)
    fresh = [(module, args, kwargs)]
    del args, kwargs
    watched: list[tuple[str, weakref.ref[Any]]] = []
    with completed(attrs.evolve(sample, make=fresh.pop)) as call:
        ask(handler, call)
        watched.append(("the call", weakref.ref(call)))
        for name, value in (("args", call.args), ("kwargs", dict(call.kwargs)), ("output", call.output)):
            tensors = [tensor for tensor in _tensors(value) if id(tensor) not in lasting]
            watched.extend((f"{name}, tensor {i}", weakref.ref(tensor)) for i, tensor in enumerate(tensors))
        del value, tensors, call
    return watched


def _copied(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    copies: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = leaf.detach().clone()
        return copies[id(leaf)]

    return tree_map(copy, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor))
