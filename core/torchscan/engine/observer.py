"""Observing the calls of one model: the hot path of a scan.

An observer hears that a call begins and ends, describes it, lets the handlers estimate it, and forgets its tensors.
Ownership and totals are decided afterwards, from the records alone (`torchscan.engine.assembly`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn

from torchscan.contract.call import ModuleCall
from torchscan.engine.asking import Asker
from torchscan.engine.chain import NO_CHAIN, Chain
from torchscan.engine.foreign_hooks import has_foreign_hooks, in_hook
from torchscan.engine.operators import OperatorCost
from torchscan.engine.records import BITS, COUNTS, CallRecord
from torchscan.engine.tree import ModuleTree
from torchscan.engine.values import describe, describe_call
from torchscan.plugins.resolution import Resolver

__all__ = ["Observer"]

_SPATIAL: Final = BITS["receptive_field"] | BITS["effective_stride"] | BITS["effective_padding"]


class Observer:
    """Hears the calls of one model in one thread and keeps a record of each.

    Args:
        tree: the model.
        resolver: which handlers apply to a module type.
        requested: bits of the metrics wanted.
        call_estimated: told of every estimated call, when somebody listens.
        readable: gives a tensor whose values a handler may read.
        progress: told the number of calls so far.
        whole: the observer lives for one call of the root, so that all that runs belongs to it.
        estimating: operator formulas will count what no handler knows, so it matters whether a call dispatched any.

    """

    def __init__(
        self,
        tree: ModuleTree,
        resolver: Resolver,
        requested: int,
        *,
        call_estimated: Callable[[ModuleCall, CallRecord], None] | None = None,
        readable: Callable[[torch.Tensor], torch.Tensor | None] | None = None,
        progress: Callable[[int], None] | None = None,
        whole: bool = False,
        estimating: bool = False,
    ) -> None:
        self.tree = tree
        self.records: list[CallRecord] = []
        self.calls: dict[str, int] = {}  # per path
        self.stack: list[CallRecord] = []
        self.tally: dict[OperatorCost, int] | None = None  # that of the innermost call, if no hook can be at work in it
        self._requested = requested
        self._asker = Asker(resolver, call_estimated, readable)
        self._owned = self._asker.owned
        self._progress = progress
        self._whole = whole
        # What runs outside of every call, where that too is the root's own: its hooks, a `__call__` of its own.
        self._outside: dict[OperatorCost, int] | None = {} if whole else None
        self._hooks_of: CallRecord | None = None  # the last outermost call, where its forward hooks follow
        self.elsewhere_called: dict[str, str] = {}  # path and type of modules that another thread called
        self._places = tree.places
        self._spatial = requested & _SPATIAL
        self._estimating = estimating

    def module_types(self) -> set[type]:
        """Return the types of the modules that were called."""
        return {record.module_type for record in self.records}

    def until(self, count: int) -> Observer:
        """Return a view of the first `count` records, for a report while calls go on."""
        if count == len(self.records):
            return self
        view = copy.copy(self)
        view.records = self.records[:count]
        return view

    def current_operators(self) -> dict[OperatorCost, int] | None:
        """Return the tally of the innermost running call."""
        stack = self.stack
        if self._asker.asking:
            return None
        if not stack:
            last = self._hooks_of
            return last.hooked if last is not None and in_hook(last.place.module, ()) else self._outside
        record = stack[-1]
        if record.hooked is not None and in_hook(record.place.module, record.left):
            return record.hooked
        return record.operators

    # -- hooks ---------------------------------------------------------------------------------------------------

    def enter(self, module: nn.Module) -> None:
        """Hear that a call begins."""
        if self._asker.asking:
            return
        place = self._places.get(id(module))
        if place is None or place.module is not module:
            if not self.stack:
                return
            self.tree.grow()  # the model may have made the module during this call
            place = self._places.get(id(module))
            if place is None or place.module is not module:
                return
        stack = self.stack
        if stack:
            parent = stack[-1]
            parent.children += 1
            owned, by_caller = self._owned.get(parent.module_type) or self._asker.surely_owned(parent.module_type)
            parent.may_own = owned
            record = CallRecord(place, self._next_call(place.path), parent, parent.covered | owned)
            by_caller |= parent.covered_by_caller
            if by_caller:
                record.covered_by_caller = by_caller
                counts = self._requested & COUNTS
                record.silenced = bool(counts) and counts & ~by_caller == 0
        else:
            record = CallRecord(place, self._next_call(place.path), None, 0)
        if module._forward_pre_hooks and has_foreign_hooks(module._forward_pre_hooks):
            record.hooked = {}
        self.records.append(record)
        stack.append(record)
        self.tally = None if record.hooked is not None else record.operators
        if self._progress is not None:
            with self._asker.aside():
                self._progress(len(self.records))

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Hear that `forward` returned."""
        if self._asker.asking:
            return
        stack = self.stack
        if (not stack or stack[-1].place.module is not module) and not self._unwind(module):
            return
        record = stack.pop()
        record.failed = False
        if module._forward_hooks and has_foreign_hooks(module._forward_hooks):
            self._hooks_follow(record, module)
        self._point()
        record.module_type = type(module)
        if "forward" in module.__dict__:
            record.replaced = True
        if module._modules:
            record.has_submodules = any(child is not None for child in module._modules.values())
        record.input = describe_call(args, kwargs)
        record.output = describe(output)
        wanted = self._requested & ~record.covered
        if wanted:
            self._asker.estimate(record, module, args, kwargs, output, wanted)
        if self._estimating and not record.operators and not record.children and not record.states:
            record.opaque = _appeared(module, args, kwargs, output)
        if self._spatial:
            self._link(record, args, output)

    def failed(self, module: nn.Module) -> None:
        """Hear that the call raised."""
        if not self._asker.asking and self._unwind(module):
            self.stack.pop()
            self._point()

    def forget(self) -> None:
        """Leave the calls that were cut short by something that is no `Exception`, such as an interrupt."""
        self.stack.clear()
        self._point()

    def _point(self) -> None:
        """Point at the tally of the innermost call."""
        around = self.stack[-1] if self.stack else None
        self.tally = None if around is None or around.hooked is not None else around.operators

    def elsewhere(self, module: nn.Module) -> None:
        """Hear that another thread called a module: what happens in that call is out of sight."""
        if self._whole:
            place = self._places.get(id(module))
            if place is not None and place.module is module:
                self.elsewhere_called[place.path] = type(module).__name__
            elif "_is_replica" in module.__dict__:
                self.elsewhere_called.setdefault("", type(module).__name__)

    def finish(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Hear that the scanned call is over: what ran outside of every heard call was the root's own.

        Args:
            args: its positional arguments.
            kwargs: its keyword arguments.
            output: what it returned.

        """
        root = next((record for record in self.records if record.place.module is self.tree.root), None)
        if root is None or root.parent is not None:
            root = self._unheard(args, kwargs, output)
        elif self._outside:
            root.hooked = root.hooked or {}
            for cost, count in self._outside.items():
                root.hooked[cost] = root.hooked.get(cost, 0) + count

    def _unheard(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> CallRecord:
        """Record the call of a root whose `__call__` is its own, so that PyTorch told nobody of it."""
        module = self.tree.root
        place = self._places[id(module)]
        record = CallRecord(place, self._next_call(place.path), None, 0)
        record.failed = False
        record.has_submodules = any(child is not None for child in module._modules.values())
        record.input = describe_call(args, kwargs)
        record.output = describe(output)
        record.operators = dict(self._outside or {})
        for other in self.records:
            if other.parent is None:
                other.parent = record
                record.children += 1
        self.records.insert(0, record)
        return record

    def _hooks_follow(self, record: CallRecord, module: nn.Module) -> None:
        """Expect the forward hooks of a module that just returned, in the middle of its parent's call if it has one."""
        if not self.stack:
            self._hooks_of = around = record
        else:
            around = self.stack[-1]
            if not any(module is other for other in around.left):
                around.left = (*around.left, module)
        if around.hooked is None:
            around.hooked = {}

    def _next_call(self, path: str) -> int:
        """Count per path: a module put in another's place during a run goes on where that one stopped."""
        index = self.calls.get(path, 0)
        self.calls[path] = index + 1
        return index

    def _unwind(self, module: nn.Module) -> bool:
        """Make the record of `module` the top of the stack; calls above it ended without a word, so they failed."""
        stack = self.stack
        if stack and stack[-1].place.module is module:
            return True
        if not any(record.place.module is module for record in stack):
            return False
        while stack[-1].place.module is not module:
            stack.pop()
        return True

    # -- the spatial chain ---------------------------------------------------------------------------------------

    def _link(self, record: CallRecord, args: tuple[Any, ...], output: Any) -> None:
        chain = record.chain
        states = record.states
        if chain is not None:
            record.chain = None
            if "receptive_field" not in states:
                if chain.ends(args, output, record.ran()):
                    states["receptive_field"] = chain.receptive_field
                    states["effective_stride"] = chain.stride
                    states["effective_padding"] = chain.padding
                elif chain.spatial:  # paths that join may differ in geometry; no one number describes them
                    states.update(NO_CHAIN)
        parent = record.parent
        if parent is not None:
            chain = parent.chain
            if chain is None:
                chain = parent.chain = Chain()
            field = states.get("receptive_field")
            chain.spatial |= type(field) is int or field is NO_CHAIN["receptive_field"]
            if not chain.broken:
                chain.link(args, output, states)


def _appeared(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> bool:
    """Say whether an output tensor is neither an argument nor kept by the module."""
    kept = (*module._parameters.values(), *module._buffers.values(), *module.__dict__.values())
    known = {id(tensor) for tensor in (*_tensors((args, dict(kwargs))), *_tensors(kept))}
    return any(id(tensor) not in known for tensor in _tensors(output))


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)) and depth < 4:
        for item in value:
            yield from _tensors(item, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        for item in value.values():
            yield from _tensors(item, depth + 1)
