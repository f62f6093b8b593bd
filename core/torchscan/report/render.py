"""Rendering a report in a named format, whoever offers it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchscan.report.builtin import torchscan_register_report_formats
from torchscan.report.compare import as_report
from torchscan.report.files import write_text
from torchscan.report.formats import FormatError, RenderOptions
from torchscan.report.plot import METRICS
from torchscan.report.schema import Report

if TYPE_CHECKING:
    from torchscan.plugins.manager import PluginHost
    from torchscan.plugins.records import OfferedFormat

__all__ = ["draw", "find_format", "format_for", "render_report", "write_report"]

_BUILTIN: Final = torchscan_register_report_formats.__module__


def render_report(
    report: Report | Mapping[str, Any],
    *,
    format: str | None = None,
    before: Report | Mapping[str, Any] | None = None,
    metric: str = "macs",
    title: str | None = None,
    depth: int | None = None,
    columns: Sequence[str] | None = None,
    exact: bool = False,
    width: int | None = None,
    host: PluginHost | None = None,
) -> str:
    """Return `report` in a format.

    Args:
        report: the report, or its wire form; also one stored by TorchScan 0.2.0.
        format: the name of a format: `html` (the default), `svg`, `text`, `markdown`, `csv`, `json`, `speedscope`, or
            one that a plugin offers.
        before: an earlier report to compare with.
        metric: the metric shown first: `macs`, `module_flops`, `dmas`, `parameters` or `parameter_bytes`.
        title: the heading; by default the model's type.
        depth: show calls down to this depth (the root is 0).
        columns: the columns of a table; see `torchscan.report.calltable.COLUMNS`.
        exact: numbers in full instead of SI units.
        width: columns of a text table; by default as many as it takes.
        host: whose plugins to ask for a format; by default everything that is installed.

    Raises:
        ReportError: a wire form is not one of a report.
        FormatError: an unknown format, metric or column, or a plugin's format failed.
        MissingExtraError: the format needs a library that is not installed.

    """
    chosen = find_format("html" if format is None else format, host)
    if isinstance(columns, str):
        raise FormatError(f"columns must be a list of names, got the string {columns!r:.40}")
    options = RenderOptions(
        before=None if before is None else as_report(before),
        metric=metric,
        title=title,
        depth=depth,
        columns=None if columns is None else tuple(columns),
        exact=exact,
        width=width,
    )
    return draw(chosen, as_report(report), options)


def write_report(
    report: Report | Mapping[str, Any], file: str | os.PathLike[str], *, format: str | None = None, **options: Any
) -> None:
    """Render `report` into a file, whole or not at all.

    Args:
        report: the report, or its wire form.
        file: where to; its suffix selects the format unless `format` does.
        format: the name of a format.
        **options: those of `render_report`.

    Raises:
        OSError: the file cannot be written.
        FormatError: no format has that name or suffix; and what else `render_report` raises.

    """
    chosen = format if format is not None else format_for(file, options.get("host")).format.name
    write_text(file, render_report(report, format=chosen, **options))


def draw(offered: OfferedFormat, report: Report, options: RenderOptions) -> str:
    """Return `report` in an offered format.

    Raises:
        FormatError: the metric, a column or the depth is unknown to it, or a plugin's format failed.
        MissingExtraError: the format needs a library that is not installed.

    """
    _check(options)
    if options.metric not in (drawn := [metric.key for metric in METRICS]):
        raise FormatError(f"there is no metric {options.metric!r:.40} to draw; there are {', '.join(drawn)}")
    report_format = offered.format
    if offered.plugin.module == _BUILTIN:
        return report_format(report, options)
    try:
        text: object = report_format(report, options)
    except FormatError:
        raise
    except Exception as error:
        # It must be clear whose fault it is.
        raise FormatError(
            f"the format {report_format.name!r} of {offered.plugin.label} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(text, str):
        raise FormatError(
            f"the format {report_format.name!r} of {offered.plugin.label} returned {type(text).__name__}, not a string"
        )
    return text


def _check(options: RenderOptions) -> None:
    if options.depth is not None and (type(options.depth) is not int or options.depth < 0):
        raise FormatError(f"depth must be a whole number and not negative, got {options.depth!r:.40}")
    if options.title is not None and not isinstance(options.title, str):
        raise FormatError(f"title must be text, got {type(options.title).__name__}")


def find_format(name: str, host: PluginHost | None = None) -> OfferedFormat:
    """Return the format of that name; no plugin is loaded for a format of torchscan's own.

    Raises:
        FormatError: there is none; the message lists those there are.

    """
    host = _host(host)
    found = host.find_format(name)
    if found is None:
        names = ", ".join(offered.format.name for offered in host.formats)
        raise FormatError(f"there is no report format {name!r:.40}; there are {names}")
    return found


def format_for(file: str | os.PathLike[str], host: PluginHost | None = None) -> OfferedFormat:
    """Return the format that the suffix of `file` selects; the longest suffix wins, then torchscan's own.

    Raises:
        FormatError: no format has that suffix.

    """
    host = _host(host)
    # Torchscan's own suffixes first: for them no plugin needs to be imported.
    own = filter(None, (host.find_format(offer.name) for offer in torchscan_register_report_formats()))
    found = _by_suffix(file, own) or _by_suffix(file, host.formats)
    if found is not None:
        return found
    suffixes = ", ".join(suffix for offered in host.formats for suffix in offered.format.suffixes)
    raise FormatError(
        f"no report format has the suffix of {Path(file).name!r:.80}: name the format, or use one of {suffixes}"
    )


def _by_suffix(file: str | os.PathLike[str], offers: Iterable[OfferedFormat]) -> OfferedFormat | None:
    name = Path(file).name.lower()
    matching = [
        (len(suffix), offered) for offered in offers for suffix in offered.format.suffixes if name.endswith(suffix)
    ]
    return max(matching, key=lambda match: match[0])[1] if matching else None


def _host(host: PluginHost | None) -> PluginHost:
    if host is not None:
        return host
    from torchscan.plugins.default import default_host

    return default_host()
