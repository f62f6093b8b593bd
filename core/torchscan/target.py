"""`package.module:callable` and `file.py:callable`: where a command finds its model. Imports no torch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["TargetError", "build", "load", "said"]


class TargetError(ValueError):
    """A target cannot be used; the message is one sentence for the person who typed it."""


def said(error: BaseException) -> str:
    """Return an exception as `Type: its message`, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def load(target: str) -> Callable[..., Any]:
    """Import a target's callable.

    Args:
        target: `package.module:callable` or `path/to/file.py:callable`.

    Raises:
        TargetError: it has the wrong form, cannot be imported, or names no callable.

    """
    where, separator, name = target.rpartition(":")
    if not separator or not where or not name:
        raise TargetError(f"{target!r} is no target; write package.module:callable or file.py:callable")
    module = _file(where) if where.endswith(".py") else _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{where} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(
            f"{target} is no callable but of type {type(found).__name__}; a target is a callable that returns a module"
        )
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    # A command is used from the folder of the project; Python adds that folder only for `python -m`.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(f"there is no module {name!r} here or in the environment") from None
        raise TargetError(f"{name} cannot be imported: it needs the module {error.name!r}, which is missing") from error
    except (Exception, SystemExit) as error:
        raise TargetError(f"{name} cannot be imported: {said(error)}") from error


def _file(path: str) -> Any:
    file = Path(path)
    if not file.is_file():
        raise TargetError(f"there is no file {path!r}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Its neighbours are importable, as when it is run; classes of it can be pickled by name.
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    free = file.stem not in sys.modules
    if free:
        sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        if free:
            sys.modules.pop(file.stem, None)
        raise TargetError(f"{path} cannot be imported: {said(error)}") from error
    return module


def build(found: Callable[..., Any], target: str, **options: Any) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Call a target and return (module, args, kwargs).

    Raises:
        TargetError: it raised, or returned something else.

    """
    from torch import nn

    try:
        result = found if isinstance(found, nn.Module) else found(**options)
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target} raised {said(error)}") from error
    if isinstance(result, nn.Module):
        return result, (), {}
    if isinstance(result, tuple) and 2 <= len(result) <= 3 and isinstance(result[0], nn.Module):
        args = result[1]
        kwargs = result[2] if len(result) == 3 else {}
        if isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
            return result[0], tuple(args), dict(kwargs)
    raise TargetError(
        f"{target} returned {type(result).__name__}; it must return a torch.nn.Module or (module, args, kwargs)"
    )
