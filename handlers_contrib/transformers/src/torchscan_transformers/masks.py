"""Masks: what an explicit attention mask excludes, read from its values."""

from __future__ import annotations

import weakref
from typing import Any

import attrs

import torchscan
from torchscan_transformers.guard import Unsupported


@attrs.frozen
class Pattern:
    """What a mask allows.

    Attributes:
        kind: `full` or `causal`, or why it is neither, machine-readable.
        message: the same for people, empty for `full` and `causal`.

    """

    kind: str
    message: str = ""


#: The last mask and what was found: every layer of a model gets the same one. No reference keeps the mask alive.
_last: tuple[weakref.ref[Any], tuple[Any, ...], Pattern] | None = None


def values_of(call: torchscan.ModuleCall, mask: Any) -> Any:
    """Return a tensor with the values of a mask.

    Raises:
        Unsupported: there are none.

    """
    values = call.readable(mask)
    if values is None:
        raise Unsupported("mask_values", "the values of the mask cannot be read on this device")
    return values


def allowed(mask: Any, values: Any, target: int, source: int, *, additive: bool) -> str:
    """Return `full` or `causal`, what a mask of shape (batch, heads, T, S) allows.

    The library's masks exclude with `False`, or with the smallest finite number of their type; minus infinity excludes
    too. Inspecting a mask costs one pass over it, and one for a whole model that hands it to every layer.

    Args:
        mask: the mask.
        values: a tensor with the mask's values.
        target: T.
        source: S.
        additive: whether the mask is added to the scores whatever its type; otherwise `False` excludes.

    Raises:
        Unsupported: it allows something else.

    """
    global _last
    key = (0 if mask.is_inference() else mask._version, target, source, additive)
    if _last is not None and _last[0]() is mask and _last[1] == key:
        found = _last[2]
    else:
        found = _read(values, target, source, additive)
        _last = (weakref.ref(mask), key, found)
    if found.message:
        raise Unsupported(found.kind, found.message)
    return found.kind


def _read(values: Any, target: int, source: int, additive: bool) -> Pattern:
    import torch

    if values.is_floating_point():
        if bool(torch.isnan(values).any()) or bool((values == float("inf")).any()):
            return Pattern("mask_not_finite", "the mask has NaN or positive infinity")
        keep = values > torch.finfo(values.dtype).min
    elif values.dtype == torch.bool and not additive:
        keep = values
    else:
        return Pattern("mask_dtype", f"a mask of type {values.dtype} excludes nothing where it is added to the scores")
    if bool(keep.all()):
        return Pattern("full")
    causal = torch.ones(target, source, dtype=torch.bool, device=keep.device).tril()
    if target == source and bool((keep == causal).all()):
        return Pattern("causal")
    if not bool(keep.any(-1).all()):
        return Pattern("masked_row", "a query may attend to no key at all")
    return Pattern(
        "irregular_mask", "the mask excludes padding, a window or another pattern that no relation describes"
    )
