"""Receptive field, stride and padding of one call. Derivation: docs/derivations/spatial.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from torchscan import NOT_APPLICABLE, Unavailable
from torchscan_native.layers.formulas.rules import Counts

__all__ = [
    "GLOBAL",
    "NOWHERE",
    "POINTWISE",
    "RESAMPLED",
    "SCATTERED",
    "Spatial",
    "adaptive_windows",
    "answer",
    "axes",
    "pad",
    "same",
    "same_padding",
    "window",
]

#: Receptive field, stride and padding: each a number, or the state that says why there is none.
Spatial: TypeAlias = tuple[Any, Any, Any]


def _expected(reason: str, message: str) -> Unavailable:
    return Unavailable(reason, message=message, expected=True)


_ANISOTROPIC: Final = _expected("anisotropic", "the axes differ, so one number for all of them would be wrong")
_ASYMMETRIC: Final = _expected("asymmetric_padding", "the two sides of an axis differ")
_CROPPING: Final = _expected("cropping", "a negative padding crops; the scalar has no sign")
_FRACTIONAL: Final = _expected("fractional_stride", "the output grid is finer than the input grid")
_GLOBAL: Final = _expected("global_statistics", "every output position depends on every input position")

#: Each position depends on that position alone.
POINTWISE: Final[Spatial] = (1, 1, 0)
#: The module has no spatial axis of its own, or mixes axes it cannot name.
NOWHERE: Final[Spatial] = (NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE)
#: Statistics over the whole plane.
GLOBAL: Final[Spatial] = (_GLOBAL, _GLOBAL, _GLOBAL)
#: The output grid is finer than the input grid.
RESAMPLED: Final[Spatial] = (_FRACTIONAL, _FRACTIONAL, _FRACTIONAL)
#: One of the scalars, where windows differ in size or distance.
SCATTERED: Final = _expected("irregular_windows", "the windows differ in size or distance")


def answer(counts: Counts, spatial: Spatial) -> dict[str, Any]:
    """Return the estimates of one call.

    Args:
        counts: its FLOPs, MACs and DMAs.
        spatial: its receptive field, stride and padding, in elements.

    """
    return {
        "module_flops": counts[0],
        "macs": counts[1],
        "dmas": counts[2],
        "receptive_field": spatial[0],
        "effective_stride": spatial[1],
        "effective_padding": spatial[2],
    }


def axes(value: Any, count: int) -> tuple[int, ...]:
    """Return one number per axis, as PyTorch broadcasts a number or a one-element sequence.

    Args:
        value: what a module keeps: a number, or one number for each axis or for all of them.
        count: number of spatial axes.

    """
    if isinstance(value, int):
        return (value,) * count
    return tuple(value) * count if len(value) == 1 else tuple(value)


def same(values: Sequence[int]) -> Any:
    """Return the number that all axes share, or why there is none."""
    first = values[0]
    for value in values:
        if value != first:
            return _ANISOTROPIC
    return first


def window(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Spatial:
    """Return the scalars of a sliding window; each sequence has one number per axis.

    Args:
        kernel: taps of the window.
        stride: elements between neighbouring windows.
        padding: elements added on each side.
        dilation: elements between neighbouring taps.

    """
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    return same(spans), same(stride), same(padding)


def adaptive_windows(lengths: Sequence[int], outputs: Sequence[int]) -> Spatial:
    """Return the scalars of adaptive windows, which are regular only where the output divides the input.

    Args:
        lengths: input length of each pooled axis.
        outputs: output length of each pooled axis.

    """
    ratios = []
    for length, output in zip(lengths, outputs, strict=True):
        if not output or length % output:
            return SCATTERED, SCATTERED, 0
        ratios.append(length // output)
    ratio = same(ratios)
    return ratio, ratio, 0


def pad(sides: Sequence[int], rank: int, spatial_axes: int) -> Spatial:
    """Return the scalars of a padding module.

    Args:
        sides: before and after of the last axis, then of the one before it, and so on.
        rank: number of axes of the input.
        spatial_axes: number of axes that are padded.

    """
    if any(side < 0 for side in sides):
        return 1, 1, _CROPPING
    if any(sides[i] != sides[i + 1] for i in range(0, len(sides), 2)):
        return 1, 1, _ASYMMETRIC
    if rank > spatial_axes + 2 and any(sides):
        return 1, 1, _ANISOTROPIC  # the other spatial axes are not padded
    return 1, 1, same(sides)


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> Any:
    """Return the padding of `padding="same"`, where both sides of every axis agree.

    Args:
        kernel: taps of the window, one number per axis.
        dilation: elements between neighbouring taps, one number per axis.

    """
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(total % 2 for total in totals):
        return _ASYMMETRIC
    return same([total // 2 for total in totals])
