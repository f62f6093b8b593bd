"""What a release consists of: an sdist that builds the same wheel as the tree, and a wheel that scans."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from installed import ROOT, Environment, build_wheel, clean_environment, write_wheel

PROJECTS = {"torchscan": ROOT, **{name: ROOT / "handlers_contrib" / name for name in ("einops", "transformers")}}


#: Archive to what is wrong with it, in words.
faults = runpy.run_path(str(ROOT / "scripts" / "check_dist.py"))["faults"]


def build_sdist(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(project)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.tar.gz")
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.e2e
@pytest.mark.parametrize("name", PROJECTS)
def test_the_sdist_builds_the_wheel_of_the_tree(name: str, wheels: dict[str, Path], tmp_path: Path):
    sdist = build_sdist(PROJECTS[name], tmp_path)
    wheel = build_wheel(sdist, tmp_path)
    assert faults(sdist) == []
    assert faults(wheel) == []
    assert contents(wheel) == contents(wheels[name])
    command = [sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.e2e
def test_a_scan_with_what_the_sdist_installs(environment: Environment, tmp_path: Path):
    sdist = build_sdist(ROOT, tmp_path)
    environment.install("--force-reinstall", "--no-deps", sdist)
    target = environment.work / "model.py"
    target.write_text(
        "import torch\n\n\ndef attention():\n"
        "    query, memory = torch.ones(1, 2, 4), torch.ones(1, 3, 4)\n"
        "    module = torch.nn.MultiheadAttention(4, 2, batch_first=True)\n"
        "    return module, (query, memory, memory), {'need_weights': False}\n",
        encoding="utf-8",
    )
    done = environment.run("torchscan", "scan", "model.py:attention", "--json", "-", "--strict")
    totals = json.loads(done.stdout)["totals"]
    # 2*2*4*4 + 3*4*(4+4) + 2*2*3*4 products; see docs/derivations/attention.md for the accesses
    assert (totals["macs"]["value"], totals["dmas"]["value"]) == (208, 352)


def test_a_faulty_wheel_is_named(tmp_path: Path):
    files = {
        "torchscan_bad/__init__.py": "",
        "torchscan_bad/__pycache__/x.pyc": "",
        "torchscan_bad/tests/test_it.py": "",
    }
    wheel = write_wheel(tmp_path, "torchscan-bad", "1.0", files, "[torchscan]\nbad = torchscan_bad\n")
    assert set(faults(wheel)) == {
        "contains torchscan_bad/__pycache__/x.pyc",
        "installs torchscan_bad/tests/test_it.py",
        "lacks torchscan_bad/py.typed",
        "lacks licenses/LICENSE",
    }
