"""The report on the wire: to and from dictionaries, JSON text and files.

An unknown `schema_version` is refused, not guessed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from torchscan.contract.errors import ReportError
from torchscan.report.converter import converter, named
from torchscan.report.explain import explain
from torchscan.report.schema import SCHEMA_VERSION, OperatorReport, Report

if TYPE_CHECKING:
    from torchscan.report.formats import RenderOptions

__all__ = [
    "MAX_BYTES",
    "load_report",
    "operators_to_dict",
    "parse_report",
    "render",
    "report_from_dict",
    "report_to_dict",
    "report_to_json",
]

#: Larger files are refused before they are parsed: no report comes near it (5,000 calls are about 10 MB).
MAX_BYTES: Final = 512 * 2**20


def report_to_dict(report: Report) -> dict[str, Any]:
    """Return the wire form of `report`: dictionaries, lists, strings, numbers, booleans and `None`.

    The result is the caller's own: nothing in it is shared with the report or with another result.
    """
    wire: dict[str, Any] = converter().unstructure(report, Report)
    return wire


def operators_to_dict(operators: OperatorReport) -> dict[str, Any]:
    """Return the wire form of an operator view by itself, as `measure_flops` gives it."""
    wire: dict[str, Any] = converter().unstructure(operators, OperatorReport)
    return wire


def report_to_json(report: Report, *, indent: int | None = None) -> str:
    """Return the wire form of `report` as JSON text, in ASCII.

    Args:
        report: the report.
        indent: spaces per level, or `None` for one line.

    """
    return json.dumps(report_to_dict(report), indent=indent, allow_nan=False)


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as JSON; with `before`, the comparison as JSON."""
    if options.before is None:
        return report_to_json(report, indent=1) + "\n"
    from torchscan.report.compare import compare_reports

    return json.dumps(compare_reports(options.before, report), indent=1, allow_nan=False) + "\n"


def report_from_dict(data: Mapping[str, Any]) -> Report:
    """Read a report from its wire form, also one stored by TorchScan 0.2.0.

    Args:
        data: what `report_to_dict` returned, or what `json.load` read; unknown fields are ignored.

    Raises:
        ReportError: it is no report, or of an unknown `schema_version`, or a field is missing or wrong; the message
            names the path of the field.

    """
    _check_kind(data)
    try:
        report: Report = converter().structure(data, Report)
    except RecursionError:
        raise ReportError("the report is nested too deeply") from None
    except Exception:
        raise ReportError(explain(data, Report)) from None
    return report


def parse_report(text: str | bytes) -> Report:
    """Read a report from JSON text.

    Raises:
        ReportError: it is no JSON, or no report that `report_from_dict` reads.

    """
    return report_from_dict(_parse(text))


def load_report(file: str | os.PathLike[str]) -> Report:
    """Read a stored report from a JSON file.

    Raises:
        ReportError: the file is no report of a known schema version, or larger than `MAX_BYTES`; the message begins
            with the file's name.
        OSError: the file cannot be read.

    """
    with Path(file).open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    try:
        if len(content) > MAX_BYTES:
            raise ReportError(f"the file is larger than {MAX_BYTES // 2**20} MiB, which no report is")
        return parse_report(content)
    except ReportError as error:
        raise ReportError(f"{os.fspath(file)}: {error}") from None


def _parse(text: str | bytes) -> Any:
    if not text.strip():
        raise ReportError("not JSON: the text is empty")
    try:
        return json.loads(text)
    except RecursionError:
        raise ReportError("not a report: the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        raise ReportError(
            f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}" + (" (truncated?)" if cut else "")
        ) from None
    except UnicodeDecodeError as error:
        raise ReportError(f"not JSON: the text is not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise ReportError(f"not JSON that can be read: {error}") from None


def _check_kind(data: Any) -> None:
    if not isinstance(data, Mapping):
        raise ReportError(f"not a report: expected an object, got {named(data)}")
    if "schema_version" not in data:
        raise ReportError("not a report: schema_version is missing")
    version = data["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportError(
            f"schema_version: {version!r:.40} is unknown; this torchscan reads schema version {SCHEMA_VERSION}"
        )
    if "layers" in data and "context" in data:
        return
    if "by_operator" in data:
        raise ReportError("not a report of a scan: this is an operator report, as measure_flops returns it")
    if isinstance(data.get("layers"), Mapping) and "added" in data["layers"]:
        raise ReportError("not a report of a scan: this is a comparison, as compare_reports returns it")
    missing = "context" if "layers" in data else "layers"
    raise ReportError(f"not a report: {missing} is missing")
