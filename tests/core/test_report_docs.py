"""The pages about reports: the commands of the workflow run, and every field and reason is named."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import attrs
from click.testing import CliRunner

from core.report_builder import DATA
from torchscan.cli import main
from torchscan.contract.tokens import TokenDependencies
from torchscan.report.converter import KINDS
from torchscan.report.gate import TOTALS
from torchscan.report.json_schema import report_schema

DOCS = Path(__file__).parents[2] / "docs"
GATE = DOCS / "how-to" / "gate-a-pull-request.md"


def test_the_commands_of_the_workflow_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("report.json", "main.json"):
        shutil.copy(DATA / "v1" / "convolutions.json", name)
    commands = [shlex.split(line) for line in re.findall(r"- run: torchscan (.*)", GATE.read_text())]
    assert [name for name, *_ in commands] == ["compare", "check"]
    for command in commands:
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output


def test_the_reference_names_every_field_and_kind():
    page = (DOCS / "reference" / "wire-schema.md").read_text()
    named = set(re.findall(r"`([a-z_]+)`", page))
    fields = {name for definition in report_schema()["$defs"].values() for name in definition.get("properties", ())}
    assert fields - named == set()
    assert KINDS.keys() - named == set()
    assert set(TOTALS) - named == set()
    # The one field that stays inside the program.
    assert {field.name for field in attrs.fields(TokenDependencies)} - named == {"message"} - named


def test_the_gate_page_names_every_reason_it_explains():
    page = GATE.read_text()
    for word in ("over_budget", "unproven", "incomparable", *TOTALS):
        assert f"`{word}`" in page
