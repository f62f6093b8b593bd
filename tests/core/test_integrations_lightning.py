"""The Lightning callback in a real, tiny training run."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library's own imports
    lightning = pytest.importorskip("lightning.pytorch")

from torchscan import Complete
from torchscan.integrations.lightning import UtilizationCallback

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(lightning.LightningModule):
    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 4))
        self.loss = nn.MSELoss()
        self.whole = whole

    def forward(self, x):
        return self.body(x)

    def training_step(self, batch, index):
        return self.loss(self(batch) if self.whole else self.body(batch), batch)

    def validation_step(self, batch, index):
        self(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Keep(lightning.loggers.logger.DummyLogger):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[dict[str, float]] = []

    def log_metrics(self, metrics, step=None):
        self.kept.append(dict(metrics))


def fit(model, tmp_path, **settings):
    callback = UtilizationCallback(**settings)
    logger = Keep()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )
    # Two batches of six rows, and one of three.
    trainer.fit(model, DataLoader(torch.ones(15, 4), batch_size=6), DataLoader(torch.ones(2, 4)))
    return callback, [entry for entry in logger.kept if "torchscan/step_seconds" in entry]


@pytest.mark.parametrize("whole", [True, False])
def test_every_batch_logs_its_count_and_its_rate(tmp_path, whole):
    model = Model(whole=whole)
    callback, kept = fit(model, tmp_path, peak=1e9, backward=2)
    # rows * (4*8 + 8*4) products, and twice that for the backward pass
    assert [entry["torchscan/macs"] for entry in kept] == [3 * 6 * 64, 3 * 6 * 64, 3 * 3 * 64]
    for entry in kept:
        assert entry["torchscan/macs_per_second"] == pytest.approx(
            entry["torchscan/macs"] / entry["torchscan/step_seconds"], rel=1e-5
        )
        assert entry["torchscan/utilization"] == pytest.approx(entry["torchscan/macs_per_second"] / 1e9, rel=1e-5)
    assert callback.last is not None
    assert callback.last.forward == Complete(3 * 64)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_what_is_unknown_is_not_logged(tmp_path):
    class Reads(Model):
        def forward(self, x):
            return self.body(x) if float(self.body[0](x).sum()) < 1e9 else x

    callback, kept = fit(Reads(whole=True), tmp_path)
    # Nothing is known but that the loss has no products.
    assert callback.last.forward.known_value == 0
    assert "FakeExecutionError" in callback.last.forward.reason
    assert kept
    assert not any(name.startswith("torchscan/macs") for entry in kept for name in entry)


def test_a_wrong_peak_is_refused_before_the_training():
    with pytest.raises(ValueError, match="peak"):
        UtilizationCallback(peak=0)
