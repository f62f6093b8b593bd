"""The docs say what the code has, and the code has what the docs say."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import torchscan
import torchscan.contract.tokens
import torchscan.testing
from docs.pages import DOCS, PAGES, ROOT, anchors, first_cells, prose, sections, text
from torchscan.cli import main
from torchscan.contract.diagnostics import CODES
from torchscan.contract.states import METRICS
from torchscan.engine.scanner import SELECTABLE
from torchscan.plugins.loading import HOOKS
from torchscan.plugins.records import REASONS as PLUGIN_REASONS
from torchscan.plugins.resolution import NATIVE_METHOD
from torchscan.report.builtin import torchscan_register_report_formats
from torchscan.report.causes import REMEDIES
from torchscan.report.gate import TOTALS
from torchscan_native.transformer.boundaries import BOUNDARIES
from torchscan_native.transformer.mask_values import REASONS as TOKEN_REASONS

NATIVE = ROOT / "handlers_native" / "torchscan_native"
SOURCES = sorted(
    file
    for folder in ("core", "handlers_native", "handlers_contrib")
    for file in (ROOT / folder).rglob("*.py")
    if "tests" not in file.parts
)


# -- reference pages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["cli.md", "diagnostics.md"])
def test_a_generated_page_is_current(page: str):
    pages = runpy.run_path(str(ROOT / "scripts" / "generate_reference.py"))["PAGES"]
    assert text(f"docs/reference/{page}") == pages[page](), "run make pages"


def test_every_code_has_a_section_and_a_remedy_and_is_reported_somewhere():
    assert list(sections("docs/reference/diagnostics.md", 3)) == list(CODES)
    assert REMEDIES.keys() == CODES.keys()
    code = "".join(
        file.read_text(encoding="utf-8") for file in SOURCES if file.name not in ("diagnostics.py", "causes.py")
    )
    assert [name for name in CODES if f'"{name}"' not in code] == []


def test_no_diagnostic_has_a_code_that_is_not_listed():
    for file in SOURCES:
        for found in re.findall(r'\bDiagnostic\(\s*"(\w+)"', file.read_text(encoding="utf-8")):
            assert found in CODES, file


def test_every_reason_is_on_its_list():
    found = sections("docs/reference/diagnostics.md")
    assert first_cells(found["Native Transformer boundaries"]) == list(BOUNDARIES)
    assert first_cells(found["Token relation reasons"]) == list(TOKEN_REASONS)
    assert first_cells(found["Plugin reasons"]) == list(PLUGIN_REASONS)
    pattern = re.compile(r'\b(?:refusal|_expected)\(\s*"(\w+)"')
    layers = {
        reason
        for file in (NATIVE / "layers").glob("*.py")
        for reason in pattern.findall(file.read_text(encoding="utf-8"))
    }
    assert {*first_cells(found["Layer reasons"]), *first_cells(found["Spatial reasons"])} == layers


def test_a_page_that_explains_reasons_explains_those_that_exist():
    layers = set(first_cells(sections("docs/reference/diagnostics.md")["Layer reasons"]))
    rules = sections("docs/derivations/rules.md")["Where the formulas end"]
    assert set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.+?) \|", rules, re.MULTILINE)))) <= layers
    masks = sections("docs/explanation/token-relations.md")["Masks"]
    assert set(first_cells(masks)) == set(TOKEN_REASONS)


def test_every_hook_has_its_section():
    assert {name for name in sections("docs/reference/hooks.md") if name.startswith("torchscan_")} == set(HOOKS)


def test_every_public_name_has_its_place():
    described = re.findall(r"^::: ([\w.]+)$", text("docs/reference/api.md"), re.MULTILINE)
    assert len(described) == len(set(described))
    public = {f"torchscan.{name}" for name in torchscan.__all__ if name not in ("__version__", "testing")}
    public |= {f"torchscan.testing.{name}" for name in torchscan.testing.__all__} | {"torchscan.testing"}
    tokens = {name for name in torchscan.contract.tokens.__all__ if name not in torchscan.__all__}
    public |= {f"torchscan.contract.tokens.{name}" for name in tokens}
    assert public <= set(described)
    for name in described:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_every_public_function_and_class_has_a_docstring():
    for name in torchscan.__all__:
        value = getattr(torchscan, name)
        if callable(value) and name != "hookimpl":
            assert value.__doc__, name
            assert len(value.__doc__.split()) > 3, name


def test_every_metric_and_total_has_its_row():
    page = sections("docs/reference/states.md")
    assert first_cells(page["Metrics"]) == list(METRICS)
    assert set(SELECTABLE) | set(TOTALS) <= set(re.findall(r"`(\w+)`", page["Metrics"]))
    assert first_cells(page["States"]) == ["complete", "partial", "unavailable"]
    assert first_cells(sections("README.md")["Three states"]) == ["complete", "partial", "unavailable"]


def test_every_report_format_has_its_row():
    rows = re.findall(r"^\| `(\w+)` \| `(\.[\w.]+)` \|", text("docs/how-to/compare-and-share.md"), re.MULTILINE)
    formats = {each.name: each.suffixes[0] for each in torchscan_register_report_formats()}
    assert dict(rows) == formats


# -- the command line ------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        yield name, command


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str):
    command = COMMANDS[name]
    section = sections("docs/reference/cli.md")[f"torchscan {name}"]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("-")}
    assert set(re.findall(r"`(--?[a-z-]+)`", section)) == options
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"torchscan {name} {parameter.opts[0]}"


def test_an_option_in_the_docs_exists():
    known = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
    known |= {"--help", "--version"}
    for page in PAGES:
        for line in text(page).splitlines():
            for command in re.findall(r"torchscan (?:scan|causal|sweep|render|compare|check|plugins)\b[^`]*", line):
                assert set(re.findall(r"(?<![\w-])--[a-z-]+", command)) <= known, f"{page}: {line}"


# -- formulas and derivations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_that_the_code_points_to_exists(file: Path):
    for page, anchor in re.findall(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", file.read_text(encoding="utf-8")):
        assert (ROOT / page).exists() or (file.parents[2] / page).exists(), page
        assert not anchor or anchor in anchors(page), f"{page}#{anchor}"


def formulas() -> Iterator[tuple[str, str]]:
    """Yield every public function of the layers' formulas, by module and name."""
    for file in sorted((NATIVE / "layers" / "formulas").glob("*.py")):
        module = importlib.import_module(f"torchscan_native.layers.formulas.{file.stem}")
        if file.stem != "__init__":
            for name in module.__all__:
                if inspect.isfunction(getattr(module, name)):
                    yield module.__name__, name


@pytest.mark.parametrize(("module", "name"), list(formulas()))
def test_a_formula_names_its_derivation(module: str, name: str):
    docstring = getattr(importlib.import_module(module), name).__doc__
    assert re.search(r"docs/derivations/[\w-]+\.md#[\w-]+", docstring), f"{module}.{name}"


@pytest.mark.parametrize("page", sorted((DOCS / "derivations").glob("*.md")), ids=lambda page: page.name)
def test_a_derivation_has_a_formula(page: Path):
    assert any(f"docs/derivations/{page.name}" in file.read_text(encoding="utf-8") for file in SOURCES)


def test_the_conventions_number_their_rules_and_are_cited_by_number():
    page = text("docs/explanation/conventions.md")
    rules = re.findall(r"^\*\*([FMD]\d)\. ", page, re.MULTILINE)
    assert rules == [f"F{n}" for n in range(1, 9)] + [f"M{n}" for n in range(1, 4)] + [f"D{n}" for n in range(1, 9)]
    own = re.findall(r"\*\*(O\d)\. ", text("docs/derivations/functional-operators.md"))
    for cited in PAGES:
        found = re.findall(r"\b([FMDO]\d)\b", re.sub(r"`[^`]*`", "", prose(cited)))
        assert set(found) <= {*rules, *own}, cited
    assert f"`{NATIVE_METHOD}`" in page
