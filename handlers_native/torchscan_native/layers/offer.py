"""From a formula's adapter to a registration: only for calls of the layer's own, unchanged `forward`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch

from torchscan import HandlerRegistration, ModuleCall, ModuleHandler
from torchscan_native.layers.guard import NOT_MINE, Refused
from torchscan_native.layers.hooked import with_hooks

__all__ = ["Adapter", "offer"]

#: Reads the sizes of one call and returns its estimates. The module comes apart from the call, already checked.
Adapter: TypeAlias = Callable[[ModuleCall, Any], dict[str, Any]]


def offer(
    names: Iterable[str], adapter: Adapter, *, methods: tuple[str, ...] = (), home: Any = torch.nn
) -> Iterator[HandlerRegistration]:
    """Yield a registration for each class of `home` that this PyTorch has.

    Args:
        names: class names.
        adapter: called for calls of the class's own, unchanged `forward`.
        methods: further methods that do the work and must be unchanged.
        home: the module that holds the classes.

    """
    for name in names:
        cls = getattr(home, name, None)
        if cls is not None and cls.forward.__module__.startswith("torch."):  # patched before we came: not ours
            yield HandlerRegistration(cls, ModuleHandler(_guarded(cls, adapter, methods)))


def _guarded(cls: type[torch.nn.Module], adapter: Adapter, methods: tuple[str, ...]) -> Callable[[ModuleCall], Any]:
    forward = cls.forward
    others = tuple((name, getattr(cls, name)) for name in methods)

    def handler(call: ModuleCall) -> dict[str, Any]:
        module = call.module
        kind = type(module)
        own = module.__dict__
        # A subclass with its own forward, or a replaced one, computes something else under the same name.
        if kind.forward is not forward or "forward" in own:
            return NOT_MINE
        for name, method in others:
            if getattr(kind, name) is not method or name in own:
                return NOT_MINE
        try:
            estimates = adapter(call, module)
            return with_hooks(module, estimates) if module._forward_pre_hooks else estimates
        except Refused as refused:
            return refused.estimates

    handler.__qualname__ = handler.__name__ = f"{cls.__name__}_handler"
    return handler
