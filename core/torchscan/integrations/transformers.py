"""A Hugging Face `TrainerCallback` that logs model utilization per step. Needs the extra `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torchscan.integrations.mfu import Step, StepMeter, check_assumptions

try:
    from transformers import TrainerCallback
except ImportError:
    raise ImportError(
        "torchscan.integrations.transformers needs transformers; pip install 'torchscan[transformers]'"
    ) from None

__all__ = ["UtilizationCallback"]


class UtilizationCallback(TrainerCallback):
    """Adds multiply-accumulates, achieved MAC/s and utilization to what the trainer logs.

    Each optimizer step is measured, gradient accumulation included; what is logged is the average since the last log.
    Calls of the model are scanned once per shape of their arguments, with fake execution, outside of the measured time.

    Args:
        peak: what the device can do at best, in MAC/s: half of a data sheet's FLOP/s.
        backward: how many forward passes the backward pass is assumed to cost; 2 is the usual rule.
        functional: as in `torchscan.scan`.
        synchronize: wait for the device around each step, so that its time is real.
        log: called with the numbers, such as `trainer.log`. Without it they are added to the trainer's own entry, which
            callbacks that come before this one (TensorBoard, for one) have seen by then.

    Attributes:
        last: the last step, with the state of its count and what it rests on.

    Logged are `torchscan/step_seconds`, `torchscan/macs`, `torchscan/macs_per_second` and, with a peak,
    `torchscan/utilization`. A lower bound has `_at_least` at the end of its name; what is unavailable is not logged,
    and `last.forward.reason` says why.

    The trainer tells nobody when training raises, so hooks of the step at hand then stay on the model until the
    callback trains again; `close` removes them.

    Example:
        ```python
        trainer = Trainer(model, args, train_dataset=data)
        trainer.add_callback(UtilizationCallback(peak=494e12, backward=2, log=trainer.log))
        ```

    """

    def __init__(
        self,
        *,
        peak: float | None = None,
        backward: float = 0.0,
        functional: str = "estimate",
        synchronize: bool = True,
        log: Callable[[dict[str, float]], Any] | None = None,
    ) -> None:
        self.last: Step | None = None
        check_assumptions(peak, backward)
        self._measure = partial(StepMeter, peak=peak, backward=backward, functional=functional, synchronize=synchronize)
        self._log = log
        self._meter: StepMeter | None = None
        self._since: list[Step] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin to measure."""
        self.close()
        self._meter = self._measure(kwargs["model"])
        self._since = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin a step."""
        if self._meter is not None:
            self._meter.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End it."""
        if self._meter is None:
            return
        self.last = self._meter.end()
        self._since.append(self.last)
        if self._log is not None and control.should_log:
            self._log(self._average())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add the numbers to the trainer's entry."""
        if self._log is None and logs is not None and self._since:
            average = self._average()
            logs.update(average)
            if state.log_history and state.log_history[-1].get("step") == state.global_step:
                state.log_history[-1].update(average)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave nothing on the model."""
        self.close()

    def close(self) -> None:
        """Leave nothing on the model; for a training that raised."""
        if self._meter is not None:
            self._meter.close()
            self._meter = None

    def _average(self) -> dict[str, float]:
        """Return the numbers of one step, on average over those since the last log."""
        steps, self._since = self._since, []
        return Step.average(steps).logged()
