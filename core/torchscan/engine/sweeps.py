"""`torchscan.sweep`: many configurations of a model, on any executor, resumable. Imports torch only to run."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from torchscan.contract.errors import ReportError, TorchScanError
from torchscan.engine.sweep_grid import (
    check_dtype,
    check_names,
    check_sendable,
    checked_sizes,
    grid_values,
    name_of,
)
from torchscan.engine.sweep_job import Job, run
from torchscan.report.sweep_rows import RowFile, SweepRow, canonical, read_rows

if TYPE_CHECKING:
    import torch

__all__ = ["Sweep", "SweepError", "SweepRow", "read_rows", "sweep"]

#: What a row has room for; the rest of a full scan would be thrown away.
_METRICS: Final = ("dmas", "macs", "module_flops", "operator_flops")
#: Submitted at once to an executor that does not say how many workers it has.
_IN_FLIGHT: Final = 256
#: Seconds after which an executor that says nothing is looked at.
_PATIENCE: Final = 1.0

ExecutorSource: TypeAlias = Executor | Callable[[], Executor]


class SweepError(TorchScanError, RuntimeError):
    """A sweep cannot begin or go on; what was finished has been yielded, and is stored where there is an `output`."""


def sweep(
    build: Callable[..., Any] | str,
    grid: Mapping[str, Iterable[Any]],
    *,
    executor: ExecutorSource | None = None,
    output: str | os.PathLike[str] | None = None,
    inputs: Callable[..., Any] | str | Sequence[Sequence[int]] | None = None,
    dtype: torch.dtype | str | None = None,
    execution: Literal["fake", "real"] = "fake",
    parameters: Literal["auto", "meta", "real"] = "auto",
    functional: str = "audit",
    metrics: Iterable[str] | None = None,
    custom_modules: Mapping[Any, Any] | None = None,
    disabled: Iterable[str] = (),
    retry_errors: bool = False,
) -> Sweep:
    """Build and scan every configuration of a grid.

    Args:
        build: called as `build(**config)`; returns a module, or `(module, args, kwargs)`. Give a target such as
            `"package.module:callable"`, or a function of a module, where other processes must find it.
        grid: name of a parameter of `build` (or `inputs`) to the values it takes; every combination is scanned.
        executor: a `concurrent.futures.Executor`, which stays the caller's, or a callable that returns a new one: with
            that, a sweep survives the death of its workers. `None` runs in this process.
        output: a JSON-lines file that gets each row as it finishes. Rows that it already holds are yielded from there
            and not scanned again.
        inputs: for a builder that returns a module alone. A callable (or its target), called with the part of the
            configuration that its parameters name, that returns the positional arguments, the keyword arguments, or
            both; or the sizes of generated inputs, batch included: `[(2, 64, 512)]`.
        dtype: of generated inputs; by default that of the model's parameters.
        execution: `"fake"` computes nothing; `"real"` runs the models.
        parameters: where a fake run's parameters are made: `"meta"` gives them no memory; `"real"` builds the model as
            it is; `"auto"` builds on meta, and for real where the builder reads its own parameters.
        functional: as in `scan`.
        metrics: the totals to compute; by default all of them.
        custom_modules: as in `scan`.
        disabled: names of installed plugins to leave out.
        retry_errors: scan configurations again whose stored row is an error.

    Returns:
        An iterator of `SweepRow`, stored ones first and then as they finish. A configuration that raises is a row with
        its error. Leaving the loop early, or closing the iterator, cancels what has not begun.

    Raises:
        ValueError: a name of the grid is no parameter, a required parameter has no values, or an option has an unknown
            value; before anything runs.
        TypeError: the grid has the wrong form, or something in it cannot be stored or sent; before anything runs.
        SweepError: `output` holds something else or cannot be written; while iterating: the executor died, or the disk
            is full. Finished rows are yielded before it is raised, and running the same sweep again resumes it.

    Example:
        ```python
        for row in torchscan.sweep("models:build", {"d_model": [256, 512], "num_layers": [2, 4]}, output="out.jsonl"):
            print(row.config, row.totals and row.totals.macs)
        ```

    """
    for name, value, known in (
        ("execution", execution, ("fake", "real")),
        ("parameters", parameters, ("auto", "meta", "real")),
        ("functional", functional, ("audit", "estimate", "skip")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    maker = inputs if isinstance(inputs, str) or callable(inputs) else None
    sizes = None if inputs is None or maker is not None else checked_sizes(inputs)
    kind = None if dtype is None else str(dtype).removeprefix("torch.")
    if kind is not None:
        if sizes is None:
            raise ValueError("dtype= applies to generated inputs only; give inputs= as sizes")
        check_dtype(kind)
    if isinstance(metrics, str):
        raise TypeError(f"metrics must be a collection of names such as {{{metrics!r}}}, got a string")
    wanted = _METRICS if metrics is None else tuple(sorted(set(metrics)))
    if unknown := [name for name in wanted if name not in _METRICS]:
        raise ValueError(f"metrics names no total: {', '.join(map(str, unknown))}; choose from {', '.join(_METRICS)}")
    values = grid_values(grid)
    check_names(values, build, maker)
    left_out = tuple(sorted(disabled))
    settings = {
        "execution": execution,
        "functional": functional,
        "metrics": list(wanted),
        "inputs": name_of(maker) if sizes is None and maker is not None else sizes and [list(size) for size in sizes],
        "dtype": kind,
        "disabled": list(left_out),
        "custom_modules": sorted(name_of(kind) for kind in custom_modules or ()),
    }
    job = Job(
        build,
        name_of(build),
        maker if sizes is None else sizes,
        kind,
        parameters,
        {
            "execution": execution,
            "functional": functional,
            "metrics": wanted,
            "custom_modules": custom_modules,
        },
        left_out,
        settings,
    )
    check_sendable(job, executor)
    configs = [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]
    return Sweep(job, configs, executor, output, retry_errors=retry_errors)


class _Lost:
    """A configuration whose executor died, or dropped it."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Sweep(Iterator[SweepRow]):
    """The rows of a sweep as they finish; made by `torchscan.sweep`.

    Attributes:
        total: how many configurations the grid has.
        resumed: how many of them were found in the output file.

    """

    def __init__(
        self,
        job: Job,
        configs: Sequence[dict[str, Any]],
        executor: ExecutorSource | None,
        output: str | os.PathLike[str] | None,
        *,
        retry_errors: bool,
    ) -> None:
        self._job = job
        self._executor = executor
        self._output = output
        self._file: RowFile | None = None
        self._write_error: OSError | None = None
        self._found: list[SweepRow] = []
        todo: dict[str, dict[str, Any]] = {}
        for index, config in enumerate(configs):
            todo.setdefault(self._key(config, index), config)
        self.total = len(todo)
        if output is not None:
            self._open(output)
            assert self._file is not None
            stored = {row.key: row for row in self._file.rows if retry_errors is False or row.error is None}
            self._found = [stored[key] for key in todo if key in stored]
            todo = {key: config for key, config in todo.items() if key not in stored}
        self.resumed = len(self._found)
        self._todo = deque(todo.values())
        self._rows = self._iterate()

    def _key(self, config: dict[str, Any], index: int) -> str:
        try:
            return canonical({"build": self._job.name, "settings": self._job.settings, "config": config})
        except (TypeError, ValueError) as error:
            if self._output is None:
                return str(index)
            raise TypeError(
                f"output= keeps configurations as JSON, which has no form for one of {config!r:.120} ({error}); give "
                "numbers, strings and lists, and let the builder translate them"
            ) from None

    def _open(self, output: str | os.PathLike[str]) -> None:
        try:
            self._file = RowFile(output)
        except ReportError as error:
            raise SweepError(f"{error}; give another output, or move that file away") from None
        except OSError as error:
            raise SweepError(f"cannot write {os.fspath(output)}: {error.strerror or error}") from error

    def __iter__(self) -> Sweep:
        return self

    def __next__(self) -> SweepRow:
        return next(self._rows)

    def __enter__(self) -> Sweep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what has not begun; rows that have finished are kept in the file."""
        self._rows.close()

    def _iterate(self) -> Generator[SweepRow, None, None]:
        yield from self._found
        yield from self._here() if self._executor is None else self._elsewhere()

    def _keep(self, row: SweepRow) -> None:
        """Store a row that has finished; a failure is kept for whoever iterates."""
        if self._file is None or self._write_error is not None:
            return
        try:
            self._file.append(row)
        except OSError as error:
            self._write_error = error

    def _check_written(self) -> None:
        if (error := self._write_error) is not None:
            assert self._file is not None
            raise SweepError(
                f"cannot write {self._file.path}: {error.strerror or error}; the rows before are in it, and the same "
                "sweep resumes there"
            ) from error

    # -- in this process -----------------------------------------------------------------------------------------

    def _here(self) -> Iterator[SweepRow]:
        while self._todo:
            row = run(self._job, self._todo.popleft())
            self._keep(row)
            yield row
            self._check_written()

    # -- on an executor ------------------------------------------------------------------------------------------

    def _elsewhere(self) -> Iterator[SweepRow]:
        suspects: deque[dict[str, Any]] = deque()  # were running when a worker died; each is tried by itself
        while self._todo or suspects:
            with self._pool() as pool:
                lost, cause = yield from self._on(pool, suspects)
            self._check_written()
            if cause is None:
                continue
            if isinstance(self._executor, Executor) or not lost:
                raise SweepError(_died(cause, lost, len(self._todo), self._output)) from cause.error
            if len(lost) == 1:
                error = cause.error or RuntimeError("the executor dropped it")
                row = self._job.failed(lost[0], error, "executor", 0.0)
                self._keep(row)
                yield row
            else:
                suspects.extend(lost)

    @contextlib.contextmanager
    def _pool(self) -> Iterator[Executor]:
        if isinstance(self._executor, Executor):
            yield self._executor
            return
        assert self._executor is not None
        pool = self._executor()
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _on(
        self, pool: Executor, suspects: deque[dict[str, Any]]
    ) -> Generator[SweepRow, None, tuple[list[dict[str, Any]], _Lost | None]]:
        """Run on one pool until everything is done or the pool is dead; return what was lost, and why."""
        done: queue.SimpleQueue[tuple[Future[SweepRow], SweepRow | _Lost]] = queue.SimpleQueue()
        flying: dict[Future[SweepRow], dict[str, Any]] = {}
        lost: list[dict[str, Any]] = []
        cause: _Lost | None = None
        limit = 2 * workers if isinstance(workers := getattr(pool, "_max_workers", None), int) else _IN_FLIGHT

        def finished(future: Future[SweepRow], config: dict[str, Any]) -> None:
            # In the executor's own thread: what has finished is on the disk before anybody asks for it.
            result = self._result(future, config)
            if isinstance(result, SweepRow):
                self._keep(result)
            done.put((future, result))

        try:
            while True:
                while cause is None and self._write_error is None and (suspects or self._todo):
                    source, room = (suspects, 1) if suspects else (self._todo, limit)
                    if len(flying) >= room:
                        break
                    try:
                        future = pool.submit(run, self._job, source[0])
                    except Exception as error:  # broken, or shut down
                        cause = _Lost(error)
                        break
                    config = source.popleft()
                    flying[future] = config
                    future.add_done_callback(functools.partial(finished, config=config))
                if not flying:
                    return lost, cause
                try:
                    future, result = done.get(timeout=_PATIENCE)
                except queue.Empty:
                    if _closed(pool):  # its tasks stay pending for ever
                        lost.extend(flying.values())
                        flying.clear()
                        cause = cause or _Lost(None)
                    continue
                config = flying.pop(future)
                if isinstance(result, SweepRow):
                    yield result
                else:
                    cause = cause or result
                    lost.append(config)
        finally:
            for future in flying:
                future.cancel()

    def _result(self, future: Future[SweepRow], config: dict[str, Any]) -> SweepRow | _Lost:
        if future.cancelled():
            return _Lost(None)
        error = future.exception()
        if error is None:
            return future.result()
        # An interrupt is nothing that the configuration did.
        if isinstance(error, BrokenExecutor | CancelledError) or not isinstance(error, Exception):
            return _Lost(error)
        return self._job.failed(config, error, "executor", 0.0)


def _closed(pool: Executor) -> bool:
    """Say whether this is an executor of Dask whose client is closed; others tell their tasks so."""
    return getattr(getattr(pool, "_client", None), "status", None) in ("closed", "closing")


def _died(cause: _Lost, lost: Sequence[Mapping[str, Any]], waiting: int, output: Any) -> str:
    why = "it dropped its tasks" if cause.error is None else f"{type(cause.error).__name__}: {cause.error}"
    shown = "; ".join(map(str, lost[:4])) + (" ..." if len(lost) > 4 else "")
    running = f" It was running, or about to run, {shown}." if lost else ""
    where = (
        f" Finished rows are in {os.fspath(output)}; the same sweep with a new executor resumes there."
        if output is not None
        else " Give output= to be able to resume."
    )
    return (
        f"the executor died ({why.rstrip('. ')}) with {len(lost) + waiting} configurations unfinished.{running}{where} "
        "Give executor= a callable that returns a new executor, and one lost configuration becomes an error row."
    )
