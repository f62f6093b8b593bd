"""Observation that does not disturb."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import torchscan
from torch_paths import OperatorLog
from torch_versions import before
from torchscan import IncompleteAnalysisError, Scanner


def models():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    transformer = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    x = torch.ones(2, 3, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    yield "encoder", encoder, (x,), {}
    yield "masked encoder", encoder, (x,), {"mask": mask, "is_causal": True}
    yield "transformer", transformer, (x, x), {"tgt_mask": mask}
    yield "convolutions", nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()), (torch.ones(1, 1, 5, 5),), {}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["encoder", "masked encoder", "transformer", "convolutions"])
def test_the_same_operators_are_dispatched(name, training):
    _, model, args, kwargs = next(case for case in models() if case[0] == name)
    model.train(training)
    lists = []
    for observed in (False, True):
        torch.manual_seed(0)
        with OperatorLog() as log, torch.set_grad_enabled(training):
            if observed:
                with Scanner().observe(model) as observation:
                    model(*args, **kwargs)
                    observation.report()
            else:
                model(*args, **kwargs)
        lists.append(log.seen)
    if training and before("2.13"):
        # PyTorch 2.6 detaches saved tensors more or less often while a second mode is active: an alias, and no work.
        lists = [[name for name in seen if name != "aten.detach.default"] for seen in lists]
    assert lists[0] == lists[1]
    if not training and name == "encoder":
        assert "aten._transformer_encoder_layer_fwd.default" in lists[1]


def test_a_loop_of_calls_adds_up_at_any_time():
    model = nn.Linear(4, 2)
    with Scanner().observe(model) as observation:
        assert observation.report().totals.macs.value == 0
        for step in range(1, 4):
            model(torch.ones(step, 4))
            assert observation.calls == step
        # rows 1 + 2 + 3, eight products each
        assert observation.report().totals.macs.value == 6 * 8
        observation.clear()
        model(torch.ones(1, 4))
        report = observation.report()
    assert report.totals.macs.value == 8
    assert [layer.call_index for layer in report.layers] == [0]
    assert report.context.execution_mode == "observed"
    model(torch.ones(1, 4))
    assert observation.calls == 1  # nothing is seen after the block


def test_a_report_in_the_middle_of_a_call_leaves_the_running_call_out():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            x = self.fc(x)
            reports.append(observation.report())
            return x

    reports: list[torchscan.Report] = []
    model = Model()
    with Scanner().observe(model) as observation:
        model(torch.ones(1, 2))
        model(torch.ones(1, 2))
    assert [len(report.layers) for report in reports] == [0, 2]
    assert reports[1].diagnostics == ()


def test_only_that_model_and_that_thread_are_seen():
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with Scanner().observe(model) as observation:
        other(torch.ones(1, 2))
        thread = threading.Thread(target=lambda: model(torch.ones(1, 2)))
        thread.start()
        thread.join()
        model(torch.ones(1, 2))
        torch.ones(2).sin()  # not the model's
    report = observation.report()
    assert len(report.layers) == 1
    assert "aten.sin" not in report.to_json()


def test_the_callers_mode_stays_and_training_is_honestly_unavailable():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
    model.train()
    x = torch.ones(1, 3, 4, requires_grad=True)
    with Scanner().observe(model) as observation:
        model(x).sum().backward()
    assert model.training
    assert x.grad is not None
    report = observation.report()
    rows = {layer.path: layer.metrics["macs"].status for layer in report.layers if "macs" in layer.metrics}
    assert rows["0"] == "complete"
    assert rows["2"] == "unavailable"
    assert {d.reason for d in report.diagnostics if d.path == "2" and d.metric == "macs"} == {"training_mode"}
    with pytest.raises(IncompleteAnalysisError):
        observation.report(strict=True)


def test_an_interrupted_call_leaves_nothing_running():
    class Model(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    model = Model()
    with pytest.raises(KeyboardInterrupt), Scanner().observe(model):
        model(torch.ones(1))
    from torch.nn.modules import module as shared
    from torch.utils import _python_dispatch

    assert not shared._global_forward_hooks
    assert not _python_dispatch._is_in_torch_dispatch_mode
    assert torchscan.scan(nn.Linear(1, 1), (1,)).totals.macs.value == 1


def test_calls_are_streamed_to_plugins_as_they_happen():
    class Listener:
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []
            self.reports = 0

        @torchscan.hookimpl
        def torchscan_call_estimated(self, call, layer):
            assert call.output is not None
            self.calls.append((layer.path, layer.metrics["macs"].value if "macs" in layer.metrics else -1))

        @torchscan.hookimpl
        def torchscan_report_ready(self, report):
            self.reports += 1

    listener = Listener()
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with Scanner([listener]).observe(model) as observation:
        model(torch.ones(1, 2))
        assert listener.calls == [("0", 6), ("1", 3), ("", -1)]
        observation.report()
    assert listener.reports == 1


@pytest.mark.parametrize("execution", ["real", "fake"])
def test_no_activation_outlives_its_call(execution):
    kept: list[weakref.ref] = []

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                kept.append(weakref.ref(x))
            alive.append(sum(ref() is not None for ref in kept))
            return x

    alive: list[int] = []
    report = torchscan.scan(Chain(), args=(torch.ones(2, 4),), execution=execution)
    gc.collect()
    assert alive == [1]  # only the running tensor
    assert all(ref() is None for ref in kept)
    assert report.totals.macs.value == 3 * 32


def test_observing_refuses_what_is_no_module():
    with pytest.raises(TypeError, match="got int"):
        Scanner().observe(3)  # type: ignore[arg-type]
    observation = Scanner().observe(nn.Identity())
    with observation, pytest.raises(RuntimeError, match="already running"), observation:
        pass
