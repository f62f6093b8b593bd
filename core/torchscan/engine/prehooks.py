"""Forward pre-hooks that somebody put on a module: what they compute is not the module's own work.

A handler explains what its module's `forward` does. A pre-hook runs between the beginning of the call and `forward`,
where its operators would pass for explained ones.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from torch import nn

__all__ = ["has_foreign_hooks", "in_forward"]


def has_foreign_hooks(module: nn.Module) -> bool:
    """Say whether a module has forward pre-hooks other than PyTorch's own reparametrizations, which handlers know."""
    return any(not _home(hook).startswith("torch.") for hook in module._forward_pre_hooks.values())


def _home(hook: Any) -> str:
    function = getattr(hook, "__func__", hook)
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _running_codes() -> frozenset[CodeType]:
    # Where hooks run, PyTorch calls `forward` from a function inside `_call_impl`.
    outer = nn.Module._call_impl.__code__
    inner = [const for const in outer.co_consts if isinstance(const, CodeType) and const.co_name == "inner"]
    return frozenset(inner or [outer])


_CALLS = _running_codes()


def in_forward(module: nn.Module) -> bool:
    """Say whether the running code is inside the `forward` of `module` rather than inside a hook of it."""
    forward = getattr(module.forward, "__func__", module.forward)
    code = getattr(forward, "__code__", None)
    below = None
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _CALLS and frame.f_locals.get("self") is module:
            return below is None or code is None or below.f_code is code
        below, frame = frame, frame.f_back  # type: ignore[assignment]
    return True
