"""`torchscan sweep`, and the plot of a sweep."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import sweep_models
from torchscan.cli import main
from torchscan.engine.sweeps import read_rows, sweep
from torchscan.report.sweep_plot import plot
from torchscan.report.sweep_table import table

TARGET = "sweep_models:linear"


def run(*arguments: str):
    return CliRunner().invoke(main, ["sweep", *arguments])


def test_the_table_lists_every_configuration_in_order(tmp_path):
    result = run(TARGET, "--grid", "width=10,2", "--grid", "rows=1,3", "-o", str(tmp_path / "out.jsonl"), "--exact")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["width", "rows", "parameters", "MACs"]
    # rows * width * width
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["2", "1", "4", "4"],
        ["2", "3", "4", "12"],
        ["10", "1", "100", "100"],
        ["10", "3", "100", "300"],
    ]
    assert lines[-1] == "4 configurations."
    assert result.stderr == ""  # no progress where standard error is no terminal
    assert len(read_rows(tmp_path / "out.jsonl")) == 4


def test_a_swept_variable_may_have_the_name_of_a_total():
    rows = list(sweep(lambda MACs: sweep_models.linear(MACs), {"MACs": [100_000, 2]}))
    # width * width, once
    assert [line.split()[:3] for line in table(rows, None, False, exact=False).splitlines()[:3]] == [
        ["MACs", "parameters", "MACs"],
        ["2", "4", "4"],
        ["100000", "10.0", "G"],
    ]


def test_a_failed_configuration_shows_its_error_and_the_exit_code_says_so():
    result = run(TARGET, "--grid", "width=-1,2")
    assert result.exit_code == 1
    assert "ValueError: width must not be negative" in result.stdout
    assert "2 configurations, 1 failed." in result.stdout


def test_a_sweep_resumes_and_errors_can_be_tried_again(tmp_path):
    file = str(tmp_path / "out.jsonl")
    assert run(TARGET, "--grid", "width=-1,2", "-o", file).exit_code == 1
    before = Path(file).read_text()
    assert run(TARGET, "--grid", "width=-1,2", "-o", file).exit_code == 1
    assert Path(file).read_text() == before
    assert run(TARGET, "--grid", "width=-1,2", "-o", file, "--retry-errors").exit_code == 1
    assert len(Path(file).read_text().splitlines()) == 3


def test_generated_inputs_chosen_metrics_and_lists_as_values(tmp_path):
    file = tmp_path / "out.jsonl"
    result = run("sweep_models:bare", "--grid", "width=2", "--input", "7,2", "--metrics", "macs", "-o", str(file))
    assert result.exit_code == 0, result.output
    assert "module FLOPs" not in result.stdout
    assert read_rows(file)[0].totals.macs.value == 28
    result = run("sweep_models:bare", "--grid", "width=2", "--grid", "rows=4", "--inputs", "sweep_models:rows_of")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2", [1, 2]),
        ("a=1.5, 2e3", [1.5, 2000.0]),
        ("a=relu,gelu", ["relu", "gelu"]),
        ("a=true,False,null,None", [True, False, None, None]),
        ("a=[1,2],[3]", [[1, 2], [3]]),
        ('a="1,2"', ["1,2"]),
        ("a=NaN", ["NaN"]),
        ("a=x=y", ["x=y"]),
    ],
)
def test_values_are_json_where_they_are_and_text_elsewhere(text, values):
    from torchscan.cli_sweep import Values

    assert Values().convert(text, None, None) == ("a", values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TARGET,), "Missing option '--grid'"),
        ((TARGET, "--grid", "width"), "no NAME=VALUE,VALUE"),
        ((TARGET, "--grid", "width="), "no NAME=VALUE,VALUE"),
        ((TARGET, "--grid", "width=1", "--grid", "width=2"), "--grid names 'width' twice"),
        ((TARGET, "--grid", "widht=1"), "did you mean 'width'?"),
        (("sweep_models:nothing", "--grid", "width=1"), "has no 'nothing'"),
        (("no_such_module_here:x", "--grid", "width=1"), "there is no module 'no_such_module_here'"),
        ((TARGET, "--grid", "width=1", "--metrics", "macks"), "metrics names no total: macks"),
        ((TARGET, "--grid", "width=1", "-o", "/nowhere/at/all.jsonl"), "cannot write /nowhere/at/all.jsonl"),
        ((TARGET, "--grid", "width=1", "--plot", "x.html", "--plot-x", "depth"), "'depth' is not swept"),
        ((TARGET, "--grid", "width=1", "--plot", "x.html", "--plot-y", "time"), "a plot shows one of"),
        ((TARGET, "--grid", "width=1", "--input", "1,1", "--inputs", TARGET), "give one of them"),
    ],
)
def test_wrong_arguments_are_one_sentence_and_exit_code_2(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_full_disk_shows_what_was_finished_and_ends_with_2():
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    result = run(TARGET, "--grid", "width=3,4", "-o", "/dev/full")
    assert result.exit_code == 2
    assert "1 configuration." in result.stdout
    assert "No space left on device" in result.stderr


def test_worker_processes_survive_a_configuration_that_kills_one(tmp_path):
    folder = Path(sweep_models.__file__).parent
    file = tmp_path / "out.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "torchscan", "sweep", "sweep_models:deadly", "--grid", "width=1,2,3,4",
         "--workers", "2", "-o", str(file)],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "4 configurations, 1 failed." in done.stdout
    found = {row.config["width"]: row.error and row.error.type for row in read_rows(file)}
    assert found == {1: None, 2: None, 3: "BrokenProcessPool", 4: None}


def test_help_imports_no_torch():
    program = (
        "import sys; from click.testing import CliRunner; from torchscan.cli import main;"
        "result = CliRunner().invoke(main, ['sweep', '--help']); print(result.exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


# -- the plot ------------------------------------------------------------------------------------------------------


def drawing(page: str):
    """Return the traces and the layout that the page hands to plotly."""
    found = re.search(r"Plotly\.newPlot\(\s*\"[^\"]+\",\s*(\[.*?\]),\s*(\{.*?\}),\s*(\{[^{}]*\})\s*\)", page, re.DOTALL)
    assert found is not None
    return json.loads(found[1]), json.loads(found[2]), json.loads(found[3])


def heights(trace):
    return trace["y"]


def test_a_plot_is_one_file_with_one_line_per_setting_of_the_others(tmp_path):
    pytest.importorskip("plotly")
    file = tmp_path / "out.html"
    result = run(TARGET, "--grid", "width=3,1,2,-1", "--grid", "rows=1,2", "--plot", str(file))
    assert result.exit_code == 1
    page = file.read_text()
    traces, layout, config = drawing(page)
    # sorted along the axis; a configuration that failed has no height
    assert [(trace["name"], trace["x"], heights(trace)) for trace in traces] == [
        ("rows=1", [-1, 1, 2, 3], [None, 1, 4, 9]),
        ("rows=2", [-1, 1, 2, 3], [None, 2, 8, 18]),
    ]
    assert layout["annotations"][0]["text"] == "8 configurations, 2 failed"
    assert layout["yaxis"]["title"]["text"] == "MACs"
    offered = [button["label"] for button in layout["updatemenus"][0]["buttons"]]
    assert offered == ["MACs", "module FLOPs", "DMAs", "operator FLOPs", "parameters", "parameter bytes"]
    dmas = layout["updatemenus"][0]["buttons"][2]["args"][0]["y"]
    # inputs, weights, outputs: 1 + 1 + 1, 2 + 4 + 2, 3 + 9 + 3
    assert dmas[0] == [None, 3, 8, 15]
    # It fits small screens, and lines that coincide can be told apart.
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "<title>" in page
    assert len({trace["line"]["dash"] for trace in traces}) == 2
    # Nothing is fetched, and nothing can be sent anywhere.
    assert "<script src=" not in page
    assert "default-src 'none'" in page
    assert config["showSendToCloud"] is False


def test_a_lower_bound_is_no_value_and_an_unknown_number_no_point():
    pytest.importorskip("plotly")
    import attrs

    from torchscan.report.schema import MetricResult

    rows = list(sweep(sweep_models.linear, {"width": [1, 2, 3]}))
    partial = MetricResult("partial", None, 4, "MACs", "forward", "torchscan_formula_v1")
    unknown = MetricResult("unavailable", None, None, "MACs", "forward", "torchscan_formula_v1")
    rows[1] = attrs.evolve(rows[1], totals=attrs.evolve(rows[1].totals, macs=partial))
    rows[2] = attrs.evolve(rows[2], totals=attrs.evolve(rows[2].totals, macs=unknown))
    (trace,), layout, _ = drawing(plot(rows))
    assert heights(trace) == [1, 4, None]
    assert trace["marker"]["symbol"][:2] == ["circle", "triangle-up-open"]
    assert ">= 4" in html.unescape(trace["text"][1])
    assert layout["annotations"][0]["text"] == "3 configurations, 1 without a number, 1 lower bound (open triangles)"


def test_text_of_the_program_stays_text():
    pytest.importorskip("plotly")
    rows = list(sweep(lambda kind: sweep_models.linear(1), {"kind": ["<b>x</b></script>", "y"]}))
    page = plot(rows, title="<img src=x onerror=alert(1)>")
    (trace,), layout, _ = drawing(page)
    assert trace["x"][0] == "&lt;b&gt;x&lt;/b&gt;&lt;/script&gt;"
    assert layout["title"]["text"] == "&lt;img src=x onerror=alert(1)&gt;"
    assert "<img src=x" not in page


def test_a_plot_without_rows_or_variables_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        plot([])
    rows = list(sweep(lambda: sweep_models.linear(1), {}))
    assert rows[0].totals.macs.value == 1
    with pytest.raises(ValueError, match="no swept variable"):
        plot(rows)
