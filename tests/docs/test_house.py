"""The picture of the house, the pages, and the papers of the project: each names what exists, all of it."""

from __future__ import annotations

import itertools
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import torchscan
from docs.pages import DOCS, PAGES, ROOT, anchors, blocks, first_cells, prose, text

#: The folders at the top that a reader meets.
TOP = (
    *("core", "handlers_native", "handlers_contrib", "tests", "docs", "scripts", "benchmarks"),
    *("changelog.d", ".ci", ".github"),
)


#: A folder, or a file of Python.
ENTRY = re.compile(r"[\w./-]+(?:/|\.py)")


def drawn() -> set[str]:
    """Return the folders and files of the picture, by path."""
    picture = next(block.text for block in blocks("docs/explanation/architecture.md"))
    found: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in picture.splitlines():
        indent = len(line) - len(line.lstrip())
        entries = list(itertools.takewhile(ENTRY.fullmatch, re.split(r"\s{2,}", line.strip())))
        if not entries:
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        base = above[-1][1] if above else ""
        found |= {base + entry for entry in entries}
        if entries[-1].endswith("/"):
            above.append((indent, base + entries[-1]))
    return found


def folders() -> set[str]:
    """Return the folders that somebody who looks around meets, down to where a folder is one thing."""
    deep = {"core/torchscan", "handlers_native/torchscan_native"}
    found = set()
    for top in TOP:
        for folder in [ROOT / top, *(ROOT / top).rglob("*/")]:
            path = folder.relative_to(ROOT)
            hidden = any(part.startswith((".", "__pycache__")) for part in path.parts[1:])
            depth = 9 if any(path.is_relative_to(each) for each in deep) else 1 if top.startswith(".") else 2
            if hidden or len(path.parts) > depth or not any(file.is_file() for file in folder.rglob("*")):
                continue
            found.add(f"{path.as_posix()}/")
    return found - {"core/", "handlers_native/"}


def test_the_picture_shows_the_folders_that_exist():
    assert {name for name in drawn() if name.endswith("/")} == folders()


def test_the_files_in_the_picture_exist():
    files = {name for name in drawn() if name.endswith(".py")}
    assert len(files) > 40
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []


def test_the_core_is_drawn_completely():
    for folder in ("contract", "plugins", "engine", "report"):
        files = (ROOT / "core" / "torchscan" / folder).glob("*.py")
        missing = {file.relative_to(ROOT).as_posix() for file in files} - drawn()
        assert missing == {f"core/torchscan/{folder}/__init__.py"}


# -- pages -----------------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r":\s+([\w/-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [*PAGES, ".github/PULL_REQUEST_TEMPLATE.md", "changelog.d/README.md"])
def test_a_link_within_the_repository_leads_somewhere(page: str):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor and file.suffix == ".md" and file.name != "api.md":
            assert anchor in anchors(file.resolve().relative_to(ROOT).as_posix()), f"{page}: {target}"


def test_the_glossary_is_in_order():
    words = re.findall(r"^(\S.*)\n:   ", text("docs/explanation/glossary.md"), re.MULTILINE)
    assert len(words) > 30
    assert words == sorted(words, key=str.lower)


#: Where a path that CONTRIBUTING shortens may begin.
PLACES = (
    *("", "core/torchscan", "handlers_native/torchscan_native", "handlers_native/torchscan_native/transformer"),
    *("handlers_contrib/_template", "tests/native"),
)


def test_contributing_names_files_and_chores_that_exist():
    page = text("CONTRIBUTING.md")
    makefile = text("Makefile")
    for target in re.findall(r"`make ([\w-]+)`", page):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"`([\w.-]+/[\w./-]+)`", page):
        assert any((ROOT / place / path).exists() for place in PLACES), path


# -- the papers ------------------------------------------------------------------------------------------------------


def test_the_declared_range_is_the_documented_and_the_tested_one():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    (torch,) = (Requirement(each) for each in project["dependencies"] if each.startswith("torch"))
    (lower,) = (each.version for each in torch.specifier if each.operator == ">=")
    oldest = re.search(r"^OLDEST_TORCH := (\S+)$", text("Makefile"), re.MULTILINE)
    assert oldest
    assert Version(oldest[1]) in torch.specifier
    assert Version(oldest[1]).release[:2] == Version(lower).release[:2]
    page = text("docs/reference/compatibility.md")
    assert oldest[1] in page
    assert f"`{torch.specifier}`" in page or "`>=2.6,<3`" in page
    assert f"Python {project['requires-python'].removeprefix('>=')} and PyTorch {lower} or newer" in prose("README.md")
    pinned = re.search(r"^torch==(\S+)$", text("constraints.txt"), re.MULTILINE)
    assert pinned
    assert pinned[1] in page


def test_the_readme_counts_the_peers_of_the_measured_table():
    head = re.search(r"^\| call \| by hand \|(.*)\|$", text("docs/explanation/why-counters-disagree.md"), re.MULTILINE)
    assert head
    peers = [each.strip() for each in head[1].split("|") if "torchscan" not in each]
    assert len(peers) == 6
    assert "six other tools" in " ".join(text("README.md").split())


def test_the_version_is_the_same_everywhere():
    version = torchscan.__version__
    assert yaml.safe_load(text("CITATION.cff"))["version"] == version
    assert re.search(rf"^## {re.escape(version)}\b", text("CHANGELOG.md"), re.MULTILINE)


def test_a_fragment_of_the_changelog_has_a_known_type():
    types = {each["directory"] for each in tomllib.loads(text("pyproject.toml"))["tool"]["towncrier"]["type"]}
    assert set(first_cells(text("changelog.d/README.md"))) == types
    for file in (ROOT / "changelog.d").iterdir():
        if file.name != "README.md":
            assert re.fullmatch(rf"[\w-]+\.({'|'.join(types)})\.md", file.name), file.name


def test_the_workflow_calls_chores_that_exist():
    workflow = yaml.safe_load(text(".github/workflows/ci.yml"))
    makefile = text("Makefile")
    for job in workflow["jobs"].values():
        targets = [each["target"] for each in job.get("strategy", {}).get("matrix", {}).get("include", [])]
        for step in job["steps"]:
            if (command := step.get("run")) is None:
                continue
            if command.startswith("make "):
                for target in targets:
                    assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
            else:
                assert (ROOT / command).is_file(), command


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda file: file.name
)
def test_an_issue_template_can_be_read(file: Path):
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    if file.name != "config.yml":
        assert {"name", "description", "body"} <= form.keys()
        for field in form["body"]:
            assert field["type"] in ("markdown", "textarea")
            assert field["attributes"].get("label") or field["type"] == "markdown"


def test_the_picture_of_a_report_is_what_its_script_draws(tmp_path: Path):
    drawn = tmp_path / "report.svg"
    runpy.run_path(str(ROOT / "scripts" / "make_report_picture.py"))["main"](drawn)
    assert drawn.read_text(encoding="utf-8") == text("docs/assets/report.svg"), "run scripts/make_report_picture.py"
