"""The reference page of the hooks is current, and every hook and reason is on it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from torchscan.contract.diagnostics import CODES
from torchscan.plugins.loading import HOOKS
from torchscan.plugins.records import REASONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "hooks.md"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_hook_reference", ROOT / "scripts" / "generate_hook_reference.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["hooks.md", "conformance-kit.md"])
def test_the_page_is_what_the_docstrings_say(script: ModuleType, name: str):
    current = (PAGE.parent / name).read_text(encoding="utf-8")
    assert current == script.PAGES[name](), "run python scripts/generate_hook_reference.py"


def test_every_hook_has_a_section_an_example_and_a_test(script: ModuleType):
    text = PAGE.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (torchscan_\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert tuple(sorted(sections)) == HOOKS
    tests = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_plugins_*.py"))
    for hook in HOOKS:
        assert "@torchscan.hookimpl" in sections[hook]
        assert hook in tests


def test_every_reason_in_the_code_is_documented_with_a_known_code():
    used = set()
    for file in (ROOT / "core" / "torchscan" / "plugins").glob("*.py"):
        used |= set(re.findall(r'reason="(\w+)"', file.read_text(encoding="utf-8")))
    assert used == set(REASONS)
    assert {code for code, _ in REASONS.values()} <= set(CODES)
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{reason}` | `{code}` |" in text for reason, (code, _) in REASONS.items())
