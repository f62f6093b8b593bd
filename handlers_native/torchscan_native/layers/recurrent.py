"""Recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn.utils.rnn import PackedSequence

from torchscan import HandlerRegistration, ModuleCall
from torchscan_native.layers.formulas import recurrent as formulas
from torchscan_native.layers.guard import TRAINING, Refused, floating, only, parameter, refusal
from torchscan_native.layers.offer import offer
from torchscan_native.layers.spatial import NOWHERE, answer

_KINDS = {
    "RNN_TANH": formulas.RNN_TANH,
    "RNN_RELU": formulas.RNN_RELU,
    "LSTM": formulas.LSTM,
    "GRU": formulas.GRU,
}
_CELLS = {"tanh": formulas.RNN_TANH, "relu": formulas.RNN_RELU}


def registrations() -> Iterator[HandlerRegistration]:
    """Yield one registration per class."""
    yield from offer(("RNN", "LSTM", "GRU"), layers)
    yield from offer(("RNNCell",), rnn_cell)
    yield from offer(("LSTMCell",), lstm_cell)
    yield from offer(("GRUCell",), gru_cell)


def layers(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of a recurrent layer: all its layers and directions, batched or not."""
    x = only(call)
    if isinstance(x, PackedSequence):
        raise Refused(_PACKED)
    shape = floating(x).shape
    if module.training and module.dropout and module.num_layers > 1:
        raise Refused(TRAINING)
    for weight in module._flat_weights:
        floating(weight)
    kind = _KINDS[module.mode]
    if len(shape) == 2:
        steps, batch = shape[0], 1
    elif module.batch_first:
        batch, steps = shape[0], shape[1]
    else:
        steps, batch = shape[0], shape[1]
    counts = formulas.stack(
        kind,
        steps,
        batch,
        module.input_size,
        module.hidden_size,
        layers=module.num_layers,
        directions=2 if module.bidirectional else 1,
        bias=module.bias,
        projected=module.proj_size,
    )
    return answer(counts, NOWHERE)


def rnn_cell(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `RNNCell`."""
    return _cell(call, module, _CELLS[module.nonlinearity])


def lstm_cell(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `LSTMCell`."""
    return _cell(call, module, formulas.LSTM)


def gru_cell(call: ModuleCall, module: Any) -> dict[str, Any]:
    """Estimate one call of `GRUCell`."""
    return _cell(call, module, formulas.GRU)


def _cell(call: ModuleCall, module: Any, kind: formulas.Cell) -> dict[str, Any]:
    shape = floating(only(call)).shape
    hidden, width = module.hidden_size, module.input_size
    gates = kind.gates * hidden
    inputs = parameter(module, "weight_ih", (gates, width))
    states = parameter(module, "weight_hh", (gates, hidden))
    first, second = parameter(module, "bias_ih", (gates,)), parameter(module, "bias_hh", (gates,))
    if inputs != (gates, width) or states != (gates, hidden) or (first is None) != (second is None):
        raise Refused(_SHAPES)
    batch = shape[0] if len(shape) == 2 else 1
    counts = formulas.recurrence(kind, 1, batch, width, hidden, bias=first is not None, projected=0)
    return answer(counts, NOWHERE)


_PACKED = refusal("packed_sequence", "the steps of a packed sequence differ in length; pass a padded tensor")
_SHAPES = refusal("weight_shape", "the parameters do not have the shapes that the module's attributes name")
