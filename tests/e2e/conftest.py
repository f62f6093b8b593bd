"""Wheels of the tree, and one virtual environment outside of it, for the tests that install things."""

from __future__ import annotations

from pathlib import Path

import pytest

from installed import ROOT, Environment, build_wheel


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the core and of every pack in the tree."""
    folder = tmp_path_factory.mktemp("wheels")
    projects = {"torchscan": ROOT}
    for pack in sorted((ROOT / "handlers_contrib").iterdir()):
        if (pack / "pyproject.toml").exists() and not pack.name.startswith("_"):
            projects[pack.name] = pack
    return {name: build_wheel(project, folder) for name, project in projects.items()}


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Environment:
    """A virtual environment with the core's wheel, its dependencies, and no pack."""
    made = Environment(tmp_path_factory.mktemp("outside"))
    made.install(wheels["torchscan"], "einops")
    return made
