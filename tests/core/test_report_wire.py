"""Reports to and from the wire: what must survive, what must be refused, and how the refusal reads."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from core.report_builder import DATA, STORED, STORED_0_2_0, known, layer, report, reports, stored, token_dependencies
from torchscan.contract.errors import ReportError
from torchscan.contract.tokens import TokenDependencies
from torchscan.report import wire
from torchscan.report.json_schema import report_schema
from torchscan.report.schema import Report

SCHEMA = report_schema()


def only_json(data: Any) -> bool:
    """Say whether `data` is made of the very types that JSON has, not of subclasses."""
    if type(data) is dict:
        return all(type(key) is str and only_json(value) for key, value in data.items())
    if type(data) is list:
        return all(map(only_json, data))
    return type(data) in (str, int, float, bool, type(None))


@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_stored_reports_load_and_are_written_as_they_were(file):
    data = json.loads(file.read_text())
    loaded = Report.load(file)
    assert loaded == Report.from_dict(data)
    assert loaded.to_dict() == data


def test_a_report_of_0_2_0_reads_as_what_it_is():
    loaded = Report.load(DATA / "v0_2_0" / "mixed.json")
    failed = next(row for row in loaded.layers if row.type == "Fails")
    assert failed.output.kind == "pending"
    linear = next(row for row in loaded.layers if row.type == "Linear")
    assert linear.metrics["macs"].method == "torchscan_module_formula"
    # 0.2.0 wrote 1.0 for the receptive field of a Linear; a whole number is an integer here.
    assert type(linear.metrics["receptive_field"].value) is int
    assert all(row.token_dependencies is None and row.metric_owners is None for row in loaded.layers)
    assert "token_dependencies" not in loaded.to_dict()["layers"][0]
    assert {diagnostic.reason for diagnostic in loaded.diagnostics} == {None}


@settings(max_examples=60, deadline=None)
@given(reports())
def test_every_report_survives_the_round_trip(original):
    data = original.to_dict()
    assert only_json(data)
    assert Report.from_dict(data) == original
    assert wire.parse_report(original.to_json()) == original
    jsonschema.validate(data, SCHEMA)


def test_the_result_is_the_callers_own():
    one = report(layer("", metrics={"macs": known(1)}))
    first = one.to_dict()
    untouched = copy.deepcopy(first)
    first["layers"][0]["metrics"]["macs"]["value"] = 99
    first["inputs"]["args"].clear()
    first["context"]["devices"].append("cuda")
    assert one.to_dict() == untouched


def test_counts_above_2_to_the_53_survive():
    number = 2**53 + 1  # the first integer that a double cannot hold
    original = report(layer("", metrics={"macs": known(number)}), totals={"macs": known(number)})
    read = wire.parse_report(original.to_json())
    assert read.totals.macs.value == number
    assert read.layers[0].metrics["macs"].known_value == number
    assert str(number) in original.to_json()


def test_absent_fields_are_left_out_and_the_metric_of_a_diagnostic_is_not():
    data = report().to_dict()
    assert not {"token_dependencies", "metric_owners", "metric_ownership", "handlers"} & data["layers"][0].keys()
    assert not {"plugins", "analysis_mode", "metrics"} & data["context"].keys()
    from torchscan import Diagnostic

    written = report(diagnostics=(Diagnostic("handler_conflict", "two"),)).to_dict()["diagnostics"][0]
    assert written == {"code": "handler_conflict", "message": "two", "severity": "warning", "metric": None}


def test_an_unavailable_relation_has_no_sources_on_the_wire():
    tokens = TokenDependencies("unavailable", reason="padding", message="for people", method="m", assumptions=("a",))
    data = report(layer("", token_dependencies=tokens)).to_dict()["layers"][0]["token_dependencies"]
    assert data == {
        "status": "unavailable",
        "scope": "module_call",
        "method": "m",
        "assumptions": ["a"],
        "reason": "padding",
    }


@settings(max_examples=30, deadline=None)
@given(token_dependencies())
def test_relations_survive_the_round_trip(tokens):
    read = Report.from_dict(report(layer("", token_dependencies=tokens)).to_dict())
    assert read.layers[0].token_dependencies == tokens


def test_fields_of_later_releases_are_ignored():
    data = stored("v1/transformer")
    plain = Report.from_dict(data)
    for place in (
        data,
        data["context"],
        data["layers"][0],
        data["layers"][0]["metrics"]["macs"],
        data["layers"][0]["output"],
        data["layers"][0]["token_dependencies"],
        data["layers"][0]["token_dependencies"]["sources"][0]["relation"],
        data["operator_flops"],
        data["totals"],
        data["diagnostics"][0],
    ):
        place["from_the_future"] = {"anything": [1.5, None]}
    assert Report.from_dict(data) == plain


def _set(*path_and_value: Any):
    *path, value = path_and_value

    def change(data):
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


def _drop(*path: Any):
    def change(data):
        for step in path[:-1]:
            data = data[step]
        del data[path[-1]]

    return change


ATTENTION = ("layers", 0, "token_dependencies")

TAMPERED = {
    "a boolean is no number": (_set("totals", "macs", "value", True), "totals.macs.value: expected a number, got a bo"),
    "text is no number": (_set("totals", "macs", "value", "208"), "totals.macs.value: expected a number, got a string"),
    "negative": (_set("totals", "macs", "known_value", -1), "totals.macs.known_value: expected a finite, non-negat"),
    "NaN": (_set("totals", "macs", "value", float("nan")), "totals.macs.value: expected a finite, non-negative"),
    "infinite": (_set("layers", 0, "metrics", "dmas", "value", float("inf")), "layers[0].metrics.dmas.value: expected"),
    "unknown status": (_set("totals", "macs", "status", "done"), "totals.macs: status must be complete, partial or"),
    "status of another type": (_set("totals", "macs", "status", ["x"]), "totals.macs.status: expected a string, got"),
    "complete without a value": (_set("totals", "macs", "value", None), "totals.macs: a complete metric has value =="),
    "two different values": (_set("totals", "macs", "known_value", 1), "totals.macs: a complete metric has value =="),
    "partial with a value": (_set("totals", "macs", "status", "partial"), "totals.macs: a partial metric has no value"),
    "unavailable with a value": (_set("totals", "macs", "status", "unavailable"), "totals.macs: an unavailable metric"),
    "a metric without its unit": (_drop("totals", "macs", "unit"), "totals.macs.unit: the field is missing"),
    "a total missing": (_drop("totals", "macs"), "totals.macs: the field is missing"),
    "a metric that is none": (_set("totals", "macs", None), "totals.macs: expected an object, got null"),
    "negative count": (
        _set("layers", 0, "parameters", "trainable", -1),
        "layers[0].parameters.trainable: expected a c",
    ),
    "a float count": (_set("layers", 0, "parameters", "bytes", 4.0), "layers[0].parameters.bytes: expected an integer"),
    "a boolean count": (_set("layers", 0, "call_index", False), "layers[0].call_index: expected an integer, got a boo"),
    "negative operator": (
        _set("operator_flops", "by_operator", "aten.mm", -1),
        "operator_flops.by_operator['aten.mm']",
    ),
    "unknown kind": (_set("layers", 0, "output", "kind", "cube"), "layers[0].output.kind: expected one of tensor,"),
    "no kind": (_set("layers", 0, "output", {}), "layers[0].output.kind: the field is missing"),
    "a bad shape": (
        _set("inputs", "args", 1, "shape", 2, "4"),
        "inputs.args[1].shape[2]: expected an integer, got a s",
    ),
    "text for a list": (
        _set("inputs", "args", 1, "shape", "234"),
        "inputs.args[1].shape: expected a list, got a string",
    ),
    "a layer missing a field": (_drop("layers", 0, "type"), "layers[0].type: the field is missing"),
    "a layer that is none": (_set("layers", 0, [1]), "layers[0]: expected an object, got a list"),
    "layers that are none": (_set("layers", {}), "layers: expected a list, got an object"),
    "an odd key": (_set("inputs", "kwargs", "a b", 3), "inputs.kwargs['a b']: expected an object, got an integer"),
    "a source of the inputs": (_set("inputs", "source", "x"), "inputs.source: expected generated or provided, got 'x'"),
    "a relation": (
        _set(*ATTENTION, "sources", 0, "relation", "kind", "some"),
        "sources[0].relation.kind: expected all",
    ),
    "a limit of zero": (_set(*ATTENTION, "sources", 0, "relation", "limit", 0), "sources[0].relation: Relation.limit"),
    "unavailable with sources": (_set(*ATTENTION, "status", "unavailable"), "token_dependencies: an unavailable"),
    "complete without output": (_drop(*ATTENTION, "output"), "token_dependencies: a complete TokenDependencies needs"),
    "another version": (
        _set("schema_version", 2),
        "schema_version: 2 is unknown; this torchscan reads schema version 1",
    ),
    "a version that is true": (_set("schema_version", True), "schema_version: True is unknown"),
    "a version in text": (_set("schema_version", "1"), "schema_version: '1' is unknown"),
    "no version": (_drop("schema_version"), "not a report: schema_version is missing"),
    "no layers": (_drop("layers"), "not a report"),
    "no context": (_drop("context"), "not a report: context is missing"),
    "a duplicate call": (
        lambda data: data["layers"].append(data["layers"][0]),
        "layers hold call 0 of the path '' twice",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_report_is_refused_with_the_path_of_the_field(name):
    change, expected = TAMPERED[name]
    data = stored("v1/attention")
    change(data)
    with pytest.raises(ReportError) as caught:
        Report.from_dict(data)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message
    assert len(message) < 300


def test_a_hostile_name_in_the_path_stays_one_short_line():
    data = stored("v1/attention")
    data["inputs"]["kwargs"]["a\n\x1b[31m" + "x" * 10_000] = 3
    with pytest.raises(ReportError) as caught:
        Report.from_dict(data)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], "expected an object, got a list"),
        ("{}", "expected an object, got a string"),
        (None, "expected an object, got null"),
        ({}, "schema_version is missing"),
        ({"schema_version": 1}, "layers is missing"),
    ],
)
def test_what_is_no_report_is_refused(data, expected):
    with pytest.raises(ReportError, match=expected):
        Report.from_dict(data)


@pytest.mark.parametrize(
    ("name", "kind"), [("other_operator_report", "operator report"), ("other_comparison", "compari")]
)
def test_other_kinds_of_data_are_called_by_their_name(name, kind):
    with pytest.raises(ReportError, match=kind):
        Report.from_dict(stored(f"v0_2_0/{name}"))


def test_nesting_without_end_is_refused():
    data = stored("v1/attention")
    value: dict[str, Any] = {"kind": "none"}
    for _ in range(50_000):
        value = {"kind": "tuple", "items": [value]}
    data["layers"][0]["output"] = value
    with pytest.raises(ReportError, match="nested too deeply"):
        Report.from_dict(data)
    while value.get("items"):  # freed step by step: the interpreter recurses through it otherwise
        value = value["items"].pop()


def test_every_truncation_is_refused():
    text = (DATA / "v0_2_0" / "attention.json").read_text().rstrip()
    for length in range(0, len(text), 37):
        with pytest.raises(ReportError, match="not JSON"):
            wire.parse_report(text[:length])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the text is empty"),
        (" \n", "the text is empty"),
        ('{"a": nul}', "in line 1, column 7"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ("[" * 100_000, "nested too deeply"),
        ('{"schema_version": ' + "9" * 5000 + "}", "not JSON that can be read"),
        ("{", "truncated"),
    ],
)
def test_what_is_no_json_is_refused(text, expected):
    with pytest.raises(ReportError, match=expected):
        wire.parse_report(text)


def test_a_file_is_named_in_the_message(tmp_path):
    file = tmp_path / "report.json"
    file.write_text('{"schema_version": 3}')
    with pytest.raises(ReportError) as caught:
        Report.load(file)
    assert str(caught.value).startswith(f"{file}: schema_version: 3 is unknown")
    with pytest.raises(FileNotFoundError):
        Report.load(tmp_path / "none.json")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(wire, "MAX_BYTES", 2**20)
    file = tmp_path / "large.json"
    file.write_text(" " * (2**20) + "{}")
    with pytest.raises(ReportError, match="larger than 1 MiB"):
        Report.load(file)


def test_a_byte_order_mark_is_no_obstacle(tmp_path):
    file = tmp_path / "report.json"
    content = STORED_0_2_0[0].read_text()
    file.write_text(content, encoding="utf-8-sig")
    assert Report.load(file).to_dict() == json.loads(content)


def test_a_report_holds_no_call_twice():
    with pytest.raises(ValueError, match="call 1 of the path 'a' twice"):
        report(layer(""), layer("a", call_index=1), layer("a", call_index=1))


def test_the_published_schema_is_current():
    published = DATA.parent.parent / "docs" / "reference" / "report.schema.json"
    assert json.loads(published.read_text()) == SCHEMA, "python -m torchscan.report.json_schema > the file"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_schema_accepts_every_stored_report(file):
    jsonschema.validate(json.loads(file.read_text()), SCHEMA)


SAYS_THE_CLASS = {"a duplicate call", "two different values", "a limit of zero"}


@pytest.mark.parametrize("name", sorted(TAMPERED.keys() - SAYS_THE_CLASS - {"NaN", "infinite", "a float count"}))
def test_the_schema_refuses_what_the_reader_refuses(name):
    # Left out: NaN is no JSON, 4.0 is an integer to JSON Schema, and a schema cannot compare two fields.
    data = stored("v1/attention")
    TAMPERED[name][0](data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def test_nothing_about_stored_reports_imports_torch():
    code = f"""
import sys
import torchscan
import torchscan.cli, torchscan.cli_report, torchscan.pytest_plugin
from torchscan.report import gate, json_schema
from torchscan.report.render import render_report, find_format
report = torchscan.Report.load({str(DATA / "v1" / "transformer.json")!r})
older = torchscan.Report.load({str(DATA / "v0_2_0" / "transformer.json")!r})
torchscan.compare_reports(older, report)
for name in ("text", "markdown", "csv", "json", "speedscope"):
    assert render_report(report, format=name)
    assert render_report(report, format=name, before=older)
report.to_records(), report._repr_html_()
gate.check_report(report, max={{"macs": 1}})
assert "torch" not in sys.modules, "torch was imported"
assert "numpy" not in sys.modules, "numpy was imported"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
