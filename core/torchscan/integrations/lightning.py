"""A Lightning callback that logs model utilization per batch. Needs the extra `lightning`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torchscan.integrations.mfu import Step, StepMeter, check_assumptions

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment, unused-ignore]
    except ImportError:
        raise ImportError(
            "torchscan.integrations.lightning needs lightning; pip install 'torchscan[lightning]'"
        ) from None

__all__ = ["UtilizationCallback"]


class UtilizationCallback(Callback):
    """Logs multiply-accumulates, achieved MAC/s and utilization of every training batch.

    The calls that `training_step` makes, of the `LightningModule` or of its direct children, are scanned once per shape
    of their arguments, with fake execution, outside of the measured time.

    Args:
        peak: what the device can do at best, in MAC/s: half of a data sheet's FLOP/s.
        backward: how many forward passes the backward pass is assumed to cost; 2 is the usual rule.
        functional: as in `torchscan.scan`.
        synchronize: wait for the device around each batch, so that its time is real.
        options: of `LightningModule.log_dict`.

    Attributes:
        last: the last batch, with the state of its count and what it rests on.

    Logged are `torchscan/step_seconds`, `torchscan/macs`, `torchscan/macs_per_second` and, with a peak,
    `torchscan/utilization`. A lower bound has `_at_least` at the end of its name; what is unavailable is not logged,
    and `last.forward.reason` says why.

    Example:
        ```python
        trainer = lightning.Trainer(callbacks=[UtilizationCallback(peak=494e12, backward=2)])
        ```

    """

    def __init__(
        self,
        *,
        peak: float | None = None,
        backward: float = 0.0,
        functional: str = "estimate",
        synchronize: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.last: Step | None = None
        check_assumptions(peak, backward)
        self._measure = partial(StepMeter, peak=peak, backward=backward, functional=functional, synchronize=synchronize)
        self._options = {"on_step": True, "on_epoch": False, **(options or {})}
        self._meter: StepMeter | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to measure."""
        self._meter = self._measure(pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a batch."""
        if self._meter is not None:
            self._meter.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End it, and log."""
        if self._meter is not None:
            self.last = self._meter.end()
            pl_module.log_dict(self.last.logged(), **self._options)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave nothing on a model whose training was cut short."""
        if self._meter is not None:
            self._meter.close()
