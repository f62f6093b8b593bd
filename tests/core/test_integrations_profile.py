"""`scripts/profile_join.py`: time from the profiler, counts from torchscan, joined call by call."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from torchscan import Complete, Partial, Unavailable

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def joined():
    spec = importlib.util.spec_from_file_location("profile_join", SCRIPTS / "profile_join.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["profile_join"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["profile_join"]


#: Seconds: far longer than what any of the modules takes, however busy the machine is.
PAUSE = 0.2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        x = self.body(self.body(self.first(x)))
        time.sleep(PAUSE)
        return x @ x.T


@pytest.fixture(scope="module")
def found(joined):
    with torch.no_grad():
        return joined.measure(Model().eval(), (torch.ones(3, 4),), calls=2, peak=1e6)


def test_every_call_is_a_row_with_what_it_and_everything_inside_cost(found):
    # 3 rows: 4*8 products; 8*8 products, twice
    counts = {(row.path, row.call_index): row.macs for row in found.rows}
    assert counts[("first", 0)] == Complete(96)
    assert counts[("body", 0)] == counts[("body", 1)] == counts[("body.1", 1)] == Complete(192)
    assert counts[("body.0", 0)] == Complete(0)
    # The model multiplies in its own body, which nobody accounts for.
    root = counts[("", 0)]
    assert isinstance(root, Partial)
    assert root.known_value == 96 + 2 * 192
    assert [row.path for row in found.rows] == ["", "first", "body", "body.0", "body.1", "body", "body.0", "body.1"]
    assert found.calls == 2
    assert found.remark is None


def test_rates_are_counts_over_time_with_the_state_of_the_count(found):
    root, first = found.rows[0], found.rows[1]
    assert first.rate.per_second.value == pytest.approx(96 / first.seconds)
    assert first.rate.utilization.value == pytest.approx(96 / first.seconds / 1e6)
    assert isinstance(root.rate.utilization, Partial)


def test_a_parents_time_contains_its_childrens_and_its_own(found):
    rows = {(row.path, row.call_index): row for row in found.rows}
    root = rows["", 0]
    inside = sum(rows[key].seconds for key in (("first", 0), ("body", 0), ("body", 1)))
    assert root.seconds >= root.own_seconds >= PAUSE  # it slept in its own body
    assert root.own_seconds == pytest.approx(root.seconds - inside)
    assert rows["body", 0].seconds >= rows["body.1", 0].seconds
    assert found.observing > 0


def test_calls_inside_one_formula_are_counted_by_themselves(joined):
    layer = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True).eval()
    x = torch.ones(1, 2, 4)
    with torch.no_grad():
        found = joined.measure(layer, (x, torch.ones(1, 3, 4)), calls=1)
    rows = {row.path: row for row in found.rows}
    # the decoder layer and the attentions of the worked examples: T = 2, S = 3, E = 4, F = 8
    assert rows[""].macs == Complete(544)
    assert rows["multihead_attn"].macs == Complete(208)
    assert rows["self_attn"].macs == Complete(160)
    assert rows["linear1"].macs == Complete(64)
    assert rows["linear1"].counted_in == ""
    assert rows[""].counted_in is None
    assert isinstance(rows[""].rate.utilization, Unavailable)  # no peak was given


def test_what_observing_takes_is_not_taken_for_the_models_time(joined):
    """A handler that takes long must not make the module, or those above it, look slow."""
    import torchscan

    class Sluggish:
        @torchscan.hookimpl
        def torchscan_register_handlers(self):
            def handler(call):
                time.sleep(PAUSE)
                return {"macs": 7}

            yield torchscan.HandlerRegistration(nn.Linear, handler)

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).eval()
    scanner = torchscan.Scanner(plugins=[Sluggish()], autoload=False)
    with torch.no_grad():
        found = joined.measure(model, (torch.ones(1, 2),), calls=2, scanner=scanner)
    assert [row.macs for row in found.rows] == [Complete(14), Complete(7), Complete(7)]
    assert found.observing >= PAUSE
    assert all(row.seconds < PAUSE for row in found.rows)


def test_a_model_that_does_something_else_each_time_is_remarked_on(joined):
    class Alternating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)
            self.times = 0

        def forward(self, x):
            self.times += 1
            for _ in range(1 + self.times % 2):
                x = self.fc(x)
            return x

    with torch.no_grad():
        found = joined.measure(Alternating().eval(), (torch.ones(1, 2),), calls=2)
    assert "not all alike" in found.remark


def test_no_hook_is_left_behind(joined, found):
    assert not module_hooks._global_forward_hooks
    assert not module_hooks._global_forward_pre_hooks


def test_the_command_prints_a_table_and_writes_rows(joined, tmp_path, capsys, monkeypatch):
    (tmp_path / "profiled_model.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n    return nn.Sequential(nn.Linear(4, 2), nn.ReLU()), (torch.ones(5, 4),), {}\n"
    )
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rows.json"
    assert joined.main(["profiled_model.py:build", "--peak", "1e9", "--calls", "2", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["module", "type", "time", "own", "share", "MACs", "MAC/s", "utilization"]
    assert "A module's time contains that of the modules it calls" in text
    rows = json.loads(file.read_text())
    assert rows[0]["macs"] == {"status": "complete", "value": 40}  # 5 * 4 * 2
    assert rows[1]["utilization"]["status"] == "complete"
    with pytest.raises(SystemExit) as ended:
        joined.main(["profiled_model.py:missing"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        joined.main(["profiled_model.py:build", "--peak", "0"])
    assert ended.value.code == 2
