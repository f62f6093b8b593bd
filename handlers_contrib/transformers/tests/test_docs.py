"""Every example in the README and the how-to runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT.parents[1] / "docs" / "how-to" / "hugging-face-and-einops.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{index}")
    for page in PAGES
    if page.exists()
    for index, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_example(block):
    if "einops" in block:
        pytest.importorskip("torchscan_einops")
        pytest.importorskip("einops")
    expected = [line.rpartition("  # ")[2] for line in block.splitlines() if line.startswith("print(")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "example", "exec"), {})
    assert printed.getvalue().splitlines() == expected
