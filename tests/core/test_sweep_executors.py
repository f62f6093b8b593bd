"""A sweep on executors: threads, processes, a Dask cluster, and executors that die."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch
from torch import nn

import sweep_models
from torchscan.engine.sweeps import SweepError, read_rows, sweep


def processes(workers: int = 2) -> ProcessPoolExecutor:
    server = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if server else "spawn")
    if server:
        context.set_forkserver_preload(["torchscan.engine.scanner"])
    return ProcessPoolExecutor(workers, mp_context=context)


@pytest.fixture(scope="module")
def pool():
    with processes() as pool:
        yield pool


def macs(rows):
    return {row.config["width"]: row.totals.macs.value for row in rows if row.totals is not None}


def test_threads():
    with ThreadPoolExecutor(3) as threads:
        rows = list(sweep(sweep_models.linear, {"width": [1, 2, 3, -1]}, executor=threads))
    assert macs(rows) == {1: 1, 2: 4, 3: 9}
    assert [row.error.type for row in rows if row.error] == ["ValueError"]


def test_processes_give_what_this_process_gives(pool, tmp_path):
    grid = {"width": [1, 2, 3, -1], "rows": [2]}
    here = {row.key: row for row in sweep(sweep_models.linear, grid)}
    rows = list(sweep(sweep_models.linear, grid, executor=pool, output=tmp_path / "out.jsonl"))
    there = {row.key: row for row in rows}
    assert here.keys() == there.keys()
    for key, row in here.items():
        assert there[key].totals == row.totals
        assert there[key].error == row.error
    assert sorted(read_rows(tmp_path / "out.jsonl"), key=lambda r: r.key) == sorted(rows, key=lambda r: r.key)
    assert macs(sweep("sweep_models:linear", {"width": [5]}, executor=pool)) == {5: 25}


def test_what_a_process_pool_cannot_take_is_refused_at_once(pool):
    with pytest.raises(TypeError, match=r"cannot be sent to another process .* or a target such as"):
        sweep(lambda width: None, {"width": [1]}, executor=pool)


def test_a_value_that_cannot_be_sent_is_a_row(pool):
    rows = list(sweep(sweep_models.bare, {"width": [2, lambda: 2]}, executor=pool, inputs=[(1, 2)]))
    assert macs([row for row in rows if row.error is None]) == {2: 4}
    assert [row.error.stage for row in rows if row.error] == ["executor"]


def test_a_worker_that_dies_ends_the_sweep_with_what_was_finished(tmp_path):
    file = tmp_path / "out.jsonl"
    with processes(1) as pool:
        rows = sweep(sweep_models.deadly, {"width": [1, 2, 3, 4, 5, 6]}, executor=pool, output=file)
        finished = []
        with pytest.raises(SweepError, match=r"the executor died \(BrokenProcessPool.*'width': 3.*resumes there"):
            finished.extend(rows)
    assert macs(finished) == macs(read_rows(file))
    assert {1: 1, 2: 4}.items() <= macs(finished).items()
    # With a callable the pool is replaced, and only the configuration that kills it is lost.
    again = sweep(sweep_models.deadly, {"width": [1, 2, 3, 4, 5, 6]}, executor=processes, output=file)
    assert again.resumed >= 2
    rows = list(again)
    assert macs(rows) == {1: 1, 2: 4, 4: 16, 5: 25, 6: 36}
    assert [(row.config["width"], row.error.stage, row.error.type) for row in rows if row.error] == [
        (3, "executor", "BrokenProcessPool")
    ]
    assert len(read_rows(file)) == 6


class Mortal(Executor):
    """Runs a task at once, or holds it back until a deadly one takes all of them with it."""

    def __init__(self, deadly=(), *, held=(), stillborn: bool = False) -> None:
        self._max_workers = 2
        self.deadly = set(deadly)
        self.held = set(held)
        self.dead = stillborn
        self.running: list[Future] = []
        self.submitted: list[int] = []
        self.shut = False

    def submit(self, function, /, *args, **kwargs):
        if self.dead:
            raise BrokenProcessPool("dead")
        job, config = args
        future: Future = Future()
        future.set_running_or_notify_cancel()
        self.submitted.append(config["width"])
        if config["width"] in self.deadly:
            self.dead = True
            for each in (*self.running, future):
                each.set_exception(BrokenProcessPool("dead"))
        elif config["width"] in self.held:
            self.running.append(future)
        else:
            future.set_result(function(job, config))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self.shut = True


def test_suspects_are_tried_one_at_a_time_and_only_the_culprit_is_lost():
    pools = [Mortal({3}, held={1, 2}), Mortal({3}), Mortal({3})]
    made = iter(pools)
    # 1 and 2 are still running when 3 kills them all; 4 has not begun.
    rows = list(sweep(sweep_models.linear, {"width": [1, 2, 3, 4]}, executor=lambda: next(made)))
    assert macs(rows) == {1: 1, 2: 4, 4: 16}
    assert [(row.config["width"], row.error.stage) for row in rows if row.error] == [(3, "executor")]
    assert [pool.submitted for pool in pools] == [[1, 2, 3], [1, 2, 3], [4]]
    assert all(pool.shut for pool in pools)


def test_a_callable_that_only_makes_dead_executors_ends_the_sweep():
    with pytest.raises(SweepError, match="the executor died"):
        next(sweep(sweep_models.linear, {"width": [1]}, executor=lambda: Mortal(stillborn=True)))


def test_an_executor_that_was_shut_down_is_a_clear_error():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(SweepError, match=r"cannot schedule new futures after shutdown.*1 configurations unfinished"):
        next(sweep(sweep_models.linear, {"width": [1]}, executor=pool))


class Dropping(Executor):
    """Cancels what it was given, as a client does that loses its cluster."""

    def submit(self, function, /, *args, **kwargs):
        future: Future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_an_executor_that_drops_its_tasks_is_a_clear_error():
    with pytest.raises(SweepError, match="it dropped its tasks"):
        next(sweep(sweep_models.linear, {"width": [1]}, executor=Dropping()))


class Interrupted(Executor):
    """Its worker was interrupted."""

    def submit(self, function, /, *args, **kwargs):
        future: Future = Future()
        future.set_exception(KeyboardInterrupt())
        return future


def test_an_interrupt_of_a_worker_is_no_error_of_the_configuration(tmp_path):
    with pytest.raises(SweepError, match="KeyboardInterrupt"):
        next(sweep(sweep_models.linear, {"width": [1]}, executor=Interrupted(), output=tmp_path / "out.jsonl"))
    assert read_rows(tmp_path / "out.jsonl") == []


class Recording(ThreadPoolExecutor):
    def __init__(self) -> None:
        super().__init__(1)
        self.futures: list[Future] = []

    def submit(self, function, /, *args, **kwargs):
        future = super().submit(function, *args, **kwargs)
        self.futures.append(future)
        return future


def test_leaving_the_loop_cancels_what_has_not_begun_and_keeps_what_finishes(tmp_path):
    file = tmp_path / "out.jsonl"
    with Recording() as pool:
        with sweep(sweep_models.linear, {"width": list(range(1, 20))}, executor=pool, output=file) as rows:
            next(rows)
        submitted = len(pool.futures)
    assert submitted <= 3  # two per worker, and what replaced the finished one
    assert all(future.done() for future in pool.futures)
    # Whatever ran to its end is stored, also after the loop was left.
    ran = sum(not future.cancelled() for future in pool.futures)
    assert len(read_rows(file)) == ran >= 1


def test_a_failing_disk_stops_submitting_and_yields_what_finished(tmp_path, monkeypatch):
    from torchscan.report.sweep_rows import RowFile

    appended = []

    def append(self, row):
        if len(appended) == 2:
            raise OSError(28, "No space left on device")
        appended.append(row)

    monkeypatch.setattr(RowFile, "append", append)
    finished = []
    with ThreadPoolExecutor(1) as pool:
        rows = sweep(sweep_models.linear, {"width": list(range(1, 50))}, executor=pool, output=tmp_path / "o")
        with pytest.raises(SweepError, match="No space left on device"):
            finished.extend(rows)
    assert 3 <= len(finished) <= 5


def test_two_threads_scan_different_models_of_one_grid_at_once():
    def build(width):
        return nn.Sequential(nn.Linear(width, width), nn.ReLU()), (torch.ones(1, width),), {}

    with ThreadPoolExecutor(4) as pool:
        assert macs(sweep(build, {"width": list(range(1, 30))}, executor=pool)) == {n: n * n for n in range(1, 30)}


def test_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    file = tmp_path / "out.jsonl"
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        grid = {"width": [1, 2, 3, 4, -1]}
        rows = list(sweep(sweep_models.linear, grid, executor=client.get_executor(), output=file))
        assert macs(rows) == {1: 1, 2: 4, 3: 9, 4: 16}
        assert [row.error.type for row in rows if row.error] == ["ValueError"]
        again = sweep(sweep_models.linear, {"width": [1, 5]}, executor=client.get_executor(), output=file)
        assert again.resumed == 1
        assert macs(again) == {1: 1, 5: 25}
        assert macs(sweep("sweep_models:linear", {"width": [6]}, executor=client.get_executor())) == {6: 36}
        lost = sweep(sweep_models.sleepy, {"width": list(range(1, 60))}, executor=client.get_executor())
        next(lost)
        client.close()
        # What had finished by then still comes; the rest never will.
        with pytest.raises(SweepError, match="the executor died"):
            list(lost)
    assert len(file.read_text().splitlines()) == 6
    assert {json.loads(line)["config"]["width"] for line in file.read_text().splitlines()} == {1, 2, 3, 4, 5, -1}
