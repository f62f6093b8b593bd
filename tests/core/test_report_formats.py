"""Formats: who offers them, how one is found, and what each writes."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import sys

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt

import torchscan
from core.report_builder import CAUSAL, STORED, bound, deep_report, known, layer, report, reports, stored, unknown
from torchscan import Diagnostic, Report, render_report
from torchscan.contract.states import METRICS
from torchscan.plugins.manager import PluginHost
from torchscan.report.formats import FormatError, MissingExtraError, RenderOptions, ReportFormat
from torchscan.report.render import find_format, format_for, write_report
from torchscan.report.schema import MetricOwner, ParameterCount

PLAIN = ("text", "markdown", "csv", "json", "speedscope")


class Pack:
    """A plugin with formats of its own."""

    def __init__(self, *formats):
        self.formats = formats

    @torchscan.hookimpl
    def torchscan_register_report_formats(self):
        return self.formats


def host(*formats):
    return PluginHost([Pack(*formats)], autoload=False)


# -- the door ----------------------------------------------------------------------------------------------------------


def test_the_usual_formats_come_through_the_hook():
    names = {offered.format.name for offered in PluginHost(autoload=False).formats}
    assert names == {"text", "html", "svg", "markdown", "csv", "json", "speedscope"}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_stored_report_renders_in_every_plain_format(file, name):
    data = json.loads(file.read_text())
    one = render_report(data, format=name)
    assert one == render_report(Report.from_dict(data), format=name)
    assert one.endswith("\n")
    assert render_report(data, format=name, before=stored("v0_2_0/mixed"))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.txt", "text"),
        ("a.html", "html"),
        ("a.HTM", "html"),
        ("a/b.svg", "svg"),
        ("a.md", "markdown"),
        ("a.csv", "csv"),
        ("a.json", "json"),
        ("a.speedscope.json", "speedscope"),
        ("a.b.json", "json"),
    ],
)
def test_the_suffix_selects_the_format(file, name):
    assert format_for(file).format.name == name


def test_a_plugin_offers_a_format():
    pack = host(
        ReportFormat("words", lambda report, options: f"{options.metric} of {report.context.model_type}", (".words",))
    )
    assert render_report(report(), format="words", metric="dmas", host=pack) == "dmas of tests.Model"
    assert format_for("x.words", pack).format.name == "words"
    assert find_format("text", pack).format.name == "text"


def test_torchscans_own_suffix_cannot_be_taken():
    pack = host(ReportFormat("mine", lambda report, options: "", (".md", ".long.md")))
    assert format_for("x.md", pack).format.name == "markdown"


def test_a_plugins_failing_format_is_named():
    def fails(report, options):
        raise KeyError("x")

    pack = host(ReportFormat("fails", fails), ReportFormat("none", lambda report, options: None))
    with pytest.raises(FormatError, match=r"the format 'fails' of plugin '[^']*Pack' failed: KeyError: 'x'"):
        render_report(report(), format="fails", host=pack)
    with pytest.raises(FormatError, match="returned NoneType, not a string"):
        render_report(report(), format="none", host=pack)


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(FormatError, match="no report format 'pdf'; there are text, html"):
        render_report(report(), format="pdf")
    with pytest.raises(FormatError, match=r"no report format has the suffix of 'a\.pdf'"):
        format_for("a.pdf")
    with pytest.raises(FormatError, match="no metric 'flops' to draw; there are macs, module_flops"):
        render_report(report(), format="text", metric="flops")


def test_a_missing_extra_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "no_such_library", None)

    def needs(report, options):
        import no_such_library  # noqa: F401

    page = ReportFormat("page", needs, extra="html")
    with pytest.raises(MissingExtraError) as caught:
        page(report(), RenderOptions())
    assert str(caught.value) == (
        "the page format needs no_such_library, which is not installed: pip install 'torchscan[html]'"
    )
    with pytest.raises(ModuleNotFoundError):
        ReportFormat("page", needs)(report(), RenderOptions())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("Bad Name", print), ValueError),
        (("ok", "no-colon"), TypeError),
        (("ok", 3), TypeError),
        (("ok", print, ".md"), TypeError),
        (("ok", print, ("md",)), ValueError),
    ],
)
def test_a_format_checks_itself(arguments, error):
    with pytest.raises(error):
        ReportFormat(*arguments)


def test_a_report_is_written_by_suffix(tmp_path):
    for name in ("a.txt", "a.md", "a.csv", "a.json", "a.speedscope.json"):
        write_report(stored("v1/attention"), tmp_path / name)
        assert (tmp_path / name).read_text() == render_report(
            stored("v1/attention"), format=format_for(name).format.name
        )
    write_report(stored("v1/attention"), tmp_path / "odd.name", format="json")
    assert Report.load(tmp_path / "odd.name") == Report.from_dict(stored("v1/attention"))


# -- markdown ----------------------------------------------------------------------------------------------------------

HOSTILE = "<script>a|b`c``d</script>\n@someone #1 [x](http://y) \u202e\\"


def hostile() -> Report:
    return report(
        layer("", HOSTILE, name=HOSTILE),
        layer(HOSTILE, HOSTILE, metrics={"macs": bound(7)}, metric_owners={"dmas": MetricOwner(HOSTILE, 0)}),
        diagnostics=(Diagnostic(HOSTILE, HOSTILE, path=HOSTILE, operator=HOSTILE, reason=HOSTILE, metric=HOSTILE),),
        context={"model_type": HOSTILE},
    )


def tables(page: str) -> list[list[list[str]]]:
    """Return the tables as a renderer sees them: their rows of cells, without tags."""
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    return [
        [
            [
                html.unescape(re.sub("<[^>]*>", "", cell))
                for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line, re.S)
            ]
            for line in re.findall(r"<tr>(.*?)</tr>", table, re.S)
        ]
        for table in re.findall(r"<table>(.*?)</table>", rendered, re.S)
    ]


def test_markdown_as_a_renderer_sees_it():
    one = report(
        layer("", "Model"),
        layer("a", metrics={"macs": bound(1000), "dmas": known(3)}),
        layer("b", metrics={"macs": unknown()}),
        totals={"macs": bound(1000), "dmas": known(3), "module_flops": unknown("FLOPs", "forward", "not_requested")},
    )
    totals, calls = tables(render_report(one, format="markdown"))
    assert ["MACs", ">= 1.00 k", "partial"] in totals
    assert ["DMAs", "3", "complete"] in totals
    assert ["module FLOPs", "not requested", ""] in totals
    assert calls[0] == ["call", "type", "output", "params", "MACs", "DMAs"]
    assert calls[1:] == [
        ["model", "Model", "1×2", "0", "(>= 1.00 k)", "(>= 3)"],
        ["├─ a", "Linear", "1×2", "0", ">= 1.00 k", "3"],
        ["└─ b", "Linear", "1×2", "0", "?", "?"],
    ]


def test_hostile_names_stay_text_in_markdown():
    for page in (
        render_report(hostile(), format="markdown", title=HOSTILE),
        render_report(hostile(), format="markdown", before=report(layer("", "Model"), layer("x|y", "A`B"))),
    ):
        rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
        assert "<script" not in rendered
        assert "<a " not in rendered
        outside = re.sub(r"<code>.*?</code>", "", rendered, flags=re.S)
        assert "@someone" not in outside
        assert "http" not in outside
        widths = [{len(row) for row in table} for table in tables(page)]
        assert all(len(each) == 1 for each in widths)


def test_markdown_fits_into_a_comment():
    page = render_report(deep_report(5_000), format="markdown")
    assert len(page) < 65_536
    assert re.search(r"[\d,]+ more rows are in the report\.", page)
    changed = deep_report(4_000)
    assert len(render_report(changed, format="markdown", before=report())) < 65_536


def test_markdown_of_a_comparison():
    before = report(layer("", metrics={"macs": known(4)}), totals={"macs": known(4), "dmas": known(1)})
    after = report(
        layer("", metrics={"macs": known(6)}), layer("n", "New"), totals={"macs": known(6), "dmas": bound(2)}
    )
    totals, changed, added = tables(render_report(after, format="markdown", before=before))
    assert ["MACs", "4", "6", "+2 (+50.0 %)"] in totals
    assert ["DMAs", "1", ">= 2", "withheld: not both complete"] in totals
    assert changed[1:] == [["(root)", "MACs", "4", "6", "+2 (+50.0 %)"]]
    assert added[1:] == [["n", "New"]]


# -- records and csv ---------------------------------------------------------------------------------------------------


def test_records_are_flat_and_alike():
    one = report(
        layer("", "Model"),
        layer(
            "a",
            metrics={"macs": known(2**60), "dmas": bound(3), "module_flops": unknown()},
            parameters=ParameterCount(4, 1, 20, True),
            token_dependencies=CAUSAL,
            handlers={"macs": "native"},
        ),
        layer("a.b", metric_owners={"macs": MetricOwner("a", 0)}),
    )
    root, a, b = one.to_records()
    assert root.keys() == a.keys() == b.keys()
    assert all(not isinstance(value, (dict, list, tuple)) for value in a.values())
    assert (a["macs"], a["macs_known"], a["macs_status"], a["macs_handler"]) == (2**60, 2**60, "complete", "native")
    assert (a["dmas"], a["dmas_known"], a["dmas_status"]) == (None, 3, "partial")
    assert (a["module_flops"], a["module_flops_known"], a["module_flops_status"]) == (None, None, "unavailable")
    assert (a["trainable_parameters"], a["frozen_parameters"], a["parameter_bytes"], a["parameters_shared"]) == (
        4,
        1,
        20,
        True,
    )
    assert (a["tokens"], a["tokens_status"]) == ("causal", "complete")
    assert (b["macs"], b["macs_status"], b["macs_owner"]) == (None, "covered", "a")
    assert (root["macs"], root["macs_status"], root["tokens"]) == (None, None, None)


def test_csv_reads_back():
    one = Report.from_dict(stored("v1/convolutions"))
    rows = list(csv.DictReader(io.StringIO(render_report(one, format="csv"))))
    assert [row["path"] for row in rows] == [each.path for each in one.layers]
    for row, each in zip(rows, one.layers, strict=True):
        for metric in METRICS:
            result = each.metrics.get(metric)
            assert row[metric] == ("" if result is None or result.value is None else str(result.value))


def test_csv_runs_no_formula():
    name = '=HYPERLINK("http://x")'
    (row,) = csv.DictReader(io.StringIO(render_report(report(layer("", name, name="@x")), format="csv")))
    assert row["type"] == "'" + name
    assert row["name"] == "'@x"


def test_csv_of_a_comparison():
    before = report(layer("", metrics={"macs": known(4)}), layer("gone"), totals={"macs": known(4)})
    after = report(layer("", metrics={"macs": bound(6)}), totals={"macs": known(6)})
    rows = list(csv.DictReader(io.StringIO(render_report(after, format="csv", before=before))))
    (total,) = [row for row in rows if (row["change"], row["metric"]) == ("total", "macs")]
    assert (total["before"], total["after"], total["delta"], total["withheld"]) == ("4", "6", "2", "")
    (changed,) = [row for row in rows if row["change"] == "changed"]
    assert (changed["metric"], changed["after"], changed["after_status"], changed["withheld"]) == (
        "macs",
        "6",
        "partial",
        "status",
    )
    (removed,) = [row for row in rows if row["change"] == "removed"]
    assert (removed["path"], removed["metric"], removed["withheld"]) == ("gone", "calls", "missing")


# -- speedscope --------------------------------------------------------------------------------------------------------


def profile(one: Report, name: str, **options) -> tuple[dict, list[str]]:
    document = json.loads(render_report(one, format="speedscope", **options))
    (found,) = [each for each in document["profiles"] if each["name"] == name]
    return found, [frame["name"] for frame in document["shared"]["frames"]]


def widths(found: dict, names: list[str]) -> dict[str, int]:
    """Check that the events nest and go forward, and return how wide each call is."""
    stack: list[tuple[int, int]] = []
    wide: dict[str, int] = {}
    last = found["startValue"]
    for event in found["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            stack.append((event["frame"], last))
        else:
            frame, start = stack.pop()
            assert frame == event["frame"]
            wide[names[frame]] = wide.get(names[frame], 0) + last - start
    assert not stack
    assert last == found["endValue"]
    return wide


def test_speedscope_widths_are_the_work():
    one = report(
        layer("", "Model"),
        layer("a", "Block", metrics={"macs": known(5)}),
        layer("a.b", "Leaf", metrics={"macs": bound(7)}),
        layer("c", "Leaf", metrics={"macs": unknown()}),
        layer("d", "Owner", metrics={"macs": known(11)}),
        layer("d.e", "Leaf", metric_owners={"macs": MetricOwner("d", 0)}),
        totals={"macs": bound(23)},
    )
    found, names = profile(one, "MACs (a lower bound)")
    assert widths(found, names) == {
        ">= model (Model)": 23,  # 5 + 7 + 11
        ">= a (Block)": 12,
        ">= b (Leaf)": 7,
        "? c (Leaf)": 0,
        "d (Owner)": 11,
    }


def test_speedscope_shows_the_metric_asked_for_and_both_reports():
    one = stored("v1/convolutions")
    document = json.loads(render_report(one, format="speedscope", metric="parameters"))
    assert document["profiles"][document["activeProfileIndex"]]["name"] == "Parameters"
    document = json.loads(render_report(one, format="speedscope", metric="macs", before=stored("v0_2_0/convolutions")))
    names = [each["name"] for each in document["profiles"]]
    assert "before: MACs" in names
    assert document["profiles"][document["activeProfileIndex"]]["name"] == "after: MACs"


@settings(max_examples=30, deadline=None)
@given(reports())
def test_any_report_in_any_plain_format(one):
    for name in PLAIN:
        page = render_report(one, format=name)
        page.encode("utf-8")
        assert render_report(one, format=name, before=one)
    assert one._repr_html_()
    one.to_records()


# -- notebooks ---------------------------------------------------------------------------------------------------------


def test_a_report_shows_itself_in_a_notebook():
    page = hostile()._repr_html_()
    assert page.startswith("<pre")
    assert page.count("<") == 2  # the pre itself, and its end
    assert "&lt;script&gt;" in page
    assert "&gt;= 7" in page


def test_a_long_report_is_folded_in_a_notebook():
    page = deep_report(5_000)._repr_html_()
    assert len(page.splitlines()) < 500
    assert "(+n) calls not shown" in page


@pytest.mark.parametrize("format_", ["html", "svg", "text", "markdown"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"depth": -1}, "not negative, got -1"),
        ({"depth": "1"}, "a whole number"),
        ({"title": 5}, "title must be text, got int"),
        ({"columns": "macs"}, "columns must be a list of names"),
    ],
)
def test_options_of_the_wrong_type_are_refused_by_every_format(format_, options, sentence):
    with pytest.raises(FormatError, match=sentence):
        render_report(report(layer("", metrics={"macs": known(4)})), format=format_, **options)
