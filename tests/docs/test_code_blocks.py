"""Every Python block and every command of the README and the docs runs, and prints what the page says it prints.

The blocks of a page run in order, in one namespace and one empty folder. What a block prints is compared

- with the ```text block directly behind it, and
- with the comment behind each `print(...)`, word for word.

A block with a `title="file"` is written to that file. In a ```console block each line with `$ ` is run and the lines
behind it are compared; without `$ ` every line is a command. `...` stands for anything. A block that cannot run says
why: `<!-- not run: reason -->` before it.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib.util
import io
import re
import runpy
import shlex
import subprocess
import sys
import tokenize
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from torch import nn

import torchscan
from docs.pages import PAGES, ROOT, Block, blocks
from docs.preludes import PRELUDES, TESTED_ELSEWHERE
from torchscan.cli import main
from torchscan.plugins.loading import HOOKS

#: Libraries that a page may be about and that the environment of the tests need not have.
OPTIONAL = {"transformers", "lightning", "distributed"}

RUN = [
    page
    for page in PAGES
    if page not in TESTED_ELSEWHERE and any(block.language in ("python", "console") for block in blocks(page))
]


def agrees(expected: str, printed: str) -> bool:
    """Compare as doctest does: `...` stands for anything, runs of white space are one; versions may be others."""
    expected, printed = (re.sub(r"\b(torchscan|torch) \d[\w.+]*", r"\1 VERSION", text) for text in (expected, printed))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected.strip() + "\n", printed.strip() + "\n", flags)


def said_to_print(text: str) -> dict[int, str]:
    """Return what the comments behind `print(...)` say, by the line on which the call begins."""
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        node.lineno: comments[node.end_lineno]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and node.end_lineno in comments
    }


def signature(text: str) -> str | None:
    """Return the name of the function whose signature alone the block shows, or `None`."""
    try:
        ast.parse(text)
    except SyntaxError:
        (function,) = ast.parse(f"{text.rstrip()}: ...").body
        assert isinstance(function, ast.FunctionDef)
        return function.name
    return None


def missing(page: str) -> set[str]:
    """Return the optional libraries that the page imports and that are not installed."""
    imported = set()
    for block in blocks(page):
        if block.language == "python" and signature(block.text) is None:
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add((node.module or "").partition(".")[0])
    return {name for name in imported & OPTIONAL if importlib.util.find_spec(name) is None}


class Page:
    """Runs the blocks of one page."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.namespace: dict[str, Any] = {"__name__": "__main__", "print": self.print}
        self.status = 0
        self.printed = ""
        self._lines: dict[int, str] = {}
        exec(PRELUDES.get(page, ""), self.namespace)

    def print(self, *values: object, **options: Any) -> None:
        """Print, and remember on which line."""
        text = io.StringIO()
        print(*values, **{**options, "file": text})
        line = sys._getframe(1).f_lineno
        self._lines[line] = self._lines.get(line, "") + text.getvalue()
        print(*values, **options)

    def python(self, block: Block) -> None:
        """Run a block and compare what its comments say."""
        self._lines = {}
        if (name := signature(block.text)) is not None:
            assert self.page.startswith("docs/reference/"), f"{self.page}:{block.line}: {name} has no body"
            return
        code = compile(block.text, f"{self.page}:{block.line}", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, self.namespace)
        self.printed = out.getvalue()
        for line, expected in said_to_print(block.text).items():
            printed = self._lines.get(line, "")
            assert agrees(expected, printed), f"{self.page}:{block.line + line} says {expected!r}, printed {printed!r}"

    def text(self, block: Block) -> None:
        """Compare what the block before has printed."""
        assert agrees(block.text, self.printed), (
            f"{self.page}:{block.line} shows\n{block.text}\nbut printed was\n{self.printed}"
        )

    def console(self, block: Block) -> None:
        """Run each command and compare what it prints."""
        lines = block.text.splitlines()
        if not any(line.startswith("$ ") for line in lines):
            lines = [f"$ {line}" for line in lines]
        command, expected = "", ""
        for line in [*lines, "$ "]:
            if not line.startswith("$ "):
                expected += line + "\n"
                continue
            if command:
                printed = self.command(command)
                if expected:
                    assert agrees(expected, printed), (
                        f"{self.page}:{block.line}: {command}\nshows\n{expected}\nprinted\n{printed}"
                    )
                else:
                    assert self.status == 0, f"{self.page}:{block.line}: {command}\n{printed}"
            command, expected = line.removeprefix("$ "), ""

    def command(self, command: str) -> str:
        """Run one command and return what it prints."""
        if command == "echo $?":
            return str(self.status)
        program, *arguments = shlex.split(command)
        if program == "torchscan":
            done = CliRunner().invoke(main, arguments, prog_name="torchscan")
            self.status = done.exit_code
            return done.stdout or done.output
        if program == "python":
            return self._script(arguments)
        if program == "pytest":
            return self._pytest(arguments)
        if program == "pip":
            return self._pip(arguments)
        if program == "make":
            return self._make(*arguments)
        raise AssertionError(f"{self.page}: nobody runs {command!r}; say so with <!-- not run: reason -->")

    def _script(self, arguments: list[str]) -> str:
        script = self.folder / arguments[0]
        script = script if script.exists() else ROOT / arguments[0]
        self.status = 0
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
            patch.setattr(sys, "argv", [str(script), *arguments[1:]])
            patch.syspath_prepend(script.parent)
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as done:
                self.status = int(done.code or 0)
        return out.getvalue()

    def _pytest(self, arguments: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def _make(self, target: str) -> str:
        """Run the commands of torchscan in a target; what else a target does is for CI, which calls it."""
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        recipe = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
        assert recipe, f"{self.page}: the Makefile has no target {target}"
        self.status = 0
        commands = re.findall(r"^\t\$\(BIN\)/(torchscan .*)$", recipe[1], re.MULTILINE)
        with contextlib.chdir(ROOT):
            return "".join(self.command(command) for command in commands)

    def _pip(self, arguments: list[str]) -> str:
        """Check that what is installed exists in this tree; installing it has tests of its own."""
        assert arguments[0] == "install"
        for name in arguments[1:]:
            wanted = Requirement(name)
            folder = ROOT / "handlers_contrib" / wanted.name.removeprefix("torchscan-")
            folder = ROOT if wanted.name == "torchscan" else folder
            project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            assert project["name"] == wanted.name
            assert wanted.specifier.contains(torchscan.__version__)
            unknown = wanted.extras - set(project.get("optional-dependencies", ()))
            assert not unknown, f"{name}: an extra that does not exist"
        self.status = 0
        return ""

    def run(self) -> None:
        """Run the blocks in order."""
        for block in blocks(self.page):
            if block.not_run:
                continue
            if block.title:
                file = self.folder / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                self.python(block)
            elif block.language == "console":
                self.console(block)
            elif block.language == "text" and block.follows == "python":
                self.text(block)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in, whose modules can be imported, and are forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python"])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_and_print_what_it_says(page: str, folder: Path):
    if libraries := missing(page):
        pytest.skip(f"{', '.join(sorted(libraries))} not installed")
    Page(page, folder).run()


def test_the_examples_of_the_hooks_are_plugins_that_work(folder: Path):
    page = Page("docs/reference/hooks.md", folder)
    page.run()
    examples = {name: value for name, value in page.namespace.items() if name.startswith("torchscan_")}
    assert set(examples) == set(HOOKS)
    saved = []
    page.namespace.update(
        attention=lambda call: {"macs": 1},
        scale_flops=lambda *shapes, **options: 1,
        database=types.SimpleNamespace(save=saved.append),
    )
    plugin = types.SimpleNamespace(**examples)
    with contextlib.redirect_stdout(io.StringIO()):
        report = torchscan.Scanner([plugin], autoload=False).scan(nn.ReLU(), (2,))
    assert [d.code for d in report.diagnostics if d.plugin] == []
    assert saved == [report.to_dict()]


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_not_run_says_why(page: str):
    for block in blocks(page):
        assert not block.not_run or len(block.not_run.split()) >= 3, f"{page}:{block.line}"


def test_only_pages_with_a_test_of_their_own_are_left_to_it():
    for page, test in TESTED_ELSEWHERE.items():
        name = Path(page).name
        assert page in PAGES
        assert name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not mention {name}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1 + 1)  # 3\n```\n", "says '3', printed '2"),
        ("```python\nfor i in range(2):\n    print(i)\n```\n\n```text\n0\n2\n```\n", "but printed was"),
        ("```python\nraise ValueError('no')\n```\n", "no"),
        ("```console\n$ torchscan --version\ntorchscan, version 0.0\n```\n", "shows"),
        ("```console\n$ torchscan scan nowhere.py:model\n```\n", "nowhere.py"),
        ("```console\n$ rm -r /\n```\n", "nobody runs"),
        ("```console\npip install torchscan[everything]\n```\n", "extra"),
        ("```python\ndef without_a_body()\n```\n", "no body"),
    ],
)
def test_a_page_that_is_wrong_fails(text: str, message: str, folder: Path):
    (folder / "page.md").write_text(text, encoding="utf-8")
    with pytest.raises((AssertionError, ValueError), match=re.escape(message)):
        Page(str(folder / "page.md"), folder).run()


def test_what_is_marked_is_not_run(folder: Path):
    (folder / "page.md").write_text("<!-- not run: it would fail -->\n\n```python\n1 / 0\n```\n", encoding="utf-8")
    Page(str(folder / "page.md"), folder).run()
