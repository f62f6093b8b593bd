"""The pages about reports: their commands run, and they name every field."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from core.report_builder import DATA
from torchscan.cli import main
from torchscan.contract.tokens import TokenDependencies
from torchscan.report.converter import KINDS
from torchscan.report.gate import TOTALS
from torchscan.report.json_schema import report_schema

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "how-to" / "compare-and-share.md", DOCS / "how-to" / "gate-a-pull-request.md"]


def commands() -> list[str]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S):
            found += block.splitlines()
        # the last step of the workflow
        found += re.findall(r"- run: (torchscan check .*)", page.read_text())
    return found


@pytest.mark.parametrize("command", commands())
def test_the_commands_of_the_pages_run(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = (DATA / "v1" / "convolutions.json").read_text()
    for name in ("report.json", "main.json", "before.json", "after.json"):
        (tmp_path / name).write_text(content)
    program, *arguments = shlex.split(command)
    assert program == "torchscan"
    if command.endswith((".html", ".svg")):
        pytest.importorskip("torchscan.report.svg")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    if "-o" in arguments:
        assert Path(arguments[arguments.index("-o") + 1]).read_text()


def test_there_are_commands():
    assert len(commands()) > 12


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
    page = PAGES[1].read_text()
    for word in ("over_budget", "unproven", "incomparable", *TOTALS):
        assert f"`{word}`" in page
