"""Forward hooks that somebody put on a module: what they compute is not the module's own work.

A handler explains what its module's `forward` does. A pre-hook runs between the beginning of the call and `forward`,
and the forward hooks of a child run in the middle of its parent's; there their operators would pass for explained ones.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from torch import nn

__all__ = ["has_foreign_hooks", "in_hook"]


def has_foreign_hooks(hooks: Mapping[int, Any]) -> bool:
    """Say whether there are hooks other than PyTorch's own reparametrizations, which handlers know."""
    return any(not _home(hook).startswith("torch.") for hook in hooks.values())


def _home(hook: Any) -> str:
    function = getattr(hook, "__func__", hook)
    return str(getattr(function, "__module__", None) or type(function).__module__)


def _running_codes() -> frozenset[CodeType]:
    # Where hooks run, PyTorch calls `forward` from a function inside `_call_impl`.
    outer = nn.Module._call_impl.__code__
    inner = [const for const in outer.co_consts if isinstance(const, CodeType) and const.co_name == "inner"]
    return frozenset(inner or [outer])


_CALLS = _running_codes()


def in_hook(module: nn.Module, left: Sequence[nn.Module]) -> bool:
    """Say whether the running code is inside a hook rather than inside the `forward` of `module`.

    Args:
        module: the innermost module whose call has not ended.
        left: modules with forward hooks whose `forward` ended inside this call; if one of them is still on the stack,
            its hooks are running.

    """
    forward = getattr(module.forward, "__func__", module.forward)
    code = getattr(forward, "__code__", None)
    below = None
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _CALLS:
            caller = frame.f_locals.get("self")
            if caller is module:
                return below is not None and code is not None and below.f_code is not code
            if any(caller is other for other in left):
                return True
        below, frame = frame, frame.f_back  # type: ignore[assignment]
    return False
