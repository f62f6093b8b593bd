"""What several commands have in common: options, lists of names and sizes, and files they write. Imports no torch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import click

__all__ = [
    "DTYPE",
    "FUNCTIONAL",
    "INPUT",
    "NO_PLUGIN",
    "Decorator",
    "Failure",
    "alone",
    "asked_metrics",
    "execution_option",
    "names",
    "save",
    "stacked",
]

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class Failure(click.ClickException):
    """What the command was asked for did not work: one sentence, exit code 2, and no reminder of how to type it."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the sentence."""
        click.echo(f"torchscan: {' '.join(self.message.split())}", err=True)


class _Sizes(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """`2,64,512`."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the sizes as a tuple."""
        if isinstance(value, tuple):
            return value
        try:
            sizes = tuple(map(int, str(value).split(",")))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 0:
            self.fail(f"{value!r} is no list of sizes such as 2,64,512", param, ctx)
        return sizes


INPUT: Final[Decorator] = click.option(
    "--input",
    "shapes",
    multiple=True,
    type=_Sizes(),
    metavar="SIZES",
    help="Generate a positional input of these sizes, batch included: 2,64,512. May be repeated.",
)
DTYPE: Final[Decorator] = click.option(
    "--dtype", metavar="NAME", help="Type of generated inputs, such as float32, int64."
)
FUNCTIONAL: Final[Decorator] = click.option(
    "--functional",
    type=click.Choice(["audit", "estimate", "skip"]),
    default="audit",
    show_default=True,
    help="What happens to arithmetic in a composite's own body.",
)
NO_PLUGIN: Final[Decorator] = click.option(
    "--no-plugin", "disabled", multiple=True, metavar="NAME", help="Leave an installed plugin out."
)


def execution_option(default: str) -> Decorator:
    """Return the option `--execution`."""
    return click.option(
        "--execution",
        type=click.Choice(["real", "fake"]),
        default=default,
        show_default=True,
        help="fake runs the model's code without computing anything.",
    )


def stacked(*decorators: Decorator) -> Decorator:
    """Return one decorator that does what these do written one below the other."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def names(text: str) -> tuple[str, ...]:
    """Return what stands between the commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def asked_metrics(text: str | None) -> tuple[str, ...] | None:
    """Return what `--metrics` names; `None` where it is not given.

    Raises:
        click.UsageError: it names nothing, as an unset variable of a script does.

    """
    if text is not None and not names(text):
        raise click.UsageError("--metrics names no metric; leave it out for all of them")
    return None if text is None else names(text)


@contextlib.contextmanager
def alone(wanted: bool) -> Iterator[None]:
    """Keep standard output for the JSON: what a model or a plugin prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield


def save(file: str, text: str) -> None:
    """Write `text` to `file`, whole or not at all.

    Raises:
        Failure: it cannot be written.

    """
    from torchscan.report.files import write_text

    try:
        write_text(file, text)
    except OSError as error:
        raise Failure(f"cannot write {file or repr(file)}: {error.strerror or error}") from error
