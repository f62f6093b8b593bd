"""Observing the calls of one model: the hot path of a scan.

An observer hears that a call begins and ends, describes it, lets the handlers estimate it, and forgets its tensors.
Ownership and totals are decided afterwards, from the records alone (`torchscan.engine.assembly`).
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from torchscan.contract.call import ModuleCall
from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import METRICS, Complete, Partial, Unavailable
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.estimates import BadResult, checked_state, checked_tokens, failure_state
from torchscan.engine.operators import OperatorCost
from torchscan.engine.tree import ModulePlace, ModuleTree
from torchscan.engine.values import describe, describe_call
from torchscan.plugins.resolution import Candidate, Resolver
from torchscan.report.schema import CallInput, Failed, Value

__all__ = ["CallRecord", "Observer"]

#: One bit per metric; token dependencies have the next one.
BITS: Final = {name: 1 << index for index, name in enumerate((*METRICS, "token_dependencies"))}
TOKENS: Final = BITS["token_dependencies"]
_SPATIAL: Final = BITS["receptive_field"] | BITS["effective_stride"] | BITS["effective_padding"]
_FAILED: Final = Failed()
_NO_INPUT: Final = CallInput()


class CallRecord:
    """One call, as far as it has been observed; holds no tensor."""

    __slots__ = (
        "call_index",
        "chain",
        "children",
        "covered",
        "failed",
        "has_submodules",
        "input",
        "module_type",
        "operators",
        "output",
        "owned",
        "owners",
        "parent",
        "place",
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
        self.owned = 0  # metrics that this call's handlers own for the subtree
        self.owners: list[CallRecord | None] | None = None
        self.children = 0
        self.failed = True  # until it returns
        self.has_submodules = False
        self.module_type: type = type(place.module)
        self.input: CallInput = _NO_INPUT
        self.output: Value = _FAILED
        self.operators: dict[OperatorCost, int] = {}
        self.states: dict[str, Any] = {}  # int, or a state
        self.sources: dict[str, Candidate] = {}
        self.tokens: TokenDependencies | None = None
        self.tokens_source: Candidate | None = None
        self.chain: Chain | None = None


class Chain:
    """Follows whether the children of a call form one chain of tensors, and its spatial geometry.

    receptive field += (kernel - 1) * jump; padding += padding * jump; jump *= stride. Derivation:
    docs/derivations/spatial.md.
    """

    __slots__ = ("broken", "last", "padding", "receptive_field", "stride")

    def __init__(self) -> None:
        self.last: Any = None
        self.receptive_field: float = 1
        self.stride: float = 1
        self.padding: float = 0
        self.broken = False

    def link(self, args: tuple[Any, ...], output: Any, states: Mapping[str, Any]) -> None:
        """Add one child call."""
        if self.broken:
            return
        source = args[0] if args else None
        if not isinstance(source, torch.Tensor) or not isinstance(output, torch.Tensor):
            self.broken = True
        elif self.last is not None and self.last() is not source:
            self.broken = True
        else:
            field, stride, padding = (states.get(name) for name in METRICS[3:])
            if type(field) is int and type(stride) is int and type(padding) is int:
                self.receptive_field += (field - 1) * self.stride
                self.padding += padding * self.stride
                self.stride *= stride
                self.last = weakref.ref(output)
            else:
                self.broken = True


def _submodules(module: nn.Module) -> bool:
    return any(child is not None for child in module._modules.values())


class Observer:
    """Hears the calls of one model in one thread and keeps a record of each.

    Args:
        tree: the model.
        resolver: which handlers apply to a module type.
        requested: bits of the metrics wanted.
        call_estimated: told of every estimated call, when somebody listens.
        readable: gives a tensor whose values a handler may read.

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
    ) -> None:
        self.tree = tree
        self.records: list[CallRecord] = []
        self.stack: list[CallRecord] = []
        self.suspended = False
        self.diagnostics: list[Diagnostic] = []
        self._resolver = resolver
        self._requested = requested
        self._call_estimated = call_estimated
        self._readable = readable
        self._progress = progress
        self._places = tree.places
        self._wanted: dict[int, frozenset[str]] = {}
        self._static: dict[type, int] = {}

    def until(self, count: int) -> Observer:
        """Return a view of the first `count` records, for a report while calls go on."""
        if count == len(self.records):
            return self
        view = copy.copy(self)
        view.records = self.records[:count]
        return view

    def current_operators(self) -> dict[OperatorCost, int] | None:
        """Return the tally of the innermost running call."""
        return self.stack[-1].operators if self.stack else None

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
            covered = parent.covered | self._statically_owned(parent.module_type)
        else:
            parent, covered = None, 0
        record = CallRecord(place, parent, covered)
        place.calls += 1
        self.records.append(record)
        stack.append(record)
        if self._progress is not None:
            self._progress(len(self.records))

    def leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Hear that `forward` returned."""
        if self.suspended or not self._unwind(module):
            return
        record = self.stack.pop()
        record.failed = False
        record.module_type = type(module)
        record.has_submodules = _submodules(module)
        record.input = describe_call(args, kwargs)
        record.output = describe(output)
        wanted = self._requested & ~record.covered
        if wanted:
            self._estimate(record, module, args, kwargs, output, wanted)
        if self._requested & _SPATIAL:
            self._link(record, args, output)

    def failed(self, module: nn.Module) -> None:
        """Hear that the call raised."""
        if not self.suspended and self._unwind(module):
            self.stack.pop()

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

    def _statically_owned(self, kind: type) -> int:
        """Metrics that the first handler for `kind` owns whatever it answers."""
        bits = self._static.get(kind)
        if bits is None:
            plan = self._resolver.plan(kind)
            bits = sum(BITS[name] for name in plan[0].handler.subtree_metrics) if plan else 0
            self._static[kind] = bits
        return bits

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
        plan = self._resolver.plan(record.module_type)
        call: ModuleCall | None = None
        for candidate in plan:
            if self._readable is None:
                call = ModuleCall(module, args, kwargs, output, requested=self._names(wanted))
            else:
                call = ModuleCall(
                    module, args, kwargs, output, requested=self._names(wanted), readable=self._readable
                )
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
        try:
            # Under this guard no operator of a handler reaches a dispatch mode, ours or the caller's.
            with torch._C._DisableTorchDispatch():
                if grad:
                    with torch.no_grad():
                        result = handler.estimate(call)
                else:
                    result = handler.estimate(call)
        except Exception as error:
            return self._refuse(record, candidate, wanted, "raised", f"{type(error).__name__}: {error}")
        finally:
            self.suspended = False
        if not isinstance(result, Mapping):
            return self._refuse(
                record, candidate, wanted, "invalid", f"returned {type(result).__name__}, expected a mapping of metrics"
            )
        states, sources = record.states, record.sources
        decided = 0
        for name, value in result.items():
            bit = BITS.get(name) if type(name) is str else None
            if bit is None:
                return self._refuse(
                    record, candidate, wanted, "invalid", f"returned an unknown metric {name!r}; the metrics are {', '.join(BITS)}"
                )
            if not wanted & bit:
                continue
            decided |= bit
            if bit == TOKENS:
                self._tokens(record, candidate, call, value)
            elif type(value) is int and value >= 0:
                states[name] = value
                sources[name] = candidate
            else:
                try:
                    states[name] = checked_state(name, value)
                except BadResult as error:
                    states[name] = failure_state(candidate, "field", f"{name}: {error}")
                sources[name] = candidate
        owned = 0
        for name in handler.subtree_metrics:
            owned |= BITS[name]
        owned &= wanted
        if owned:
            record.owned |= owned
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
        for name in candidate.handler.subtree_metrics:
            record.owned |= BITS[name] & wanted
        # A relation is left to the next tier only when this handler never spoke about relations, which a failure hides.
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
        if chain is not None and record.children and "receptive_field" not in states:
            # Everything the call did is one chain of its children, from its first argument to its output.
            ends = not chain.broken and chain.last is not None and chain.last() is output
            if ends and not any(cost.info.kind != "ignored" for cost in record.operators):
                states["receptive_field"] = chain.receptive_field
                states["effective_stride"] = chain.stride
                states["effective_padding"] = chain.padding
        record.chain = None
        parent = record.parent
        if parent is not None:
            if parent.chain is None:
                parent.chain = Chain()
                parent.chain.last = None
            parent.chain.link(args, output, states)


def as_state(value: Any) -> Complete | Partial | Unavailable:
    """Return a recorded estimate as a state."""
    return Complete(value) if isinstance(value, int | float) else value
