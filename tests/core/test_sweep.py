"""A sweep in this process: rows, errors, resumption, and what is refused before anything runs."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import sweep_models
import torchscan
from torchscan.engine.sweeps import SweepError, SweepRow, read_rows, sweep


def macs(rows):
    return {tuple(row.config.values()): row.totals.macs.value for row in rows if row.totals is not None}


def test_every_combination_is_a_row_with_its_totals():
    rows = list(torchscan.sweep(sweep_models.linear, {"width": [2, 3], "rows": [1, 5]}))
    # rows * width * width products
    assert macs(rows) == {(2, 1): 4, (2, 5): 20, (3, 1): 9, (3, 5): 45}
    row = rows[0]
    assert row.config == {"width": 2, "rows": 1}
    assert row.error is None
    assert row.seconds > 0
    assert row.totals.macs.status == "complete"
    assert row.totals.parameters.value == 4
    assert row.totals.operator_flops.value == 8
    assert row.model_type == "torch.nn.modules.linear.Linear"
    assert row.build == "sweep_models.linear"
    assert row.settings["execution"] == "fake"


def test_a_target_is_a_builder_too():
    assert macs(sweep("sweep_models:linear", {"width": [4]})) == {(4,): 16}


def test_inputs_come_from_a_callable_that_takes_its_part_of_the_grid():
    rows = list(sweep(sweep_models.bare, {"width": [2], "rows": [3, 4]}, inputs=sweep_models.rows_of))
    assert macs(rows) == {(2, 3): 12, (2, 4): 16}
    rows = list(sweep(sweep_models.bare, {"width": [2]}, inputs=lambda width: {"input": torch.ones(1, width)}))
    assert macs(rows) == {(2,): 4}
    rows = list(sweep(sweep_models.bare, {"width": [2]}, inputs=lambda width: ((torch.ones(6, width),), {})))
    assert macs(rows) == {(2,): 24}


def test_inputs_of_given_sizes_are_generated_with_values():
    class Reads(nn.Embedding):
        def forward(self, ids):
            assert ids.dtype == torch.int64
            return super().forward(ids) if bool((ids == 0).all()) else None

    rows = list(sweep(lambda n: Reads(n, 2), {"n": [4]}, inputs=[(1, 3)], dtype="int64"))
    assert rows[0].error is None
    assert rows[0].settings["inputs"] == [[1, 3]]


def test_rows_stream_in_before_the_grid_is_done():
    built = []

    def build(width):
        built.append(width)
        return sweep_models.linear(width)

    rows = iter(sweep(build, {"width": [1, 2, 3]}))
    assert next(rows).config == {"width": 1}
    assert built == [1]


@pytest.mark.parametrize(
    ("build", "stage", "kind", "message"),
    [
        (sweep_models.no_module, "build", "TargetError", "returned int"),
        (sweep_models.raising, "scan", "ArithmeticError", "no such thing"),
        (sweep_models.quits, "build", "SystemExit", "enough"),
    ],
)
def test_a_configuration_that_fails_is_a_row_with_its_error(build, stage, kind, message):
    row = next(sweep(build, {"width": [2]}))
    assert row.totals is None
    assert (row.error.stage, row.error.type) == (stage, kind)
    assert message in row.error.message


def test_the_others_go_on_after_a_failure():
    rows = list(sweep(sweep_models.linear, {"width": [1, -1, 2]}))
    assert macs(rows) == {(1,): 1, (2,): 4}
    assert [row.error and (row.error.type, row.error.message) for row in rows] == [
        None,
        ("ValueError", "width must not be negative"),
        None,
    ]


def test_incomplete_totals_keep_their_state_and_say_why():
    class Own(nn.Module):
        def forward(self, x):
            return x @ x

    row = next(sweep(lambda n: (Own(), (torch.ones(n, n),), {}), {"n": [2]}))
    # a module without children and without a handler has no count
    assert row.totals.macs.status == "unavailable"
    assert row.diagnostics["unsupported_module_metric"] == 3
    row = next(sweep(lambda n: (Own(), (torch.ones(n, n),), {}), {"n": [2]}, functional="estimate"))
    assert row.totals.macs.value == 8


def test_only_the_totals_asked_for_are_computed():
    row = next(sweep(sweep_models.linear, {"width": [2]}, metrics={"macs"}, functional="skip"))
    assert row.totals.macs.value == 4
    assert row.totals.dmas.method == row.totals.operator_flops.method == "not_requested"


# -- parameters without memory -------------------------------------------------------------------------------------


def test_a_model_larger_than_the_machine_is_swept():
    row = next(sweep(sweep_models.enormous, {"layers": [4]}))
    assert row.totals.macs.value == 4 * 10**12
    assert row.totals.parameter_bytes.value == 16 * 10**12


def test_buffers_and_constants_of_the_builder_keep_their_values():
    row = next(sweep(sweep_models.masked, {"width": [3]}))
    assert row.error is None
    assert row.totals.macs.value == 9


def test_a_builder_that_reads_its_weights_is_built_for_real_when_allowed():
    assert macs(sweep(sweep_models.reads_its_weights, {"width": [3]})) == {(3,): 9}
    row = next(sweep(sweep_models.reads_its_weights, {"width": [3]}, parameters="meta"))
    assert row.error.stage == "build"
    assert "meta" in row.error.message


def test_tied_parameters_stay_tied_and_other_threads_are_left_alone():
    from torchscan.engine.meta_parameters import parameters_on_meta

    with parameters_on_meta():
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second.weight = first.weight
        shared = nn.Parameter(torch.ones(3))
        holder = nn.ParameterList([shared, shared])
        frozen = nn.Module()
        frozen.w = nn.Parameter(torch.ones(2), requires_grad=False)
    assert first.weight.is_meta
    assert second.weight is first.weight
    assert holder[0] is holder[1]
    assert holder[0].is_meta
    assert not frozen.w.requires_grad
    assert not nn.Linear(2, 2).weight.is_meta


def test_threads_build_side_by_side():
    """PyTorch walks its hooks while a module is built; none may come or go in another thread meanwhile."""
    from concurrent.futures import ThreadPoolExecutor

    from torchscan.engine.meta_parameters import parameters_on_meta

    def build(_):
        with parameters_on_meta():
            return all(parameter.is_meta for parameter in nn.Linear(2, 2).parameters())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(build, range(400)))
    finally:
        sys.setswitchinterval(before)
    assert not nn.Linear(2, 2).weight.is_meta


# -- the file ------------------------------------------------------------------------------------------------------


def test_rows_survive_the_file(tmp_path):
    file = tmp_path / "out.jsonl"
    rows = list(sweep(sweep_models.linear, {"width": [2, -1]}, output=file))
    assert read_rows(file) == rows
    assert [SweepRow.from_dict(json.loads(line)) for line in file.read_text().splitlines()] == rows
    assert json.loads(json.dumps(rows[0].to_dict())) == rows[0].to_dict()


def test_an_interrupted_sweep_resumes(tmp_path):
    file, traces = tmp_path / "out.jsonl", tmp_path / "built"
    traces.mkdir()
    grid = {"width": [1, 2, 3], "folder": [str(traces)]}
    first = sweep(sweep_models.counted, grid, output=file)
    next(first)
    first.close()
    again = sweep(sweep_models.counted, grid, output=file)
    rows = list(again)
    assert (again.total, again.resumed) == (3, 1)
    assert [row.totals.macs.value for row in rows] == [1, 4, 9]
    assert sorted(os.listdir(traces)) == ["1-0", "2-1", "3-2"]  # each built once
    more = sweep(sweep_models.counted, {**grid, "width": [1, 2, 3, 4]}, output=file)
    assert [row.config["width"] for row in more] == [1, 2, 3, 4]
    assert more.resumed == 3


def test_rows_of_another_question_are_not_taken_for_an_answer(tmp_path):
    file = tmp_path / "out.jsonl"
    list(sweep(sweep_models.linear, {"width": [2]}, output=file, metrics={"macs"}))
    full = sweep(sweep_models.linear, {"width": [2]}, output=file)
    assert full.resumed == 0
    assert next(full).totals.dmas.status == "complete"
    assert sweep(functools.partial(sweep_models.linear, rows=7), {"width": [2]}, output=file).resumed == 0
    assert len(read_rows(file)) == 2


def test_errors_are_kept_or_tried_again(tmp_path, monkeypatch):
    file = tmp_path / "out.jsonl"
    list(sweep(sweep_models.linear, {"width": [-1]}, output=file))
    kept = sweep(sweep_models.linear, {"width": [-1]}, output=file)
    assert kept.resumed == 1
    assert next(kept).error.type == "ValueError"

    # The builder is mended meanwhile.
    def linear(width, rows=1):
        return nn.Linear(1, 1, bias=False), (torch.ones(1, 1),), {}

    linear.__module__, linear.__qualname__ = "sweep_models", "linear"
    monkeypatch.setattr(sweep_models, "linear", linear)
    mended = sweep(sweep_models.linear, {"width": [-1]}, output=file, retry_errors=True)
    assert next(mended).totals.macs.value == 1
    assert [row.error for row in read_rows(file)] == [None]


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_truncated_last_line_is_scanned_again(tmp_path, cut):
    file = tmp_path / "out.jsonl"
    list(sweep(sweep_models.linear, {"width": [1, 2]}, output=file))
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    if cut > 1:
        assert len(read_rows(file)) == 1
    again = sweep(sweep_models.linear, {"width": [1, 2]}, output=file)
    # Without its last line end the row is whole.
    assert again.resumed == (2 if cut == 1 else 1)
    assert macs(again) == {(1,): 1, (2,): 4}
    assert len(file.read_bytes().splitlines()) == 2
    assert len(read_rows(file)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("notes\n", "line 1 is no row of a sweep: not JSON"),
        ('{"config": {}}\n', "line 1 is no row of a sweep: .*missing"),
        ('[1]\n{"a": 1}\n', "line 1 is no row of a sweep"),
        ('{"totals": 3}', "line 1 is no row of a sweep"),
    ],
)
def test_a_file_of_something_else_is_left_alone(tmp_path, content, message):
    file = tmp_path / "notes.txt"
    file.write_text(content)
    with pytest.raises(SweepError, match=message):
        sweep(sweep_models.linear, {"width": [1]}, output=file)
    assert file.read_text() == content


def test_a_folder_that_is_not_there_is_found_before_anything_runs(tmp_path):
    with pytest.raises(SweepError, match=r"cannot write .*No such file or directory"):
        sweep(sweep_models.linear, {"width": [1]}, output=tmp_path / "missing" / "out.jsonl")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_on_a_full_disk_the_row_is_yielded_before_the_error():
    rows = sweep(sweep_models.linear, {"width": [1, 2]}, output="/dev/full")
    assert next(rows).totals.macs.value == 1
    with pytest.raises(SweepError, match="cannot write /dev/full: No space left on device"):
        next(rows)


def test_a_disk_that_fills_up_in_the_middle_of_a_row_leaves_whole_rows(tmp_path):
    resource = pytest.importorskip("resource")
    file = tmp_path / "out.jsonl"
    list(sweep(sweep_models.linear, {"width": [1]}, output=file))
    whole = file.stat().st_size
    # A limit on the size of files fails a write in the middle, as a full disk does.
    program = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({whole + 200}, resource.RLIM_INFINITY))
sys.path.insert(0, {str(Path(sweep_models.__file__).parent)!r})
import sweep_models
from torchscan.engine.sweeps import SweepError, sweep
rows = sweep(sweep_models.linear, {{"width": [1, 2, 3]}}, output={str(file)!r})
print([next(rows).config["width"] for _ in range(2)])
try:
    next(rows)
except SweepError as error:
    print(error)
"""
    del resource
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[1, 2]\ncannot write")
    assert [row.config["width"] for row in read_rows(file)] == [1]
    assert file.stat().st_size == whole


# -- refused before anything runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        (
            {"widht": [1]},
            ValueError,
            "grid names 'widht', which is no parameter of sweep_models.linear; did you mean 'width'",
        ),
        ({"zzz": [1]}, ValueError, "it takes rows, width"),
        ({"rows": [1]}, ValueError, "needs 'width', which grid gives no values for"),
        ({"width": []}, ValueError, r"grid\['width'\] has no values"),
        ({"width": "12"}, TypeError, r"grid\['width'\] must be a list of values, got '12'; write \['12'\]"),
        ({"width": 3}, TypeError, r"must be a list of values, got 3"),
        ([1], TypeError, "grid must map names to values, got list"),
        ({1: [1]}, TypeError, "grid names must be strings, got 1"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(grid, error, message):
    with pytest.raises(error, match=message):
        sweep(sweep_models.linear, grid)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"execution": "dry"}, ValueError, "execution must be one of 'fake', 'real', got 'dry'"),
        ({"parameters": "none"}, ValueError, "parameters must be one of"),
        ({"functional": "count"}, ValueError, "functional must be one of"),
        ({"metrics": "macs"}, TypeError, "metrics must be a collection"),
        ({"metrics": {"receptive_field"}}, ValueError, "metrics names no total: receptive_field"),
        ({"inputs": 3}, TypeError, "inputs must be a callable, its target, or sizes"),
        ({"inputs": [(2, -1)]}, TypeError, "inputs must be"),
        ({"inputs": [(2, 1)], "dtype": "float33"}, ValueError, "no torch dtype"),
        ({"dtype": "float32"}, ValueError, "dtype= applies to generated inputs only"),
    ],
)
def test_an_unknown_option_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        sweep(sweep_models.linear, {"width": [1]}, **options)


def test_a_target_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="has no 'linnear'"):
        sweep("sweep_models:linnear", {"width": [1]})
    with pytest.raises(TypeError, match="must be callable"):
        sweep(nn.Linear(1, 1).weight, {"width": [1]})


def test_values_that_the_file_cannot_hold_are_refused_when_there_is_a_file(tmp_path):
    grid = {"width": [1], "rows": [object()]}
    with pytest.raises(TypeError, match="output= keeps configurations as JSON"):
        sweep(sweep_models.linear, grid, output=tmp_path / "out.jsonl")
    with pytest.raises(TypeError, match="output= keeps configurations as JSON"):
        sweep(sweep_models.linear, {"width": [float("nan")]}, output=tmp_path / "out.jsonl")
    kinds = list(sweep(lambda kind: (kind(2, 2, bias=False), (torch.ones(1, 2),), {}), {"kind": [nn.Linear]}))
    assert kinds[0].totals.macs.value == 4


def test_counts_of_numpy_are_counts(tmp_path):
    rows = list(sweep(sweep_models.linear, {"width": numpy.arange(1, 3)}, output=tmp_path / "out.jsonl"))
    assert macs(rows) == {(1,): 1, (2,): 4}
    assert type(rows[0].config["width"]) is int


def test_a_configuration_that_appears_twice_is_scanned_once(tmp_path):
    found = sweep(sweep_models.linear, {"width": [2, 2]}, output=tmp_path / "out.jsonl")
    assert found.total == 1
    assert len(list(found)) == 1


def test_reading_the_rows_imports_no_torch(tmp_path):
    file = tmp_path / "out.jsonl"
    list(sweep(sweep_models.linear, {"width": [1]}, output=file))
    program = (
        f"import sys; from torchscan.engine.sweeps import read_rows; rows = read_rows({str(file)!r});"
        "print(rows[0].totals.macs.value, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
