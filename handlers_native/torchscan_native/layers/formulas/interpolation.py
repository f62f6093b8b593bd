"""Upsampling. Derivation: docs/derivations/interpolation.md."""

from __future__ import annotations

from torchscan_native.layers.formulas.rules import NOTHING, Counts, dot

__all__ = ["interpolate", "nearest"]


def interpolate(inputs: int, outputs: int, taps: int) -> Counts:
    """Count a weighted sum of neighbours. Derivation: docs/derivations/interpolation.md#weighted-taps.

    Args:
        inputs: input elements.
        outputs: output elements.
        taps: neighbours per output element.

    """
    if not outputs:
        return NOTHING
    return Counts(outputs * dot(taps), outputs * taps, inputs + outputs)


def nearest(inputs: int, outputs: int) -> Counts:
    """Count copies of the nearest neighbour. Derivation: docs/derivations/interpolation.md#nearest.

    Args:
        inputs: input elements.
        outputs: output elements.

    """
    return Counts(0, 0, inputs + outputs) if outputs else NOTHING
