"""Sample calls, and running one the way a scan would."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import torch
from torch import nn

from torchscan.contract.call import ModuleCall
from torchscan.contract.handler import HandlerRegistration
from torchscan.contract.hookspecs import hookimpl
from torchscan.engine.scanner import Scanner
from torchscan.report.schema import Report

__all__ = ["Calls", "ConformanceError", "Sample", "ask", "completed", "samples", "scanned", "subject"]


class ConformanceError(AssertionError):
    """A handler breaks the contract; the message says how."""


Built: TypeAlias = tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]


@attrs.frozen(eq=False)
class Sample:
    """One call to check a handler with.

    Args:
        make: returns `(module, args, kwargs)`, fresh on each call where that matters.
        name: how results and test ids name it.
        supported: whether the handler is meant to answer with numbers; where not, it must say why.

    """

    make: Callable[[], Built]
    name: str = "call"
    supported: bool = True


CallItem: TypeAlias = Sample | tuple[Any, ...] | Callable[[], Any]
Calls: TypeAlias = Iterable[CallItem] | Mapping[str, CallItem]


def samples(calls: Calls) -> tuple[Sample, ...]:
    """Return the caller's items as samples with distinct names.

    Args:
        calls: `Sample` objects, `(module, args)` or `(module, args, kwargs)` tuples, or functions that return such a
            tuple; a mapping names them.

    Raises:
        TypeError: an item is none of these.
        ValueError: there is no call, or two have one name.

    """
    if isinstance(calls, Mapping):
        pairs: list[tuple[str | None, CallItem]] = list(calls.items())
    else:
        pairs = [(None, item) for item in calls]
    found = tuple(_sample(name, item, index) for index, (name, item) in enumerate(pairs))
    if not found:
        raise ValueError("there is no call to check the handler with")
    names = [sample.name for sample in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two calls have the name {twice[0]!r}; pass a mapping to name them")
    return found


def _sample(name: str | None, item: CallItem, index: int) -> Sample:
    if isinstance(item, Sample):
        return item if name is None else attrs.evolve(item, name=name)
    if isinstance(item, tuple):
        built = _built(item)
        return Sample(lambda: built, name or f"{type(built[0]).__name__}-{index}")
    if callable(item) and not isinstance(item, nn.Module):
        return Sample(lambda: _built(item()), name or str(getattr(item, "__name__", f"call-{index}")))
    raise TypeError(f"a call is a Sample, a tuple (module, args, kwargs) or a function returning one, got {item!r}")


def _built(item: Any) -> Built:
    if isinstance(item, tuple) and 2 <= len(item) <= 3 and isinstance(item[0], nn.Module):
        args, kwargs = item[1], item[2] if len(item) == 3 else {}
        if isinstance(args, tuple | list) and isinstance(kwargs, Mapping):
            return item[0], tuple(args), kwargs
    raise TypeError(f"a call must be (module, args) or (module, args, kwargs), got {type(item).__name__}")


def subject(handler: Any, module: nn.Module) -> HandlerRegistration:
    """Return a handler as a registration that applies to `module`."""
    if isinstance(handler, HandlerRegistration):
        return handler
    return HandlerRegistration(type(module), handler, match="exact")


@contextlib.contextmanager
def completed(sample: Sample) -> Iterator[ModuleCall]:
    """Run the sample in evaluation mode without gradients and give the finished call."""
    module, args, kwargs = sample.make()
    training = [(child, child.training) for child in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            output = module(*args, **kwargs)
            yield ModuleCall(module, args, kwargs, output)
    finally:
        for child, flag in training:
            child.training = flag


def ask(handler: Any, call: ModuleCall) -> Mapping[str, Any]:
    """Ask a handler as a scan does: no gradients, operator counting suspended.

    Raises:
        ConformanceError: it raised, or returned no mapping.

    """
    estimate = handler.handler if isinstance(handler, HandlerRegistration) else handler
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        try:
            result = estimate(call)
        except Exception as error:
            raise ConformanceError(f"the handler raised {type(error).__name__}: {error}") from error
    if not isinstance(result, Mapping):
        raise ConformanceError(f"the handler returned {type(result).__name__}, not a mapping of metrics")
    return result


@attrs.frozen(eq=False)
class _Plugin:
    registrations: tuple[HandlerRegistration, ...]

    @hookimpl
    def torchscan_register_handlers(self) -> tuple[HandlerRegistration, ...]:
        return self.registrations


def scanned(sample: Sample, *registrations: HandlerRegistration, **options: Any) -> Report:
    """Scan the sample with these handlers and no others."""
    module, args, kwargs = sample.make()
    plugin = _Plugin(registrations)
    return Scanner([plugin], autoload=False).scan(module, args=args, kwargs=kwargs, **options)
