"""The report page as a reader uses it: offline, by mouse and keyboard, on wide and narrow screens, on paper."""

from __future__ import annotations

import base64
import re

import pytest

from browser.conftest import NARROW, WIDE
from browser.reports import tiny_transformer, translator
from core.report_builder import STORED, deep_report, known, layer, report, unknown
from torchscan.contract.diagnostics import Diagnostic
from torchscan.report import units
from torchscan.report.schema import MetricOwner, Report

TAB, ENTER, ESCAPE, HOME = "\ue004", "\ue007", "\ue00c", "\ue011"
LEFT, UP, RIGHT, DOWN = "\ue012", "\ue013", "\ue014", "\ue015"


def test_switching_the_metric_changes_every_number(browser):
    browser.open(tiny_transformer())
    # By hand, in the derivations: 1088 MACs, 2694 module FLOPs, 2144 DMAs.
    for metric, number, short in (
        ("macs", "1,088 MACs", "1.09 k"),
        ("module_flops", "2,694 FLOPs", "2.69 k"),
        ("dmas", "2,144 DMAs", "2.14 k"),
    ):
        browser.choose("metric", metric)
        assert browser.js("return document.querySelector('input[name=metric]:checked').value") == metric
        assert number in browser.selected
        assert short in browser.sectors()["Transformer"]["text"]
    assert "Share of DMAs" in browser.text("#part-head")


def test_areas_follow_the_numbers_and_nothing_unknown_is_drawn_as_zero(browser):
    owner = {"macs": MetricOwner("own", 0)}
    browser.open(
        report(
            layer("", "Model"),
            layer("a", metrics={"macs": known(600)}),
            layer("own", "Owner", metrics={"macs": known(350, scope="subtree")}),
            layer("own.x", metric_owners=owner),
            layer("dark", "Mystery", metrics={"macs": unknown()}),
            layer("none", "Dropout", metrics={"macs": known(0)}),
            context={"execution": "real"},
        )
    )
    drawn = browser.sectors()
    # The unknown call has 0.05 of the width; the other 0.95 are 600 : 350, that is 0.6 and 0.35 of the whole.
    whole = drawn["Model"]["width"]
    shares = {title: sector["width"] / whole for title, sector in drawn.items()}
    assert shares == pytest.approx({"Model": 1, "a": 0.6, "own": 0.35, "own.x": 0.35, "dark": 0.05}, abs=0.01)
    hatched = {title for title, sector in drawn.items() if sector["hatched"]}
    assert hatched == {"Model", "own.x", "dark"}
    assert "≥ 950" in drawn["Model"]["text"]
    assert "?" in drawn["dark"]["text"]
    # A covered call has no number of its own, in the picture as in the table.
    assert not re.search(r"\d", drawn["own.x"]["text"])
    cells = {row.find_element("css selector", "th").text: row.text for row in browser.all("#calls-table tbody tr")}
    assert "in owner" in cells["x"]
    assert "?" in cells["dark"]
    assert "1 call of exactly 0 not drawn" in browser.text("#chart-note")


def test_zooming_by_mouse_and_back(browser):
    browser.open(translator())
    browser.click("core")
    assert browser.crumbs == ["Translator", "core"]
    assert set(browser.sectors()) >= {"core", "core.encoder", "core.decoder"}
    assert "gate" not in browser.sectors()
    browser.click("core.decoder")
    assert browser.crumbs == ["Translator", "core", "decoder"]
    browser.click("core.decoder")  # the top of the picture: one step out
    assert browser.crumbs == ["Translator", "core"]
    browser.one("#crumbs button").click()
    assert browser.crumbs == ["Translator"]
    assert "mystery" in browser.sectors()


def test_the_keyboard_alone_is_enough(browser):
    browser.open(translator())
    for _ in range(30):
        browser.keys(TAB)
        if browser.js("return document.activeElement.id") == "chart":
            break
    assert browser.js("return document.activeElement.id") == "chart"
    outline = browser.js("const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]")
    assert outline == ["solid", "3px"]
    browser.keys(DOWN)
    first = browser.selected
    browser.keys(RIGHT)
    assert browser.selected != first
    browser.keys(LEFT)
    assert browser.selected == first
    assert first.startswith("core,")
    browser.keys(ENTER)
    assert browser.crumbs == ["Translator", "core"]
    browser.keys(DOWN, DOWN)
    assert browser.selected.startswith("core.encoder.layers.0")
    browser.keys(UP, UP)
    assert browser.selected.startswith("core,")
    browser.keys(ESCAPE)
    assert browser.crumbs == ["Translator"]
    browser.keys(DOWN, ENTER, HOME)
    assert browser.crumbs == ["Translator"]
    # And on to the table, where a call is a button.
    browser.js("document.querySelector('#calls-table tbody button').focus()")
    browser.keys(TAB, ENTER)
    assert browser.text("#details h3") == "embed"


def test_the_metric_switch_works_with_arrow_keys(browser):
    browser.open(translator())
    browser.js("document.querySelector('input[name=metric]:checked').focus()")
    browser.keys(RIGHT)
    assert browser.js("return document.querySelector('input[name=metric]:checked').value") == "module_flops"
    assert "Module FLOPs" in browser.text("#part-head")


def test_search_marks_filters_and_walks_through_the_matches(browser):
    browser.open(translator())
    browser.one("#search").send_keys("MultiheadAttention")
    # Three decoder layers of two attentions; the encoder's fast path calls none.
    attentions = sum(row.type == "MultiheadAttention" for row in translator().layers)
    assert browser.text("#search-status") == f"{attentions} calls match"
    assert len(browser.all("#calls-table tbody tr")) == attentions
    assert f"{attentions} matching of {len(translator().layers)}" in browser.text("#table-status")
    browser.one("#search").send_keys(ENTER)
    assert browser.text("#search-status") == f"Match 1 of {attentions}"
    first = next(row.path for row in translator().layers if row.type == "MultiheadAttention")
    assert browser.text("#details h3") == first
    browser.one("#search").send_keys(ESCAPE)
    assert len(browser.all("#calls-table tbody tr")) == len(translator().layers)
    browser.one("#search").send_keys("no such call")
    assert browser.text("#search-status") == "0 calls match"
    assert browser.text("#table-status") == "No call matches."


def test_the_details_of_a_call_say_everything(browser):
    browser.open(translator())
    browser.click("mystery")
    words = browser.text("#details")
    assert "unknown, which is not zero" in words
    assert "unsupported_module_metric" in words
    assert "2×30×64 float32" in words
    browser.one("#search").send_keys("core.decoder.layers.1.multihead_attn", ENTER)
    assert "inside the estimate of core" in browser.text("#details")
    browser.js("[...document.querySelectorAll('#details button')].at(-1).click()")
    assert browser.js("return document.activeElement.textContent") == "core.decoder.layers.1.multihead_attn"


def test_the_table_sorts_and_turns_its_pages(browser):
    browser.open(deep_report(500))
    rows = len(deep_report(500).layers)
    assert browser.text("#table-status") == f"Calls 1–100 of {rows}"
    browser.one("#table-on").click()
    assert browser.text("#table-status") == f"Calls 101–200 of {rows}"
    browser.one("button[data-sort=macs]").click()
    # The last of 450 leaves has 449 * 1000 + 1.
    assert browser.all("#calls-table tbody tr")[0].find_elements("css selector", "td.number")[1].text == "449 k"
    heads = browser.js(
        "return [...document.querySelectorAll('th[aria-sort]')].map((th) => [th.textContent, th.ariaSort])"
    )
    assert heads == [["MACs", "descending"]]


def test_narrow_calls_come_in_runs_that_open(browser):
    browser.open(report(layer("", "Model"), *(layer(f"n{n}", metrics={"macs": known(1)}) for n in range(3000))))
    drawn = browser.sectors()
    assert len(drawn) < 60
    run = next(title for title in drawn if title.endswith(" calls"))
    browser.click(run)
    assert browser.crumbs == ["Model", run]
    assert len(browser.sectors()) == int(run.split()[0]) + 1
    browser.one("#chart").send_keys(ESCAPE)
    assert browser.crumbs == ["Model"]


def test_before_and_after_in_one_page(browser):
    after, before = translator(), translator(96, 2)
    browser.open(after, before=before, title="Translator, wider")
    assert browser.text("h1") == "Translator, wider"
    table = browser.text("#comparison table")
    assert "Withheld: not both complete" in table
    assert f"After: {after.context.model_type}" in browser.text("#comparison > p")
    assert f"Calls 1–{len(after.layers)} of {len(after.layers)}" in browser.text("#table-status")
    browser.choose("report", "1")
    assert f"Calls 1–{len(before.layers)} of {len(before.layers)}" in browser.text("#table-status")
    assert "core.encoder.layers.2" not in browser.sectors()


def test_the_page_prints(browser):
    browser.open(translator(), before=translator(96, 2))
    # The printable width of A4 with margins of 14 mm, at 96 dots per inch, is 688.
    browser.command("Emulation.setDeviceMetricsOverride", width=688, height=1000, deviceScaleFactor=1, mobile=False)
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert browser.js("return document.documentElement.scrollWidth") <= 688
    assert not browser.one(".controls").is_displayed()
    chart, drawn = (browser.one(selector).rect for selector in ("#chart", "#chart svg.main-svg"))
    assert drawn["width"] == pytest.approx(chart["width"], abs=2)
    assert drawn["height"] == pytest.approx(chart["height"], abs=2)
    printed = browser.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_page_fits_the_screen(browser, width, dark):
    browser.open(translator(), before=translator(96, 2), width=width, dark=dark)
    assert browser.js("return document.documentElement.scrollWidth") <= width
    assert browser.one("#chart").rect["width"] > 0.55 * width
    drawn = browser.sectors()
    assert drawn["core"]["width"] > 0.5 * drawn["Translator"]["width"]
    browser.screenshot(f"page-{width}-{'dark' if dark else 'light'}")


def test_numbers_are_written_as_in_the_other_formats(browser):
    browser.open(tiny_transformer())
    numbers = [0, 7, 0.5, 999, 1000, 1005, 1234.5, 9995, 99_949, 999_499, 999_500, 2**53 + 1, 10**21, 2**80 + 1]
    for number in numbers:
        wire = number if number <= 2**53 else str(number)
        for down in (False, True):
            assert browser.js("return si(arguments[0], arguments[1])", wire, down) == units.si(number, down=down)
        if isinstance(number, int):
            assert browser.js("return exact(arguments[0])", wire) == units.exact(number)


def test_structure_without_numbers(browser):
    quiet = {name: unknown(unit, "forward", "not_requested") for name, unit in UNITS.items()}
    browser.open(report(layer("", "Model"), layer("a", "Block"), totals=quiet))
    chosen = browser.js("return document.querySelector('input[name=metric]:checked').value")
    assert chosen == "parameters"
    assert "The known work here is zero." in browser.text("#chart-note")


UNITS = {"macs": "MACs", "dmas": "DMAs", "module_flops": "FLOPs"}

HOSTILE = [
    "<script>window.hostile = 1</script>",
    "</script><img src=x onerror='window.hostile = 2'>",
    "]]><svg onload='window.hostile = 3'>",
    "\u202egnp.exe\u2028\u0000",
    '"><b title="x" onmouseover="window.hostile = 4">',
    "<a href='javascript:window.hostile = 5'>x</a><br>&lt;i&gt;",
    "$\\alpha$ %{label} {{ 7 * 7 }}",
    "x" * 10_000,
]


def test_hostile_names_stay_text(browser):
    rows = [layer("", "Model")]
    rows += [layer(name, name, metrics={"macs": known(5, method=name)}, handlers={"macs": name}) for name in HOSTILE]
    notes = tuple(Diagnostic(name, name, metric=name, path=name, operator=name) for name in HOSTILE)
    browser.open(report(*rows, diagnostics=notes, context={"model_type": HOSTILE[1]}), title=HOSTILE[0])
    assert browser.text("h1") == HOSTILE[0]
    for number in range(1, len(rows)):
        browser.js("chart.select(chart.sectors.find((sector) => sector.row === arguments[0]))", number)
        if number in (1, 2):
            assert browser.text("#details h3") == HOSTILE[number - 1]
    browser.js("Plotly.Fx.hover(chart.element, [{curveNumber: 0, pointNumber: 2}])")
    browser.one("#search").send_keys("<script>", ENTER)
    assert browser.js("return window.hostile") is None
    assert not browser.all("#chart a, #chart img, main img, main b, main i, main a")
    labels = " ".join(sector["text"] for sector in browser.sectors().values())
    assert "<scri" in labels
    assert "\u202e" not in browser.js("return document.body.innerText")
    # All ten thousand characters can be read.
    browser.js("chart.select(chart.sectors.find((sector) => sector.row === arguments[0]))", len(rows) - 1)
    assert len(browser.text("#details h3")) == 10_000


def test_the_policy_holds_even_for_the_page_itself(chromium, tmp_path):
    from browser.conftest import Browser

    browser = Browser(chromium, tmp_path).open(tiny_transformer())
    browser.js(
        """
        const script = document.createElement("script");
        script.textContent = "window.injected = 1";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", "<b id=inline onclick='window.injected = 2'>x</b>");
        document.getElementById("inline").click();
        window.asked = fetch("data:text/plain,x").then(() => "answered", () => "refused");
        """
    )
    assert browser.js("return window.injected") is None
    assert browser.js("return window.asked") == "refused"
    # Three refusals: the script, the handler, the request.
    assert len([message for message in browser.messages() if "Content Security Policy" in message]) >= 3


@pytest.mark.parametrize("file", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_reports_open(browser, file):
    drawn = Report.load(file)
    browser.open(drawn)
    for metric in ("macs", "parameters"):
        if browser.one(f"input[name=metric][value={metric}]").is_enabled():
            browser.choose("metric", metric)
    assert f"of {len(drawn.layers)}" in browser.text("#table-status")
