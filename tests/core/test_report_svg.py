"""The SVG picture: its widths by hand, its states, and that any report gives well-formed XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings

from core.report_builder import STORED, bound, deep_report, known, layer, report, reports, unknown
from torchscan.report import svg
from torchscan.report.formats import RenderOptions
from torchscan.report.schema import MetricOwner, Report

NS = {"svg": "http://www.w3.org/2000/svg"}


def draw(drawn: Report, **options) -> ElementTree.Element:
    return ElementTree.fromstring(svg.render(drawn, RenderOptions(**options)))


def boxes(root: ElementTree.Element) -> dict[str, tuple[float, list[str]]]:
    """Return each call's width and the fills of its box, by its title up to the colon."""
    found = {}
    for group in root.findall("svg:g", NS):
        if group.get("transform"):
            continue  # the drawing below
        rects = group.findall("svg:rect", NS)
        title = group.find("svg:title", NS).text
        found[title] = (float(rects[0].get("width")), [rect.get("fill") for rect in rects])
    return found


def model() -> Report:
    owner = {"macs": MetricOwner("own", 0)}
    return report(
        layer("", "Model"),
        layer("a", metrics={"macs": known(600)}),
        layer("own", "Owner", metrics={"macs": known(200, scope="subtree")}),
        layer("own.x", metric_owners=owner),
        layer("low", metrics={"macs": bound(150)}),
        layer("dark", "Mystery", metrics={"macs": unknown()}),
        layer("none", "Dropout", metrics={"macs": known(0)}),
        totals={"macs": bound(950, "MACs", "forward")},
    )


def test_widths_follow_the_numbers_and_states_are_hatched():
    found = boxes(draw(model()))
    # The picture is 960 wide with margins of 20: 920. The unknown call has 0.05 of it, 46; the other 874 are shared
    # as 600 : 200 : 150 out of 950, that is 552, 184 and 138.
    widths = {title: width for title, (width, _) in found.items()}
    assert widths == {
        "Model (Model): ≥ 950 MACs": 920,
        "a (Linear): 600 MACs": 552,
        "own (Owner): 200 MACs": 184,
        "own.x (Linear): inside the estimate of own": 184,
        "low (Linear): ≥ 150 MACs": 138,
        "dark (Mystery): ? MACs": 46,
    }
    marks = {title.partition(" ")[0]: fills[1:] for title, (_, fills) in found.items()}
    assert marks == {
        "Model": ["url(#bound)"],
        "a": [],
        "own": [],
        "own.x": ["url(#covered)"],
        "low": ["url(#bound)"],
        "dark": ["url(#unknown)"],
    }


def test_the_heading_says_the_total_and_its_state():
    words = [text.text for text in draw(model(), title="A model").findall("svg:text", NS)]
    assert words[0] == "A model"
    assert words[1] == "MACs: ≥ 950 (lower bound)"


def test_runs_of_narrow_calls_keep_the_mark_of_what_is_incomplete():
    rows = [layer(f"n{number}", metrics={"macs": known(1)}) for number in range(3)]
    rows.append(layer("n3", metrics={"macs": bound(1)}))
    found = boxes(draw(report(layer("", "Model"), *rows, layer("big", metrics={"macs": known(9996)}))))
    # Each of the four is 920 / 10,000 = 0.092 wide.
    width, fills = found["4 calls too narrow to be drawn"]
    assert width == pytest.approx(0.37)
    assert fills[1:] == ["url(#bound)"]


def test_depth_ends_the_picture():
    assert list(boxes(draw(model(), depth=0))) == ["Model (Model): ≥ 950 MACs"]


def test_a_metric_nobody_asked_for_is_said_and_not_drawn():
    quiet = unknown("MACs", "forward", "not_requested")
    root = draw(report(totals={"macs": quiet}))
    assert root.findall("svg:text", NS)[1].text == "MACs: not requested in this scan"
    assert not root.findall("svg:g", NS)


def test_the_same_report_gives_the_same_bytes():
    assert svg.render(model(), RenderOptions()) == svg.render(model(), RenderOptions())


def test_nothing_in_the_picture_runs_or_is_fetched():
    tags = {element.tag.partition("}")[2] for element in draw(deep_report(500)).iter()}
    assert tags <= {"svg", "title", "defs", "pattern", "path", "rect", "g", "text"}


@pytest.mark.parametrize("text", ["<script>", "]]>", "\u202ex", "\x00\ud800", '"/><script>', "x" * 10_000])
def test_hostile_text_stays_text(text):
    root = draw(report(layer("", text), layer(text, text, metrics={"macs": known(1)})), title=text)
    assert not [element for element in root.iter() if element.tag.endswith("script")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_any_report_gives_well_formed_xml(any_report):
    for metric in ("macs", "parameters"):
        draw(any_report, metric=metric)


@pytest.mark.parametrize("file", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_reports_of_every_release_can_be_drawn(file):
    assert draw(Report.load(file)).findall("svg:text", NS)


def test_before_and_after_are_drawn_below_one_another():
    before = report(layer("", "Model"), layer("gone", "Conv2d", metrics={"macs": known(5)}), totals={"macs": known(5)})
    after = report(layer("", "Model"), layer("a", metrics={"macs": known(7)}), totals={"macs": known(7)})
    root = draw(after, before=before, title="Mine")
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.index("Before: Mine") < texts.index("MACs: 5") < texts.index("After: Mine") < texts.index("MACs: 7")
    (moved,) = (group for group in root.findall("svg:g", NS) if group.get("transform"))
    alone = [draw(one).get("height") for one in (before, after)]
    assert moved.get("transform") == f"translate(0 {alone[0]})"
    assert root.get("height") == str(sum(map(int, alone)))
    # A type that one of them has alone takes no colour of the other.
    above, below = boxes(root)["gone (Conv2d): 5 MACs"], boxes(moved)["a (Linear): 7 MACs"]
    assert above[1] != below[1]
    # What both have keeps its colour.
    same = draw(after, before=after)
    (moved,) = (group for group in same.findall("svg:g", NS) if group.get("transform"))
    assert boxes(same)["a (Linear): 7 MACs"] == boxes(moved)["a (Linear): 7 MACs"] == below


def test_calls_too_narrow_to_be_drawn_say_how_many_they_are():
    many = report(
        layer("", "Model"),
        *(layer(f"x{number}", metrics={"macs": known(1)}) for number in range(1000)),
        totals={"macs": known(1000)},
    )
    # 920 / 1000 is below the 1.5 that one call needs; together they are as wide as the picture.
    texts = [text.text for text in draw(many).iter("{http://www.w3.org/2000/svg}text")]
    assert "1000 calls too narrow to be drawn" in texts
