"""The HTML page: one file that opens offline, asks the network for nothing and runs only its own scripts.

Jinja writes the parts that are text and tables; the picture of the call tree is drawn by plotly, whose bundle is part
of the file. Everything that comes from the scanned program is text: autoescaped by Jinja, or in a JSON block.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from torchscan._version import __version__
from torchscan.report import html_sections as sections
from torchscan.report.causes import causes
from torchscan.report.html_data import as_json, page_data
from torchscan.report.labels import describe_input, shortened, visible
from torchscan.report.schema import CallInput
from torchscan.report.token_pictures import token_cards

if TYPE_CHECKING:
    import jinja2

    from torchscan.report.formats import RenderOptions
    from torchscan.report.schema import Report

__all__ = ["render"]

_SCRIPTS: Final = ("data.js", "chart.js", "details.js", "table.js", "page.js")
#: Token relations that get a picture.
_CARDS: Final = 60
#: What only the operator view says.
_OPERATOR_CODES: Final = frozenset(
    {"uncounted_operator", "unsupported_operator_formula", "incomplete_operator_formula"}
)


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as one self-contained HTML page.

    Args:
        report: the report.
        options: `before` adds the comparison and its tree, `metric` is shown first, `title` is the heading.

    Raises:
        ModuleNotFoundError: jinja2 or plotly is missing; `ReportFormat` turns it into a sentence that names the extra.

    """
    before = options.before
    data = page_data(report, before, options.metric)
    cards = token_cards(report.layers)
    operators = report.operator_flops
    found = causes(report)
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=options.title or report.context.model_type,
            report=report,
            before=before,
            inputs=describe_input(CallInput(report.inputs.args, report.inputs.kwargs)),
            totals=sections.totals(report),
            comparison=sections.changes(before, report, data["first"]) if before is not None else None,
            metrics=[(metric["key"], metric["label"], metric["asked"]) for metric in data["metrics"]],
            cards=cards[:_CARDS],
            more_cards=max(len(cards) - _CARDS, 0),
            causes=[cause for cause in found if cause.code not in _OPERATOR_CODES],
            operators=operators,
            operator_total=sections.cell(operators.total),
            operator_rows=sections.operator_rows(operators.by_operator),
            operator_modules=sections.operator_rows(operators.by_module)[: sections.LISTED],
            operator_causes=[cause for cause in found if cause.code in _OPERATOR_CODES],
            context=sections.context(report),
            listed=sections.LISTED,
            data=_raw(as_json(data)),
            version=__version__,
            **_page_parts(),
        )
    )
    return str(page)


def _raw(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("torchscan.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value passes here before it is escaped: what the scanned program calls itself stays visible text.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters["shortened"] = shortened
    return environment


@functools.cache
def _page_parts() -> dict[str, Any]:
    """Return the constant parts of the page and the policy that admits exactly them."""
    from plotly.offline import get_plotlyjs

    plotly = _script(get_plotlyjs())
    templates = resources.files("torchscan.report") / "templates"
    own = _script("\n".join((templates / name).read_text(encoding="utf-8") for name in _SCRIPTS))
    style = _newlines((templates / "page.css").read_text(encoding="utf-8"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(plotly)} {_digest(own)}",
            # plotly makes one empty style element and fills it through the style sheet object.
            f"style-src {_digest(style)} {_digest('')}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    # A map library inside plotly adds a style sheet of its own unless its id is already taken, and the policy would
    # refuse it with a message in the console. The page has no maps.
    taken = sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', plotly)))
    return {
        "policy": policy,
        "plotly": _raw(plotly),
        "script": _raw(own),
        "style": _raw(style),
        "taken": taken,
    }


def _script(text: str) -> str:
    return _newlines(text).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _newlines(text: str) -> str:
    """Return `text` with the line ends an HTML parser makes of it, so that its digest stays true."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
