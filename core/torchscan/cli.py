"""The command line. Commands are imported when they are used, so that `--help` costs no torch."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from torchscan._version import __version__

__all__ = ["main"]

_COMMANDS = {
    "scan": ("torchscan.cli_scan:scan", "Scan one call of a model and print its report."),
    "causal": ("torchscan.cli_scan:causal", "Check that no output position depends on a later input token."),
    "sweep": ("torchscan.cli_sweep:sweep", "Scan a grid of configurations."),
    "render": ("torchscan.cli_report:render", "Render a stored report."),
    "compare": ("torchscan.cli_report:compare", "Compare two stored reports."),
    "check": ("torchscan.cli_report:check", "Hold a stored report against budgets."),
    "plugins": ("torchscan.cli_plugins:plugins", "List the installed plugins and what they register."),
}


@contextlib.contextmanager
def _output_arrives() -> Iterator[None]:
    """Say in one sentence, with exit code 2, that standard output cannot be written.

    What is written is flushed here: at the exit of the interpreter nobody is left to say it.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError as error:
        _let_go()
        if isinstance(error.__context__, SystemExit):  # a reader that has seen enough changes no verdict
            raise error.__context__ from None
        raise SystemExit(1) from None
    except OSError as error:
        _let_go()
        place = "cannot write standard output" if error.filename is None else error.filename
        click.echo(f"torchscan: {place}: {error.strerror or error}", err=True)
        raise SystemExit(2) from None


def _let_go() -> None:
    """Drop what standard output still holds, or the interpreter tries again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _LazyGroup(click.Group):
    def main(self, *args: Any, **extra: Any) -> Any:
        with _output_arrives():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Not 1, which is a verdict of several commands; 130 is what shells say of an interrupted program.
            click.echo("\ntorchscan: interrupted", err=True)
            raise SystemExit(130) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(cls=_LazyGroup)
@click.version_option(__version__, prog_name="torchscan")
def main() -> None:
    """How much does one call of a PyTorch model cost, and how sure are we?

    Every metric is complete, partial (a lower bound) or unavailable, with the reason. The exit code of a command that
    is interrupted is 130; what the others mean is in the help of each command.
    """
