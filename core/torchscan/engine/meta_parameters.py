"""Building a model without memory for its weights."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["parameters_on_meta"]

#: From this many elements on, a tensor without meaningful values is not even allocated.
_LARGE: Final = 1 << 20
_MEANINGLESS: Final = frozenset((torch.empty, torch.rand, torch.randn))


class _LargeOnMeta(TorchFunctionMode):
    """Makes large uninitialized and random tensors on meta: they are weights, and no machine may have room for them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MEANINGLESS and kwargs.get("device") in (None, "cpu", _CPU) and _elements(args, kwargs) > _LARGE:
            kwargs = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory")}
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


_CPU: Final = torch.device("cpu")


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    sizes = kwargs.get("size", args[0] if len(args) == 1 else args)
    count = 1
    for size in sizes if isinstance(sizes, (tuple, list)) else (sizes,):
        count *= size if isinstance(size, int) else 0
    return count


class _Here(threading.local):
    known: WeakIdKeyDictionary | None = (
        None  # the parameters of this thread that are on meta, by what they were made from
    )


_here = _Here()
_lock = threading.Lock()
_running = 0
_handle: Any = None


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Put every parameter that this thread registers on the meta device, before it is initialized.

    Unlike under `torch.device("meta")`, everything else is made for real: masks, positions and constants keep their
    values, and a builder may read them. Modules register an uninitialized tensor and fill it afterwards, so its memory
    is never touched; a large one is not allocated at all.
    """
    global _running, _handle
    # One hook for all threads: PyTorch walks its hooks while a module is built, and none may come or go meanwhile.
    with _lock:
        if _running == 0:
            _handle = register_module_parameter_registration_hook(_replace)  # type: ignore[arg-type]
        _running += 1
    before, _here.known = _here.known, WeakIdKeyDictionary()
    try:
        with _LargeOnMeta():
            yield
    finally:
        _here.known = before
        with _lock:
            _running -= 1
            if _running == 0:
                _handle.remove()


def _replace(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter | None:
    known = _here.known
    if known is None or type(parameter) is not nn.Parameter or parameter.is_meta:
        return None
    if parameter.layout is not torch.strided:
        return None
    # One object stays one object, and a view into somebody else's storage stays what it is.
    meta: nn.Parameter | None = known.get(parameter)
    if meta is None:
        if parameter.untyped_storage().nbytes() != parameter.numel() * parameter.element_size():
            return None
        meta = nn.Parameter(
            torch.empty_strided(parameter.shape, parameter.stride(), dtype=parameter.dtype, device="meta"),
            requires_grad=parameter.requires_grad,
        )
        known[parameter] = meta
    return meta
