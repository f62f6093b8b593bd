"""The pages about overrides and embedding: their code runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.parametrize("name", ["override-one-model.md", "embed-the-scanner.md"])
def test_the_code_of_a_page_prints_what_its_comments_say(name: str):
    blocks = re.findall(r"^```python\n(.*?)^```", (HOW_TO / name).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    namespace: dict[str, object] = {"__name__": "page"}
    checked = 0
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), namespace)
        expected = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
        assert printed.getvalue().splitlines() == expected
        checked += len(expected)
    assert checked >= 6
