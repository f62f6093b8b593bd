"""Modules that only move data, and folding. Derivation: docs/derivations/data-movement.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torchscan_native.layers.formulas.rules import NOTHING, Counts

__all__ = ["cropped", "fold", "fold_overlap", "move"]


def move(read: int, written: int) -> Counts:
    """Count one copying stage. Derivation: docs/derivations/data-movement.md#one-stage.

    Args:
        read: elements that are read.
        written: elements that are written.

    """
    return Counts(0, 0, read + written) if written else NOTHING


def cropped(shape: Sequence[int], padding: Sequence[int], *, reflect: bool = False) -> int:
    """Return how many input elements reach the output of a pad. Derivation: docs/derivations/data-movement.md#padding.

    Args:
        shape: the input's shape.
        padding: before and after of the last axis, then of the one before it, and so on; negative crops.
        reflect: whether the padding mirrors the input, elements that the other side crops included.

    """
    kept = 1
    axes = len(shape)
    for distance in range(1, axes + 1):
        length = shape[axes - distance]
        index = 2 * (distance - 1)
        if index + 1 < len(padding):
            before, after = padding[index], padding[index + 1]
            first, end = max(0, -before), length - max(0, -after)
            if reflect and after > 0:
                first = min(first, length - 1 - after)
            if reflect and before > 0:
                end = max(end, before + 1)
            length = max(0, end - first)
        kept *= length
    return kept


@lru_cache(maxsize=256)
def fold_overlap(output: int, kernel: int, dilation: int, padding: int, stride: int) -> tuple[int, int, int]:
    """Return (blocks, valid entries, reached positions) of one axis.

    Derivation: docs/derivations/data-movement.md#fold.

    Args:
        output: length of the folded axis.
        kernel: taps of a block.
        dilation: distance between taps.
        padding: positions cropped on each side.
        stride: distance between blocks.

    """
    blocks = max(0, (output + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    positions = [
        position
        for block in range(blocks)
        for tap in range(kernel)
        if 0 <= (position := block * stride + tap * dilation - padding) < output
    ]
    return blocks, len(positions), len(set(positions))


def fold(inputs: int, outputs: int, planes: int, valid: int, reached: int) -> Counts:
    """Count the adds of overlapping blocks. Derivation: docs/derivations/data-movement.md#fold.

    Args:
        inputs: input elements.
        outputs: output elements.
        planes: batch times channels.
        valid: entries per plane that fall into the output.
        reached: output positions per plane that receive any.

    """
    if not outputs:
        return NOTHING
    return Counts(planes * (valid - reached), 0, inputs + outputs)
