"""The derivations keep up with the code: every anchor a formula names exists, and every boundary is explained."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from docs.pages import anchors
from torchscan_native.transformer import dmas, flops, macs
from torchscan_native.transformer.boundaries import BOUNDARIES

ROOT = Path(__file__).parents[2]
FORMULAS = [
    (module, name)
    for module in (macs, dmas, flops)
    for name in module.__all__
    if name.endswith(("macs", "dmas", "flops"))
]


@pytest.mark.parametrize(("module", "name"), FORMULAS, ids=lambda value: getattr(value, "__name__", value))
def test_a_formula_names_its_derivation(module: ModuleType, name: str) -> None:
    found = re.search(r"(docs/derivations/\w+\.md)#([\w-]+)", getattr(module, name).__doc__)
    assert found is not None
    assert found[2] in anchors(found[1])


def test_every_boundary_is_explained() -> None:
    page = (ROOT / "docs" / "derivations" / "transformer.md").read_text(encoding="utf-8")
    assert [reason for reason in BOUNDARIES if f"`{reason}`" not in page] == []


@pytest.mark.parametrize("module", ["dims", "macs", "dmas", "flops", "composition", "boundaries"])
def test_formulas_know_neither_torch_nor_pluggy(module: str) -> None:
    source = (ROOT / "handlers_native" / "torchscan_native" / "transformer" / f"{module}.py").read_text(
        encoding="utf-8"
    )
    assert re.findall(r"^\s*(?:from|import) (?:torch|pluggy)\b.*$", source, re.M) == []
