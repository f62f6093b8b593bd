"""The built-in report formats, offered through the hook that every plugin uses.

Each renderer is named by its place and imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchscan.contract.hookspecs import hookimpl
from torchscan.report.formats import ReportFormat

__all__ = ["torchscan_register_report_formats"]


@hookimpl
def torchscan_register_report_formats() -> Iterable[ReportFormat]:
    """Offer the formats that come with torchscan."""
    return (
        ReportFormat("text", "torchscan.report.text:render", (".txt",)),
        ReportFormat("html", "torchscan.report.html:render", (".html", ".htm"), extra="html"),
        ReportFormat("svg", "torchscan.report.svg:render", (".svg",)),
        ReportFormat("markdown", "torchscan.report.markdown:render", (".md",)),
        ReportFormat("csv", "torchscan.report.csv_:render", (".csv",)),
        ReportFormat("json", "torchscan.report.wire:render", (".json",)),
        ReportFormat("speedscope", "torchscan.report.speedscope:render", (".speedscope.json",)),
    )
