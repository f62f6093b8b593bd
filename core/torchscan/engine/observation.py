"""`Scanner.observe`: watch a caller's own loop without disturbing it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from types import TracebackType

from torchscan.contract.errors import IncompleteAnalysisError
from torchscan.engine import hooks
from torchscan.engine.observer import Observer
from torchscan.engine.operator_mode import OperatorMode
from torchscan.engine.operators import OperatorBook
from torchscan.engine.plan import Plan, incomplete
from torchscan.engine.records import CallRecord
from torchscan.engine.state import force_eager
from torchscan.report.schema import Inputs, Report

__all__ = ["Observation"]


class Observation:
    """The calls of one model in one thread, as a context manager.

    The caller runs its own loop, in its own mode and on its own device; the same operators are dispatched as without
    it, PyTorch's Transformer fast path included. Only calls of that model in the thread that entered are seen.

    Obtained from `torchscan.Scanner.observe`.
    """

    def __init__(
        self,
        observer: Observer,
        plan: Plan,
        book: OperatorBook,
        build: Callable[[Observer, Inputs], Report],
    ) -> None:
        self._observer = observer
        self._plan = plan
        self._book = book
        self._build = build
        self._stack: contextlib.ExitStack | None = None

    def __enter__(self) -> Observation:
        if self._stack is not None:
            raise RuntimeError("this observation is already running; make another one with Scanner.observe()")
        self._stack = contextlib.ExitStack()
        hooks.listen(self._observer)
        self._stack.callback(hooks.unlisten, self._observer)
        if self._plan.audits or self._plan.operator_view:
            self._stack.enter_context(force_eager(self._observer.tree))
            self._stack.enter_context(OperatorMode(self._observer, self._book))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._stack is not None
        self._stack.close()
        self._stack = None
        self._observer.forget()

    @property
    def calls(self) -> int:
        """How many calls of the whole model have finished."""
        root = self._observer.tree.root
        return sum(1 for record in self._finished() if record.place.module is root and record.parent is None)

    def _finished(self) -> list[CallRecord]:
        """Return the records of finished outermost calls; a call that is still running is not reported as failed."""
        records = self._observer.records
        if not self._observer.stack:
            return records
        return records[: records.index(self._observer.stack[0])]

    def report(self, *, strict: bool = False) -> Report:
        """Return the report of every finished call so far; may be asked for at any time.

        Raises:
            IncompleteAnalysisError: `strict` and a requested metric is incomplete.

        """
        records = self._finished()
        first = records[0] if records else None
        inputs = Inputs("provided") if first is None else Inputs("provided", first.input.args, first.input.kwargs)
        report = self._build(self._observer.until(len(records)), inputs)
        if strict and (why := incomplete(report, self._plan)):
            raise IncompleteAnalysisError(f"the analysis is incomplete: {why}", report)
        return report

    def clear(self) -> None:
        """Forget the finished calls, so that a long loop does not grow; later calls count from zero again."""
        del self._observer.records[: len(self._finished())]
        self._observer.calls = Counter(record.place.path for record in self._observer.records)
