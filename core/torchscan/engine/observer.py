"""Observing the calls of one model: the hot path of a scan.

An observer hears that a call begins and ends, describes it, lets the handlers estimate it, and forgets its tensors.
Ownership and totals are decided afterwards, from the records alone (`torchscan.engine.assembly`).
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn

from torchscan.contract.call import ModuleCall, itself
from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import METRICS, Complete, Partial, Unavailable
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.estimates import BadResult, checked_state, checked_tokens, failure_state
from torchscan.engine.foreign_hooks import has_foreign_hooks, in_hook
from torchscan.engine.operators import OperatorCost
from torchscan.engine.tree import ModulePlace, ModuleTree
from torchscan.engine.values import describe, describe_call
from torchscan.plugins.resolution import Candidate, Resolver
from torchscan.report.schema import CallInput, Failed, Value

__all__ = ["CallRecord", "Observer"]

#: One bit per metric; token dependencies have the next one.
BITS: Final = {name: 1 << index for index, name in enumerate((*METRICS, "token_dependencies"))}
TOKENS: Final = BITS["token_dependencies"]
COUNTS: Final = BITS["module_flops"] | BITS["macs"] | BITS["dmas"]
_SPATIAL: Final = BITS["receptive_field"] | BITS["effective_stride"] | BITS["effective_padding"]
_DisableTorchDispatch: Final = torch._C._DisableTorchDispatch
_NO_CHAIN: Final = dict.fromkeys(
    ("receptive_field", "effective_stride", "effective_padding"), Unavailable("not_a_chain", expected=True)
)
_FAILED: Final = Failed()
_NO_INPUT: Final = CallInput()


class CallRecord:
    """One call, as far as it has been observed; holds no tensor."""

    __slots__ = (
        "call_index",
        "chain",
        "children",
        "covered",
        "covered_by_caller",
        "failed",
        "has_submodules",
        "hooked",
        "inherited",
        "input",
        "left",
        "may_own",
        "module_type",
        "opaque",
        "operators",
        "output",
        "owned",
        "owned_by_caller",
        "owners",
        "parent",
        "place",
        "replaced",
        "silenced",
        "sources",
        "states",
        "tokens",
        "tokens_source",
    )

    def __init__(self, place: ModulePlace, parent: CallRecord | None, covered: int) -> None:
        self.place = place
        self.parent = parent
        self.call_index = place.calls
        self.covered = covered  # metrics that an ancestor surely owns
        self.covered_by_caller = 0
        self.silenced = False  # the caller answers for every count
        self.may_own = 0  # metrics that its first handler owns whatever it answers
        self.owned = 0  # metrics that this call's handlers own for the subtree
        self.owned_by_caller = 0
        self.owners: list[CallRecord | None] | None = None
        self.children = 0
        self.failed = True  # until it returns
        self.has_submodules = False
        self.replaced = False  # `forward` is the instance's own
        self.opaque = False  # no operator was seen, and yet there is a new tensor
        self.module_type: type = type(place.module)
        self.input: CallInput = _NO_INPUT
        self.output: Value = _FAILED
        self.operators: dict[OperatorCost, int] = {}
        self.hooked: dict[OperatorCost, int] | None = None  # what foreign hooks ran in this call, where there are some
        self.left: tuple[nn.Module, ...] = ()  # children with foreign forward hooks, which run after they returned
        self.inherited: dict[str, list[CallRecord]] | None = None  # hooked calls below, of a metric that this call owns
        self.states: dict[str, Any] = {}  # int, or a state
        self.sources: dict[str, Candidate] = {}
        self.tokens: TokenDependencies | None = None
        self.tokens_source: Candidate | None = None
        self.chain: Chain | None = None

    def ran(self) -> Mapping[OperatorCost, int]:
        """Return every operator that ran in this call outside of its children, those of hooks included."""
        if not self.hooked:
            return self.operators
        together = dict(self.operators)
        for cost, count in self.hooked.items():
            together[cost] = together.get(cost, 0) + count
        return together


class Chain:
    """Follows whether the children of a call form one chain of tensors, and its spatial geometry.

    receptive field += (kernel - 1) * jump; padding += padding * jump; jump *= stride. Derivation:
    docs/derivations/spatial.md.
    """

    __slots__ = ("broken", "first", "last", "padding", "receptive_field", "spatial", "stride")

    def __init__(self) -> None:
        self.first: Any = None
        self.last: Any = None
        self.receptive_field: float = 1
        self.stride: float = 1
        self.padding: float = 0
        self.broken = False
        self.spatial = False  # a child has a geometry

    def link(self, args: tuple[Any, ...], output: Any, states: Mapping[str, Any]) -> None:
        """Add one child call."""
        field = states.get("receptive_field")
        stride = states.get("effective_stride")
        padding = states.get("effective_padding")
        source = args[0] if args else None
        if (
            type(field) is not int
            or type(stride) is not int
            or type(padding) is not int
            or not isinstance(source, torch.Tensor)
            or not isinstance(output, torch.Tensor)
            or (self.last is not None and self.last() is not source)
        ):
            self.broken = True
            return
        if self.last is None:
            self.first = weakref.ref(source)
        self.receptive_field += (field - 1) * self.stride
        self.padding += padding * self.stride
        self.stride *= stride
        self.last = weakref.ref(output)

    def ends(self, args: tuple[Any, ...], output: Any, operators: Mapping[OperatorCost, int]) -> bool:
        """Say whether everything the call did is this one chain, from its first argument to its output."""
        return (
            not self.broken
            and self.last is not None
            and self.last() is output
            and bool(args)
            and self.first() is args[0]
            and all(cost.info.kind == "ignored" for cost in operators)
        )


@functools.lru_cache(maxsize=256)
def _bits(names: frozenset[str]) -> int:
    return sum(BITS[name] for name in names)


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
    ) -> None:
        self.tree = tree
        self.records: list[CallRecord] = []
        self.stack: list[CallRecord] = []
        self.suspended = False
        self.diagnostics: list[Diagnostic] = []
        self._resolver = resolver
        self._requested = requested
        self._call_estimated = call_estimated
        self._readable = readable if readable is not None else itself
        self._progress = progress
        self._whole = whole
        # What runs outside of every call, where that too is the root's own: its hooks, a `__call__` of its own.
        self._outside: dict[OperatorCost, int] | None = {} if whole else None
        self._hooks_of: CallRecord | None = None  # the last outermost call, where its forward hooks follow
        self.elsewhere_called: dict[str, str] = {}  # path and type of modules that another thread called
        self._places = tree.places
        self._wanted: dict[int, frozenset[str]] = {}
        self._static: dict[type, tuple[int, int]] = {}
        self._spatial = requested & _SPATIAL
        self._memo: dict[Any, Any] = {}

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
        if self.suspended:
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
        if self.suspended:
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
            owned, by_caller = self._static.get(parent.module_type) or self._statically_owned(parent.module_type)
            parent.may_own = owned
            record = CallRecord(place, parent, parent.covered | owned)
            by_caller |= parent.covered_by_caller
            if by_caller:
                record.covered_by_caller = by_caller
                counts = self._requested & COUNTS
                record.silenced = bool(counts) and counts & ~by_caller == 0
        else:
            record = CallRecord(place, None, 0)
        if module._forward_pre_hooks and has_foreign_hooks(module._forward_pre_hooks):
            record.hooked = {}
        place.calls += 1
        self.records.append(record)
        stack.append(record)
        if self._progress is not None:
            self._progress(len(self.records))

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Hear that `forward` returned."""
        if self.suspended:
            return
        stack = self.stack
        if (not stack or stack[-1].place.module is not module) and not self._unwind(module):
            return
        record = stack.pop()
        record.failed = False
        if module._forward_hooks and has_foreign_hooks(module._forward_hooks):
            self._hooks_follow(record, module)
        record.module_type = type(module)
        if "forward" in module.__dict__:
            record.replaced = True
        if module._modules:
            record.has_submodules = any(child is not None for child in module._modules.values())
        record.input = describe_call(args, kwargs)
        record.output = describe(output)
        wanted = self._requested & ~record.covered
        if wanted:
            self._estimate(record, module, args, kwargs, output, wanted)
        if not record.operators and not record.children and not record.states:
            record.opaque = _appeared(module, args, kwargs, output)
        if self._spatial:
            self._link(record, args, output)

    def failed(self, module: nn.Module) -> None:
        """Hear that the call raised."""
        if not self.suspended and self._unwind(module):
            self.stack.pop()

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
        record = CallRecord(place, None, 0)
        place.calls += 1
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

    # -- estimates -----------------------------------------------------------------------------------------------

    def _statically_owned(self, kind: type) -> tuple[int, int]:
        """Return the metrics that the first handler for `kind` owns whatever it answers, and those of the caller's."""
        plan = self._resolver.plan(kind)
        bits = _bits(plan[0].handler.subtree_metrics) if plan else 0
        found = self._static[kind] = (bits, bits if plan and plan[0].tier == "caller" else 0)
        return found

    def _names(self, bits: int) -> frozenset[str]:
        names = self._wanted.get(bits)
        if names is None:
            names = self._wanted[bits] = frozenset(name for name, bit in BITS.items() if bits & bit)
        return names

    def _estimate(
        self,
        record: CallRecord,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
        wanted: int,
    ) -> None:
        call: ModuleCall | None = None
        for candidate in self._resolver.plan(record.module_type):
            # Where the caller answers for every count of a subtree, nobody else is asked about it.
            if record.silenced and candidate.tier != "native":
                continue
            names = self._wanted.get(wanted) or self._names(wanted)
            call = ModuleCall(module, args, kwargs, output, requested=names, readable=self._readable, memo=self._memo)
            wanted &= ~self._ask(record, candidate, call, wanted)
            if not wanted:
                break
        if self._call_estimated is not None:
            if call is None:
                call = ModuleCall(module, args, kwargs, output, requested=self._names(wanted))
            self._call_estimated(call, record)

    def _ask(self, record: CallRecord, candidate: Candidate, call: ModuleCall, wanted: int) -> int:
        """Let one handler estimate the call; return the bits it decided."""
        handler = candidate.handler
        self.suspended = True
        grad = torch.is_grad_enabled()
        if grad:
            torch._C._set_grad_enabled(False)
        try:
            # Under this guard no operator of a handler reaches a dispatch mode, ours or the caller's.
            with _DisableTorchDispatch():
                result = handler.estimate(call)
        except Exception as error:
            return self._refuse(record, candidate, wanted, "raised", f"{type(error).__name__}: {error}")
        finally:
            self.suspended = False
            if grad:
                torch._C._set_grad_enabled(True)
        if type(result) is not dict and not isinstance(result, Mapping):
            return self._refuse(
                record, candidate, wanted, "invalid", f"returned {type(result).__name__}, expected a mapping of metrics"
            )
        states, sources = record.states, record.sources
        decided = 0
        for name, value in result.items():
            bit = BITS.get(name) if type(name) is str else None
            if bit is None:
                return self._refuse(
                    record,
                    candidate,
                    wanted,
                    "invalid",
                    f"returned an unknown metric {name!r}; the metrics are {', '.join(BITS)}",
                )
            if not wanted & bit:
                continue
            decided |= bit
            if bit == TOKENS:
                self._tokens(record, candidate, call, value)
                continue
            if (type(value) is not int or value < 0) and type(value) is not Unavailable:
                try:
                    value = checked_state(name, value)
                except BadResult as error:
                    value = failure_state(candidate, "field", f"{name}: {error}")
            states[name] = value
            sources[name] = candidate
        if handler.subtree_metrics:
            owned = _bits(handler.subtree_metrics) & wanted
            record.owned |= owned
            if candidate.tier == "caller":
                record.owned_by_caller |= owned
            for name in self._names(owned & ~decided):
                states[name] = failure_state(candidate, "missing", f"{name}: the handler owns it but left it out")
                sources[name] = candidate
            decided |= owned
        return decided

    def _refuse(self, record: CallRecord, candidate: Candidate, wanted: int, cause: str, message: str) -> int:
        """Make every metric that was asked for unavailable: what the handler would have said is unknown."""
        for name in self._names(wanted & ~TOKENS):
            record.states[name] = failure_state(candidate, cause, message)
            record.sources[name] = candidate
        record.owned |= _bits(candidate.handler.subtree_metrics) & wanted
        # A relation is another matter: the row keeps the one that the next tier knows.
        return wanted & ~TOKENS

    def _tokens(self, record: CallRecord, candidate: Candidate, call: ModuleCall, value: Any) -> None:
        try:
            record.tokens = checked_tokens(value, call)
        except BadResult as error:
            record.tokens = TokenDependencies.unavailable("invalid", f"token_dependencies: {error}")
        record.tokens_source = candidate

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
                    states.update(_NO_CHAIN)
        parent = record.parent
        if parent is not None:
            chain = parent.chain
            if chain is None:
                chain = parent.chain = Chain()
            field = states.get("receptive_field")
            chain.spatial |= type(field) is int or field is _NO_CHAIN["receptive_field"]
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


def as_state(value: Any) -> Complete | Partial | Unavailable:
    """Return a recorded estimate as a state."""
    return Complete(value) if isinstance(value, (int, float)) else value
