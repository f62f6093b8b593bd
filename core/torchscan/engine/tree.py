"""The module tree, walked once per scan."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

__all__ = ["ModulePlace", "ModuleTree", "own_tensors"]


class ModulePlace:
    """Where one module instance sits in the tree."""

    __slots__ = ("depth", "module", "name", "path")

    def __init__(self, module: nn.Module, path: str, depth: int, name: str) -> None:
        self.module = module
        self.path = path
        self.depth = depth
        self.name = name


class ModuleTree:
    """Every module of a model under its first path, in the order of `named_modules`.

    Args:
        root: the model.

    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.places: dict[int, ModulePlace] = {}
        self.grow()

    def grow(self) -> None:
        """Add modules that the model has made since."""
        places = self.places
        visited: set[int] = set()
        # PyTorch's own generator re-yields every module through every level; this walk visits each once.
        stack: list[tuple[nn.Module, str, int, str]] = [(self.root, "", 0, type(self.root).__name__.lower())]
        while stack:
            module, path, depth, name = stack.pop()
            key = id(module)
            if key in visited:
                continue
            visited.add(key)
            if key not in places:
                places[key] = ModulePlace(module, path, depth, name)
            children = module._modules
            if children:
                for child_name, child in reversed(children.items()):
                    if child is not None:
                        stack.append((child, f"{path}.{child_name}" if path else child_name, depth + 1, child_name))

    @property
    def modules(self) -> list[nn.Module]:
        """Every module."""
        return [place.module for place in self.places.values()]

    def parameters(self) -> Iterator[torch.Tensor]:
        """Yield every registered parameter, shared ones as often as they are registered."""
        for place in self.places.values():
            yield from own_tensors(place.module, "_parameters")


def own_tensors(module: nn.Module, registry: str) -> list[torch.Tensor]:
    """Return a module's own parameters (`"_parameters"`) or buffers (`"_buffers"`)."""
    found = module.__dict__.get(registry)
    if type(found) is dict:
        return [tensor for tensor in found.values() if tensor is not None] if found else []
    if isinstance(module, torch.jit.ScriptModule):  # its tensors live in C++
        named = module.named_parameters if registry == "_parameters" else module.named_buffers
        return [tensor for _, tensor in named(recurse=False)]
    return [tensor for tensor in getattr(module, registry).values() if tensor is not None]
