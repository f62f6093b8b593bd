"""The checks, as plain named functions. None knows a handler by name.

Each takes a handler (`ModuleHandler`, `HandlerRegistration` or a callable) and a `Sample`, returns nothing where the
handler keeps the contract, and raises `ConformanceError` where it does not.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from torchscan.contract.call import ALL_REQUESTS, ModuleCall
from torchscan.contract.handler import HandlerRegistration, ModuleHandler
from torchscan.contract.states import COUNT_METRICS, METRICS, Complete, MetricState, Partial, Unavailable
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.estimates import BadResult, WireState, checked_state, checked_tokens
from torchscan.report.schema import Report
from torchscan.testing.lifetimes import alive_after
from torchscan.testing.oracle import OracleError, count_contractions
from torchscan.testing.samples import ConformanceError, Sample, ask, completed, scanned, subject
from torchscan.testing.snapshots import (
    describe_global_state,
    describe_random_state,
    difference,
    snapshot_module,
    snapshot_value,
)

__all__ = ["CHECKS", "macs_match_the_dispatcher"]


def states_are_legal(handler: Any, sample: Sample) -> None:
    """Every field is a metric, and every value one that the contract knows."""
    with completed(sample) as call:
        _states(ask(handler, call), call)


def counts_are_whole(handler: Any, sample: Sample) -> None:
    """FLOPs, MACs and DMAs are non-negative integers: a float loses counts above 2**53."""
    with completed(sample) as call:
        result = ask(handler, call)
        for name, state in _states(result, call).items():
            if name not in COUNT_METRICS or isinstance(state, Unavailable):
                continue
            number = state.value if isinstance(state, Complete) else state.known_value
            if isinstance(number, float) or isinstance(result[name], float):
                raise ConformanceError(f"{name} is {result[name]!r}; a count is an int")


def supported_call_is_answered(handler: Any, sample: Sample) -> None:
    """A supported call gets at least one number or a token relation."""
    if not sample.supported:
        return
    with completed(sample) as call:
        result = ask(handler, call)
        tokens = result.get("token_dependencies")
        if isinstance(tokens, TokenDependencies) and tokens.status == "complete":
            return
        if all(isinstance(state, Unavailable) for state in _states(result, call).values()):
            raise ConformanceError("the handler has no number for a call it is meant to support")


def unavailable_says_why(handler: Any, sample: Sample) -> None:
    """What is unavailable has a reason, and an unsupported call gets no numbers."""
    with completed(sample) as call:
        result = ask(handler, call)
        for name, state in _states(result, call).items():
            if isinstance(state, Unavailable):
                if result[name] is None or not (state.reason or state.message):
                    raise ConformanceError(f"{name} is unavailable without a reason")
            elif not sample.supported and name in COUNT_METRICS:
                raise ConformanceError(f"{name} has a number for a call that is not supported")
        tokens = result.get("token_dependencies")
        if isinstance(tokens, TokenDependencies) and tokens.status == "unavailable" and not tokens.reason:
            raise ConformanceError("token_dependencies is unavailable without a reason")


def strange_tensors_raise_nothing(handler: Any, sample: Sample) -> None:
    """Complex, sparse and meta tensors in the same places get an answer, not an exception."""
    with completed(sample) as call:
        for kind, change in _STRANGE.items():
            strange = _changed(call, change)
            try:
                _states(ask(handler, strange), strange)
            except ConformanceError as error:
                raise ConformanceError(f"with {kind} tensors: {error}") from error


def module_is_left_as_found(handler: Any, sample: Sample) -> None:
    """Parameters, buffers, flags, hooks, attributes and children stay as they were."""
    with completed(sample) as call:
        before = snapshot_module(call.module)
        ask(handler, call)
        if (name := difference(before, snapshot_module(call.module))) is not None:
            raise ConformanceError(f"the handler changed {name}")


def inputs_are_left_as_found(handler: Any, sample: Sample) -> None:
    """Arguments and output keep their contents, and containers their items."""
    with completed(sample) as call:

        def now() -> dict[str, Any]:
            return {name: snapshot_value(getattr(call, name)) for name in ("args", "kwargs", "output")}

        before = now()
        ask(handler, call)
        if (name := difference(before, now())) is not None:
            raise ConformanceError(f"the handler changed the call's {name}")


def global_state_is_left_as_found(handler: Any, sample: Sample) -> None:
    """Modes, defaults, backends, hooks and the process stay as they were."""
    with completed(sample) as call:
        before = describe_global_state()
        ask(handler, call)
        if (name := difference(before, describe_global_state())) is not None:
            raise ConformanceError(f"the handler changed the {name}")


def random_state_is_left_as_found(handler: Any, sample: Sample) -> None:
    """No random number is drawn: a scan must not shift the draws that follow it."""
    with completed(sample) as call:
        before = describe_random_state()
        ask(handler, call)
        if (name := difference(before, describe_random_state())) is not None:
            raise ConformanceError(f"the handler drew from {name}")


def answer_is_repeatable(handler: Any, sample: Sample) -> None:
    """The same call gets the same answer."""
    with completed(sample) as call:
        first = _answers(handler, call)
        if (name := _first_difference(first, _answers(handler, call))) is not None:
            raise ConformanceError(f"asked twice about one call, the handler gave {name} two answers")


def asking_for_less_changes_nothing(handler: Any, sample: Sample) -> None:
    """`call.requested` may save work; it must not change an answer."""
    with completed(sample) as call:
        everything = _answers(handler, call)
        for name in sorted(ALL_REQUESTS & everything.keys()):
            alone = _answers(handler, attrs.evolve(call, requested=frozenset((name,))))
            if name not in alone or alone[name] != everything[name]:
                raise ConformanceError(f"asked for {name} alone, the handler answers differently")


def spelling_changes_nothing(handler: Any, sample: Sample) -> None:
    """Arguments passed by name count like the same ones passed by position."""
    with completed(sample) as call:
        if (named := _by_name(call)) is None:
            return
        by_name = ModuleCall(call.module, (), named, call.output)
        if (name := _first_difference(_answers(handler, call), _answers(handler, by_name))) is not None:
            raise ConformanceError(f"with every argument passed by name, the handler answers {name} differently")


def values_change_nothing(handler: Any, sample: Sample) -> None:
    """A count follows from shapes: under fake execution it is the same, or unavailable."""
    registration = subject(handler, sample.make()[0])
    real = scanned(sample, registration).layers[0].metrics
    try:
        fake = scanned(sample, registration, execution="fake").layers[0].metrics
    except Exception:  # the model needs values, which is no fault of the handler
        return
    for name, result in fake.items():
        if result.status != "unavailable" and result != real[name]:
            raise ConformanceError(
                f"without values to read, {name} is {result.state}, but {real[name].state} with them"
            )


def no_operator_leaks(handler: Any, sample: Sample) -> None:
    """Nothing the handler computes shows in the operator view, in a caller's own mode, or as another row."""
    module, _, _ = sample.make()
    registration = subject(handler, module)
    silent = attrs.evolve(registration, handler=ModuleHandler(_silent))
    counted = []
    random_state = torch.get_rng_state()
    for candidate in (silent, registration):
        torch.set_rng_state(random_state)  # what a model computes may hang on its weights, which must be the same
        recorder = _Recorder()
        with recorder:
            report = scanned(sample, candidate)
        view = (dict(report.operator_flops.by_operator), dict(report.operator_flops.ignored_operators))
        counted.append((recorder.names, view, [(layer.path, layer.call_index) for layer in report.layers]))
    for what, left, right in zip(("the caller's own mode", "the operator view", "the rows"), *counted, strict=True):
        if left != right:
            raise ConformanceError(f"what the handler computes shows in {what}")


def ownership_holds(handler: Any, sample: Sample) -> None:
    """A handler answers what it owns; descendants lose exactly that, and keep what it only adds to."""
    module, _, _ = sample.make()
    registration = subject(handler, module)
    others = tuple(
        HandlerRegistration(kind, ModuleHandler(_one_each), match="exact")
        for kind in {type(child) for child in module.modules()} - {type(module)}
    )
    report = scanned(sample, registration, *others, functional="skip")
    root, below = report.layers[0], [layer for layer in report.layers[1:] if layer.type != type(module).__name__]
    for name in registration.handler.subtree_metrics:
        if sample.supported and name in COUNT_METRICS and root.metrics[name].status == "unavailable":
            raise ConformanceError(f"the handler owns {name} for its subtree but has no number for it")
        for layer in below:
            if name in layer.metrics or name not in (layer.metric_owners or {}):
                raise ConformanceError(f"{layer.path} keeps {name}, which the handler owns")
    for name in COUNT_METRICS:
        if name in registration.handler.subtree_metrics:
            continue
        for layer in below:
            if layer.output.kind != "failed" and name not in layer.metrics:
                raise ConformanceError(f"{layer.path} lost {name}, which the handler does not own")


def result_survives_json(handler: Any, sample: Sample) -> None:
    """The report with the handler's result reads back from JSON as it was."""
    module, _, _ = sample.make()
    report = scanned(sample, subject(handler, module))
    try:
        back = Report.from_dict(json.loads(report.to_json().encode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise ConformanceError(f"the result cannot be stored as JSON: {type(error).__name__}: {error}") from error
    if back.to_dict() != report.to_dict():
        raise ConformanceError("the result reads back from JSON as something else")


def no_activation_is_kept(handler: Any, sample: Sample) -> None:
    """No reference to an argument, an output or the call outlives the handler."""
    # What the module itself keeps, such as a cache, stays alive without any handler too.
    if kept := sorted(alive_after(handler, sample) - alive_after(_silent, sample)):
        raise ConformanceError(f"the handler keeps a reference to {', '.join(kept)}")


def macs_match_the_dispatcher(handler: Any, sample: Sample, extra: Callable[[ModuleCall], int] | None = None) -> None:
    """MACs equal the contractions that the dispatcher executes on the unfused path, plus `extra`.

    For a metric that covers the subtree these are all of the call, else those in the module's own body.
    """
    if not sample.supported:
        return
    with completed(sample) as call:
        state = _states(ask(handler, call), call).get("macs")
        if not isinstance(state, Complete):
            raise ConformanceError("there are no complete MACs to compare with the dispatcher's")
        more = extra(call) if extra is not None else 0
        try:
            seen = count_contractions(call.module, *call.args, **call.kwargs)
        except OracleError as error:
            raise ConformanceError(f"the oracle cannot judge this call: {error}") from error
        inclusive = "macs" in subject(handler, call.module).handler.subtree_metrics
        expected = (seen.total if inclusive else seen.own) + more
        if state.value != expected:
            where = "whole call" if inclusive else "module's own body"
            raise ConformanceError(
                f"macs is {state.value}, but the dispatcher's contractions in the {where} make {expected}"
            )


#: Every check that needs no more than a handler and a call, by name.
CHECKS: Final[dict[str, Callable[[Any, Sample], None]]] = {
    check.__name__: check
    for check in (
        states_are_legal,
        counts_are_whole,
        supported_call_is_answered,
        unavailable_says_why,
        strange_tensors_raise_nothing,
        module_is_left_as_found,
        inputs_are_left_as_found,
        global_state_is_left_as_found,
        random_state_is_left_as_found,
        answer_is_repeatable,
        asking_for_less_changes_nothing,
        spelling_changes_nothing,
        values_change_nothing,
        no_operator_leaks,
        ownership_holds,
        result_survives_json,
        no_activation_is_kept,
    )
}


def _states(result: Mapping[str, Any], call: ModuleCall) -> dict[str, MetricState]:
    """Return the metrics of a result as states, or raise where one breaks the contract."""
    states: dict[str, MetricState] = {}
    for name, value in result.items():
        if name not in ALL_REQUESTS:
            raise ConformanceError(f"{name!r} is no metric; the metrics are {', '.join(METRICS)}")
        try:
            if name == "token_dependencies":
                checked_tokens(value, call)
                continue
            state = checked_state(name, value)
        except BadResult as error:
            raise ConformanceError(f"{name}: {error}") from error
        if isinstance(state, WireState):
            state = state.state
        states[name] = state if isinstance(state, Complete | Partial | Unavailable) else Complete(state)
    return states


def _answers(handler: Any, call: ModuleCall) -> dict[str, Any]:
    result = ask(handler, call)
    found: dict[str, Any] = dict(_states(result, call))
    if "token_dependencies" in result:
        found["token_dependencies"] = result["token_dependencies"]
    return found


def _first_difference(left: Mapping[str, Any], right: Mapping[str, Any]) -> str | None:
    names = sorted(left.keys() | right.keys())
    return next((name for name in names if name not in left or name not in right or left[name] != right[name]), None)


def _to_complex(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex64) if tensor.is_floating_point() else tensor


def _to_sparse(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_sparse() if tensor.layout is torch.strided and tensor.dim() else tensor


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


_STRANGE: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "complex": _to_complex,
    "sparse": _to_sparse,
    "meta": _to_meta,
}


def _changed(call: ModuleCall, change: Callable[[torch.Tensor], torch.Tensor]) -> ModuleCall:
    # One object passed under three names stays one object.
    changed: dict[int, torch.Tensor] = {}

    def of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in changed:
            try:
                changed[id(leaf)] = change(leaf)
            except (NotImplementedError, RuntimeError):  # a quantized or nested tensor stays as strange as it is
                changed[id(leaf)] = leaf
        return changed[id(leaf)]

    args, kwargs, output = tree_map(of, (call.args, dict(call.kwargs), call.output))
    return attrs.evolve(call, args=args, kwargs=kwargs, output=output)


def _silent(call: ModuleCall) -> dict[str, Any]:
    return {}


def _by_name(call: ModuleCall) -> dict[str, Any] | None:
    """Return the passed arguments by their names, `None` where one has no name; what was left out stays left out."""
    parameters = list(inspect.signature(call.module.forward).parameters.values())[: len(call.args)]
    if len(parameters) < len(call.args) or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        return None
    return {**call.kwargs, **{p.name: value for p, value in zip(parameters, call.args, strict=True)}}


def _one_each(call: ModuleCall) -> dict[str, int]:
    return dict.fromkeys(COUNT_METRICS, 1)


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
