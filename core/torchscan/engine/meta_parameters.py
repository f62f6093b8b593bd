"""Building a model without memory for its weights."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["parameters_on_meta"]


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Put every parameter that this thread registers on the meta device, before it is initialized.

    Unlike `torch.device("meta")`, everything else is made for real: masks, positions and constants keep their values,
    and a builder may read them. Modules register an uninitialized tensor and fill it afterwards, so its memory is never
    touched.
    """
    thread = threading.get_ident()
    known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def replace(module: nn.Module, name: str, parameter: nn.Parameter) -> nn.Parameter | None:
        if threading.get_ident() != thread or type(parameter) is not nn.Parameter or parameter.is_meta:
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

    handle = register_module_parameter_registration_hook(replace)  # type: ignore[arg-type] # annotated too narrowly
    try:
        yield
    finally:
        handle.remove()
