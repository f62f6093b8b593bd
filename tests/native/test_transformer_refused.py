"""Boundaries that PyTorch itself guards on this machine.

A tampered module, another release or another device could run such a call, so it is handed to the handler as a
finished one, with the output a run would give.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from native.transformer_modules import (
    COUNTS,
    HANDLERS,
    X,
    Y,
    attention,
    decoder,
    decoder_layer,
    encoder,
    encoder_layer,
    parameter,
    transformer,
)
from torchscan import ModuleCall, Unavailable

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


def call(module: nn.Module, *args: Any, output: Any = X, **kwargs: Any) -> ModuleCall:
    return ModuleCall(module.eval(), args, kwargs, output)


def decode(module: nn.Module, *args: Any, **kwargs: Any) -> ModuleCall:
    return call(module, *(args or (Y, X)), output=Y, **kwargs)


def attend(*args: Any, **kwargs: Any) -> ModuleCall:
    return call(attention(), *(args or (X, X, X)), **kwargs)


def changed(module: nn.Module, path: str, value: Any) -> nn.Module:
    """Return `module` in evaluation mode with the attribute at `path` set, unchecked where PyTorch checks."""
    owner, _, name = path.rpartition(".")
    module.eval()
    setattr(module.get_submodule(owner), name, value)
    return module


def as_called(module: nn.Module, *args: Any, output: Any = X) -> ModuleCall:
    return ModuleCall(module, args, {}, output)


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors announce that they are a prototype
        return torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)])


def all_nested(module: nn.Module, count: int) -> ModuleCall:
    tensor = nested()
    return call(module, *[tensor] * count, output=tensor)


INTEGER, COMPLEX = X.int(), X.to(torch.complex64)
WIDE = torch.ones(3, 2, 4)  # another batch
WIDER = torch.ones(3, 1, 6)  # another width


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


CASES: dict[str, dict[str, Callable[[], ModuleCall]]] = {
    "training_mode": {
        "module": lambda: as_called(attention().train(), X, X, X),
        "layer": lambda: as_called(changed(encoder(), "layers.1.training", True), X),
        "stack": lambda: as_called(changed(transformer(), "encoder.training", True), X, Y, output=Y),
        "dropout": lambda: as_called(changed(encoder_layer(), "dropout1.training", True), X),
        "stage": lambda: as_called(changed(decoder_layer(), "multihead_attn.training", True), Y, X, output=Y),
    },
    "integer_tensor": {
        "input": lambda: attend(INTEGER, INTEGER, INTEGER, output=INTEGER),
        "parameter": lambda: as_called(
            changed(encoder_layer(), "linear1.weight", parameter(8, 4, dtype=torch.int8)), X
        ),
    },
    "complex_tensor": {
        "input": lambda: call(encoder_layer(), COMPLEX, output=COMPLEX),
        "memory": lambda: decode(decoder(), Y, COMPLEX),
        "parameter": lambda: as_called(
            changed(attention(), "in_proj_weight", parameter(12, 4, dtype=torch.complex64)), X, X, X
        ),
    },
    "sparse_tensor": {
        "input": lambda: attend(*[X.to_sparse()] * 3),
        "key": lambda: attend(X, X.to_sparse(), X),
        "mask": lambda: attend(attn_mask=zeros(3, 3).to_sparse()),
    },
    "nested_tensor": {
        "attention": lambda: all_nested(attention(batch_first=True), 3),
        "layer": lambda: all_nested(encoder_layer(batch_first=True), 1),
    },
    "argument_type": {
        "input": lambda: attend([[1.0]], X, X),
        "mask": lambda: attend(attn_mask=[[0.0]]),
        "layout": lambda: call(attention(batch_first=1), X, X, X),
    },
    "input_shape": {
        "keys of another batch": lambda: attend(X, WIDE, WIDE),
        "values of another length": lambda: attend(X, X, Y),
        "queries of another width": lambda: attend(torch.ones(3, 1, 2), X, X),
        "memory of another batch": lambda: decode(decoder_layer(), Y, WIDE),
        "targets of another batch": lambda: decode(transformer(), X, WIDE),
    },
    "output_shape": {
        "another length": lambda: attend(output=Y),
        "no tensor": lambda: call(encoder_layer(), X, output=None),
    },
    "projection_shape": {
        "indivisible heads": lambda: as_called(changed(attention(), "num_heads", 3), X, X, X),
        "key width": lambda: as_called(changed(attention(kdim=6), "k_proj_weight", parameter(4, 5)), X, WIDER, X),
        "no input projection": lambda: as_called(changed(attention(), "in_proj_weight", None), X, X, X),
        "no value projection": lambda: as_called(changed(attention(kdim=6), "v_proj_weight", None), X, WIDER, X),
        "no output projection": lambda: as_called(changed(attention(), "out_proj.weight", None), X, X, X),
    },
    "foreign_stage": {"no output stage": lambda: as_called(changed(attention(), "out_proj", None), X, X, X)},
    "feed_forward_shape": {
        "no weight": lambda: as_called(changed(encoder_layer(), "linear1.weight", None), X),
        "no second weight": lambda: as_called(changed(encoder_layer(), "linear2.weight", None), X),
        "two hidden widths": lambda: as_called(changed(encoder_layer(), "linear1", nn.Linear(4, 6)), X),
    },
    "norm_shape": {"one weight": lambda: as_called(changed(encoder_layer(), "norm1.weight", parameter(1)), X)},
    "mixed_widths": {
        "d_model": lambda: as_called(changed(transformer(), "d_model", 5), X, Y, output=Y),
        "attention": lambda: call(changed(encoder_layer(), "self_attn", nn.MultiheadAttention(6, 2)), X),
    },
    "empty_stack": {
        "encoder": lambda: call(encoder(0), X),
        "decoder": lambda: decode(decoder(0)),
        "in a Transformer": lambda: decode(nn.Transformer(4, 2, 1, 0, 8), X, Y),
    },
    "mask_dtype": {
        "integer": lambda: attend(attn_mask=zeros(3, 3, dtype=torch.uint8)),
        "complex": lambda: attend(key_padding_mask=zeros(1, 3, dtype=torch.complex64)),
    },
    "mask_shape": {
        "one dimension": lambda: attend(attn_mask=zeros(3)),
        "four dimensions": lambda: attend(attn_mask=zeros(1, 2, 3, 3)),
        "one per batch entry": lambda: attend(attn_mask=zeros(1, 3, 3)),
        "transposed": lambda: attend(Y, X, X, output=Y, attn_mask=zeros(3, 2)),
        "padding of another length": lambda: attend(key_padding_mask=zeros(1, 2)),
        "padding of one dimension": lambda: attend(key_padding_mask=zeros(3)),
        "memory mask of the source": lambda: decode(decoder_layer(), memory_mask=zeros(3, 3)),
        "per head of the first layer alone": lambda: call(
            changed(encoder(), "layers.1", nn.TransformerEncoderLayer(4, 1, 8)), X, mask=zeros(2, 3, 3)
        ),
    },
    "causal_hint_without_mask": {
        "target": lambda: decode(decoder_layer(), tgt_is_causal=True),
        "memory": lambda: decode(decoder_layer(), memory_is_causal=True),
        "target in a stack": lambda: decode(decoder(), tgt_is_causal=True),
        "memory beside a target mask": lambda: decode(decoder(), tgt_mask=zeros(2, 2), memory_is_causal=True),
        "source in a Transformer": lambda: decode(transformer(), X, Y, src_is_causal=True),
        "target in a Transformer": lambda: decode(transformer(), X, Y, tgt_is_causal=True),
        "memory in a Transformer": lambda: decode(transformer(), X, Y, memory_is_causal=True),
    },
    "unreadable_call": {"no such argument": lambda: attend(X)},
}


@pytest.mark.parametrize(("reason", "name"), [(reason, name) for reason, cases in CASES.items() for name in cases])
def test_no_number_for_a_refused_call(reason: str, name: str) -> None:
    refused = CASES[reason][name]()
    found = HANDLERS[type(refused.module)](refused)
    for metric in COUNTS:
        state = found[metric]
        assert isinstance(state, Unavailable)
        assert (state.code, state.reason) == ("unsupported_native_call", reason)
    assert found["token_dependencies"].status == "unavailable"
    assert found["token_dependencies"].reason == reason
