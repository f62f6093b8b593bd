"""`torchscan scan` and `torchscan causal`, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from torchscan import Report
from torchscan.cli import main

MODELS = """
import torch
from torch import nn


class Own(nn.Module):
    def forward(self, x):
        return x @ x.T


def head():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def call():
    return head(), (torch.ones(2, 4),), {}


def own():
    return Own(), (torch.ones(2, 4),), {}


def raises():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("fuse")

    return Raises(), (torch.ones(1),), {}


def number():
    return 3


def shifted():
    class Shifted(nn.Module):
        def forward(self, x):
            return x.roll(-1, 1)

    return Shifted(), (torch.randn(1, 4, 2),), {}


not_callable = 3
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    file = tmp_path / "some_models.py"
    file.write_text(MODELS)
    return str(file)


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments))


def test_a_table_and_a_stored_report(models, tmp_path):
    stored = tmp_path / "report.json"
    result = run("scan", f"{models}:call", "--json", str(stored), "--exact")
    assert result.exit_code == 0, result.output
    # 2 rows: 2 * (4 * 8 + 8 * 3)
    assert "112" in result.output
    assert Report.load(stored).totals.macs.value == 112


def test_json_on_standard_output(models):
    result = run("scan", f"{models}:call", "--json", "-")
    assert json.loads(result.output)["totals"]["macs"]["value"] == 112


def test_inputs_are_generated_with_their_batch(models):
    result = run("scan", f"{models}:head", "--input", "5,4", "--json", "-")
    report = json.loads(result.output)
    assert report["totals"]["macs"]["value"] == 5 * 56
    assert report["layers"][0]["input"]["args"][0]["shape"] == [5, 4]


def test_a_dotted_target_and_a_module_class():
    assert run("scan", "torch.nn:Identity", "--input", "2,3").exit_code == 0


def test_strict_exits_with_one_and_still_shows_the_report(models):
    result = run("scan", f"{models}:own", "--strict")
    assert result.exit_code == 1
    assert "incomplete" in result.output
    assert "Totals" in result.output
    assert run("scan", f"{models}:call", "--strict").exit_code == 0


def test_options_reach_the_scan(models):
    report = json.loads(run("scan", f"{models}:own", "--functional", "estimate", "--json", "-").output)
    assert report["totals"]["macs"]["value"] == 2 * 2 * 4
    report = json.loads(run("scan", f"{models}:call", "--metrics", "macs, dmas", "--json", "-").output)
    assert report["totals"]["module_flops"]["method"] == "not_requested"
    report = json.loads(run("scan", f"{models}:call", "--mode", "structure", "--json", "-").output)
    assert report["totals"]["macs"]["status"] == "unavailable"
    report = json.loads(run("scan", f"{models}:call", "--execution", "fake", "--json", "-").output)
    assert report["totals"]["macs"]["value"] == 112
    report = json.loads(run("scan", f"{models}:call", "--no-plugin", "native", "--json", "-").output)
    assert report["totals"]["macs"]["status"] == "unavailable"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nofile.py:x"], "there is no file 'nofile.py'"),
        (["no_such_package.models:x"], "no_such_package"),
        (["models"], "is no target"),
        (["{models}:nothing"], "has no 'nothing'"),
        (["{models}:not_callable"], "of type int"),
        (["{models}:number"], "returned int"),
        (["{models}:raises"], "the model raised ValueError: fuse"),
        (["{models}:head"], "missing 1 required positional argument"),
        (["{models}:call", "--input", "2,4"], "already returns its arguments"),
        (["{models}:head", "--input", "2,x"], "no list of sizes"),
        (["{models}:head", "--input", "2,4", "--dtype", "foo"], "no torch dtype"),
        (["{models}:head", "--dtype", "float32"], "generated inputs"),
        (["{models}:call", "--metrics", "flops"], "metrics names nothing known: flops"),
        (["{models}:call", "--no-plugin", "nativ"], "no plugin is named 'nativ'"),
        (["{models}:call", "--json", "/no/such/folder/report.json"], "cannot write"),
        (["{models}:call", "--mode", "fast"], "fast"),
    ],
)
def test_a_usage_error_is_one_sentence_and_exit_code_two(models, arguments, message):
    result = run("scan", *(argument.replace("{models}", models) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_the_traceback_on_request(models):
    result = run("scan", f"{models}:raises", "--traceback")
    assert result.exit_code == 2
    assert "in forward" in result.output
    assert result.output.endswith("torchscan: the model raised ValueError: fuse\n")


def test_causality_on_the_command_line(models):
    result = run("causal", f"{models}:shifted")
    assert result.exit_code == 1
    assert "output position 0 depends on input position 1" in result.output
    assert run("causal", "torch.nn:Identity", "--input", "1,3,2").exit_code == 0
    assert run("causal", f"{models}:shifted", "--axis", "7").exit_code == 2
    # the argument by position, and the whole result
    found = run("causal", f"{models}:shifted", "--argument", "0", "--draws", "1", "--json")
    assert found.exit_code == 1
    assert json.loads(found.output)["leak"] == [0, 1]
    unknown = run("causal", f"{models}:shifted", "--argument", "y")
    assert unknown.exit_code == 2
    assert "no tensor argument" in unknown.output


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_console(models, encoding):
    names = Path(models).with_name("names.py")
    names.write_text(
        "from torch import nn\n\n\nclass Größe(nn.Linear):\n    pass\n\n\ndef model():\n    return Größe(2, 2)\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "torchscan", "scan", f"{names}:model", "--input", "1,2"],
        capture_output=True,
        env={"PYTHONIOENCODING": encoding, "PATH": ""},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert b"Linear" in result.stdout or b"Gr" in result.stdout
