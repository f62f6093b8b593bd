"""`torchscan render`, `compare` and `check` as a shell sees them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest
from click.testing import CliRunner

from core.report_builder import DATA, STORED, deep_report, stored
from torchscan import Report, compare_reports, render_report
from torchscan.cli import main

ATTENTION = str(DATA / "v1" / "attention.json")
OLD = str(DATA / "v0_2_0" / "attention.json")


def run(*arguments, **options):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def refused(*arguments, **options) -> str:
    """Return the one sentence with which a command is refused."""
    done = run(*arguments, **options)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    return done.stderr


@pytest.mark.parametrize("file", STORED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_render_prints_text(file):
    done = run("render", file)
    assert done.exit_code == 0
    assert done.stdout == render_report(json.loads(file.read_text()), format="text")


@pytest.mark.parametrize("suffix", [".txt", ".md", ".csv", ".json", ".speedscope.json"])
def test_render_writes_by_suffix(tmp_path, suffix):
    file = tmp_path / f"out{suffix}"
    done = run("render", ATTENTION, "-o", file, "--metric", "dmas", "--title", "A title")
    assert (done.exit_code, done.output) == (0, "")
    assert file.read_text()
    assert run("render", ATTENTION, "--format", "markdown", "-o", file).exit_code == 0
    assert file.read_text().startswith("### ")


def test_render_takes_its_options():
    done = run(
        "render", DATA / "v1" / "transformer.json", "--depth", 0, "--columns", "macs, type", "--exact", "--width", 60
    )
    heading, row = done.stdout.splitlines()[3], done.stdout.splitlines()[5]
    assert heading.split() == ["call", "MACs", "type"]
    assert row.split()[-2:] == ["1,088", "Transformer"]  # the source document derives 1088 MACs
    assert "+" in row


@pytest.mark.parametrize("format_", ["csv", "html", "svg", "markdown", "json", "speedscope"])
def test_what_is_meant_for_programs_is_the_same_in_a_pipe_and_in_a_file(tmp_path, format_):
    data = json.loads((DATA / "v1" / "attention.json").read_text())
    data["context"]["model_type"] = "größe.模型.😀"
    file = tmp_path / "report.json"
    file.write_text(json.dumps(data))
    assert run("render", file, "--format", format_, "-o", tmp_path / "out").exit_code == 0
    done = subprocess.run(
        [sys.executable, "-m", "torchscan", "render", str(file), "--format", format_],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == (tmp_path / "out").read_bytes()


def test_render_reads_standard_input():
    text = (DATA / "v1" / "attention.json").read_text()
    assert run("render", "-", input=text).stdout == run("render", ATTENTION).stdout
    assert refused("render", "-", input="{").startswith("torchscan: standard input: not JSON")


def test_compare():
    done = run("compare", OLD, ATTENTION)
    assert done.exit_code == 0
    assert "withheld: methods differ" in done.stdout
    done = run("compare", OLD, ATTENTION, "--format", "json")
    assert json.loads(done.stdout) == compare_reports(stored("v0_2_0/attention"), stored("v1/attention"))
    assert run("compare", OLD, ATTENTION, "--format", "markdown").stdout.startswith("### ")
    assert run("render", ATTENTION, "--before", OLD).stdout == run("compare", OLD, ATTENTION).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--max", "macs=208", "--max", "dmas=352", "--require-complete", "macs,dmas"], 0),
        (["--max", "macs=207"], 1),
        (["--max", "operator_flops=1e12"], 1),  # a lower bound below the budget
        (["--max", "operator_flops=1"], 1),  # a lower bound above it
        (["--require-complete", "macs", "--require-complete", "operator_flops"], 1),
        (["--baseline", ATTENTION, "--tolerance", "1%"], 0),
        (["--baseline", OLD], 1),
    ],
)
def test_check_says_it_with_its_exit_code(arguments, code):
    done = run("check", ATTENTION, *arguments)
    assert done.exit_code == code
    assert "checks passed" in done.stdout if code == 0 else "failed" in done.stdout
    done = run("check", ATTENTION, *arguments, "--format", "json")
    assert done.exit_code == code
    assert json.loads(done.stdout)["ok"] is (code == 0)


def test_check_writes_its_verdict_even_when_it_fails(tmp_path):
    file = tmp_path / "verdict.json"
    done = run("check", ATTENTION, "--max", "macs=1", "--format", "json", "-o", file)
    assert (done.exit_code, done.stdout) == (1, "")
    assert json.loads(file.read_text())["checks"][0]["reason"] == "over_budget"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["render", "none.json"], "none.json: No such file or directory"),
        (["render", DATA], f"{DATA}: Is a directory"),
        (["render", __file__], "not JSON"),
        (["render", DATA / "v0_2_0" / "other_operator_report.json"], "this is an operator report"),
        (["render", ATTENTION, "--format", "pdf"], "there is no report format 'pdf'"),
        (["render", ATTENTION, "-o", "out.pdf"], "no report format has the suffix of 'out.pdf'"),
        (["render", ATTENTION, "-o", "none/out.md"], "none/out.md: No such file or directory"),
        (["render", ATTENTION, "--columns", "flops"], "there is no column 'flops'"),
        (["render", ATTENTION, "--metric", "flops"], "'flops' is not one of"),
        (["render", ATTENTION, "--depth", "-1"], "-1 is not in the range"),
        (["render"], "Missing argument"),
        (["compare", ATTENTION], "Missing argument"),
        (["compare", ATTENTION, DATA / "v0_2_0" / "other_comparison.json"], "this is a comparison"),
        (["check", ATTENTION], "there is nothing to check"),
        (["check", ATTENTION, "--max", "macs"], "--max takes TOTAL=N, such as macs=6e9, got 'macs'"),
        (["check", ATTENTION, "--max", "macs=1", "--max", "macs=2"], "--max names 'macs' twice"),
        (["check", ATTENTION, "--max", "flops=1"], "there is no total 'flops'"),
        (["check", ATTENTION, "--max", "macs=few"], "a budget is a number such as 6e9"),
        (["check", ATTENTION, "--baseline", "none.json"], "none.json: No such file or directory"),
        (["check", ATTENTION, "--max", "macs=1", "--tolerance", "1%"], "a tolerance needs a baseline"),
        (["check", "none.json", "--max", "macs=1"], "none.json: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_2(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = refused(*arguments)
    assert sentence in said
    assert "Traceback" not in said
    if said.startswith("torchscan: "):
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version": NaN}', "[" * 100_000, "\x00", "\ufeff"]
)
def test_a_broken_report_names_its_file(tmp_path, content):
    file = tmp_path / "broken.json"
    file.write_text(content, encoding="utf-8")
    for command in (
        ["render", file],
        ["compare", ATTENTION, file],
        ["compare", file, ATTENTION],
        ["check", file, "--max", "macs=1"],
    ):
        said = refused(*command)
        assert said.startswith(f"torchscan: {file}: ")
        assert len(said) < 400


def test_a_tampered_report_names_the_field(tmp_path):
    data = stored("v1/attention")
    data["totals"]["macs"]["known_value"] = 3
    file = tmp_path / "tampered.json"
    file.write_text(json.dumps(data))
    assert f"{file}: totals.macs: a complete metric has value == known_value, got 208 and 3" in refused("render", file)


def test_no_half_written_output(tmp_path):
    broken, out = tmp_path / "broken.json", tmp_path / "out.md"
    broken.write_text("{")
    out.write_text("precious")
    refused("render", broken, "-o", out)
    refused("compare", ATTENTION, broken, "-o", out)
    assert out.read_text() == "precious"
    assert sorted(tmp_path.iterdir()) == [broken, out]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_device():
    assert refused("render", ATTENTION, "--format", "text", "-o", "/dev/full") == (
        "torchscan: /dev/full: No space left on device\n"
    )


def test_a_narrow_console_encoding():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "torchscan", "render", str(DATA / "v0_2_0" / "mixed.json")]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("ascii")


def test_the_reader_of_a_pipe_may_leave(tmp_path):
    file = tmp_path / "long.json"
    file.write_text(deep_report(2_000).to_json())  # more than a pipe holds
    program = f"{sys.executable} -m torchscan render {file} | head -1"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_five_thousand_calls_are_compared_within_two_seconds(tmp_path):
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    report = deep_report(5_000)
    one.write_text(report.to_json())
    data = report.to_dict()
    for layer in data["layers"][::3]:
        if "macs" in layer["metrics"]:
            layer["metrics"]["macs"].update(value=1, known_value=1)
    other.write_text(Report.from_dict(data).to_json())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "torchscan", "compare", one, other], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 1_400
    # The time of the processor, so that a busy machine does not fail it.
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 2


def test_help_says_what_each_command_does():
    for command in ("render", "compare", "check"):
        done = run(command, "--help")
        assert done.exit_code == 0
        assert "-o, --output FILE" in done.stdout
