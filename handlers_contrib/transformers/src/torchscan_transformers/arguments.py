"""Reading one argument of a call, however it was passed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torchscan


@functools.lru_cache(maxsize=256)
def _positions(forward: Callable[..., Any]) -> dict[str, int]:
    parameters = list(inspect.signature(forward).parameters)[1:]
    return {name: index for index, name in enumerate(parameters)}


def argument(call: torchscan.ModuleCall, *names: str) -> Any:
    """Return the argument passed under one of some names (the library renames its own), `None` where there is none."""
    kwargs, args = call.kwargs, call.args
    for name in names:
        if name in kwargs:
            return kwargs[name]
    if args:
        positions = _positions(type(call.module).forward)
        for name in names:
            index = positions.get(name)
            if index is not None and index < len(args):
                return args[index]
    return None
