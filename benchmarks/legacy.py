"""An environment of its own for TorchScan 0.2.0, which has the same import name as this project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.counters import version

ROOT = Path(__file__).resolve().parents[1]


def make(folder: Path) -> Path:
    """Make the environment, with the PyTorch and transformers that are installed here, and return its Python."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    torch = (version("torch") or "").partition("+")[0]
    wanted = [f"torch=={torch}", "numpy", "torchscan==0.2.0"]
    if (library := version("transformers")) is not None:
        wanted.append(f"transformers=={library}")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *constraints, *wanted], check=True
    )
    return python


def run(python: Path, arguments: list[str]) -> dict[str, Any]:
    """Run the suite with that interpreter and return its results."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        subprocess.run(
            [str(python), "-m", "benchmarks", "run", "--who", "legacy", "-o", str(file), *arguments],
            cwd=ROOT, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
        found: dict[str, Any] = json.loads(file.read_text())
    return found


def merge(results: dict[str, Any], other: dict[str, Any]) -> None:
    """Put the other environment's variants beside ours; each was measured against its own bare run."""
    for part in ("timed", "calls"):
        for case, variants in other.get(part, {}).items():
            for variant, found in variants.items():
                if variant not in ("bare", "modules", "failed"):
                    results.get(part, {}).setdefault(case, {})[variant] = found
    for variant, found in other.get("memory", {}).items():
        if variant != "bare":
            results.get("memory", {})[variant] = found
    results["legacy"] = {"versions": other["versions"], "import": other.get("import")}
