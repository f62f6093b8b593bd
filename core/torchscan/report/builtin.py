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
        ReportFormat("text", "torchscan.report.text:render", (".txt",), "a tree table for terminals"),
        ReportFormat(
            "html", "torchscan.report.html:render", (".html", ".htm"), "one self-contained page", extra="html"
        ),
        ReportFormat("svg", "torchscan.report.svg:render", (".svg",), "a static picture for papers and READMEs"),
        ReportFormat("markdown", "torchscan.report.markdown:render", (".md",), "tables for pull-request comments"),
        ReportFormat("csv", "torchscan.report.csv_:render", (".csv",), "one row per call, for spreadsheets"),
        ReportFormat("json", "torchscan.report.wire:render", (".json",), "the report itself, schema version 1"),
        ReportFormat(
            "speedscope",
            "torchscan.report.speedscope:render",
            (".speedscope.json",),
            "the call tree for speedscope.app, weighted by one metric",
        ),
    )
