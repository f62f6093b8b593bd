"""The commands that run a model: `scan` and `causal`. Imports torch only inside a command."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback as tracebacks
from collections.abc import Iterator
from typing import Any

import click

from torchscan.cli_options import (
    DTYPE,
    FUNCTIONAL,
    INPUT,
    NO_PLUGIN,
    Failure,
    alone,
    asked_metrics,
    execution_option,
    save,
    stacked,
)
from torchscan.contract.errors import IncompleteAnalysisError, TorchScanError
from torchscan.target import TargetError, build, load, said

__all__ = ["causal", "scan"]

_TARGET = stacked(
    click.argument("target"),
    INPUT,
    DTYPE,
    click.option("--traceback", is_flag=True, help="Show the whole traceback of what the target or the model raises."),
)


def _prepared(
    target: str, shapes: tuple[tuple[int, ...], ...], dtype: str | None
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return (module, args, kwargs) of a target, with generated inputs where sizes were given."""
    module, args, kwargs = build(load(target), target)
    if shapes:
        if args or kwargs:
            raise click.UsageError(f"{target} already returns its arguments; leave --input out")
        import torch

        kind = None
        if dtype is not None:
            kind = getattr(torch, dtype, None)
            if not isinstance(kind, torch.dtype):
                raise click.UsageError(f"--dtype {dtype!r} is no torch dtype; write float32, bfloat16, int64 ...")
        from torchscan.engine.inputs import generate_inputs

        try:
            args = generate_inputs(module, shapes, kind)
        except Exception as error:  # PyTorch's own: too large, or of a type that has no ones
            raise Failure(f"the inputs cannot be made: {str(error).splitlines()[0]}") from error
    elif dtype is not None:
        raise click.UsageError("--dtype applies to generated inputs; give --input too")
    return module, args, kwargs


@contextlib.contextmanager
def _sentences(traceback: bool) -> Iterator[None]:
    """Turn what a target, a model or an option raises into one sentence and exit code 2."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, IncompleteAnalysisError):
        raise
    except (Exception, SystemExit) as error:
        own = isinstance(error, TorchScanError | TargetError)
        theirs = error.__cause__ if isinstance(error, TargetError) else None if own else error
        sentence = (str(error) or said(error)) if own else f"the model raised {said(error)}"
        if theirs is not None and traceback:
            tracebacks.print_exception(theirs)
        hint = " (--traceback shows where)" if theirs is not None and not traceback else ""
        raise Failure(sentence + hint) from error


class _Progress:
    """One line on standard error, on a terminal, once a scan takes long."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = self._start
        self._shown = False

    def __call__(self, calls: int) -> None:
        now = time.monotonic()
        if now - self._start > 1 and now - self._last > 0.2:
            self._last = now
            self._shown = True
            click.echo(f"\r{calls} module calls, {now - self._start:.0f} s", err=True, nl=False)

    def done(self) -> None:
        if self._shown:
            click.echo("\r" + " " * 60 + "\r", err=True, nl=False)


@click.command()
@_TARGET
@NO_PLUGIN
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Store the report; - is standard output.")
@click.option(
    "--mode",
    type=click.Choice(["full", "structure"]),
    default="full",
    show_default=True,
    help="structure shows shapes and parameters without any formula.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a requested metric is incomplete.")
@click.option("--depth", type=click.IntRange(0), default=None, help="Show the tree down to this depth.")
@FUNCTIONAL
@click.option("--metrics", default=None, metavar="NAMES", help="Compute these metrics alone: macs,dmas.")
@execution_option("real")
@click.option("--exact", is_flag=True, help="Show whole numbers instead of SI units.")
def scan(
    target: str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str | None,
    disabled: tuple[str, ...],
    traceback: bool,
    json_file: str | None,
    mode: str,
    strict: bool,
    depth: int | None,
    functional: str,
    metrics: str | None,
    execution: str,
    exact: bool,
) -> None:
    """Scan one call of TARGET and print its report.

    TARGET is package.module:callable or file.py:callable; the callable returns a module, or (module, args, kwargs).
    Exit codes: 0; 1 when --strict finds an incomplete metric; 2 for a usage error or a model that raises.
    """
    from torchscan.cli_plugins import check_disabled
    from torchscan.engine.scanner import Scanner, checked_plan
    from torchscan.report.text import print_summary

    asked = asked_metrics(metrics)
    try:
        checked_plan(mode, functional, execution, asked)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with alone(json_file == "-"):
        scanner = Scanner(disabled=disabled)
        check_disabled(disabled, scanner.host.plugins)
    progress = _Progress() if sys.stderr.isatty() else None
    status = 0
    with _sentences(traceback), alone(json_file == "-"):
        module, args, kwargs = _prepared(target, shapes, dtype)
        try:
            report = scanner.scan(
                module,
                args=args,
                kwargs=kwargs,
                mode=mode,
                strict=strict,
                functional=functional,
                metrics=asked,
                execution=execution,
                progress=progress,
            )
        except IncompleteAnalysisError as error:
            report, status = error.report, 1
            click.echo(f"torchscan: {error}", err=True)
        finally:
            if progress is not None:
                progress.done()
    if json_file == "-":
        click.echo(report.to_json(indent=2))
    else:
        if json_file is not None:
            save(json_file, report.to_json(indent=2) + "\n")
        print_summary(report, depth=depth, exact=exact)
    sys.exit(status)


@click.command()
@_TARGET
@click.option("--argument", default=None, metavar="NAME", help="Which input holds the tokens: a name or a position.")
@click.option("--axis", type=int, default=1, show_default=True, help="The token axis of that input.")
@click.option("--output", default=None, metavar="NAME", help="Which output to look at, where there are several.")
@click.option("--output-axis", type=int, default=None, help="The token axis of the output; that of the input if unset.")
@click.option("--offset", type=int, default=0, show_default=True, help="How far ahead an output may look.")
@click.option("--draws", type=click.IntRange(1), default=3, show_default=True, help="How many random inputs to try.")
@click.option("--vocabulary", type=click.IntRange(2), default=None, help="Number of token ids to replace ids by.")
@click.option("--training", is_flag=True, help="Look at the model in training mode.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def causal(
    target: str,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str | None,
    traceback: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Check that no output position of TARGET depends on a later input token.

    Exit codes: 0 when it is causal; 1 when it is not; 2 for a usage error or a model that raises.
    """
    from torchscan.engine.causality import check_causal

    for name in ("argument", "output"):
        if (value := options[name]) is not None and value.isdecimal():
            options[name] = int(value)
    with _sentences(traceback), alone(as_json):
        module, args, kwargs = _prepared(target, shapes, dtype)
        result = check_causal(module, args, kwargs, **options)
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else str(result))
    sys.exit(0 if result.causal else 1)
