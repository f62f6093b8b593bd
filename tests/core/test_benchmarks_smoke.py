"""The benchmark suite works, and its tables say what was measured. Nothing here depends on a time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def suite():
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.fixture
def clock(monkeypatch):
    """A clock that only runs when told to."""
    from benchmarks import timing

    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: int(now[0] * 1e9))
    monkeypatch.setattr(timing.time, "thread_time_ns", lambda: int(now[0] * 1e9 / 2))
    return now


def test_pairs_are_compared_with_their_own_bare_run(clock):
    from benchmarks.timing import paired

    load = [1.0]

    def takes(seconds):
        def run():
            # The machine gets slower and slower; the ratio is that of each pair.
            load[0] *= 1.001
            clock[0] += seconds * load[0]

        return run

    found = paired(takes(0.1), {"twice": takes(0.2), "same": takes(0.1)}, rounds=9, warm_up=0)
    assert found["twice"]["pairs"] == 9
    assert found["twice"]["ratio"]["wall"]["median"] == pytest.approx(2, rel=0.01)
    assert found["twice"]["ratio"]["cpu"]["median"] == pytest.approx(2, rel=0.01)
    assert found["same"]["ratio"]["wall"]["median"] == pytest.approx(1, rel=0.01)
    assert found["same"]["extra"]["wall"]["median"] == pytest.approx(0, abs=0.01)
    assert found["bare"]["wall"]["q1"] < found["bare"]["wall"]["q3"]


def test_a_tool_that_cannot_do_a_call_is_said_to_fail(clock):
    from benchmarks.tables import ratio
    from benchmarks.timing import paired

    def fails():
        raise ValueError("no such layer")

    found = paired(lambda: None, {"broken": fails}, rounds=3)
    assert found["broken"] == {"failed": "ValueError: no such layer"}
    assert ratio(found["broken"]) == "fails"
    assert ratio(None) == ""


@pytest.mark.parametrize("case", ["transformer", "encoder 8", "cnn", "bert", "llama 70B on meta"])
def test_every_variant_of_ours_counts_the_same(case):
    if case in ("bert", "llama 70B on meta"):
        pytest.importorskip("transformers")
    from benchmarks.cases import TIMED
    from benchmarks.counters import OURS, ours

    call = TIMED[case](True)
    expected = ours(functional="estimate")(call)
    assert expected > 0
    counted = {name: count(call) for name, count in OURS.items()}
    assert counted.pop("hooks that do nothing") is None
    # `functional="skip"` looks at no body, so it may know less; what it knows is no more.
    assert counted["torchscan"] == counted["torchscan fake"] <= expected
    assert counted["torchscan macs"] == counted["torchscan observe"] <= expected
    assert not any(module._forward_hooks for module in call.model.modules())


def test_calls_are_counted_as_each_kind_of_hook_sees_them():
    from benchmarks.cases import encoder
    from benchmarks.suite import calls

    call = encoder(3)
    # The stack and its three layers take the fast path; with hooks on them, each layer calls what is inside it:
    # attention, two linear layers, three dropouts and two norms.
    assert calls(call, hooked=False) == 4
    assert calls(call, hooked=True) == 1 + 3 * (1 + 8)


def test_the_six_calls_have_the_numbers_that_are_derived_by_hand():
    """Their numbers come from the formulas on the page; the operators that really run are the second opinion."""
    from benchmarks.disagree import calls
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for name, (call, expected, _) in calls().items():
            if "LSTM" in name:
                continue  # one fused operator without a formula
            # Spelt out, attention is matrix products; the fused operators have no formula everywhere.
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                call()
            norms = 2 * 2 * 8 * 16 if "encoder layer" in name else 0
            assert counter.get_total_flops() // 2 + norms == expected, name
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def spread(value):
    return {"median": value, "q1": value, "q3": value}


def measured(value, macs=100):
    return {"ratio": {"wall": spread(value), "cpu": spread(value)}, "macs": macs, "pairs": 3}


def test_the_table_names_the_fastest_tool_that_counted_everything():
    from benchmarks.tables import performance

    results = {
        "machine": {
            "date": "2026-01-01", "processor": "Some", "cores": 2, "system": "Linux", "load": 0.5, "threads": 1,
        },
        "versions": {"torch": "2"},
        "timed": {
            "cnn": {
                "bare": {"wall": spread(0.1)},
                "torchscan": measured(1.05),
                "torchscan macs": measured(1.01),
                "torchscan 0.2.0": measured(1.41, macs=50),
                "ptflops": measured(1.2, macs=102),
                "fvcore": measured(1.1, macs=40),
                "torchinfo": {"failed": "TypeError"},
            }
        },
        "memory": {"bare": {"bytes": 10}, "torchscan": {"bytes": 10 + 2**20, "extra_bytes": 2**20}},
        "import": {"beyond_torch": 0.0014},
    }  # fmt: skip
    text = performance(results)
    assert "| 100.0 ms | 1.05× (1.05×) | 1.01× (1.01×) |" in text
    assert "1.20× (ptflops)" in text
    assert "1.10×, counts 40%" in text
    assert "1.41×, counts 50%" in text
    assert "| fails |" in text
    assert "| 1.0 MiB |" in text
    assert "| 1.4 ms |" in text


def test_a_page_keeps_what_is_around_its_figures(tmp_path, monkeypatch):
    from benchmarks import tables

    monkeypatch.setattr(tables, "DOCS", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    tables.replace("page.md", "new")
    assert page.read_text() == f"before\n{tables.BEGIN}\n\nnew\n\n{tables.END}\nafter\n"
    page.write_text("no markers\n")
    with pytest.raises(SystemExit, match="has no"):
        tables.replace("page.md", "new")


def test_what_is_published_was_measured_by_the_suite():
    """The page shows the results that are kept beside the suite."""
    from benchmarks.tables import BEGIN, DOCS, END, performance

    file = ROOT / "benchmarks" / "results.json"
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    shown = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == performance(json.loads(file.read_text())).strip()
