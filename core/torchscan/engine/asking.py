"""Asking the handlers: tier by tier, each metric on its own, and no mistake of one spoils another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn

from torchscan.contract.call import ModuleCall, itself
from torchscan.contract.states import Unavailable
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.estimates import BadResult, checked_state, checked_tokens, failure_state
from torchscan.engine.records import BITS, TOKENS, CallRecord, bits_of
from torchscan.plugins.resolution import Candidate, Resolver

__all__ = ["Asker"]

_DisableTorchDispatch: Final = torch._C._DisableTorchDispatch


class Asker:
    """Puts one call after another to the handlers that apply.

    Args:
        resolver: which handlers apply to a module type.
        call_estimated: told of every estimated call, when somebody listens.
        readable: gives a tensor whose values a handler may read.

    Attributes:
        asking: whether a handler or a listener is running; what it calls is not the model's.

    """

    def __init__(
        self,
        resolver: Resolver,
        call_estimated: Callable[[ModuleCall, CallRecord], None] | None,
        readable: Callable[[torch.Tensor], torch.Tensor | None] | None,
    ) -> None:
        self.asking = False
        self._resolver = resolver
        self._call_estimated = call_estimated
        self._readable = readable if readable is not None else itself
        self._memo: dict[Any, Any] = {}
        self._wanted: dict[int, frozenset[str]] = {}
        self._sources: dict[tuple[Candidate, int], dict[str, Candidate]] = {}
        self.owned: dict[type, tuple[int, int]] = {}

    def surely_owned(self, kind: type) -> tuple[int, int]:
        """Return the metrics that the first handler for `kind` owns whatever it answers, and those of the caller's."""
        plan = self._resolver.plan(kind)
        bits = bits_of(plan[0].handler.subtree_metrics) if plan else 0
        found = self.owned[kind] = (bits, bits if plan and plan[0].tier == "caller" else 0)
        return found

    def _names(self, bits: int) -> frozenset[str]:
        names = self._wanted.get(bits)
        if names is None:
            names = self._wanted[bits] = frozenset(name for name, bit in BITS.items() if bits & bit)
        return names

    def estimate(
        self,
        record: CallRecord,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
        wanted: int,
    ) -> None:
        """Let the handlers of a finished call say what they know of it.

        Args:
            record: takes the answers.
            module: the module that ran.
            args: its positional arguments.
            kwargs: its keyword arguments.
            output: what its `forward` returned.
            wanted: bits of the metrics that no ancestor answers for.

        """
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
            with self.aside():
                self._call_estimated(call, record)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Run what only listens: what it computes and calls is not the model's either."""
        self.asking = True
        try:
            with torch.no_grad(), _DisableTorchDispatch():
                yield
        finally:
            self.asking = False

    def _ask(self, record: CallRecord, candidate: Candidate, call: ModuleCall, wanted: int) -> int:
        """Let one handler estimate the call; return the bits it decided."""
        handler = candidate.handler
        self.asking = True
        grad = torch.is_grad_enabled()
        if grad:
            torch._C._set_grad_enabled(False)
        try:
            # Under this guard no operator of a handler reaches a dispatch mode, ours or the caller's.
            with _DisableTorchDispatch():
                result = handler.estimate(call)
                # A mapping may compute what it holds when it is read, and raise then.
                answers = result.items() if type(result) is dict else _items(result)
        except Exception as error:
            return self._refuse(record, candidate, wanted, "raised", f"{type(error).__name__}: {error}")
        finally:
            self.asking = False
            if grad:
                torch._C._set_grad_enabled(True)
        if answers is None:
            return self._refuse(
                record, candidate, wanted, "invalid", f"returned {type(result).__name__}, expected a mapping of metrics"
            )
        states = record.states
        first = not states
        decided = 0
        for name, value in answers:
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
        if first:
            record.source = candidate
            key = (candidate, decided)
            if (sources := self._sources.get(key)) is None:
                sources = self._sources[key] = dict.fromkeys(states, candidate)
            record.sources = sources
        else:
            self._add_sources(record, candidate, decided)
        if handler.subtree_metrics:
            owned = bits_of(handler.subtree_metrics) & wanted
            record.owned |= owned
            if candidate.tier == "caller":
                record.owned_by_caller |= owned
            missing = owned & ~decided
            for name in self._names(missing):
                states[name] = failure_state(candidate, "missing", f"{name}: the handler owns it but left it out")
            if missing:
                self._add_sources(record, candidate, missing)
            decided |= owned
        return decided

    def _refuse(self, record: CallRecord, candidate: Candidate, wanted: int, cause: str, message: str) -> int:
        """Make every metric that was asked for unavailable: what the handler would have said is unknown."""
        names = self._names(wanted & ~TOKENS)
        record.states.update((name, failure_state(candidate, cause, message)) for name in names)
        self._add_sources(record, candidate, wanted)
        record.owned |= bits_of(candidate.handler.subtree_metrics) & wanted
        # A relation is another matter: the row keeps the one that the next tier knows.
        return wanted & ~TOKENS

    def _add_sources(self, record: CallRecord, candidate: Candidate, bits: int) -> None:
        """Note who answered for some of the metrics; a record shares its sources with others until they differ."""
        record.sources = {**record.sources, **dict.fromkeys(self._names(bits & ~TOKENS), candidate)}
        record.source = None

    def _tokens(self, record: CallRecord, candidate: Candidate, call: ModuleCall, value: Any) -> None:
        try:
            record.tokens = checked_tokens(value, call)
        except BadResult as error:
            record.tokens = TokenDependencies.unavailable("invalid", f"token_dependencies: {error}")
        record.tokens_source = candidate


def _items(result: Any) -> list[tuple[Any, Any]] | None:
    """Return what a result holds, read once, or `None` where it is no mapping."""
    return list(result.items()) if isinstance(result, Mapping) else None
