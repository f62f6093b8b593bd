"""The template is copied, renamed by its one documented step, installed, found and tested."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from installed import ROOT, Environment, build_wheel, clean_environment

pytestmark = pytest.mark.e2e

TEMPLATE = ROOT / "handlers_contrib" / "_template"


def renamed(folder: Path, name: str) -> Path:
    copy = folder / f"torchscan-{name}"
    shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.egg-info"))
    # The command of the README.
    subprocess.run([sys.executable, "rename.py", name], cwd=copy, env=clean_environment(), check=True)
    return copy


def test_the_documented_command_is_the_one_tested():
    assert "$ python rename.py mylib" in (TEMPLATE / "README.md").read_text(encoding="utf-8")


def test_a_renamed_copy_has_nothing_of_the_template_left(tmp_path: Path):
    copy = renamed(tmp_path, "my-lib")
    files = [file for file in copy.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert not [file for file in files if "template" in file.name]
    assert not [file for file in files if "template" in file.read_text(encoding="utf-8")]
    assert (copy / "src" / "torchscan_my_lib" / "plugin.py").exists()
    assert not (copy / "rename.py").exists()


@pytest.mark.parametrize("name", ["My-Lib", "my_lib", "1lib", "-lib", ""])
def test_a_name_that_would_not_work_is_refused_and_nothing_is_changed(tmp_path: Path, name: str):
    copy = tmp_path / "copy"
    shutil.copytree(TEMPLATE, copy)
    done = subprocess.run([sys.executable, "rename.py", name], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (copy / "src" / "torchscan_template").exists()


def test_a_renamed_copy_installs_is_found_and_passes_its_tests(environment: Environment, tmp_path: Path):
    copy = renamed(tmp_path, "mylib")
    environment.install(build_wheel(copy, tmp_path), "pytest")
    try:
        plugin = environment.plugins()["mylib"]
        assert (plugin["distribution"], plugin["version"], plugin["status"]) == ("torchscan-mylib", "0.1.0", "ok")
        assert plugin["handlers"] == ["examplelib.LowRank"]
        # The tests run against what is installed: the sources are out of reach.
        tests = tmp_path / "only-tests"
        shutil.copytree(copy / "tests", tests / "tests")
        shutil.copy(copy / "pyproject.toml", tests)
        done = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tests)
        assert " passed" in done.stdout
        assert "failed" not in done.stdout
    finally:
        environment.uninstall("torchscan-mylib")
