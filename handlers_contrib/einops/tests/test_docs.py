"""Every example in the README runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize("block", BLOCKS)
def test_example(block):
    expected = [line.rpartition("  # ")[2] for line in block.splitlines() if line.startswith("print(")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "example", "exec"), {})
    assert expected
    assert printed.getvalue().splitlines() == expected
