"""Measure a model under torch.profiler and join each module's time with its multiply-accumulates.

    python scripts/profile_join.py scripts/base_transformer.py:base --peak 50e9

The first call warms up and is audited: which counts are complete, and why others are not. Where one formula covers a
whole module and everything inside, a second call counts the modules inside by themselves. The calls after these run
under the profiler with `Scanner().observe`, which watches the module calls and leaves the operators alone. A module's
range opens after torchscan has heard of the call and closes before anything is estimated, and what observing the calls
inside it took is subtracted, so a module's time is its own and that of the modules it calls.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.profiler import ProfilerActivity, profile, record_function

from torchscan import Complete, Partial, Report, Scanner, Unavailable
from torchscan.integrations.mfu import Rate, check_assumptions
from torchscan.report.grid import Column, grid
from torchscan.report.plot import CallTree, Covered, known
from torchscan.report.units import state
from torchscan.target import TargetError, build, load

PREFIX = "torchscan::"


@attrs.define
class Range:
    """One module call while it is measured; times in nanoseconds."""

    path: str
    parent: int | None
    observing: int = 0  # what observing this very call took
    inside: int = 0  # what observing the calls inside it took
    nanoseconds: int = 0


class Ranges:
    """Opens a profiler range around the `forward` of every module of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._paths = {id(module): path for path, module in model.named_modules()}
        self.ranges: list[Range] = []
        self._running: list[tuple[int, Any]] = []
        self._clock = 0

    @contextmanager
    def around(self, observation: Any) -> Iterator[None]:
        """Measure with `observation` at work, and without it in any range but those above."""
        # Hooks run in the order in which they came: two of ours before torchscan's, and two after.
        handles = [
            hooks.register_module_forward_pre_hook(self._hear),
            hooks.register_module_forward_hook(self._close, always_call=True),
        ]
        try:
            with observation:
                handles.append(hooks.register_module_forward_pre_hook(self._open))
                handles.append(hooks.register_module_forward_hook(self._heard, always_call=True))
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _hear(self, module: nn.Module, args: Any) -> None:
        self._clock = time.perf_counter_ns()

    def _open(self, module: nn.Module, args: Any) -> None:
        path = self._paths.get(id(module))
        if path is None:
            return
        parent = self._running[-1][0] if self._running else None
        index = len(self.ranges)
        self.ranges.append(Range(path, parent))
        entered = record_function(f"{PREFIX}{index}")
        entered.__enter__()
        self._running.append((index, entered))
        self.ranges[index].observing = time.perf_counter_ns() - self._clock

    def _close(self, module: nn.Module, args: Any, output: Any) -> None:
        self._clock = time.perf_counter_ns()
        if self._runs(module):
            self._running[-1][1].__exit__(None, None, None)

    def _heard(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self._runs(module):
            return
        index, _ = self._running.pop()
        mine = self.ranges[index]
        mine.observing += time.perf_counter_ns() - self._clock
        if mine.parent is not None:
            self.ranges[mine.parent].inside += mine.observing + mine.inside

    def _runs(self, module: nn.Module) -> bool:
        """Say whether the innermost range is one of `module`."""
        return bool(self._running) and self.ranges[self._running[-1][0]].path == self._paths.get(id(module))


@attrs.frozen
class Row:
    """One module call: how long it took, and what it did.

    Args:
        path: of the module.
        call_index: which call of that module in one call of the model, from 0.
        type: the class of the module.
        depth: how deep below the root it was called.
        seconds: how long it took, median over the measured calls of the model, everything that it calls included.
        own_seconds: without the modules that it calls.
        macs: multiply-accumulates of the call and everything in it.
        counted_in: the path of the module whose formula covers them, where that is a module above; `macs` is then what
            the call comes to by itself.
        peak: of the device, in MAC/s.
    """

    path: str
    call_index: int
    type: str
    depth: int
    seconds: float
    own_seconds: float
    macs: Any
    counted_in: str | None
    peak: float | None

    @property
    def rate(self) -> Rate:
        """Multiply-accumulates over time."""
        return Rate(self.macs, self.seconds, self.peak)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON-ready data."""

        def wire(found: Any) -> dict[str, Any]:
            if isinstance(found, Complete):
                return {"status": "complete", "value": found.value}
            if isinstance(found, Partial):
                return {"status": "partial", "known_value": found.known_value, "reason": found.reason}
            return {"status": "unavailable", "reason": found.reason}

        rate = self.rate
        return {
            "path": self.path, "call_index": self.call_index, "type": self.type, "seconds": self.seconds,
            "own_seconds": self.own_seconds,
            "counted_in": self.counted_in, "macs": wire(self.macs), "macs_per_second": wire(rate.per_second),
            "utilization": wire(rate.utilization),
        }  # fmt: skip


@attrs.frozen
class Measurement:
    """What `measure` found.

    Args:
        rows: one per module call of one call of the model, in execution order.
        report: the audited report, with the reason for everything that is not complete.
        clock: `cpu`, or the device whose kernels were timed.
        calls: how many calls of the model were measured.
        observing: what observing one module call took, in seconds, median; subtracted from the rows.
        remark: set where the measured calls did something else than the audited one.
    """

    rows: tuple[Row, ...]
    report: Report
    clock: str
    calls: int
    observing: float
    remark: str | None


def measure(
    model: nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    calls: int = 5,
    peak: float | None = None,
    functional: str = "audit",
    scanner: Scanner | None = None,
) -> Measurement:
    """Run `model` under the profiler, in the caller's mode and on the caller's device.

    Args:
        model: the model.
        args: the positional arguments of the call.
        kwargs: its keyword arguments.
        calls: how often the model is called and measured.
        peak: what the device can do at best, in MAC/s.
        functional: what the audit does with arithmetic in a composite's own body.
        scanner: which plugins count; by default the installed ones.
    """
    check_assumptions(peak, 0)
    kwargs = dict(kwargs or {})
    scanner = scanner or Scanner()
    with scanner.observe(model, metrics={"macs"}, functional=functional) as audited:
        model(*args, **kwargs)
    report = audited.report()
    inside = _inside(scanner, model, args, kwargs, report, functional)
    ranges = Ranges(model)
    observation = scanner.observe(model, metrics={"macs"}, functional="skip")
    device = next((p.device.type for p in model.parameters() if p.device.type != "cpu"), "cpu")
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiled, ranges.around(observation):
        for _ in range(calls):
            model(*args, **kwargs)
            if device == "cuda":
                torch.cuda.synchronize()
    timed = observation.report()
    _read(profiled, ranges.ranges, device)
    if [row.path for row in timed.layers] != [found.path for found in ranges.ranges]:
        raise RuntimeError("torchscan and the profiler saw different calls; was the model called in another thread?")
    rows, remark = _join(ranges.ranges, timed, report, inside, calls, peak)
    observing = median(found.observing for found in ranges.ranges) / 1e9
    return Measurement(tuple(rows), report, device, calls, observing, remark)


def _inside(
    scanner: Scanner, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], report: Report, functional: str
) -> dict[tuple[str, int], Any]:
    """Count, by itself, every call that the formula of a module above covers."""
    covered = {(row.path, row.call_index) for row in report.layers if "macs" in (row.metric_owners or {})}
    found: dict[tuple[str, int], Any] = {}
    if not covered:
        return found
    paths = {id(module): path for path, module in model.named_modules()}
    called: dict[str, int] = {}
    running: list[tuple[str, int]] = []
    scanning = False

    def enter(module: nn.Module, given: Any) -> None:
        if not scanning and (path := paths.get(id(module))) is not None:
            called[path] = called.get(path, -1) + 1
            running.append((path, called[path]))

    def leave(module: nn.Module, given: Any, named: Any, output: Any) -> None:
        nonlocal scanning
        if scanning or id(module) not in paths:
            return
        if (key := running.pop()) not in covered:
            return
        scanning = True
        try:
            alone = scanner.scan(
                module, args=given, kwargs=named, metrics={"macs"}, functional=functional, execution="fake"
            )
            found[key] = alone.totals.macs.state
        except Exception as error:  # one row without a number
            found[key] = Unavailable(f"{type(error).__name__}: {error}")
        finally:
            scanning = False

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, with_kwargs=True),
    ]
    try:
        model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _read(profiled: Any, ranges: list[Range], device: str) -> None:
    for event in profiled.events():
        if not event.name.startswith(PREFIX):
            continue
        found = ranges[int(event.name.removeprefix(PREFIX))]
        if device == "cuda":
            if "CPU" in str(event.device_type):  # a range has a shadow on the device; the host's one sums its kernels
                micro = getattr(event, "device_time_total", None)
                found.nanoseconds = int(1000 * (event.cuda_time_total if micro is None else micro))
        else:
            found.nanoseconds = max(int(1000 * event.time_range.elapsed_us()) - found.inside, 0)


def _join(
    ranges: list[Range],
    timed: Report,
    audited: Report,
    inside: Mapping[tuple[str, int], Any],
    calls: int,
    peak: float | None,
) -> tuple[list[Row], str | None]:
    """Return one row per module call of one call of the model."""
    roots = [index for index, found in enumerate(ranges) if found.parent is None]
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    children = [0] * len(ranges)
    for found in ranges:
        if found.parent is not None:
            children[found.parent] += found.nanoseconds
    counted: dict[str, int] = {}
    for index, found in enumerate(ranges):
        if found.parent is None:
            counted = {}
        call = counted[found.path] = counted.get(found.path, -1) + 1
        own = max(found.nanoseconds - children[index], 0)
        times.setdefault((found.path, call), []).append((found.nanoseconds / 1e9, own / 1e9))
    first = timed.layers[: roots[1] if len(roots) > 1 else None]
    measured, checked = CallTree(attrs.evolve(timed, layers=first)), CallTree(audited)
    sure = {(row.path, row.call_index): now for row, now in zip(checked.rows, checked.sizes("macs").total, strict=True)}
    rows = []
    same = len(checked.rows) == len(first)
    depths: list[int] = []
    for index, (layer, seen) in enumerate(zip(first, measured.sizes("macs").total, strict=True)):
        parent = measured.parents[index]
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        key = (layer.path, layer.call_index)
        macs: Any = sure.get(key)
        # The audit knows what is complete; it holds for a measured call that did the same.
        if macs is None or (not isinstance(macs, Covered) and known(macs) < known(seen)):
            same, macs = False, seen
        owner = (layer.metric_owners or {}).get("macs")
        if isinstance(macs, Covered):
            macs = inside.get(key, Unavailable("it was not called when the modules inside were counted"))
        both = times[key]
        rows.append(
            Row(
                layer.path,
                layer.call_index,
                layer.type,
                depths[index],
                median(pair[0] for pair in both),
                median(pair[1] for pair in both),
                macs,
                None if owner is None else owner.path,
                peak,
            )
        )
    remark = None
    if not same or len(ranges) != calls * len(first):
        remark = "The measured calls of the model were not all alike; the counts are those of the first."
    return rows, remark


def table(found: Measurement, *, depth: int | None = None, width: int | None = None) -> str:
    """Return the measurement as text."""
    rows = [row for row in found.rows if depth is None or row.depth <= depth]
    whole = found.rows[0].seconds or 1.0
    columns = [
        Column("module", ["  " * row.depth + (row.path.rpartition(".")[2] or "(model)") for row in rows], minimum=20),
        Column("type", [row.type for row in rows], rank=2),
        Column("time", [_time(row.seconds) for row in rows], right=True),
        Column("own", [_time(row.own_seconds) for row in rows], right=True, rank=1),
        Column("share", [f"{row.seconds / whole:.1%}" for row in rows], right=True),
        Column("MACs", [_cell(row.macs) for row in rows], right=True),
        Column("MAC/s", [_cell(row.rate.per_second) for row in rows], right=True),
    ]
    if found.rows[0].peak is not None:
        columns.append(Column("utilization", [_cell(row.rate.utilization, part=True) for row in rows], right=True))
    lines = grid(columns, width, color=False, ellipsis="~")[0]
    where = "wall time of the host" if found.clock == "cpu" else f"{found.clock} kernels that were launched in it"
    lines += [
        "",
        f"Time: {where}, median of {found.calls} calls of the model under torch.profiler.",
        "A module's time contains that of the modules it calls; `own` does not, so only `own` adds up.",
        f"Observing took {found.observing * 1e6:.0f} us per call and was subtracted; what the profiler took was not.",
        "MACs: of the call and everything in it. `>=` is a lower bound, `?` unknown.",
    ]
    if found.remark is not None:
        lines.append(found.remark)
    for diagnostic in found.report.diagnostics[:5]:
        lines.append(f"- {diagnostic.message}")
    if len(found.report.diagnostics) > 5:
        lines.append(f"- and {len(found.report.diagnostics) - 5} more")
    return "\n".join(lines) + "\n"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _cell(found: Any, *, part: bool = False) -> str:
    if isinstance(found, Complete) and part:
        return f"{found.value:.1%}"
    if isinstance(found, Partial) and part:
        return f">= {found.known_value:.1%}"
    return state(found)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure a target and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "target", help="package.module:callable or file.py:callable that returns (module, args, kwargs)"
    )
    parser.add_argument(
        "--peak", type=float, help="MAC/s that the device can do at best: half of a data sheet's FLOP/s"
    )
    parser.add_argument("--calls", type=int, default=5, help="how often the model is called and measured (default: 5)")
    parser.add_argument("--device", default=None, help="move the model and its arguments there: cuda")
    parser.add_argument("--depth", type=int, help="show calls down to this depth")
    parser.add_argument("--functional", choices=["audit", "estimate"], default="audit")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows there")
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.calls < 1:
        parser.error("--calls must be at least 1")
    try:
        model, args, kwargs = build(load(options.target), options.target)
    except TargetError as error:
        parser.error(str(error))
    if options.device is not None:
        from torch.utils._pytree import tree_map

        model = model.to(options.device)
        args, kwargs = tree_map(
            lambda value: value.to(options.device) if isinstance(value, torch.Tensor) else value, (args, kwargs)
        )
    model.eval()
    try:
        check_assumptions(options.peak, 0)
    except ValueError as error:
        parser.error(str(error))
    with torch.no_grad():
        found = measure(model, args, kwargs, calls=options.calls, peak=options.peak, functional=options.functional)
    print(table(found, depth=options.depth), end="")
    if options.json is not None:
        options.json.write_text(json.dumps([row.to_dict() for row in found.rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
