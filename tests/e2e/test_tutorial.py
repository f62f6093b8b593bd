"""The tutorial works as it is written: its files are written, its commands are run, its output is compared."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
from pathlib import Path

import pytest

from installed import CONSTRAINTS, ROOT, Environment, clean_environment

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "tutorials" / "write-a-handler-pack.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def commands(text: str) -> list[tuple[str, str]]:
    """Return each `$ command` with the output that follows it."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_every_block_is_a_file_or_commands():
    found = blocks()
    assert {kind for kind, title, _ in found if not title} == {"console"}
    assert sum(len(commands(text)) for kind, _, text in found if kind == "console") == 7


def test_the_tutorial_runs_as_written(environment: Environment, tmp_path: Path):
    environment.install("pytest")
    path = os.pathsep.join((str(environment.bin), os.environ["PATH"]))
    variables = {**clean_environment(), "PATH": path, "PIP_CONSTRAINT": str(CONSTRAINTS), "PYTHONPATH": str(tmp_path)}
    # The model's own library is a file beside the scripts; everything else is installed.
    for kind, title, text in blocks():
        if title:
            file = tmp_path / title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            continue
        assert kind == "console"
        for command, expected in commands(text):
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            if expected.strip():
                same = doctest.OutputChecker().check_output(
                    expected, done.stdout, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                )
                assert same, f"{command}\nexpected:\n{expected}\nprinted:\n{done.stdout}"
