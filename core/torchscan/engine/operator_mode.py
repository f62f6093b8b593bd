"""The operator mode: what the dispatcher executes, attributed to the innermost module call.

One mode serves the operator view and the audit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from torchscan.engine.operators import OperatorBook, OperatorCost, OperatorInfo

if TYPE_CHECKING:
    from torchscan.engine.guard import ModelGuard

__all__ = ["OperatorMode", "OperatorSink"]

#: PyTorch's own classes that run what was asked of them; a plain tensor is named where Python hands it in itself.
_KNOWN_CLASSES = frozenset(("Tensor", "Parameter", "Buffer", "FakeTensor", "FunctionalTensor", "NestedTensor"))


class OperatorSink(Protocol):
    """Where the mode puts what it saw.

    Attributes:
        tally: that of the innermost running call, where it is known without looking; else `None`.

    """

    tally: dict[OperatorCost, int] | None

    def current_operators(self) -> dict[OperatorCost, int] | None:
        """Return the tally of the innermost running call, or `None` when nothing of ours is running."""


def _any_nested(args: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_nested for value in args)


class _ProcessFlags:
    """PyTorch notes "some mode is active" in process-wide flags that overlapping threads leave set; put them back."""

    _NAMES = (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._before: dict[str, bool] = {}

    def enter(self) -> None:
        with self._lock:
            if self._active == 0:
                self._before = {n: getattr(_python_dispatch, n) for n in self._NAMES if hasattr(_python_dispatch, n)}
            self._active += 1

    def leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._active == 0:
                for name, value in self._before.items():
                    setattr(_python_dispatch, name, value)
                note = getattr(_python_dispatch, "set_is_in_mode_without_ignore_compile_internals", None)
                if note is not None and self._NAMES[2] in self._before:
                    note(self._before[self._NAMES[2]])


_flags = _ProcessFlags()


class OperatorMode(TorchDispatchMode):
    """Sees every operator of this thread and changes none.

    Args:
        sink: takes the tally.
        book: knows what operators cost.
        guard: is told before a parameter or buffer is written.
        execute: runs an operator in place of the dispatcher (`execution="fake"`).
        counting: whether operators are tallied, or only writes guarded.

    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that newer releases put around every mode imports the compiler and costs more than this mode.
        return False

    def __enter__(self) -> OperatorMode:
        _flags.enter()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        _flags.leave()

    def __init__(
        self,
        sink: OperatorSink,
        book: OperatorBook,
        guard: ModelGuard | None = None,
        execute: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None,
        *,
        counting: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sink = sink
        self._book = book
        self._known = book.infos
        self._guard = guard
        self._execute = execute
        self._counting = counting

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tally = self._sink.tally
        if tally is None:
            tally = self._sink.current_operators()
            if tally is None:
                return self._run(func, args, kwargs)
        # Keyed by identity: an overload lives as long as the process, and its own hash is Python code.
        info = self._known.get(id(func)) or self._book.info(func)
        if info.special or types:
            return self._run_special(info, func, types, args, kwargs, tally)
        if self._execute is not None:
            out = self._execute(func, args, kwargs or {})
        elif kwargs:
            out = info.run(*args, **kwargs)
        else:
            out = info.run(*args)
        if self._counting:
            cost = info.free or self._book.cost(info, args, kwargs, out)
            tally[cost] = tally.get(cost, 0) + 1
        return out

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._execute is not None:
            return self._execute(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _run_special(
        self, info: OperatorInfo, func: Any, types: Any, args: Any, kwargs: Any, tally: dict[OperatorCost, int]
    ) -> Any:
        """Run an operator that is answered elsewhere, taken apart, or writes in place."""
        kwargs = kwargs or {}
        if info.forbidden:
            return self._run(func, args, kwargs)
        # Composite operators reach a mode whole in inference mode only; a tensor class with operators of its own, such
        # as a nested one, need not survive a dense decomposition.
        if (
            info.decompose
            and self._counting
            and torch.is_inference_mode_enabled()
            and not _any_nested(args)
            and all(kind.__name__ == "FakeTensor" for kind in types)
        ):
            with self:
                out = _take_apart(func, args, kwargs)
            if out is not NotImplemented:
                return out
        if self._guard is not None and not (info.trains and len(args) > 5 and args[5] is False):
            for position, name in info.writes:
                self._guard.before_write(args[position] if position < len(args) else kwargs.get(name))
        out = self._run(func, args, kwargs)
        if self._counting:
            if info.name == "aten.copy_" and _fills(args):
                info = self._book.info(torch.ops.aten.fill_.Tensor)
            if any(kind.__name__ not in _KNOWN_CLASSES for kind in types):
                cost = self._book.unseen(info)
            else:
                cost = info.free or self._book.cost(info, args, kwargs, out)
            tally[cost] = tally.get(cost, 0) + 1
        return out


def _take_apart(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a composite operator as PyTorch does outside of inference mode.

    `decompose` prefers what was written in Python for the compiler, which takes other views and copies.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
        return func._op_dk(key, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def _fills(args: tuple[Any, ...]) -> bool:
    """Say whether an assignment writes one number everywhere: on the CPU that is a fill, elsewhere a copy."""
    target, source = args[:2]
    if type(source) is not torch.Tensor or source.layout is not torch.strided or source.is_nested:
        return False
    return target.dim() > 0 and not any(source.stride())


def _skip_in_compiler() -> None:
    """Keep the compiler, which some operators start by themselves, from tracing the mode.

    PyTorch's own way (`torch._dynamo.disable`) imports the compiler and wraps every call; this marks the code alone.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    codes = [
        method.__code__ for method in (OperatorMode.__torch_dispatch__, OperatorMode._run, OperatorMode._run_special)
    ]
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        for code in codes:
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    elif hasattr(frames, "skip_code"):  # releases before 2.7
        for code in codes:
            frames.skip_code(code)


_skip_in_compiler()
