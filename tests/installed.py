"""Wheels built from the tree, and virtual environments outside of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

__all__ = ["CONSTRAINTS", "ROOT", "Environment", "build_wheel", "clean_environment", "write_wheel"]

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"


def clean_environment() -> dict[str, str]:
    """Return the environment without anything that would let the tree or its switches in."""
    private = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONWARNINGS", "PIP_REQUIRE_VIRTUALENV")
    kept = {name: value for name, value in os.environ.items() if name not in private}
    return {name: value for name, value in kept.items() if not name.startswith(("TORCHSCAN_", "PYTEST_"))}


class Environment:
    """A virtual environment, and a working directory that is not the tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir(parents=True)
        venv.create(root / "env", with_pip=True)
        self.bin = root / "env" / ("Scripts" if os.name == "nt" else "bin")

    def run(self, *command: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment."""
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=cwd or self.work,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done

    def python(self, code: str) -> str:
        """Run Python code and return what it prints; anything that looks at the tree would be a fault of the test."""
        warnings = ("-W", "error", "-W", "ignore:Failed to initialize NumPy:UserWarning")
        return self.run("python", "-I", *warnings, "-c", code).stdout

    def pip(self, *arguments: str) -> None:
        self.run("python", "-m", "pip", "-q", "--disable-pip-version-check", *arguments)

    def install(self, *what: str | Path) -> None:
        self.pip("install", "--no-compile", "-c", str(CONSTRAINTS), *map(str, what))

    def uninstall(self, *names: str) -> None:
        self.pip("uninstall", "-y", *names)

    def plugins(self) -> dict[str, dict[str, Any]]:
        """Return what `torchscan plugins --json` lists, by name."""
        listed = json.loads(self.run("torchscan", "plugins", "--json").stdout)
        return {plugin["name"]: plugin for plugin in listed["plugins"]}

    def installed(self) -> set[str]:
        return {
            item["name"].lower() for item in json.loads(self.run("python", "-m", "pip", "list", "--format=json").stdout)
        }


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a project, as a release would."""
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-deps", str(project)]
    done = subprocess.run(
        [*command, "-w", str(folder)], env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (built,) = set(folder.glob("*.whl")) - before
    return built


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], entry_points: str) -> Path:
    """Write a wheel by hand, for packs no build tool would have to know about."""
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in contents.items())
    wheel = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
