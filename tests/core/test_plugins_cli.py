"""`torchscan plugins` shows what is installed, what each registers, and what failed."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

import torchscan
from plugin_sites import Site, handler_pack
from torchscan.cli import main


@pytest.fixture
def site(site: Site) -> Site:
    site.pack("cliworks", handler_pack("mylib.Attention"), "3.4")
    site.pack("clibroken", "import cli_absent_library", "0.2")
    return site


def run(*arguments: str):
    return CliRunner().invoke(main, ["plugins", *arguments])


def rows(output: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in output.partition("\n\n")[0].splitlines()}


def test_the_table_names_distribution_version_status_and_counts(site: Site):
    result = run()
    assert result.exit_code == 0
    table = rows(result.output)
    assert table["cliworks"] == ["cliworks", "torchscan-cliworks", "3.4", "ok", "1", "handler"]
    assert table["clibroken"] == ["clibroken", "torchscan-clibroken", "0.2", "failed", "-"]
    assert table["native"][:4] == ["native", "torchscan", torchscan.__version__, "ok"]
    assert "plugin_load_error: plugin 'clibroken' (torchscan-clibroken 0.2)" in result.output
    assert "cli_absent_library" in result.output


def test_json_has_every_target_and_every_failure(site: Site):
    result = run("--json")
    data = json.loads(result.output)
    found = {plugin["name"]: plugin for plugin in data["plugins"]}
    assert found["cliworks"] == {
        "name": "cliworks",
        "distribution": "torchscan-cliworks",
        "version": "3.4",
        "module": "cliworks_plugin",
        "status": "ok",
        "error": None,
        "handlers": ["mylib.Attention"],
        "operator_formulas": [],
        "formats": [],
    }
    assert found["clibroken"]["status"] == "failed"
    assert "cli_absent_library" in found["clibroken"]["error"]
    (diagnostic,) = [each for each in data["diagnostics"] if each["plugin"] == "clibroken"]
    assert (diagnostic["code"], diagnostic["reason"]) == ("plugin_load_error", "dependency_missing")


def test_strict_turns_a_failure_into_an_exit_code(site: Site):
    assert run("--strict").exit_code == 1
    assert run("--strict", "--no-plugin", "clibroken").exit_code == 0


def test_a_plugin_can_be_left_out_by_name_and_a_typo_is_refused(site: Site):
    assert rows(run("--no-plugin", "cliworks").output)["cliworks"][3] == "disabled"
    result = run("--no-plugin", "cliwroks")
    assert result.exit_code == 2
    assert "no plugin is named 'cliwroks'" in result.output


def test_the_environment_holds_on_the_command_line(site: Site, monkeypatch):
    monkeypatch.setenv("TORCHSCAN_DISABLE_PLUGINS", "clibroken")
    assert rows(run().output)["clibroken"][3] == "disabled"
    monkeypatch.setenv("TORCHSCAN_PLUGIN_AUTOLOAD", "0")
    assert run().output == "No plugin is installed.\n"


def test_what_a_plugin_prints_is_not_part_of_the_json(site: Site):
    site.pack("clinoisy", 'print("hello from a plugin")')
    done = run("--json")
    assert "clinoisy" in {plugin["name"] for plugin in json.loads(done.stdout)["plugins"]}
    assert done.stderr == "hello from a plugin\n"
    sys.modules.pop("clinoisy_plugin", None)
    done = CliRunner().invoke(main, ["scan", "torch.nn:Identity", "--input", "1,2", "--json", "-"])
    assert json.loads(done.stdout)["totals"]["macs"]["value"] == 0
    assert done.stderr == "hello from a plugin\n"
