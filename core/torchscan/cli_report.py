"""The commands about stored reports: render, compare, check. None of them imports torch."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import click

from torchscan.cli_options import names, stacked
from torchscan.contract.errors import ReportError, TorchScanError
from torchscan.report.plot import METRICS

if TYPE_CHECKING:
    from torchscan.report.schema import Report

__all__ = ["check", "compare", "render"]

P = ParamSpec("P")
T = TypeVar("T")


def refuse(message: str) -> NoReturn:
    """End with exit code 2 and one sentence on standard error."""
    click.echo(f"torchscan: {' '.join(message.split())}", err=True)
    raise SystemExit(2)


def one_sentence(command: Callable[P, T]) -> Callable[P, T]:
    """Turn what can be wrong with reports and files into one sentence and exit code 2."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except OSError as error:
            if error.filename is None:
                raise  # standard output; the group of commands says so
            refuse(f"{error.filename}: {error.strerror or error}")
        except (TorchScanError, ValueError) as error:
            refuse(str(error))

    return guarded


def read(file: str) -> Report:
    """Return the report stored in `file`; `-` is standard input."""
    from torchscan.report.wire import load_report, parse_report

    if file != "-":
        return load_report(file)
    try:
        return parse_report(sys.stdin.buffer.read())
    except OSError as error:
        raise ReportError(f"standard input: {error.strerror or error}") from None
    except ReportError as error:
        raise ReportError(f"standard input: {error}") from None


def show(text: str, *, exactly: bool = False) -> None:
    """Print `text`; characters that the console lacks are written as escapes.

    What is meant for programs goes `exactly` as it would go into a file, unless a terminal would have to show it.
    """
    stream = sys.stdout
    if stream is None:  # closed before we began
        return
    if exactly and not stream.isatty() and (raw := getattr(stream, "buffer", None)) is not None:
        stream.flush()
        raw.write(text.encode("utf-8", "backslashreplace"))
        raw.flush()
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


_DRAWING = stacked(
    click.option("-o", "--output", metavar="FILE", help="Write to FILE; its suffix selects the format."),
    click.option(
        "--format",
        "format_",
        metavar="NAME",
        help="text, html, svg, markdown, csv, json, speedscope, or one that a plugin offers.",
    ),
    click.option(
        "--metric",
        type=click.Choice([metric.key for metric in METRICS]),
        default="macs",
        show_default=True,
        help="Shown first.",
    ),
    click.option("--title", help="The heading."),
    click.option("--depth", type=click.IntRange(min=0), help="Show calls down to this depth; the root is 0."),
    click.option("--columns", metavar="A,B", help="The columns of a text or markdown table."),
    click.option("--exact", is_flag=True, help="Numbers in full instead of SI units."),
    click.option("--width", type=click.IntRange(min=20), help="Columns of a text table."),
)


def deliver(
    report: Report,
    before: Report | None,
    *,
    output: str | None,
    format_: str | None,
    columns: str | None,
    **options: Any,
) -> None:
    """Render `report` into a file, or to standard output (as text unless a format is named)."""
    from torchscan.report import text
    from torchscan.report.files import write_text
    from torchscan.report.formats import RenderOptions
    from torchscan.report.render import draw, find_format, format_for

    if format_ is not None:
        chosen = find_format(format_)
    else:
        chosen = find_format("text") if output is None else format_for(output)
    asked = {"before": before, "columns": None if columns is None else names(columns), **options}
    if output is not None:
        write_text(output, draw(chosen, report, RenderOptions(**asked)))
    elif chosen.format.name == "text":
        text.write(lambda suited: draw(chosen, report, suited), sys.stdout, **asked)
    else:
        show(draw(chosen, report, RenderOptions(**asked)), exactly=True)


@click.command()
@click.argument("report", metavar="REPORT.json")
@click.option("--before", metavar="FILE", help="An earlier report, for a before/after view.")
@_DRAWING
@one_sentence
def render(report: str, before: str | None, **options: Any) -> None:
    """Render a stored report: `torchscan render report.json -o report.html`.

    REPORT.json may be `-` for standard input.
    """
    earlier = None if before is None else read(before)
    deliver(read(report), earlier, **options)


@click.command()
@click.argument("before", metavar="BEFORE.json")
@click.argument("after", metavar="AFTER.json")
@_DRAWING
@one_sentence
def compare(before: str, after: str, **options: Any) -> None:
    """Compare two stored reports: totals, and added, removed and changed calls.

    A difference is given only between two complete numbers of the same unit, scope and method.
    """
    deliver(read(after), read(before), **options)


@click.command()
@click.argument("report", metavar="REPORT.json")
@click.option("--max", "budgets", multiple=True, metavar="TOTAL=N", help="The most a total may be, such as macs=6e9.")
@click.option("--require-complete", "required", multiple=True, metavar="A,B", help="Totals that must be complete.")
@click.option("--baseline", metavar="FILE", help="An earlier report that no total may outgrow.")
@click.option("--tolerance", metavar="PART", help="By how much it may be outgrown, such as 1% or 0.01.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the verdict is written.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the verdict to FILE.")
@one_sentence
def check(
    report: str,
    budgets: tuple[str, ...],
    required: tuple[str, ...],
    baseline: str | None,
    tolerance: str | None,
    format_: str,
    output: str | None,
) -> None:
    """Hold a stored report against budgets.

    Exit code 0: every check passed. 1: a budget is broken or not proven, or a total is incomplete that must not be.
    2: the report or the arguments cannot be used.
    """
    from torchscan.report.files import write_text
    from torchscan.report.gate import check_report

    if any(not names(several) for several in required):
        refuse("--require-complete names no total; leave it out where none must be complete")
    limits: dict[str, Any] = {}
    for budget in budgets:
        name, equals, limit = budget.partition("=")
        if not equals:
            refuse(f"--max takes TOTAL=N, such as macs=6e9, got {budget!r:.60}")
        if name.strip() in limits:
            refuse(f"--max names {name.strip()!r:.40} twice")
        limits[name.strip()] = limit
    verdict = check_report(
        read(report),
        max=limits,
        require_complete=[name for several in required for name in names(several)],
        baseline=None if baseline is None else read(baseline),
        tolerance=0 if tolerance is None else tolerance,
    )
    text = verdict.to_text() if format_ == "text" else json.dumps(verdict.to_dict(), indent=1)
    if output is None:
        show(text + "\n")
    else:
        write_text(output, text + "\n")
    sys.exit(0 if verdict.ok else 1)
