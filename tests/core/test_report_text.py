"""The text table: every state readable without colour, in any width and encoding, and quickly."""

from __future__ import annotations

import io
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.report_builder import CAUSAL, STORED, bound, deep_report, known, layer, report, reports, unknown
from torchscan import Diagnostic, Report
from torchscan.contract.tokens import TokenDependencies
from torchscan.report.causes import REMEDIES, causes
from torchscan.report.formats import FormatError, RenderOptions
from torchscan.report.schema import MetricOwner, ParameterCount
from torchscan.report.text import print_summary, render

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def text(one: Report, **options) -> str:
    return render(one, RenderOptions(**options))


def row(page: str, name: str) -> list[str]:
    """Return the cells of the row whose label ends in `name`, split where two blanks are."""
    for line in page.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if re.sub(r"^[├└│─|`\- ]+", "", cells[0]) == name:
            return cells
    raise AssertionError(f"no row {name} in\n{page}")


# -- the table ---------------------------------------------------------------------------------------------------------


def test_every_state_of_a_row():
    page = text(
        report(
            layer("", "Model"),
            layer("zero", metrics={"macs": known(0)}),
            layer("some", metrics={"macs": known(1_200_000_000)}),
            layer("bound", metrics={"macs": bound(1_239_999_999)}),
            layer("none", metrics={"macs": unknown()}),
            totals={"macs": bound(2_439_999_999)},
        ),
        columns=("macs",),
    )
    cells = {name: row(page, name)[1:] for name in ("zero", "some", "bound", "none", "model")}
    assert cells == {
        "zero": ["0"],
        "some": ["1.20 G"],
        "bound": [">= 1.23 G"],
        "none": ["?"],
        "model": ["(>= 2.43 G)"],  # 1,200,000,000 + 1,239,999,999, rounded down
    }
    assert "MACs                 >= 2.43 G  a lower bound" in page
    assert ">= a lower bound; ? unavailable; ( ) the sum of the calls inside" in page


def test_unavailable_and_unrequested_totals_are_no_zeros():
    page = text(
        report(
            totals={"macs": unknown(), "dmas": unknown("DMAs", "forward", "not_requested"), "module_flops": known(0)}
        )
    )
    assert re.search(r"MACs +\?  unavailable", page)
    assert re.search(r"DMAs +not requested", page)
    assert re.search(r"module FLOPs +0$", page, re.M)


def test_covered_metrics_name_their_owner():
    owner = {"macs": MetricOwner("encoder", 1), "dmas": MetricOwner("encoder", 1)}
    page = text(
        report(
            layer("", "Model"),
            layer("encoder"),
            layer("encoder", call_index=1, metrics={"macs": known(7), "dmas": known(9)}),
            layer("encoder.norm", metric_owners=owner),
            layer("encoder.other", metric_owners={"macs": MetricOwner("", 0), "dmas": MetricOwner("encoder", 1)}),
        ),
        columns=("macs", "dmas", "owner"),
    )
    assert row(page, "norm")[1:] == ["^", "^", "encoder#1"]
    assert row(page, "other")[1:] == ["^", "^", "macs: (root), dmas: encoder#1"]
    assert row(page, "encoder#1")[1:] == ["7", "9"]
    assert "^ counted in the row of its owner" in page


def test_token_relations_in_a_word():
    page = text(
        report(
            layer("", "Model"),
            layer("causal", token_dependencies=CAUSAL),
            layer("padded", token_dependencies=TokenDependencies.unavailable("padding")),
        ),
        columns=("tokens",),
    )
    assert row(page, "causal")[1:] == ["causal"]
    assert row(page, "padded")[1:] == ["?"]


def test_depth_sums_up_what_it_hides():
    rows = [
        layer("", "Model"),
        layer("a", metrics={"macs": known(1)}, parameters=ParameterCount(10)),
        layer("a.b", metrics={"macs": known(10)}),
        layer("a.b.c", metrics={"macs": bound(100)}, parameters=ParameterCount(5, 2)),
        layer("d", metrics={"macs": known(1000)}),
    ]
    page = text(report(*rows), depth=1, columns=("parameters", "macs"), exact=True)
    assert row(page, "a (+2)")[1:] == ["(17)", "(>= 111)"]
    assert row(page, "d")[1:] == ["0", "1,000"]
    assert not re.search(r"─ [bc]\b", page)
    page = text(report(*rows), depth=0, columns=("macs",), exact=True)
    assert row(page, "model (+4)")[1:] == ["(>= 1,111)"]
    with pytest.raises(FormatError, match="not negative"):
        text(report(), depth=-1)


def test_a_covered_subtree_stays_covered_when_folded():
    owner = {"macs": MetricOwner("", 0)}
    rows = [
        layer("", "Model", metrics={"macs": known(8)}),
        layer("a", metric_owners=owner),
        layer("a.b", metric_owners=owner),
    ]
    page = text(report(*rows), depth=1, columns=("macs",))
    assert row(page, "a (+1)")[1:] == ["^"]
    assert row(text(report(*rows), depth=0, columns=("macs",)), "model (+2)")[1:] == ["8"]


def test_the_tree_follows_paths_whatever_the_order():
    page = text(
        report(
            layer(""), layer("a"), layer("shared"), layer("a.b"), layer("a", call_index=1), layer("a.b", call_index=1)
        )
    )
    labels = [re.match(r"(\W*\S+)", line)[1] for line in page.split("Totals")[0].splitlines() if "Linear" in line][1:]
    assert labels == ["├─ a#0", "│  └─ b#0", "├─ shared", "└─ a#1", "   └─ b#1"]


def test_a_shared_module_stands_where_it_ran_under_its_whole_path():
    inside = MetricOwner("decoder.block", 0)
    page = text(report(layer(""), layer("decoder.block"), layer("encoder.embed", parent=inside), layer("encoder")))
    labels = [re.match(r"(\W*\S+)", line)[1] for line in page.split("Totals")[0].splitlines() if "Linear" in line][1:]
    assert labels == ["├─ decoder.block", "│  └─ encoder.embed", "└─ encoder"]


def test_shares_never_divide_by_zero():
    rows = (layer("", "Model"), layer("a", metrics={"macs": known(3)}), layer("b", metrics={"macs": known(1)}))
    page = text(report(*rows, totals={"macs": known(4)}), columns=("share",))
    assert row(page, "a")[1:] == ["75.0 %"]
    assert row(page, "model")[1:] == ["100.0 %"]
    for total in (known(0), bound(4), unknown()):
        assert "%" not in text(report(*rows, totals={"macs": total}), columns=("share",))


def test_columns_are_chosen_by_name():
    page = text(
        report(layer("", metrics={"macs": known(3), "receptive_field": known(5)})), columns=("receptive_field", "type")
    )
    heading = page.splitlines()[3]
    assert heading.split() == ["call", "field", "type"]
    with pytest.raises(FormatError, match="no column 'flops'; the columns are type"):
        text(report(), columns=("flops",))


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_no_line_of_the_table_is_wider_than_the_terminal_where_it_can_help_it(file, width, encoding):
    page = text(Report.load(file), width=width, encoding=encoding)
    start = page.index("\ncall")
    table = page[start + 1 : page.index("\nTotals")].splitlines()
    # Numbers are never cut: five numeric columns and a label need about 60.
    assert width < 70 or max(map(len, table)) <= width
    assert all(number in page for number in ("parameters", "MACs"))


def test_numbers_are_never_cut():
    number = 123_456_789_012_345
    page = text(report(layer("", "M" * 70, metrics={"macs": known(number)})), width=30, exact=True)
    assert f"{number:,}" in page
    assert "M" * 30 not in page.split("\n", 1)[1]


def test_columns_without_room_are_named():
    page = text(Report.load(STORED[-1]), width=50)
    assert "no room for" in page


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437", "utf-8", "no-such-encoding"])
def test_any_console_can_show_it(encoding):
    page = text(
        report(
            layer("", "Modèle", name="模型"),
            layer("über", "Σ×", metrics={"macs": bound(7)}),
            diagnostics=(Diagnostic("unattributed_operator", "↯ fehlt", path="über"),),
            context={"model_type": "x.Modèle"},
        ),
        encoding=encoding,
        width=80,
    )
    page.encode("ascii" if encoding.startswith("no-") else encoding)
    assert ">= 7" in page
    if encoding == "utf-8":
        assert "模型" in page
        assert "└─ über" in page
    if encoding == "ascii":
        assert "`- \\xfcber" in page


HOSTILE = [
    "<script>alert(1)</script>",
    "a\x1b[31mred",
    "a\nb",
    "a\u202ecod",
    "x" * 10_000,
    "\x00",
    "]]>",
    "\ud800",
    "\u200b",
]


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_cannot_disturb_the_terminal(name):
    one = report(
        layer("", name, name=name),
        layer(
            name, name, token_dependencies=CAUSAL, metric_owners={"macs": MetricOwner(name, 0)}, handlers={"macs": name}
        ),
        diagnostics=(Diagnostic(name, name, path=name, operator=name, reason=name, metric=name),),
        context={"model_type": name, "devices": (name,)},
    )
    for options in (
        {},
        {"width": 80, "encoding": "ascii"},
        {"columns": ("handler", "owner", "input")},
        {"title": name},
    ):
        page = text(one, **options)
        assert all(character == "\n" or character.isprintable() for character in page)
        page.encode("utf-8")
        assert max(map(len, page.splitlines())) < 1500


def test_colour_adds_nothing_but_colour():
    for file in STORED:
        one = Report.load(file)
        plain, styled = text(one, width=90), text(one, width=90, color=True)
        assert "\x1b[" in styled
        assert "\x1b" not in plain
        assert ANSI.sub("", styled) == plain


def test_summary_is_plain_where_there_is_no_terminal(monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    one = Report.load(STORED[0])
    file, terminal, narrow = io.StringIO(), Terminal(), io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    print_summary(one, file)
    print_summary(one, terminal)
    print_summary(one, narrow, depth=1, columns=["macs"], exact=True, width=40)
    narrow.flush()
    assert "\x1b" not in file.getvalue()
    assert "\x1b[" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    quiet = Terminal()
    print_summary(one, quiet)
    assert "\x1b" not in quiet.getvalue()
    table = quiet.getvalue().split("Totals")[0]
    assert max(map(len, table.splitlines())) <= 70


@settings(max_examples=40, deadline=None)
@given(reports(), st.none() | st.integers(0, 2), st.none() | st.integers(1, 120), st.booleans())
def test_any_report_can_be_printed(one, depth, width, exact):
    page = text(one, depth=depth, width=width, exact=exact)
    assert page.endswith("\n")
    assert "Totals" in page
    assert "call" in text(one, before=one)


def test_the_work_of_a_table_grows_with_its_calls():
    """Counted, not timed: functions called per row must not grow when the report does."""

    def work(calls: int) -> tuple[int, int]:
        one, called = deep_report(calls), 0

        def count(frame, event, argument):
            nonlocal called
            called += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            page = text(one, width=120)
        finally:
            sys.setprofile(before)
        return called, len(page.splitlines())

    (small, few), (large, many) = work(500), work(5_000)
    assert few > 500
    assert many > 5_000
    assert large / many < 1.1 * small / few


# -- diagnostics -------------------------------------------------------------------------------------------------------


def test_diagnostics_are_grouped_by_cause():
    gelu = [
        Diagnostic("unsupported_module_metric", f"no formula for {path}", metric=metric, path=path)
        for path in ("a", "b", "c", "d")
        for metric in ("macs", "dmas")
    ]
    rows = [layer("", "Model"), *(layer(path, "GELU") for path in "abcd"), layer("e", "Tanh")]
    other = [Diagnostic("unsupported_module_metric", "no formula for e", metric="macs", path="e")]
    operators = [
        Diagnostic("uncounted_operator", "aten.sin ran", metric="operator_flops", operator="aten.sin", calls=3)
    ]
    broken = [Diagnostic("plugin_load_error", "broken", severity="error", plugin="pack", reason="import_error")]
    one = report(*rows, diagnostics=(*gelu, *other, *operators, *broken))
    found = causes(one)
    assert [(cause.code, cause.count, cause.type) for cause in found] == [
        ("plugin_load_error", 1, None),  # errors first
        ("unsupported_module_metric", 4, "GELU"),  # four calls, not eight diagnostics
        ("uncounted_operator", 3, None),
        ("unsupported_module_metric", 1, "Tanh"),
    ]
    assert found[1].metrics == ("macs", "dmas")
    assert found[1].places == ("a", "b", "c", "d")
    page = text(one)
    assert "4 x unsupported_module_metric: GELU [macs, dmas]" in page
    assert "for example: no formula for a" in page
    assert "in a, b, c and 1 more" in page
    assert "1 x plugin_load_error (import_error)" in page
    assert REMEDIES["unsupported_module_metric"] in page


def test_the_operator_view_is_not_listed_twice():
    diagnostic = Diagnostic("uncounted_operator", "aten.sin ran", operator="aten.sin")
    one = report(diagnostics=(diagnostic,))
    from attrs import evolve

    twice = evolve(one, operator_flops=evolve(one.operator_flops, diagnostics=(diagnostic,)))
    only_below = evolve(one, diagnostics=(), operator_flops=twice.operator_flops)
    assert [cause.count for cause in causes(twice)] == [cause.count for cause in causes(only_below)] == [1]


def test_every_code_has_a_remedy():
    from torchscan.contract.diagnostics import CODES

    assert REMEDIES.keys() == CODES.keys()


def test_a_code_of_a_later_release_is_shown_without_one():
    page = text(report(diagnostics=(Diagnostic("from_the_future", "something new"),)))
    assert "1 x from_the_future" in page
    assert "something new" in page


# -- two reports -------------------------------------------------------------------------------------------------------


def test_a_comparison_in_words():
    before = report(
        layer("", "Model"),
        layer("a", metrics={"macs": known(1000)}, token_dependencies=CAUSAL),
        layer("gone", "Tanh"),
        totals={"macs": known(1000), "dmas": known(10), "parameters": known(0), "module_flops": known(3)},
    )
    after = report(
        layer("", "Model"),
        layer("a", metrics={"macs": known(1250)}),
        layer("new", "GELU"),
        totals={"macs": known(1250), "dmas": bound(12), "parameters": known(7), "module_flops": known(3, method="n")},
    )
    page = text(after, before=before, exact=True)
    assert re.search(r"^MACs +1,000 +1,250  \+250 \(\+25\.0 %\)$", page, re.M)
    assert re.search(r"^DMAs +10 +>= 12  withheld: not both complete$", page, re.M)
    assert re.search(r"^module FLOPs +3 +3  withheld: methods differ$", page, re.M)
    assert re.search(r"^parameters +0 +7  \+7$", page, re.M)  # no percentage of nothing
    assert re.search(r"^1 added\n  new  GELU$", page, re.M)
    assert re.search(r"^1 removed\n  gone  Tanh$", page, re.M)
    assert re.search(r"^a +MACs +1,000 +1,250  \+250", page, re.M)
    assert re.search(r"tokens +causal \(query: 4; output: 4\) +none given", page)
    assert "No call was added, removed or changed." in text(after, before=after)


def test_a_cause_lists_every_metric_that_it_touches():
    found = Diagnostic("unattributed_operator", "the model: x", metric="macs", path="", reason="macs,module_flops,dmas")
    page = text(report(layer(""), diagnostics=(found,)))
    assert "1 x unattributed_operator: Linear [macs, module_flops, dmas]" in page
