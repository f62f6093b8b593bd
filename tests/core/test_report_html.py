"""The HTML page as text: what it holds, what its policy admits, and that foreign text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import HealthCheck, given, settings

from core.report_builder import DATA, STORED, bound, deep_report, known, layer, report, reports, unknown
from torchscan.contract.diagnostics import Diagnostic
from torchscan.report import html
from torchscan.report.formats import MissingExtraError, RenderOptions, ReportFormat
from torchscan.report.labels import shortened, visible
from torchscan.report.schema import MetricOwner, ParameterCount, Report

HOSTILE = [
    "<script>window.hostile = 1</script>",
    "</script><script>window.hostile = 2</script>",
    "]]>",
    "<!-- <script>",
    "a\u2028b\u2029c",
    "\u202egnp.exe",
    "\x00\x1b[31m\ud800",
    '" onmouseover="window.hostile = 3',
    "{{ 7 * 7 }} {% raw %}",
    "&lt;b&gt;",
    "x" * 10_000,
]


class Page(HTMLParser):
    """The elements of a page, the text of its scripts and styles, and the text that people read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.open: tuple[str, dict[str, str | None]] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open = (tag, dict(attributes)) if tag in ("script", "style") else None

    def handle_data(self, data):
        if self.open is None:
            self.words.append(data)
        else:
            self.raw.append((*self.open, data))

    def handle_endtag(self, tag):
        self.open = None

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def data(self):
        return json.loads(next(text for _, attributes, text in self.raw if attributes.get("id") == "report-data"))

    @property
    def policy(self) -> str:
        return next(
            attributes["content"]
            for tag, attributes in self.elements
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        )


def page(drawn: Report, **options) -> Page:
    return Page(html.render(drawn, RenderOptions(**options)))


def small() -> Report:
    return report(
        layer("", "Model"),
        layer("linear", metrics={"macs": known(1234567)}),
        layer("dark", "Mystery", metrics={"macs": unknown()}),
        totals={"macs": bound(1234567, "MACs", "forward")},
        diagnostics=(Diagnostic("unsupported_module_metric", "dark has no formula.", metric="macs", path="dark"),),
    )


def test_the_policy_admits_exactly_the_scripts_and_styles_of_the_page():
    drawn = page(small())
    directives = dict(part.split(" ", 1) for part in drawn.policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in drawn.policy
    for kind, directive in (("script", "script-src"), ("style", "style-src")):
        found = {
            "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
            for tag, attributes, text in drawn.raw
            if tag == kind and attributes.get("type") != "application/json"
        }
        admitted = set(directives[directive].split())
        # The empty style element is the one that plotly fills through the style sheet object.
        assert admitted - {"'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"} == found


def test_nothing_in_the_page_needs_the_network_or_inline_handlers():
    for tag, attributes in page(small(), before=small()).elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), tag


def test_states_are_written_where_no_script_runs():
    drawn = page(small())
    # 1,234,567 rounds to 1.23 M; a bound is rounded down anyway.
    assert "MACs ≥ 1.23 M lower bound" in drawn.text
    assert "dark has no formula." in drawn.text
    assert "unsupported_module_metric" in drawn.text


def test_the_data_block_says_what_each_row_says():
    drawn = report(
        layer("", "Model", parameters=ParameterCount(1, 2, 12)),
        layer("o", "Owner", metrics={"macs": known(2**60 + 1, scope="subtree")}),
        layer("o.x", metric_owners={"macs": MetricOwner("o", 0)}),
        layer("p", metrics={"macs": bound(5)}),
        layer("u", metrics={"macs": unknown()}),
        context={"execution": "real"},
    )
    data = page(drawn).data
    (columns,) = data["reports"]
    sizes = columns["sizes"]["macs"]
    assert sizes["own"] == "-copu"
    assert sizes["total"] == "pcopu"
    # Beyond 2**53 a number travels as text, so that no digit is lost.
    assert sizes["ownNumber"] == [None, str(2**60 + 1), None, 5, None]
    assert sizes["totalNumber"][0] == str(2**60 + 6)
    assert sizes["owner"] == {"2": 1}
    assert columns["parent"] == [-1, 0, 1, 0, 0]
    assert columns["sizes"]["parameters"]["ownNumber"] == [3, 0, 0, 0, 0]
    assert [data["texts"][number] for number in columns["path"]] == ["", "o", "o.x", "p", "u"]


def test_a_metric_nobody_asked_for_cannot_be_chosen():
    quiet = unknown("MACs", "forward", "not_requested")
    drawn = page(report(totals={"macs": quiet, "dmas": quiet, "module_flops": quiet}))
    assert drawn.data["first"] == "parameters"
    assert drawn.data["reports"][0]["sizes"]["macs"] is None
    disabled = {a["value"] for tag, a in drawn.elements if tag == "input" and "disabled" in a}
    assert disabled == {"macs", "dmas", "module_flops"}


def named(text: str) -> Page:
    """Return a page that shows `text` in every place where a scanned program can put a text."""
    drawn = report(
        layer("", text),
        layer(text, text, metrics={"macs": known(1, method=text)}, handlers={"macs": text}),
        context={"model_type": text},
        diagnostics=(Diagnostic(text, text, metric=text, path=text, operator=text, plugin=text, reason=text),),
    )
    return page(drawn, before=report(layer(text + text, text)), title=text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(text):
    seen = named(text)
    # The same elements as for a harmless text: none comes out of it.
    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in named("harmless").elements]
    assert not [name for _, attributes in seen.elements for name in attributes if name.startswith("on")]
    # All of it can be read, with what is invisible written out.
    assert " ".join(visible(text).split()) in seen.text
    assert visible(text) in seen.data["texts"]


def test_the_data_block_cannot_be_ended_from_inside():
    text = html.render(report(layer("", "</script><!--<script>&")), RenderOptions())
    block = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)[1]
    assert not set("<>&") & set(block)
    assert block.isascii()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports(), reports())
def test_any_two_reports_can_be_drawn(first, second):
    text = html.render(first, RenderOptions(before=second))
    assert text.count("<script") - html._page_parts()["plotly"].count("<script") == 3
    assert Page(text[: text.index('<script type="application/json"')]).elements


@pytest.mark.parametrize("file", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_reports_of_every_release_can_be_drawn(file):
    drawn = Report.load(file)
    assert len(page(drawn).data["reports"][0]["parent"]) == len(drawn.layers)


def test_a_report_of_5000_calls_stays_below_12_megabytes():
    big = deep_report(5000)
    assert len(big.layers) > 4900
    assert len(html.render(big, RenderOptions(before=big)).encode()) < 12_000_000


def test_a_missing_library_is_a_sentence_that_names_the_extra(monkeypatch):
    html._page_parts.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    offered = ReportFormat("html", "torchscan.report.html:render", (".html",), extra="html")
    with pytest.raises(MissingExtraError, match=r"pip install 'torchscan\[html\]'"):
        offered(small(), RenderOptions())
    html._page_parts.cache_clear()


def test_rendering_a_stored_report_imports_no_torch():
    code = (
        "import sys; from torchscan import Report; from torchscan.report.html import render;"
        "from torchscan.report.svg import render as svg; from torchscan.report.formats import RenderOptions;"
        f"r = Report.load({str(DATA / 'v1' / 'transformer.json')!r}); render(r, RenderOptions(before=r));"
        "svg(r, RenderOptions()); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_text_is_made_visible_and_short():
    assert visible("a\u202eb\n\x00\ud800") == "a\\u202eb\\n\\u0000\\ud800"
    assert visible("é – ≥ 中") == "é – ≥ 中"
    # Ten characters: six of the beginning, an ellipsis, three of the end.
    assert shortened("0123456789abcdef", 10) == "012345…def"
    assert shortened("0123456789", 10) == "0123456789"


# -- contrast, after WCAG 2.2: 4.5 for text --------------------------------------------------------------------------


def themes():
    style = (resources.files("torchscan.report") / "templates" / "page.css").read_text()
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style[: style.index("@media")]))
    dark = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", style[style.index("@media") : style.index("* {")]))
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


PAIRS = [
    *(("ink", ground) for ground in ("paper", "ground", "composite", "other", "dim", "covered")),
    *(("ink", f"type-{number}") for number in range(8)),
    *((text, ground) for text in ("quiet", "accent", "alert", "more", "less") for ground in ("paper", "ground")),
    ("paper", "accent"),
    ("bound", "bound-ground"),
    ("bound", "ground"),
    ("unknown", "unknown-ground"),
    ("unknown", "ground"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_has_enough_contrast(theme, text, ground):
    colours = themes()[theme]
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_focus_ring_has_enough_contrast(theme):
    colours = themes()[theme]
    assert min(contrast(colours["focus"], colours[ground]) for ground in ("paper", "ground")) >= 3
