"""What can be wrong with a grid and its builders, found out before anything runs. Imports torch only for a dtype."""

from __future__ import annotations

import difflib
import functools
import pickle
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from torchscan.engine.sweep_job import Job, taken
from torchscan.target import load

__all__ = ["check_dtype", "check_names", "check_sendable", "checked_sizes", "grid_values", "name_of"]


def grid_values(grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Return the values of each name.

    Raises:
        TypeError: the grid, a name or the values of one have the wrong form.
        ValueError: a name has no values.

    """
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must map names to values, got {type(grid).__name__}; write {{'d_model': [256, 512]}}")
    found: dict[str, list[Any]] = {}
    for name, values in grid.items():
        if not isinstance(name, str):
            raise TypeError(f"grid names must be strings, got {name!r}")
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise TypeError(f"grid[{name!r}] must be a list of values, got {values!r:.60}; write [{values!r:.60}]")
        # A count is a count, whether it comes from a list or from a NumPy range.
        found[name] = [value.item() if type(value).__module__ == "numpy" else value for value in values]
        if not found[name]:
            raise ValueError(f"grid[{name!r}] has no values")
    return found


def check_names(
    values: Mapping[str, Any], build: Callable[..., Any] | str, inputs: Callable[..., Any] | str | None
) -> None:
    """Hold the names of the grid against what can be called with them.

    Raises:
        ValueError: a name is no parameter, or a required parameter has no values.
        TypeError: a builder cannot be called.

    """
    functions = {name_of(part): load(part) if isinstance(part, str) else part for part in (build, inputs) if part}
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} is of type {type(function).__name__}; it must be callable")
    known = {name: taken(function) for name, function in functions.items()}
    if all(names is not None for names in known.values()):
        allowed = sorted({name for names in known.values() for name in names or ()})
        for name in values:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(allowed) or 'none'}"
                raise ValueError(f"grid names {name!r}, which is no parameter of {' or '.join(functions)}; {hint}")
    for function_name, names in known.items():
        missing = [name for name, required in (names or {}).items() if required and name not in values]
        if missing:
            raise ValueError(f"{function_name} needs {', '.join(map(repr, missing))}, which grid gives no values for")


def check_sendable(job: Job, executor: Any) -> None:
    """Find out now, not once per configuration, that a process pool cannot take the builder.

    Raises:
        TypeError: it cannot.

    """
    if not isinstance(executor, ProcessPoolExecutor):
        return
    try:
        pickle.dumps(job)
    except Exception as error:
        raise TypeError(
            f"{job.name} cannot be sent to another process ({error}); give a function of an importable module, or a "
            "target such as 'package.module:callable'"
        ) from None


def name_of(builder: Any) -> str:
    """Return how rows name a builder: its target, or `module.qualname`."""
    if isinstance(builder, str):
        return builder
    if isinstance(builder, functools.partial):
        given = [*map(repr, builder.args), *(f"{name}={value!r}" for name, value in builder.keywords.items())]
        return f"{name_of(builder.func)}({', '.join(given)})"
    named = builder if hasattr(builder, "__qualname__") else type(builder)
    return f"{named.__module__}.{named.__qualname__}"


def checked_sizes(inputs: Any) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of generated inputs.

    Raises:
        TypeError: they are none.

    """
    try:
        sizes = tuple(tuple(size) for size in inputs)
    except TypeError:
        sizes = ()
    if not sizes or not all(type(length) is int and length >= 0 for size in sizes for length in size):
        raise TypeError(f"inputs must be a callable, its target, or sizes such as [(2, 64, 512)], got {inputs!r:.80}")
    return sizes


def check_dtype(name: str) -> None:
    """Refuse what names no dtype.

    Raises:
        ValueError: the message shows some that do.

    """
    import torch

    if not isinstance(getattr(torch, name, None), torch.dtype):
        raise ValueError(f"dtype {name!r} is no torch dtype; write 'float32', 'bfloat16', 'int64' ...")
