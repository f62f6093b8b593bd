"""Measured steps: what is counted, what is assumed, and what a rate may claim."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchscan import Complete, Partial, Unavailable
from torchscan.integrations.mfu import Rate, Step, StepMeter, scaled


def step(meter: StepMeter, run) -> Step:
    meter.begin()
    run()
    return meter.end()


def test_a_rate_is_as_sure_as_its_count():
    rate = Rate(Complete(600), 2.0, 1000.0)
    assert rate.per_second == Complete(300)
    assert rate.utilization == Complete(0.3)
    assert Rate(Partial(600, "why"), 2.0, 1000.0).utilization == Partial(0.3, "why")
    assert Rate(Unavailable("why"), 2.0, 1000.0).utilization == Unavailable("why")
    assert isinstance(Rate(Complete(600), 2.0).utilization, Unavailable)
    assert isinstance(Rate(Complete(600), 0.0, 1000.0).per_second, Unavailable)
    assert scaled(Complete(3), 2) == Complete(6)


@pytest.mark.parametrize("peak", [0, -1.0, float("inf"), float("nan")])
def test_a_peak_that_is_none_is_refused(peak):
    with pytest.raises(ValueError, match="peak must be a positive number"):
        Rate(Complete(1), 1.0, peak)
    with pytest.raises(ValueError, match="peak must be a positive number"):
        StepMeter(nn.Linear(1, 1), peak=peak)


def test_a_negative_backward_is_refused():
    with pytest.raises(ValueError, match="backward must be a number of forward passes"):
        StepMeter(nn.Linear(1, 1), backward=-1)


def test_a_step_counts_its_forward_passes_over_its_time():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    meter = StepMeter(model, peak=1e6, backward=2)

    def run():
        for _ in range(3):
            model(torch.ones(5, 4)).sum().backward()
        time.sleep(0.02)

    measured = step(meter, run)
    # 5 rows of 4*8 + 8*2 products, three times
    assert measured.forward == Complete(3 * 5 * 48)
    assert measured.calls == 3
    assert 0.02 <= measured.seconds < 5
    # and two more forward passes for each backward pass
    assert measured.rate.macs == Complete(3 * 3 * 5 * 48)
    logged = measured.logged()
    assert logged["torchscan/macs"] == 2160
    assert logged["torchscan/macs_per_second"] == pytest.approx(2160 / measured.seconds)
    assert logged["torchscan/utilization"] == pytest.approx(2160 / measured.seconds / 1e6)
    assert "assumed to cost 2 forward passes" in measured.assumption
    assert model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_scan_is_outside_of_the_time_and_happens_once_per_shape(monkeypatch):
    from torchscan.integrations import mfu

    now = [0.0]
    monkeypatch.setattr(mfu.time, "perf_counter", lambda: now[0])
    scans = []
    original = mfu.scan

    def slow(*args, **kwargs):
        now[0] += 100
        scans.append(kwargs["args"][0].shape)
        return original(*args, **kwargs)

    monkeypatch.setattr(mfu, "scan", slow)
    model = nn.Linear(2, 2)
    meter = StepMeter(model)
    for rows in (1, 1, 3, 1):

        def run(rows=rows):
            now[0] += 2
            model(torch.ones(rows, 2))

        measured = step(meter, run)
        assert measured.forward == Complete(rows * 4)
        assert measured.seconds == 2
    assert scans == [(1, 2), (3, 2)]


def test_shapes_without_end_are_unavailable_instead_of_slow():
    model = nn.Linear(2, 2)
    meter = StepMeter(model)
    states = [step(meter, lambda rows=rows: model(torch.ones(rows, 2))).forward for rows in range(1, 20)]
    assert states[15] == Complete(16 * 4)
    assert isinstance(states[16], Unavailable)
    assert "different shapes" in states[16].reason
    # Those that are known stay known.
    assert step(meter, lambda: model(torch.ones(3, 2))).forward == Complete(12)


class Parts(nn.Module):
    """As a training step of Lightning does: it calls parts, never the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 3))
        self.decoder = nn.Linear(3, 4)
        self.loss = nn.MSELoss()

    def forward(self, x):
        return self.decoder(self.encoder(x))


def test_calls_of_parts_from_outside_are_added_up():
    model = Parts()
    measured = step(
        StepMeter(model), lambda: model.loss(model.decoder(model.encoder(torch.ones(2, 4))), torch.ones(2, 4))
    )
    # 2 rows of 4*3 + 3*4 products; a loss has none
    assert measured.forward == Complete(48)
    assert measured.calls == 3
    # The whole, which calls its parts, is one call.
    measured = step(StepMeter(model), lambda: model(torch.ones(2, 4)))
    assert (measured.forward, measured.calls) == (Complete(48), 1)


def test_a_part_that_was_not_seen_makes_the_count_a_lower_bound():
    model = Parts()
    # The decoder is seen; what sits inside the encoder is called past it.
    measured = step(StepMeter(model, peak=1e9), lambda: model.decoder(model.encoder[0](torch.ones(2, 4))))
    assert isinstance(measured.forward, Partial)
    assert measured.forward.known_value == 24
    assert "encoder.0.weight" in measured.forward.reason
    logged = measured.logged()
    assert logged["torchscan/macs_at_least"] == 24
    assert logged.keys().isdisjoint({"torchscan/macs", "torchscan/utilization"})


def test_without_a_call_nothing_is_claimed():
    measured = step(StepMeter(nn.Linear(1, 1)), lambda: None)
    assert measured.forward == Unavailable("no call of the model was seen")
    assert measured.logged().keys() == {"torchscan/step_seconds"}


def test_a_model_that_cannot_be_scanned_does_not_end_the_training():
    class Reads(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            return out if out.sum().item() < 1e9 else None

    model = Reads(2, 2)
    measured = step(StepMeter(model), lambda: model(torch.ones(1, 2)))
    assert isinstance(measured.forward, Unavailable)
    assert "FakeExecutionError" in measured.forward.reason


def test_recomputation_in_the_backward_pass_is_not_counted_again():
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return checkpoint(self.fc, x, use_reentrant=False)

    model = Checkpointed()

    def run():
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()

    measured = step(StepMeter(model), run)
    assert (measured.forward, measured.calls) == (Complete(18), 1)


def test_nothing_of_a_step_is_kept():
    import gc
    import weakref

    model = nn.Linear(2, 2)
    meter = StepMeter(model)
    alive = []

    def run():
        x = torch.ones(1, 2)
        alive.append(weakref.ref(x))
        model(x)

    for _ in range(2):
        step(meter, run)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_an_exception_in_the_step_leaves_nothing_on_the_model():
    model = nn.Linear(2, 2)

    def run():
        with StepMeter(model):
            model(torch.ones(1, 2))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        run()
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_the_average_of_steps_is_their_rate_together():
    average = Step.average([Step(Complete(10), 1.0, 1, 0, 100.0), Step(Complete(20), 3.0, 1, 0, 100.0)])
    assert average.forward == Complete(15)
    assert average.seconds == 2.0
    assert average.rate.per_second == Complete(7.5)
    assert average.rate.utilization == Complete(0.075)
    mixed = Step.average([Step(Complete(10), 1.0, 1), Step(Unavailable("why"), 1.0, 1)])
    assert mixed.forward == Partial(5, "why")
