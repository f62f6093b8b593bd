"""`torchscan plugins`: what is installed, what it registers, and what failed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs
import click

from torchscan.cli_options import NO_PLUGIN, alone
from torchscan.plugins.manager import PluginHost

if TYPE_CHECKING:
    from torchscan.plugins.records import PluginInfo

__all__ = ["check_disabled", "plugins"]


def check_disabled(disabled: Iterable[str], infos: Iterable[PluginInfo]) -> None:
    """Refuse a `--no-plugin` that names nobody, which would leave nothing out.

    Raises:
        click.BadParameter: a name is neither a plugin's nor a distribution's.

    """
    infos = tuple(infos)
    # `torchscan` names no plugin: as a distribution it would switch off the native handlers by accident.
    known = {info.name for info in infos} | {info.distribution for info in infos} - {None, "torchscan"}
    if unknown := sorted(set(disabled) - known):
        raise click.BadParameter(
            f"no plugin is named {unknown[0]!r}; there are {', '.join(sorted(info.name for info in infos)) or 'none'}",
            param_hint="--no-plugin",
        )


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, with every target by name.")
@NO_PLUGIN
@click.option("--strict", is_flag=True, help="Exit with 1 when a plugin failed or two conflict.")
@click.pass_context
def plugins(context: click.Context, as_json: bool, disabled: tuple[str, ...], strict: bool) -> None:
    """List the installed plugins: name, distribution, version, what each registers, and what failed.

    TORCHSCAN_DISABLE_PLUGINS=name,name and TORCHSCAN_PLUGIN_AUTOLOAD=0 in the environment hold here as well.
    """
    host = PluginHost(disabled=disabled)
    with alone(as_json):
        infos = host.collect()
    check_disabled(disabled, infos)
    if as_json:
        diagnostics = [attrs.asdict(each, filter=lambda _, value: value is not None) for each in host.diagnostics]
        click.echo(json.dumps({"plugins": [_record(info) for info in infos], "diagnostics": diagnostics}, indent=2))
    else:
        for line in _table(infos):
            click.echo(line)
        for diagnostic in host.diagnostics:
            click.echo(f"\n{diagnostic.code}: {diagnostic.message}")
    if strict and host.diagnostics:
        context.exit(1)


def _record(info: PluginInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "distribution": info.distribution,
        "version": info.version,
        "module": info.module,
        "status": info.status,
        "error": info.error,
        "handlers": list(info.handlers),
        "operator_formulas": list(info.operator_formulas),
        "formats": list(info.formats),
    }


def _table(infos: tuple[PluginInfo, ...]) -> list[str]:
    if not infos:
        return ["No plugin is installed."]
    rows = [("name", "distribution", "version", "status", "registers")]
    rows.extend(
        (info.name, info.distribution or "-", info.version or "-", info.status, _registers(info)) for info in infos
    )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _registers(info: PluginInfo) -> str:
    parts = []
    for count, one, many in (
        (len(info.handlers), "handler", "handlers"),
        (len(info.operator_formulas), "operator formula", "operator formulas"),
        (len(info.formats), "format", "formats"),
    ):
        if count:
            parts.append(f"{count} {one if count == 1 else many}")
    return ", ".join(parts) or ("-" if info.status != "ok" else "nothing")
