"""One configuration of a sweep: what is sent to a worker, and what the worker does with it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from torchscan._version import __version__
from torchscan.report.sweep_rows import SweepFailure, SweepRow
from torchscan.target import TargetError, load
from torchscan.target import build as call_target

if TYPE_CHECKING:
    from torch import nn

    from torchscan.engine.scanner import Scanner
    from torchscan.report.schema import Report

__all__ = ["Job", "run"]

Builder = Callable[..., Any] | str


@attrs.frozen
class Job:
    """What is the same for every configuration.

    Args:
        build: the builder, or its target.
        name: how rows name the builder.
        inputs: makes the arguments of the call from the configuration, or its target; or the sizes of generated ones.
        dtype: of generated inputs, by name.
        parameters: `auto`, `meta` or `real`.
        options: of `Scanner.scan`.
        disabled: plugins to leave out.
        settings: what rows say about all this.

    """

    build: Builder
    name: str
    inputs: Builder | tuple[tuple[int, ...], ...] | None
    dtype: str | None
    parameters: str
    options: Mapping[str, Any]
    disabled: tuple[str, ...]
    settings: Mapping[str, Any]

    def failed(self, config: Mapping[str, Any], error: BaseException, stage: Any, seconds: float) -> SweepRow:
        """Return the row of a configuration that raised."""
        torch = sys.modules.get("torch")  # where the work is elsewhere, this process may do without
        return SweepRow(
            config=config,
            totals=None,
            error=SweepFailure(type(error).__name__, str(error).strip() or type(error).__name__, stage),
            seconds=round(seconds, 6),
            build=self.name,
            settings=self.settings,
            torchscan_version=__version__,
            torch_version=None if torch is None else str(torch.__version__),
        )


def run(job: Job, config: Mapping[str, Any]) -> SweepRow:
    """Build and scan one configuration. Whatever it raises becomes its row's error."""
    start = time.perf_counter()
    stage = ["build"]
    try:
        report = _report(job, config, stage)
    except (Exception, SystemExit) as error:
        wrapped = isinstance(error, TargetError) and error.__cause__ is not None
        return job.failed(config, error.__cause__ or error if wrapped else error, stage[0], time.perf_counter() - start)
    return SweepRow(
        config=config,
        totals=report.totals,
        error=None,
        seconds=round(time.perf_counter() - start, 6),
        build=job.name,
        settings=job.settings,
        diagnostics=dict(Counter(d.code for d in report.diagnostics)),
        model_type=report.context.model_type,
        torchscan_version=__version__,
        torch_version=report.context.torch_version,
    )


def _report(job: Job, config: Mapping[str, Any], stage: list[str]) -> Report:
    wanted = job.parameters if job.options["execution"] == "fake" else "real"
    if wanted != "real":
        try:
            return _attempt(job, config, stage, meta=True)
        except Exception as error:
            # A builder that reads its own parameters needs them; nothing else is helped by a second attempt.
            if wanted == "meta" or stage[0] != "build" or "meta" not in str(error).lower():
                raise
    return _attempt(job, config, stage, meta=False)


def _attempt(job: Job, config: Mapping[str, Any], stage: list[str], *, meta: bool) -> Report:
    from torchscan.engine.meta_parameters import parameters_on_meta

    stage[0] = "build"
    build = _resolved(job.build)
    sizes = job.inputs if isinstance(job.inputs, tuple) else None
    inputs = None if job.inputs is None or isinstance(job.inputs, tuple) else _resolved(job.inputs)
    mine, theirs = divide(config, build, inputs)
    with parameters_on_meta() if meta else contextlib.nullcontext():
        module, args, kwargs = call_target(build, job.name, **mine)
    if inputs is not None:
        args, kwargs = _arguments(inputs(**theirs))
    elif sizes is not None:
        args = _generated(module, sizes, job.dtype)
    stage[0] = "scan"
    return _scanner(job.disabled).scan(module, args=args, kwargs=kwargs, **job.options)


def _resolved(builder: Builder) -> Callable[..., Any]:
    return load(builder) if isinstance(builder, str) else builder


def divide(
    config: Mapping[str, Any], build: Callable[..., Any], inputs: Callable[..., Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what of a configuration the builder takes, and what the maker of inputs takes."""
    if inputs is None:
        return dict(config), {}
    mine, theirs = taken(build), taken(inputs)
    return (
        {name: value for name, value in config.items() if mine is None or name in mine},
        {name: value for name, value in config.items() if theirs is None or name in theirs},
    )


def taken(function: Callable[..., Any]) -> Mapping[str, bool] | None:
    """Return the names that `function` takes by keyword, and whether each is required; `None` for any name at all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name: p.default is p.empty for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _generated(module: nn.Module, sizes: tuple[tuple[int, ...], ...], dtype: str | None) -> tuple[Any, ...]:
    import torch

    from torchscan.engine.inputs import generate_inputs

    made = generate_inputs(module, sizes, None if dtype is None else getattr(torch, dtype))
    # A model whose parameters are on meta still gets inputs with values: it may read a mask made from them.
    return tuple(torch.full(t.shape, int(t.dtype.is_floating_point), dtype=t.dtype) if t.is_meta else t for t in made)


def _arguments(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(made, Mapping):
        return (), dict(made)
    if (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], tuple | list)
        and isinstance(made[1], Mapping)
    ):
        return tuple(made[0]), dict(made[1])
    if isinstance(made, tuple | list):
        return tuple(made), {}
    raise TypeError(
        f"inputs returned {type(made).__name__}; it must return a tuple of positional arguments, a mapping of keyword "
        "arguments, or both in a tuple"
    )


@functools.lru_cache(maxsize=8)
def _scanner(disabled: tuple[str, ...]) -> Scanner:
    from torchscan.engine.scanner import Scanner
    from torchscan.plugins.default import default_host

    return Scanner(disabled=disabled) if disabled else Scanner._with_host(default_host())
