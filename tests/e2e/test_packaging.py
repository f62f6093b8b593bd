"""Installing a pack is enough, uninstalling takes it away, and a broken neighbour changes nothing."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from installed import ROOT, Environment, write_wheel

pytestmark = pytest.mark.e2e

MEASURE = """
import json, torch, torchscan
from einops.layers.torch import Rearrange
from torch import nn

stem = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2), nn.Linear(12, 8))
print(json.dumps(torchscan.crawl_module(stem, args=(torch.ones(1, 3, 4, 4),))))
"""

BROKEN = "import a_library_that_nobody_has\n"
FAILING = """
import torchscan

@torchscan.hookimpl
def torchscan_register_handlers():
    raise RuntimeError("a broken neighbour")
"""


def measure(environment: Environment) -> dict:
    return json.loads(environment.python(MEASURE))


def numbers(report: dict) -> dict:
    return {name: report["totals"][name] for name in ("macs", "dmas", "module_flops", "parameters")}


@pytest.fixture
def with_einops(environment: Environment, wheels: dict[str, Path]):
    environment.install(wheels["einops"])
    yield environment
    environment.uninstall("torchscan-einops")


def test_the_environment_is_outside_of_the_tree(environment: Environment):
    where = json.loads(
        environment.python(
            "import json, sys, torchscan, torchscan_native\n"
            "print(json.dumps([torchscan.__file__, torchscan_native.__file__, sys.path]))"
        )
    )
    assert all(str(ROOT) not in str(place) for place in where)
    assert not [name for name in environment.installed() if name.startswith("torchscan-")]


def test_the_core_alone_lists_its_native_plugin_and_no_other(environment: Environment):
    plugins = environment.plugins()
    assert list(plugins) == ["native"]
    assert plugins["native"]["distribution"] == "torchscan"
    assert plugins["native"]["status"] == "ok"
    assert "torch.nn.modules.linear.Linear" in plugins["native"]["handlers"] or plugins["native"]["handlers"]
    assert environment.run("torchscan", "--help").stdout.startswith("Usage: torchscan")


def test_without_the_pack_a_rearrange_is_unavailable_and_the_total_is_a_lower_bound(environment: Environment):
    report = measure(environment)
    row = report["layers"][1]
    assert row["type"] == "Rearrange"
    assert row["metrics"]["macs"]["status"] == "unavailable"
    # 4 tokens, 12 -> 8: 4*12*8 MACs; 48 read, 12*8 + 8 parameters, 32 written
    assert (report["totals"]["macs"]["status"], report["totals"]["macs"]["known_value"]) == ("partial", 384)
    assert (report["totals"]["dmas"]["status"], report["totals"]["dmas"]["known_value"]) == ("partial", 184)
    assert {d["code"] for d in report["diagnostics"] if d.get("path") == "0"} >= {"unsupported_module_metric"}


def test_pip_install_alone_makes_it_count_and_uninstalling_takes_it_away(
    environment: Environment, wheels: dict[str, Path]
):
    before = measure(environment)
    environment.install(wheels["einops"])
    try:
        report = measure(environment)
        assert (report["totals"]["macs"]["status"], report["totals"]["macs"]["value"]) == ("complete", 384)
        # the copy reads and writes 48 elements
        assert (report["totals"]["dmas"]["status"], report["totals"]["dmas"]["value"]) == ("complete", 184 + 96)
        assert report["layers"][1]["handlers"]["dmas"] == "einops"
        assert "einops" in {plugin["name"] for plugin in report["context"]["plugins"]}
        assert environment.plugins()["einops"]["status"] == "ok"
    finally:
        environment.uninstall("torchscan-einops")
    assert measure(environment) == before
    assert list(environment.plugins()) == ["native"]


@pytest.mark.parametrize("source", [BROKEN, FAILING], ids=["import", "hook"])
def test_a_broken_neighbour_changes_no_number_and_is_named(with_einops: Environment, tmp_path: Path, source: str):
    good = measure(with_einops)
    wheel = write_wheel(
        tmp_path, "torchscan-broken", "0.7", {"torchscan_broken.py": source}, "[torchscan]\nbroken = torchscan_broken\n"
    )
    with_einops.install("--no-deps", wheel)
    try:
        report = measure(with_einops)
        assert report["layers"] == good["layers"]
        assert numbers(report) == numbers(good)
        (diagnostic,) = [d for d in report["diagnostics"] if d.get("plugin") == "broken"]
        assert diagnostic["code"] == "plugin_load_error"
        assert "torchscan-broken 0.7" in diagnostic["message"]
        plugins = with_einops.plugins()
        assert (plugins["broken"]["status"], plugins["einops"]["status"]) == ("failed", "ok")
        assert with_einops.run("torchscan", "plugins", "--strict", check=False).returncode == 1
    finally:
        with_einops.uninstall("torchscan-broken")
    assert numbers(measure(with_einops)) == numbers(good)


def test_installing_every_pack_of_the_tree_imports_none_of_their_libraries(
    environment: Environment, wheels: dict[str, Path]
):
    packs = [name for name in wheels if name != "torchscan"]
    environment.install("--no-deps", *(wheels[name] for name in packs))
    try:
        out = environment.python(
            "import json, sys, torch, torchscan\n"
            "report = torchscan.crawl_module(torch.nn.Linear(3, 2), args=(torch.ones(1, 3),), strict=False)\n"
            "print(json.dumps([report['totals']['macs'], [p['name'] for p in report['context']['plugins']],\n"
            "    [name for name in ('einops', 'transformers') if name in sys.modules], report['diagnostics']]))"
        )
        macs, plugins, imported, diagnostics = json.loads(out)
        assert macs["value"] == 6
        assert set(plugins) == {"native", *packs}
        assert imported == []
        assert not [d for d in diagnostics if d["code"].startswith("plugin_")]
    finally:
        environment.uninstall(*(f"torchscan-{name}" for name in packs))


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheels: dict[str, Path]):
    with zipfile.ZipFile(wheels["torchscan"]) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = set()
    for package in (ROOT / "core" / "torchscan", ROOT / "handlers_native" / "torchscan_native"):
        files = (file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        expected |= {file.relative_to(package.parent).as_posix() for file in files}
    assert inside == expected


def test_importing_torchscan_and_asking_for_help_import_no_torch(environment: Environment):
    code = "import sys, torchscan, torchscan.cli; print('torch' in sys.modules)"
    assert environment.python(code).strip() == "False"
