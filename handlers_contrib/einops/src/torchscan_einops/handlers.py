"""The handlers: from a call to the integers of the formulas."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import torchscan
from torchscan_einops import formulas, tokens
from torchscan_einops.guard import SPATIAL, runs_unchanged, unavailable, unsupported_layout
from torchscan_einops.patterns import Layout, Lengths, layout, parse

_REDUCTIONS = frozenset(("sum", "mean", "max", "min", "prod"))


def rearrange(call: torchscan.ModuleCall) -> dict[str, Any]:
    """Estimate one `Rearrange`: no arithmetic; a view is nothing, a copy is one stage.

    Returns:
        FLOPs, MACs and DMAs, the token relation where the pattern keeps a token axis, or `{}` where another
        `forward` ran.

    """
    module: Any = call.module
    if not runs_unchanged(module, "Rearrange"):
        return {}
    tensor = _input(call)
    if (refused := unsupported_layout(tensor)) is not None:
        return refused
    lengths = tuple(module.axes_lengths.items())
    return _estimates(call, _moved(module.pattern, lengths, tuple(tensor.shape)), lengths, tensor)


def reduce(call: torchscan.ModuleCall) -> dict[str, Any]:
    """Estimate one `Reduce`: one reduction stage, or a rearrangement where the pattern reduces no axis."""
    module: Any = call.module
    if not runs_unchanged(module, "Reduce"):
        return {}
    tensor = _input(call)
    if (refused := unsupported_layout(tensor)) is not None:
        return refused
    lengths, shape = tuple(module.axes_lengths.items()), tuple(tensor.shape)
    plan = layout(module.pattern, lengths, shape)
    kept = frozenset(axis for group in plan.right for axis in group)
    reduced = [axis for axis in plan.order if axis not in kept]
    if not reduced:
        return _estimates(call, _moved(module.pattern, lengths, shape), lengths, tensor)
    if module.reduction not in _REDUCTIONS:
        return unavailable(
            "unknown_reduction", f"no formula for the reduction {module.reduction!r}; use custom_modules="
        )
    if tensor.is_complex():
        return unavailable("complex_arithmetic", "complex arithmetic has no built-in count")
    outputs = prod(call.output.shape)
    if not plan.size(reduced) and outputs:
        return unavailable("empty_reduction", "a reduction over no values has no defined count")
    counts = formulas.reduction(module.reduction, tensor.numel(), outputs, floating=tensor.is_floating_point())
    return _estimates(call, counts, lengths, tensor)


def einmix(call: torchscan.ModuleCall) -> dict[str, Any]:
    """Estimate one `EinMix`, with the rearrangements before and after its product."""
    module: Any = call.module
    if not runs_unchanged(module, "EinMix"):
        return unavailable("replaced_forward", "the layer's forward was replaced; describe the new one")
    tensor = _input(call)
    weight, bias = module.weight, module.bias
    for operand in (tensor, weight) if bias is None else (tensor, weight, bias):
        if (refused := unsupported_layout(operand)) is not None:
            return refused
        if not operand.is_floating_point():
            return unavailable("unsupported_dtype", "a contraction has a formula for real floating-point tensors only")
    lengths = tuple(module.axes_lengths.items())
    counts = _mixed(
        module.pattern,
        module.weight_shape,
        lengths,
        tuple(tensor.shape),
        weight.numel(),
        None if bias is None else bias.numel(),
    )
    if counts is None:
        return unavailable("empty_contraction", "a contraction without terms has no defined count")
    return _estimates(call, counts, lengths, tensor)


def _input(call: torchscan.ModuleCall) -> Any:
    return call.args[0] if call.args else call.kwargs["input"]


def _estimates(call: torchscan.ModuleCall, counts: formulas.Counts, lengths: Lengths, tensor: Any) -> dict[str, Any]:
    estimates: dict[str, Any] = {**counts._asdict(), **SPATIAL}
    if "token_dependencies" in call.requested:
        module: Any = call.module
        relation = _relation(module.pattern, lengths, tuple(tensor.shape))
        if relation is not None:
            estimates["token_dependencies"] = relation
    return estimates


@functools.lru_cache(maxsize=4096)
def _relation(pattern: str, lengths: Lengths, shape: tuple[int, ...]) -> torchscan.TokenDependencies | None:
    found = tokens.relation(layout(pattern, lengths, shape))
    return None if found is None else found.canonical()


@functools.lru_cache(maxsize=4096)
def _moved(pattern: str, lengths: Lengths, shape: tuple[int, ...]) -> formulas.Counts:
    plan = layout(pattern, lengths, shape)
    order = plan.order
    position = {axis: index for index, axis in enumerate(order)}
    sizes = [plan.sizes[axis] for axis in order]
    groups = [[position[axis] for axis in group] for group in plan.right]
    return formulas.movement(prod(shape), view=formulas.is_view(sizes, groups))


@functools.lru_cache(maxsize=4096)
def _mixed(
    pattern: str, weight_shape: str, lengths: Lengths, shape: tuple[int, ...], weight: int, bias: int | None
) -> formulas.Counts | None:
    plan: Layout = layout(pattern, lengths, shape)
    shared = frozenset(axis for group in parse(weight_shape).groups for axis in group or ())
    kept = frozenset(axis for group in plan.right for axis in group)
    gone = [axis for axis in plan.order if axis not in kept]
    lone = plan.size([axis for axis in gone if axis not in shared])
    terms = plan.size([axis for axis in gone if axis in shared])
    outputs = plan.size([axis for group in plan.right for axis in group])
    if not outputs:
        return formulas.NOTHING  # an empty batch
    if not lone or not terms:
        return None
    return formulas.contraction(prod(shape), lone, terms, outputs, weight, bias)
