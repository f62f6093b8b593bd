"""The errors torchscan raises on its own account.

An exception raised by the user's model is never wrapped: it reaches the caller as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchscan.report.schema import Report

__all__ = ["ConcurrentScanError", "FakeExecutionError", "IncompleteAnalysisError", "ReportError", "TorchScanError"]


class TorchScanError(Exception):
    """Base class of every error torchscan raises on its own account."""


class ConcurrentScanError(TorchScanError, RuntimeError):
    """The same module instance is already being scanned."""


class FakeExecutionError(TorchScanError, RuntimeError):
    """The model's code needs real values, which `execution="fake"` does not compute; the message names the line."""


class ReportError(TorchScanError, ValueError):
    """A stored report cannot be read; the message names the field."""


class IncompleteAnalysisError(TorchScanError):
    """A strict scan found an incomplete metric.

    Attributes:
        report: the typed report of the finished scan, with every diagnostic.

    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type[IncompleteAnalysisError], tuple[str, Report]]:
        """Take the report along between processes."""
        return type(self), (str(self), self.report)
