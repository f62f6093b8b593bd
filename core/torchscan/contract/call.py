"""`ModuleCall`: one completed invocation of one module."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from torchscan.contract.states import METRICS

if TYPE_CHECKING:
    import torch

__all__ = ["ALL_REQUESTS", "ModuleCall"]

#: Everything a scan can ask a handler for.
ALL_REQUESTS = frozenset((*METRICS, "token_dependencies"))


def itself(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor whose values may be read in its place: itself, or nothing on the meta device."""
    return None if tensor.is_meta else tensor


# Without slots, as it is built once per module call: twice as fast.
@attrs.frozen(eq=False, slots=False)
class ModuleCall:
    """One completed invocation of one `nn.Module`, as a handler sees it.

    Everything is the object of that invocation itself, not a copy: treat it as read-only and keep no reference.

    Attributes:
        module: the module that ran.
        args: its positional arguments, as passed.
        kwargs: its keyword arguments, as passed; defaults are not filled in.
        output: what its `forward` returned.
        requested: the metrics (and `"token_dependencies"`) this scan wants from this call; a handler may skip the
            others, and what it returns beyond them is ignored.
        memo: scratch space of this scan, shared by all handlers, for facts about modules that would be found again
            for every call. Keys should start with the handler's package; no tensor of a call may be kept in it.
        arguments: the same call bound to the signature of `module.forward`, with defaults applied.

    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any
    requested: frozenset[str] = attrs.field(default=ALL_REQUESTS, kw_only=True)
    memo: dict[Any, Any] = attrs.field(factory=dict, kw_only=True)
    _readable: Callable[[torch.Tensor], torch.Tensor | None] = attrs.field(default=itself, kw_only=True)

    @functools.cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The call bound to the `forward` signature, defaults applied; `*args` is a tuple, `**kwargs` a dict."""
        return bind(self.module.forward, self.args, self.kwargs)

    def readable(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor whose *values* may be read in place of `tensor`, or `None` when there is none.

        A meta tensor has no values. Under `execution="fake"` the caller's own masks keep theirs.
        """
        return self._readable(tensor)


def bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind a call to the signature of `function`, with defaults applied.

    Raises:
        TypeError: the call does not fit the signature.

    """
    target = getattr(function, "__func__", None)
    # `inspect` costs more than a whole formula; the plan of a plain function is kept.
    plan = _plan(target) if target is not None else None
    if plan is None or len(args) > len(plan[0]):
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    names, keywords, defaults, rest = plan
    arguments: dict[str, Any] = dict(zip(names, args, strict=False))
    for name in arguments:
        if name in kwargs:
            raise TypeError(f"multiple values for argument {name!r}")
    for name in (*names[len(args) :], *keywords):
        if name in kwargs:
            arguments[name] = kwargs[name]
        elif name in defaults:
            arguments[name] = defaults[name]
        else:
            raise TypeError(f"missing a required argument: {name!r}")
    unknown = {name: value for name, value in kwargs.items() if name not in arguments}
    if rest is not None:
        arguments[rest] = unknown
    elif unknown:
        raise TypeError(f"got an unexpected keyword argument {next(iter(unknown))!r}")
    return arguments


_Plan = tuple[tuple[str, ...], tuple[str, ...], dict[str, Any], str | None]


@functools.lru_cache(maxsize=1024)
def _plan(function: Callable[..., Any]) -> _Plan | None:
    """Return (names without self, keyword-only names, defaults, name of `**kwargs`), or `None` if not plain."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    kind = inspect.Parameter
    rest = next((p.name for p in parameters if p.kind is kind.VAR_KEYWORD), None)
    if any(p.kind not in (kind.POSITIONAL_OR_KEYWORD, kind.KEYWORD_ONLY, kind.VAR_KEYWORD) for p in parameters):
        return None
    return (
        tuple(p.name for p in parameters if p.kind is kind.POSITIONAL_OR_KEYWORD),
        tuple(p.name for p in parameters if p.kind is kind.KEYWORD_ONLY),
        {p.name: p.default for p in parameters if p.default is not kind.empty},
        rest,
    )
