"""Fused recurrent layers. Derivation: docs/derivations/recurrent.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchscan.contract.operators import OperatorFormula
from torchscan_native.layers.formulas.recurrent import GRU, LSTM, RNN_RELU, RNN_TANH, Cell, stack
from torchscan_native.operators.shapes import NotCovered, Rule, Shape, Work, numel, offer, work

__all__ = ["formulas"]

#: The `mode` of PyTorch's fused recurrent operators.
_CELLS = {0: RNN_RELU, 1: RNN_TANH, 2: LSTM, 3: GRU}


def layers(
    cell: Cell,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    count: int,
    bidirectional: bool,
    bias: bool,
    projected: int,
) -> Work:
    """Count every layer and direction. Derivation: docs/derivations/recurrent.md#layers-directions-cells.

    The operator view counts `2 K` for a dot product of K terms and leaves the fused biases out.
    """
    directions = 2 if bidirectional else 1
    counts = stack(
        cell, steps, batch, inputs, hidden, layers=count, directions=directions, bias=bias, projected=projected
    )
    cells = count * directions * steps * batch * hidden
    return work(counts, executed=2 * counts.macs + cells * cell.flops)


def onednn(
    input: Shape,
    weight0: Shape,
    weight1: Shape,
    weight2: Shape,
    weight3: Shape,
    hx_: Shape,
    cx_: Shape,
    reverse: bool,
    batch_sizes: list[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count one layer in one direction, which is what one call of this operator computes."""
    if batch_sizes:
        raise NotCovered("a packed sequence")
    steps, batch, width = input
    return layers(
        _CELLS[mode],
        steps,
        batch,
        width,
        hidden_size,
        count=1,
        bidirectional=False,
        bias=has_biases,
        projected=0,
    )


def cudnn(
    input: Shape,
    weight: list[Shape],
    weight_stride0: int,
    weight_buf: Shape | None,
    hx: Shape,
    cx: Shape | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    *args: Any,
    **kwargs: Any,
) -> Work:
    """Count a whole stack of layers."""
    if batch_sizes:
        raise NotCovered("a packed sequence")
    steps, batch, width = (input[1], input[0], input[2]) if batch_first else input
    return layers(
        _CELLS[mode],
        steps,
        batch,
        width,
        hidden_size,
        count=num_layers,
        bidirectional=bidirectional,
        bias=weight_stride0 - (1 if proj_size else 0) == 4,
        projected=proj_size,
    )


def gates(cell: Cell) -> Rule:
    """Return the rule of what a cell does beside its two projections, and of the biases it adds here."""

    def rule(input_gates: Shape, hidden_gates: Shape, state: Shape, *biases: Shape | None, **kwargs: Any) -> Work:
        units = numel(state)
        added = sum(bias is not None for bias in biases)
        return Work(units * cell.flops + added * cell.gates * units, 0, None)

    return rule


def formulas() -> Iterator[OperatorFormula]:
    """Yield the formulas of fused recurrent operators."""
    yield from offer("mkldnn_rnn_layer", "contraction", onednn)
    yield from offer("_cudnn_rnn", "contraction", cudnn)
    yield from offer("_thnn_fused_lstm_cell", "arithmetic", gates(LSTM))
    yield from offer("_thnn_fused_gru_cell", "arithmetic", gates(GRU))
