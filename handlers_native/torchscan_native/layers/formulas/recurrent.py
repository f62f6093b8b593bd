"""Recurrent layers and cells. Derivation: docs/derivations/recurrent.md."""

from __future__ import annotations

from typing import NamedTuple

from torchscan_native.layers.formulas.rules import NOTHING, Counts, dot

__all__ = ["GRU", "LSTM", "RNN_RELU", "RNN_TANH", "Cell", "recurrence", "stack"]


class Cell(NamedTuple):
    """What one kind of cell does beside its two projections.

    Attributes:
        gates: matrices stacked in each weight, `G`.
        flops: FLOPs per hidden unit and step that belong to no matrix and no bias.
        accesses: DMAs per step in units of `B H`, the recurrent projection's read of the state left out.

    """

    gates: int
    flops: int
    accesses: int


# FLOPs: the gate sum and the activation. DMAs: projection written 1, sum 3, activation 2.
RNN_TANH = Cell(1, 1 + 6, 1 + 3 + 2)
RNN_RELU = Cell(1, 1 + 1, 1 + 3 + 2)
# FLOPs: four sums, three sigmoids and a tanh, two products and an add, tanh(c'), the output product.
# DMAs: projection 4, sums 4+4+4, activations 4+4, cell update 4+1, tanh 1+1, output product 2+1.
LSTM = Cell(4, 4 + 3 * 4 + 6 + 3 + 6 + 1, 4 + 12 + 8 + 5 + 2 + 3)
# FLOPs: two sums, two sigmoids, the reset product, the candidate sum, its tanh, 1-z and two products and an add.
# DMAs: projection 3, sums 2+2+2, activations 2+2, reset product 2+1, candidate sum 2+1, tanh 1+1, update 3+1.
GRU = Cell(3, 2 + 2 * 4 + 1 + 1 + 6 + 4, 3 + 6 + 4 + 3 + 3 + 2 + 4)


def recurrence(cell: Cell, steps: int, batch: int, inputs: int, hidden: int, *, bias: bool, projected: int) -> Counts:
    """Count one layer in one direction. Derivation: docs/derivations/recurrent.md#one-layer-one-direction.

    Args:
        cell: the kind.
        steps: length of the sequence, `T`; 1 for a cell module.
        batch: sequences, `B`.
        inputs: width the layer receives, `I`.
        hidden: hidden width, `H`.
        bias: whether both bias vectors are there.
        projected: `proj_size`, `p`; 0 without a projection.

    """
    if not steps or not batch:
        return NOTHING
    units = batch * hidden
    gate_units = cell.gates * units
    state = projected or hidden  # what the recurrent projection reads and its weight is wide
    bias_adds = 1 if bias else 0
    bias_elements = cell.gates * hidden if bias else 0

    input_flops = gate_units * (dot(inputs) + bias_adds)
    recurrent_flops = gate_units * (dot(state) + bias_adds)
    rest_flops = units * cell.flops
    projection_flops = batch * projected * dot(hidden)

    input_macs = gate_units * inputs
    recurrent_macs = gate_units * state
    projection_macs = batch * hidden * projected

    # One stage projects the whole sequence, so its weights are read once; the recurrent ones are read in every step.
    input_stage = steps * batch * inputs + cell.gates * hidden * inputs + bias_elements + steps * gate_units
    recurrent_stage = batch * state + cell.gates * hidden * state + bias_elements
    projection_stage = units + hidden * projected + batch * projected if projected else 0
    per_step = recurrent_stage + cell.accesses * units + projection_stage
    return Counts(
        steps * (input_flops + recurrent_flops + rest_flops + projection_flops),
        steps * (input_macs + recurrent_macs + projection_macs),
        input_stage + steps * per_step,
    )


def stack(
    cell: Cell,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    layers: int,
    directions: int,
    bias: bool,
    projected: int,
) -> Counts:
    """Count every layer and direction. Derivation: docs/derivations/recurrent.md#layers-directions-cells.

    Args:
        cell: the kind.
        steps: length of the sequence, `T`.
        batch: sequences, `B`.
        inputs: width the first layer receives, `I`.
        hidden: hidden width, `H`.
        layers: how many layers; each but the first receives what the one before it puts out.
        directions: 2 where every layer also runs backwards, else 1.
        bias: whether both bias vectors are there.
        projected: `proj_size`, `p`; 0 without a projection.

    """
    flops = macs = dmas = 0
    width = inputs
    for _ in range(layers):
        one = recurrence(cell, steps, batch, width, hidden, bias=bias, projected=projected)
        flops += directions * one.flops
        macs += directions * one.macs
        dmas += directions * one.dmas
        width = directions * (projected or hidden)
    return Counts(flops, macs, dmas)
