"""What commands say where their output cannot arrive, where they are interrupted, and where a target exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from core.report_builder import DATA
from torchscan import check_causal
from torchscan.cli import main

REPORT = str(DATA / "v1" / "attention.json")
MODELS = """
import sys
import time

import torch
from torch import nn


class Chatty(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        print("from the model")
        return self.inner(x)


class Slow(nn.Module):
    def forward(self, x):
        print("running", flush=True)
        time.sleep(60)


class Exits(nn.Module):
    def forward(self, x):
        sys.exit(0)


def chatty():
    print("from the builder")
    return Chatty(), (torch.ones(1, 2, 4),)


def slow():
    return Slow(), (torch.ones(1),)


def exits():
    return Exits(), (torch.ones(1),)


def slow_builder(number):
    print("running", flush=True)
    time.sleep(3)
    return nn.Linear(number, 1), (torch.ones(1, number),)


def builder_exits():
    sys.exit()


def builder_raises():
    raise KeyError("a\\nb")
"""

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")


@pytest.fixture
def models(tmp_path):
    file = tmp_path / "models_of_output.py"
    file.write_text(MODELS)
    return str(file)


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def shell(command, **options):
    words = [sys.executable, "-m", "torchscan", *command]
    return subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, **options)


@needs_full
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "command",
    [
        ["render", REPORT],
        ["render", REPORT, "--format", "json"],
        ["check", REPORT, "--max", "macs=1e9"],
        ["plugins"],
        ["--version"],
        ["check", "--help"],
        ["scan", "torch.nn:Identity", "--input", "1,2"],
        ["scan", "torch.nn:Identity", "--input", "1,2", "--json", "-"],
    ],
    ids=" ".join,
)
def test_a_full_device_is_one_sentence(command, buffered):
    with open("/dev/full", "w") as full:
        done = shell(command, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": buffered})
    assert done.returncode == 2
    assert done.stderr == "torchscan: cannot write standard output: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="asks a shell of POSIX")
@pytest.mark.parametrize("command", [f"render {REPORT}", f"check {REPORT} --max macs=0", "plugins --json"])
def test_a_closed_output_changes_no_verdict(command):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m torchscan {command} >&-"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == (1 if command.startswith("check") else 0)
    assert done.stderr == ""


@pytest.mark.parametrize(("budget", "code"), [("0", 1), ("1e9", 0)])
def test_a_reader_that_leaves_changes_no_verdict(budget, code):
    reading, writing = os.pipe()
    os.close(reading)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = shell(["check", REPORT, "--max", f"macs={budget}"], stdout=writing, env=buffered)
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_is_no_verdict(models):
    words = [sys.executable, "-m", "torchscan", "scan", f"{models}:slow", "--strict"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "running\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.strip() == "torchscan: interrupted"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupted_sweep_says_what_it_waits_for(models, tmp_path):
    rows = tmp_path / "rows.jsonl"
    words = [sys.executable, "-m", "torchscan", "sweep", f"{models}:slow_builder", "--grid", "number=1,2,3,4,5,6,7,8"]
    words += ["--workers", "2", "-o", str(rows)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "torchscan: stopping; the configurations that run now are finished first" in said
    assert "the same command resumes" in said
    # What ran is stored, and what had not begun is not run.
    assert 1 <= len(rows.read_text().splitlines()) < 8


def test_json_alone_goes_to_standard_output(models):
    done = run("scan", f"{models}:chatty", "--json", "-")
    # 2 rows through 4 x 4 weights
    assert json.loads(done.stdout)["totals"]["macs"]["value"] == 32
    assert done.stderr == "from the builder\nfrom the model\n"
    done = run("causal", f"{models}:chatty", "--draws", 1, "--json")
    assert json.loads(done.stdout)["causal"] is True
    assert "from the model" in done.stderr
    assert run("scan", f"{models}:chatty").stdout.startswith("from the builder\nfrom the model\n")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("exits", "the model raised SystemExit: 0"),
        ("builder_exits", "{models}:builder_exits raised SystemExit"),
        ("builder_raises", "{models}:builder_raises raised KeyError: 'a\\nb'"),
    ],
)
def test_a_target_cannot_choose_the_exit_code(models, target, sentence):
    sentence = sentence.replace("{models}", models)
    done = run("scan", f"{models}:{target}")
    assert done.exit_code == 2
    assert done.stderr == f"torchscan: {sentence} (--traceback shows where)\n"
    done = run("scan", f"{models}:{target}", "--traceback")
    assert done.exit_code == 2
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith(f"torchscan: {sentence}\n")


def test_a_file_that_exits_when_it_is_imported(tmp_path):
    file = tmp_path / "script_that_exits.py"
    file.write_text("raise SystemExit(0)\n")
    done = run("scan", f"{file}:build")
    assert done.exit_code == 2
    assert "cannot be imported: SystemExit: 0" in done.stderr


def test_inputs_that_cannot_be_made():
    done = run("scan", "torch.nn:Identity", "--input", "9999999999,9999999999,9999999999")
    assert done.exit_code == 2
    assert done.stderr.startswith("torchscan: the inputs cannot be made: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("sizes", ["2,,4", "2,4,", ",", ""])
def test_a_size_left_out_is_not_guessed(sizes):
    done = run("scan", "torch.nn:Identity", "--input", sizes)
    assert done.exit_code == 2
    assert "is no list of sizes" in done.stderr


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["scan", "torch.nn:Identity", "--metrics", ""], "--metrics names no metric"),
        (["sweep", "torch.nn:Identity", "--grid", "a=1", "--metrics", ","], "--metrics names no metric"),
        (["check", REPORT, "--max", "macs=1e9", "--require-complete", ""], "--require-complete names no total"),
        (["plugins", "--no-plugin", "torchscan"], "no plugin is named 'torchscan'"),
        (["sweep", "torch.nn:Identity", "--grid", "a=1", "--no-plugin", "nativ"], "no plugin is named 'nativ'"),
    ],
)
def test_an_option_without_a_name_is_refused(command, sentence):
    done = run(*command)
    assert done.exit_code == 2
    assert sentence in done.stderr


def test_a_question_that_does_not_fit_is_no_error_of_the_model(models):
    done = run("causal", f"{models}:chatty", "--axis", 9)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (
        2,
        "torchscan: axis=9 is no axis of a tensor of shape (1, 2, 4)",
    )


def test_a_process_without_standard_output(monkeypatch):
    import torch

    from torchscan import summary

    monkeypatch.setattr(sys, "stdout", None)
    report = summary(torch.nn.Linear(2, 2), args=(torch.ones(1, 2),))
    assert report["totals"]["macs"]["value"] == 4
    assert check_causal(torch.nn.Identity(), (torch.ones(1, 2, 1),))
