"""What a report format is, and what a caller can ask of one.

A plugin offers formats through the hook `torchscan_register_report_formats`; the built-in ones come through the same
hook (`torchscan.report.builtin`). This module imports neither torch nor any drawing library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from torchscan.contract.errors import TorchScanError
from torchscan.contract.validators import matching

if TYPE_CHECKING:
    from torchscan.report.schema import Report

__all__ = ["FormatError", "MissingExtraError", "RenderOptions", "Renderer", "ReportFormat"]


class FormatError(TorchScanError, ValueError):
    """A report cannot be rendered as asked: an unknown format, metric or column, or a plugin's format failed."""


class MissingExtraError(TorchScanError, ImportError):
    """A format needs a library that is not installed; the message says what to install."""


@attrs.frozen(kw_only=True)
class RenderOptions:
    """What a caller asks of a format; a format ignores what has no meaning for it.

    Args:
        before: the report to compare with, for a before/after page.
        metric: the metric shown first: `macs`, `module_flops`, `dmas`, `parameters` or `parameter_bytes`.
        title: the heading; by default the model's type.
        depth: show calls down to this depth (the root is 0); `None` shows all.
        exact: exact numbers instead of SI units.
        width: columns of a terminal; `None` is the terminal's own, or as wide as needed where there is none.
        columns: the columns of a table; `None` is the format's own choice.
        color: styled text for a terminal; plain text otherwise.
        encoding: the encoding the text will be written in; characters it lacks are replaced.

    """

    before: Report | None = None
    metric: str = "macs"
    title: str | None = None
    depth: int | None = None
    exact: bool = False
    width: int | None = None
    columns: tuple[str, ...] | None = None
    color: bool = False
    encoding: str = "utf-8"


Renderer: TypeAlias = Callable[["Report", RenderOptions], str]


def _suffixes(value: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError(f"suffixes must be a tuple such as ('.html',), got the string {value!r}")
    return tuple(value)


def _renderer(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not callable(value) and not (isinstance(value, str) and all(value.partition(":"))):
        raise TypeError(f"render must be a callable or 'module:function', got {value!r}")


@attrs.frozen
class ReportFormat:
    """One way to write a report down.

    Args:
        name: what `--format` and `format=` call it.
        render: `(report, options) -> str`, or its place as `"module:function"`, imported on first use.
        suffixes: the file suffixes that select it (`.html`), with their dot.
        extra: the extra of its distribution that brings its libraries, as in `pip install 'torchscan[html]'`.
        distribution: the distribution the extra belongs to.

    """

    name: str = attrs.field(validator=matching(r"[a-z][a-z0-9_-]*", "'my-format'"))
    render: Renderer | str = attrs.field(validator=_renderer)
    suffixes: tuple[str, ...] = attrs.field(
        default=(),
        converter=_suffixes,
        validator=matching(r"(\.[a-z0-9]+)+", "'.mine'"),
    )
    extra: str | None = attrs.field(default=None, kw_only=True)
    distribution: str = attrs.field(default="torchscan", kw_only=True)

    def __call__(self, report: Report, options: RenderOptions) -> str:
        """Return `report` in this format.

        Raises:
            MissingExtraError: a library it needs is not installed.

        """
        try:
            if isinstance(self.render, str):
                module, _, name = self.render.partition(":")
                render: Renderer = getattr(importlib.import_module(module), name)
            else:
                render = self.render
            return render(report, options)
        except ModuleNotFoundError as error:
            if self.extra is None or isinstance(error, MissingExtraError):
                raise
            raise MissingExtraError(
                f"the {self.name} format needs {error.name}, which is not installed: "
                f"pip install '{self.distribution}[{self.extra}]'"
            ) from error
