"""The command line. Commands are imported when they are used, so that `--help` costs no torch."""

from __future__ import annotations

import importlib

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


class _LazyGroup(click.Group):
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

    Every metric is complete, partial (a lower bound) or unavailable, with the reason.
    """
