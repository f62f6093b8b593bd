"""The two scripts, run as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run(script: str, tmp_path: Path) -> tuple[str, Any]:
    """Run a script away from the repository; return what it printed and what it saved."""
    file = tmp_path / "saved.json"
    command = [sys.executable, "-W", "error", str(ROOT / "scripts" / script), "--json", str(file)]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout, json.loads(file.read_text(encoding="utf-8"))


def values(report: Any) -> list[int | None]:
    return [report["totals"][name]["value"] for name in ("module_flops", "macs", "dmas")]


def test_transformer_estimates(tmp_path: Path) -> None:
    # the arithmetic of each is in test_transformer_examples.py
    printed, reports = run("transformer_estimates.py", tmp_path)
    for layout in ("batch first", "sequence first"):
        assert values(reports[f"self-attention, {layout}"]) == [588, 264, 452]
        assert values(reports[f"self-attention, averaged weights, {layout}"]) == [606, 264, 479]
        assert values(reports[f"cross-attention, {layout}"]) == [456, 208, 352]
        assert values(reports[f"cross-attention, kdim 6 and vdim 5, {layout}"]) == [528, 244, 373]
        assert values(reports[f"encoder layer, {layout}"]) == [1224, 504, 912]
        assert values(reports[f"encoder layer, GELU, {layout}"]) == [None, 504, 912]
        assert values(reports[f"decoder layer, {layout}"]) == [1300, 544, 1069]
        assert values(reports[f"encoder, two layers, {layout}"]) == [2550, 1032, 1920]
        assert values(reports[f"decoder, two layers, {layout}"]) == [2668, 1104, 2205]
        assert values(reports[f"Transformer, 1 + 1 layers, {layout}"]) == [2694, 1088, 2144]
        assert values(reports[f"Transformer, 1 + 1 layers, six masks, {layout}"]) == [2770, 1088, 2323]
        assert values(reports[f"Transformer, 2 + 2 layers, {layout}"]) == [5218, 2136, 4125]
    for report in reports.values():
        assert report["schema_version"] == 1
        assert report["layers"][0]["token_dependencies"]["status"] == "complete"
    assert printed.count("1088") == 4


def test_custom_transformer(tmp_path: Path) -> None:
    # encoder layer 1224 / 504 / 912; head: 6 results, 6 * (7 + 1 + 1) = 54, 6 * 4 = 24, (12 + 8 + 6) + 12 + 12 = 50
    # parameters: attention 80, feed-forward 76, norms 16: 172; head 2 * 4 = 8
    printed, report = run("custom_transformer.py", tmp_path)
    assert values(report) == [1278, 528, 962]
    assert report["totals"]["parameters"]["value"] == 180
    by_path = {layer["path"]: layer for layer in report["layers"]}
    assert [by_path["encoder"]["metrics"][n]["value"] for n in ("module_flops", "macs", "dmas")] == [1224, 504, 912]
    assert [by_path["head"]["metrics"][n]["value"] for n in ("module_flops", "macs", "dmas")] == [54, 24, 50]
    assert by_path["head"]["metrics"]["macs"]["method"].startswith("custom_module_handler:")
    assert [line.split() for line in printed.splitlines()[1:4]] == [
        ["encoder", "1224", "504", "912", "172"],
        ["head", "54", "24", "50", "8"],
        ["total", "1278", "528", "962", "180"],
    ]
