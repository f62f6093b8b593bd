"""`torchscan sweep`: scan a grid of configurations of a model, resumably."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from torchscan.cli_options import DTYPE, FUNCTIONAL, INPUT, NO_PLUGIN, asked_metrics, execution_option, save

if TYPE_CHECKING:
    from torchscan.engine.sweeps import Sweep
    from torchscan.report.sweep_rows import SweepRow

__all__ = ["sweep"]


class Values(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """`d_model=256,512`."""

    name = "grid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, list[Any]]:
        """Return the name and its values: JSON where it is JSON, else text."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip() or not text.strip():
            self.fail(f"{value!r} is no NAME=VALUE,VALUE such as d_model=256,512", param, ctx)
        try:
            values = json.loads(f"[{text}]", parse_constant=str)  # lists among the values, and quoted text
        except ValueError:
            values = [_value(part.strip()) for part in text.split(",")]
        return name.strip(), values


def _value(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text


@click.command()
@click.argument("target")
@click.option(
    "--grid",
    "grid",
    multiple=True,
    required=True,
    type=Values(),
    metavar="NAME=A,B",
    help="A parameter of TARGET and its values; every combination is scanned. May be repeated.",
)
@click.option("-o", "--output", metavar="FILE", help="A JSON-lines file that gets each row; resumes when it exists.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Scan in this many processes.")
@click.option("--inputs", metavar="TARGET", help="A callable that makes the arguments from the configuration.")
@INPUT
@DTYPE
@click.option("--metrics", default=None, metavar="NAMES", help="Compute these totals alone: macs,dmas.")
@execution_option("fake")
@FUNCTIONAL
@click.option(
    "--parameters",
    type=click.Choice(["auto", "meta", "real"]),
    default="auto",
    show_default=True,
    help="meta gives the parameters of a fake run no memory.",
)
@NO_PLUGIN
@click.option("--retry-errors", is_flag=True, help="Scan configurations again whose stored row is an error.")
@click.option("--plot", "plot_file", metavar="FILE.html", help="Draw a total against a swept variable, in one file.")
@click.option("--plot-x", metavar="NAME", help="The variable of the plot; by default the first with several values.")
@click.option("--plot-y", metavar="TOTAL", default="macs", show_default=True, help="The total that is shown first.")
@click.option("--exact", is_flag=True, help="Show whole numbers instead of SI units.")
def sweep(
    target: str,
    grid: tuple[tuple[str, list[Any]], ...],
    output: str | None,
    workers: int,
    inputs: str | None,
    shapes: tuple[tuple[int, ...], ...],
    dtype: str | None,
    metrics: str | None,
    execution: str,
    functional: str,
    parameters: str,
    disabled: tuple[str, ...],
    retry_errors: bool,
    plot_file: str | None,
    plot_x: str | None,
    plot_y: str,
    exact: bool,
) -> None:
    """Build and scan TARGET for every combination of the grid, and print what each costs.

    TARGET is package.module:callable or file.py:callable. It is called with one value per --grid name and returns a
    module, or (module, args, kwargs). Nothing is computed unless --execution real is given.

    Exit codes: 0; 1 when a configuration failed; 2 for a usage error, or when the sweep cannot go on.
    """
    from torchscan.cli_plugins import check_disabled
    from torchscan.engine.sweeps import sweep as run
    from torchscan.plugins.manager import PluginHost
    from torchscan.report.sweep_plot import check_axes
    from torchscan.report.sweep_table import table
    from torchscan.report.text import write

    values: dict[str, list[Any]] = {}
    for name, several in grid:
        if name in values:
            raise click.UsageError(f"--grid names {name!r} twice")
        values[name] = several
    if inputs and shapes:
        raise click.UsageError("--inputs and --input both say what the model is called with; give one of them")
    if disabled:
        check_disabled(disabled, PluginHost(disabled=disabled).plugins)
    rows: list[SweepRow] = []
    problem: str | None = None
    status = 2
    try:
        if plot_file is not None:
            check_axes(values, plot_x, plot_y)
        found = run(
            target,
            values,
            executor=None if workers == 1 else lambda: _pool(workers),
            output=output,
            inputs=inputs or shapes or None,
            dtype=dtype,
            execution=execution,  # type: ignore[arg-type]
            parameters=parameters,  # type: ignore[arg-type]
            functional=functional,
            metrics=asked_metrics(metrics),
            disabled=disabled,
            retry_errors=retry_errors,
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise click.UsageError(" ".join(str(error).split())) from error
    try:
        with _noticed() if workers > 1 else contextlib.nullcontext():
            _follow(found, rows)
    except RuntimeError as error:  # the sweep's own: configurations do not raise
        problem = str(error)
    except KeyboardInterrupt:
        status = 130
        problem = f"interrupted after {len(rows)} of {found.total} configurations" + (
            f"; the same command resumes from {output}" if output is not None else "; give -o FILE to be able to resume"
        )
    if rows:
        write(lambda suited: table(rows, suited.width, suited.color, exact=exact), sys.stdout)
    if plot_file is not None and rows:
        _draw(rows, plot_file, plot_x, plot_y, target)
    if problem is not None:
        click.echo(f"torchscan: {problem}", err=True)
        sys.exit(status)
    sys.exit(1 if any(row.error is not None for row in rows) else 0)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not forked from here: a process that has run PyTorch's thread pools cannot be forked safely. A fork server has
    # imported PyTorch once and run nothing, so its workers begin at once.
    server = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if server else "spawn")
    if server:
        context.set_forkserver_preload(["torchscan.engine.scanner"])
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(sys.path[:], os.getcwd()))


def _begin(path: list[str], folder: str) -> None:
    """Prepare a worker process: one thread each, and an interrupt is the parent's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:] = path
    os.chdir(folder)
    import torch

    torch.set_num_threads(1)


@contextlib.contextmanager
def _noticed() -> Iterator[None]:
    """Answer an interrupt at once: what runs in other processes is finished and stored first, which may take long."""

    def notice(number: int, frame: FrameType | None) -> None:
        click.echo("\ntorchscan: stopping; the configurations that run now are finished first", err=True)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, notice)
    except ValueError:  # not in the main thread, where no interrupt arrives
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(found: Sweep, rows: list[SweepRow]) -> None:
    """Collect the rows, with one line of progress where standard error is a terminal."""
    shown = sys.stderr.isatty()
    start = time.monotonic()
    failed = 0
    try:
        with found:
            for row in found:
                rows.append(row)
                failed += row.error is not None
                if shown:
                    seconds = time.monotonic() - start
                    line = f"{len(rows)}/{found.total} configurations, {failed} failed, {seconds:.0f} s"
                    click.echo(f"\r{line:<70}", err=True, nl=False)
    finally:
        if shown and rows:
            click.echo("\r" + " " * 70 + "\r", err=True, nl=False)


def _draw(rows: Sequence[SweepRow], file: str, x: str | None, y: str, title: str) -> None:
    from torchscan.report.sweep_plot import plot

    try:
        page = plot(rows, x=x, y=y, title=title)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--plot needs {error.name}; pip install 'torchscan[html]'") from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    save(file, page)
