"""The rows of a sweep and the JSON-lines file they are kept in. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from torchscan.contract.errors import ReportError
from torchscan.report.schema import Totals

__all__ = ["RowFile", "SweepFailure", "SweepRow", "canonical", "read_rows"]


@attrs.frozen
class SweepFailure:
    """Why a configuration has no totals.

    Args:
        type: the class of the exception, such as `ValueError`.
        message: what it said.
        stage: `build` (the builder raised or returned no module), `scan` (the model raised, or cannot run this way)
            or `executor` (the task was lost: its worker died, or it could not be sent there).

    """

    type: str
    message: str
    stage: Literal["build", "scan", "executor"]


@attrs.frozen(kw_only=True)
class SweepRow:
    """One configuration and what it costs.

    Args:
        config: name to value, as the builder got it.
        totals: the totals of the scan, each with its state; `None` where the configuration failed.
        error: why it failed; `None` where it did not.
        seconds: how long building and scanning took.
        build: the builder, as `module.qualname` or as the target that was given.
        settings: how it was scanned.
        diagnostics: diagnostic code to the number of diagnostics, where anything is incomplete.
        model_type: the class of the model.
        torchscan_version: the version that scanned.
        torch_version: the version of PyTorch that ran.

    """

    config: Mapping[str, Any]
    totals: Totals | None
    error: SweepFailure | None
    seconds: float
    build: str
    settings: Mapping[str, Any]
    diagnostics: Mapping[str, int] = attrs.field(factory=dict)
    model_type: str | None = None
    torchscan_version: str | None = None
    torch_version: str | None = None

    @property
    def key(self) -> str:
        """What makes this row the answer to a question: builder, settings and configuration."""
        return canonical({"build": self.build, "settings": self.settings, "config": self.config})

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data, JSON-ready where the configuration is."""
        from torchscan.report.converter import converter

        row: dict[str, Any] = converter().unstructure(self, SweepRow)
        return row

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SweepRow:
        """Read a row back; unknown fields are ignored.

        Raises:
            ReportError: it is no row; the message names the field.

        """
        from torchscan.report.converter import converter
        from torchscan.report.explain import explain

        try:
            row: SweepRow = converter().structure(data, SweepRow)
        except Exception:
            raise ReportError(explain(data, SweepRow)) from None
        return row


def canonical(value: Any) -> str:
    """Return `value` as JSON text that is the same for equal values.

    Raises:
        TypeError: it holds something that JSON has no form for.
        ValueError: it holds a number that is not finite.

    """
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def read_rows(file: str | os.PathLike[str]) -> list[SweepRow]:
    """Return the rows of a sweep's JSON-lines file, the latest one of each configuration.

    A last line that was cut off in the middle is left out.

    Raises:
        ReportError: a line is no row; the message names file and line.
        OSError: the file cannot be read.

    """
    return list({row.key: row for row in _parsed(Path(file))[0]}.values())


def _parsed(file: Path) -> tuple[list[SweepRow], int]:
    """Return the rows, and how many bytes of the file they take."""
    rows: list[SweepRow] = []
    good = 0
    content = file.read_bytes()
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        end = min(good + len(line) + 1, len(content))
        if line.strip():
            try:
                rows.append(SweepRow.from_dict(json.loads(line)))
            except (ValueError, RecursionError) as error:
                if number == len(lines) and not isinstance(error, ReportError):
                    break  # cut off in the middle of a write
                what = error if isinstance(error, ReportError) else "not JSON"
                raise ReportError(f"{file}: line {number} is no row of a sweep: {what}") from None
        good = end
    return rows, good


class RowFile:
    """A JSON-lines file that grows by whole rows.

    Args:
        file: it is made when it is missing; rows that it holds are kept and read.

    Raises:
        ReportError: it holds something else.
        OSError: it cannot be read or written.

    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.path = Path(file)
        self.rows: list[SweepRow] = []
        self._lock = threading.Lock()
        size: int | None = None
        if self.path.is_file():
            self.rows, size = _parsed(self.path)
        with open(self.path, "ab") as stream:
            if size is not None:
                stream.truncate(size)  # a half-written line
        if size:
            with open(self.path, "rb") as stream:
                stream.seek(-1, os.SEEK_END)
                whole = stream.read(1) == b"\n"
            if not whole:
                self._write(b"\n")

    def append(self, row: SweepRow) -> None:
        """Write a row to the disk; may be called from any thread, and at any time.

        Raises:
            OSError: it cannot be written; the file then still ends with a whole row.

        """
        self._write(json.dumps(row.to_dict(), allow_nan=False).encode() + b"\n")

    def _write(self, content: bytes) -> None:
        with self._lock, open(self.path, "ab", buffering=0) as stream:
            regular = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            start = stream.seek(0, os.SEEK_END) if regular else 0
            try:
                left = memoryview(content)
                while left:
                    left = left[stream.write(left) :]
                if regular:
                    os.fsync(stream.fileno())
            except OSError:
                if regular:
                    with contextlib.suppress(OSError):
                        stream.truncate(start)
                raise
