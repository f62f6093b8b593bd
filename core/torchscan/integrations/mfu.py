"""Multiply-accumulates over measured time: achieved rates and model utilization, each with its state.

A rate is as sure as the count it is made from: complete, a lower bound, or unavailable. The count is what one forward
pass costs under the conventions of evaluation (no dropout work); what the backward pass and the optimizer do is not
counted, only assumed where the caller says so.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

import attrs
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map

from torchscan.contract.states import Complete, MetricState, Partial, Unavailable, total
from torchscan.engine.scanner import scan

__all__ = ["Rate", "Step", "StepMeter", "check_assumptions", "scaled"]

#: So many different shapes of calls are scanned; a model whose every step has another shape is not slowed down by it.
_SHAPES: Final = 16


def scaled(state: MetricState, factor: float, per: float = 1) -> MetricState:
    """Return `state * factor / per`; a lower bound stays one, and what is unavailable stays unavailable."""
    if isinstance(state, Complete):
        return Complete(state.value * factor / per)
    if isinstance(state, Partial):
        return Partial(state.known_value * factor / per, state.reason)
    return state


def check_assumptions(peak: float | None, backward: float) -> None:
    """Refuse what is no peak and no number of forward passes.

    Raises:
        ValueError: the message names it.

    """
    if peak is not None and not 0 < peak < float("inf"):
        raise ValueError(f"peak must be a positive number of MAC/s, got {peak}")
    if not 0 <= backward < float("inf"):
        raise ValueError(f"backward must be a number of forward passes, got {backward}")


@attrs.frozen
class Rate:
    """What was computed, in how long.

    Args:
        macs: multiply-accumulates.
        seconds: the time they took.
        peak: what the device can do at best, in multiply-accumulates per second. Data sheets count a
            multiply-accumulate as two operations: half of their FLOP/s.

    Raises:
        ValueError: the peak is no positive number.

    """

    macs: MetricState
    seconds: float
    peak: float | None = None

    def __attrs_post_init__(self) -> None:
        check_assumptions(self.peak, 0)

    @property
    def per_second(self) -> MetricState:
        """Achieved MAC/s."""
        if self.seconds <= 0:
            return Unavailable("no time was measured")
        return scaled(self.macs, 1, self.seconds)

    @property
    def utilization(self) -> MetricState:
        """The part of the peak that was achieved, from 0 to 1."""
        if self.peak is None:
            return Unavailable("no peak was given")
        return scaled(self.per_second, 1, self.peak)


@attrs.frozen
class Step:
    """One step of training.

    Args:
        forward: multiply-accumulates of its forward passes.
        seconds: how long the step took, everything in it included.
        calls: how many calls of the model (or of parts of it, from outside the model) were seen.
        backward: how many forward passes the backward pass is assumed to cost.
        peak: of the device, in MAC/s.

    """

    forward: MetricState
    seconds: float
    calls: int
    backward: float = 0.0
    peak: float | None = None

    @classmethod
    def average(cls, steps: Sequence[Step]) -> Step:
        """Return the step that several steps are on average; its rate is that of all of them together."""
        count = len(steps)
        forward = scaled(total(step.forward for step in steps), 1, count)
        seconds = sum(step.seconds for step in steps) / count
        return attrs.evolve(steps[-1], forward=forward, seconds=seconds)

    @property
    def rate(self) -> Rate:
        """The multiply-accumulates of the step, assumed ones included, over its time."""
        return Rate(scaled(self.forward, 1 + self.backward), self.seconds, self.peak)

    @property
    def assumption(self) -> str:
        """What the numbers rest on, in one sentence."""
        behind = (
            f"the backward pass is assumed to cost {self.backward:g} forward passes"
            if self.backward
            else "backward passes are not counted"
        )
        return f"MACs of the forward passes under evaluation conventions, {behind}; time of the whole step"

    def logged(self, prefix: str = "torchscan/") -> dict[str, float]:
        """Return the numbers to log.

        A lower bound is logged under a name that ends in `_at_least`, so that it is never taken for a value; what is
        unavailable is not logged at all.
        """
        rate = self.rate
        found: dict[str, float] = {f"{prefix}step_seconds": self.seconds}
        for name, state in (
            ("macs", rate.macs),
            ("macs_per_second", rate.per_second),
            ("utilization", rate.utilization),
        ):
            if isinstance(state, Complete):
                found[prefix + name] = float(state.value)
            elif isinstance(state, Partial) and state.known_value > 0:
                found[f"{prefix}{name}_at_least"] = float(state.known_value)
        return found


@attrs.define
class _Seen:
    """One call from outside the model, during a step."""

    module: nn.Module
    key: Any
    args: tuple[Any, ...] | None = None  # kept until the end of the step that meets this key first
    kwargs: Mapping[str, Any] | None = None


class StepMeter:
    """Measures training steps of a model.

    The shapes of the calls are noted while a step runs; each new shape is scanned once, with fake execution, after the
    step's time was taken. Calls of the model itself are seen, and calls of its direct children where nothing above them
    is called. Recomputation during the backward pass is not counted: it is the same work again.

    Args:
        model: the model.
        peak: what the device can do at best, in MAC/s.
        backward: how many forward passes the backward pass is assumed to cost; 2 is the usual rule.
        functional: what the scan does with arithmetic in a composite's own body.
        synchronize: wait for the device at the beginning and the end of a step, so that its time is real.

    Raises:
        ValueError: `peak` or `backward` is no sensible number.

    """

    def __init__(
        self,
        model: nn.Module,
        *,
        peak: float | None = None,
        backward: float = 0.0,
        functional: str = "estimate",
        synchronize: bool = True,
    ) -> None:
        check_assumptions(peak, backward)
        self._model = model
        self._peak = peak
        self._backward = backward
        self._functional = functional
        self._synchronize = synchronize
        self._known: dict[Any, MetricState] = {}
        self._seen: list[_Seen] = []
        self._depth = 0
        self._unreached: str | None = None
        self._checked = False
        self._hooks: list[Any] = []
        self._start = 0.0

    def begin(self) -> None:
        """Begin a step. One that was begun and not ended is forgotten."""
        self.close()
        self._seen = []
        self._depth = 0
        for module in (self._model, *self._model.children()):
            enter, leave = self._enter, self._leave
            if _compiled(self._model):  # traced into the model, they would be executed once and never again
                enter, leave = torch.compiler.disable(enter), torch.compiler.disable(leave)
            self._hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            self._hooks.append(module.register_forward_hook(leave, always_call=True))
        self._wait()
        self._start = time.perf_counter()

    def end(self) -> Step:
        """End the step, scan what it called for the first time, and return what it came to."""
        self._wait()
        seconds = time.perf_counter() - self._start
        self.close()
        seen, self._seen = self._seen, []
        states = [self._macs(call) for call in seen]
        forward = total(states) if states else Unavailable("no call of the model was seen")
        if not self._checked and seen:
            self._checked = True
            self._unreached = self._without_call({call.module for call in seen})
        if self._unreached is not None and isinstance(forward, Complete):
            forward = Partial(forward.value, self._unreached)
        return Step(forward, seconds, len(seen), self._backward, self._peak)

    def __enter__(self) -> StepMeter:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing on the model; a step that was begun is forgotten."""
        while self._hooks:
            self._hooks.pop().remove()

    def _wait(self) -> None:
        if not self._synchronize:
            return
        device = next((p.device for p in self._model.parameters()), None)
        if device is not None and device.type not in ("cpu", "meta"):
            wait = getattr(getattr(torch, device.type, None), "synchronize", None)
            if wait is not None:
                wait()

    # -- during the step -----------------------------------------------------------------------------------------

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth > 1 or _in_backward():
            return
        key = (module, *_signature(args, kwargs))
        call = _Seen(module, key)
        if key not in self._known and len(self._known) < _SHAPES and all(key != other.key for other in self._seen):
            # Without their graph, so that nothing of it lives longer than the step.
            call.args, call.kwargs = tree_map(_detached, args), tree_map(_detached, kwargs)
        self._seen.append(call)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._depth = max(self._depth - 1, 0)

    # -- after it ------------------------------------------------------------------------------------------------

    def _macs(self, call: _Seen) -> MetricState:
        found = self._known.get(call.key)
        if found is not None:
            return found
        if call.args is None or call.kwargs is None:
            return Unavailable(f"the model was called with more than {_SHAPES} different shapes")
        try:
            report = scan(
                call.module,
                args=call.args,
                kwargs=call.kwargs,
                execution="fake",
                metrics={"macs"},
                functional=self._functional,
            )
            state = report.totals.macs.state
            if not isinstance(state, Complete):
                why = next((d.message for d in report.diagnostics), "incomplete")
                state = Partial(state.known_value, why) if isinstance(state, Partial) else Unavailable(why)
        except Exception as error:  # a number for a log must not end a training run
            state = Unavailable(f"{type(error).__name__}: {error}")
        self._known[call.key] = state
        return state

    def _without_call(self, modules: set[nn.Module]) -> str | None:
        """Return which trainable parameters belong to no module that was called, in words."""
        reached = {id(parameter) for module in modules for parameter in module.parameters()}
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and id(parameter) not in reached:
                return (
                    f"no call was seen of the module that holds {name}: something below the model's direct children "
                    "was called by itself"
                )
        return None


def _compiled(model: nn.Module) -> bool:
    return any(
        getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"
        for module in model.modules()
    )


def _in_backward() -> bool:
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _signature(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what decides the cost of a call: structure, shapes, types and plain values."""
    leaves, structure = tree_flatten((args, dict(kwargs)))
    yield str(structure)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            with contextlib.suppress(RuntimeError):  # a nested tensor names no shape
                yield tuple(leaf.shape)
            yield leaf.dtype
        elif leaf is None or isinstance(leaf, bool | int | float | str):
            yield leaf
        else:
            yield type(leaf)
