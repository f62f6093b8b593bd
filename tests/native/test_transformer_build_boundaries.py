"""Modules built outside the boundaries: PyTorch runs them, and a scan shows no number and says why."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

from native.transformer_modules import (
    Cases,
    X,
    Y,
    attention,
    decoder_layer,
    encoder,
    encoder_layer,
    parameter,
    replace_forward,
    transformer,
)
from torchscan import ModuleCall, crawl_module
from torchscan_native.transformer import handlers

# nn.Transformer warns about its own default when it is built sequence-first
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

CASES = Cases()


class OwnAttention(nn.MultiheadAttention):
    pass


class OwnLinear(nn.Linear):
    pass


class OwnLayer(nn.TransformerEncoderLayer):
    pass


class OwnEncoder(nn.TransformerEncoder):
    pass


class OwnReLU(nn.ReLU):
    pass


class OwnNorm(nn.LayerNorm):
    pass


@CASES.outside("replaced_forward")
def replaced_on_the_module() -> Any:
    module = attention()
    replace_forward(module)
    return module, (X, X, X), {}


@CASES.outside("replaced_forward")
def replaced_on_an_attention_stage() -> Any:
    module = encoder_layer()
    replace_forward(module.self_attn)
    return module, (X,), {}


@CASES.outside("replaced_forward")
def replaced_on_a_linear_stage() -> Any:
    module = encoder_layer()
    replace_forward(module.linear1)
    return module, (X,), {}


@CASES.outside("replaced_forward")
def replaced_on_a_norm_stage() -> Any:
    module = decoder_layer()
    replace_forward(module.norm3)
    return module, (Y, X), {}


@CASES.outside("replaced_forward")
def replaced_on_a_dropout_stage() -> Any:
    module = encoder_layer()
    replace_forward(module.dropout1)
    return module, (X,), {}


@CASES.outside("replaced_forward")
def replaced_on_an_activation_stage() -> Any:
    module = encoder_layer(activation=nn.ReLU())
    replace_forward(module.activation)
    return module, (X,), {}


@CASES.outside("replaced_forward")
def replaced_on_a_layer_of_a_stack() -> Any:
    module = encoder()
    replace_forward(module.layers[1])
    return module, (X,), {}


@CASES.outside("replaced_forward")
def replaced_on_a_stack() -> Any:
    module = transformer()
    replace_forward(module.decoder)
    return module, (X, Y), {}


@CASES.outside("replaced_forward")
def replaced_block_of_a_layer() -> Any:
    module = encoder_layer()
    module._ff_block = types.MethodType(lambda self, x: x, module)
    return module, (X,), {}


@CASES.outside("foreign_stage")
def subclassed_attention() -> Any:
    module = encoder_layer()
    module.self_attn = OwnAttention(4, 2)
    return module, (X,), {}


@CASES.outside("foreign_stage")
def subclassed_linear() -> Any:
    module = decoder_layer()
    module.linear2 = OwnLinear(8, 4)
    return module, (Y, X), {}


@CASES.outside("foreign_stage")
def parametrized_linear() -> Any:
    module = encoder_layer()
    nn.utils.parametrizations.weight_norm(module.linear1)
    return module, (X,), {}


@CASES.outside("foreign_stage")
def another_dropout() -> Any:
    module = encoder_layer()
    module.dropout = nn.AlphaDropout()
    return module, (X,), {}


@CASES.outside("foreign_layer")
def subclassed_layer() -> Any:
    module = encoder()
    module.layers[1] = OwnLayer(4, 2, 8)
    return module, (X,), {}


@CASES.outside("foreign_layer")
def layers_in_another_container() -> Any:
    module = encoder()
    module.layers = nn.Sequential(*module.layers)
    return module, (X,), {}


@CASES.outside("foreign_stack")
def subclassed_stack() -> Any:
    stack = OwnEncoder(encoder_layer(), 1, enable_nested_tensor=False)
    return transformer(custom_encoder=stack), (X, Y), {}


@CASES.outside("foreign_activation")
def another_activation() -> Any:
    return encoder_layer(activation=F.silu), (X,), {}


@CASES.outside("foreign_activation")
def another_activation_module() -> Any:
    return decoder_layer(activation=nn.Tanh()), (Y, X), {}


@CASES.outside("foreign_activation")
def subclassed_activation() -> Any:
    return encoder_layer(activation=OwnReLU()), (X,), {}


@CASES.outside("foreign_activation")
def activation_changed_behind_the_fused_path() -> Any:
    # the fused path still computes ReLU, the staged path GELU
    module = encoder_layer(batch_first=True)
    module.activation = F.gelu
    return module, (X,), {}


@CASES.outside("foreign_norm")
def another_norm() -> Any:
    module = decoder_layer()
    module.norm1 = nn.GroupNorm(1, 1)
    return module, (Y, X), {}


@CASES.outside("foreign_norm")
def subclassed_norm() -> Any:
    module = encoder_layer()
    module.norm2 = OwnNorm(4)
    return module, (X,), {}


@CASES.outside("foreign_norm")
def another_final_norm() -> Any:
    return encoder(norm=nn.ReLU()), (X,), {}


@CASES.outside("foreign_norm")
def final_norm_that_is_no_module() -> Any:
    module = encoder()
    module.norm = torch.relu
    return module, (X,), {}


@CASES.outside("norm_shape")
def norm_over_more_than_the_features() -> Any:
    module = encoder_layer()
    module.norm1 = nn.LayerNorm((1, 4))
    return module, (X,), {}


@CASES.outside("norm_shape")
def final_norm_over_more_than_the_features() -> Any:
    return encoder(norm=nn.LayerNorm((3, 1, 4))), (X,), {}


@CASES.outside("stage_hooks")
def pre_hook_on_an_attention_stage() -> Any:
    # it appends memory tokens, of which the layer's own arguments show nothing
    module = encoder_layer()

    def lengthen(stage: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        longer = torch.cat([args[0], args[0]])
        return args[0], longer, longer

    module.self_attn.register_forward_pre_hook(lengthen)
    return module, (X,), {}


@CASES.outside("stage_hooks")
def pre_hook_of_a_weight_norm() -> Any:
    module = encoder_layer()
    stage: Any = module.linear1
    weight = parameter(8, 4)

    def recompute(stage: nn.Module, args: tuple[Any, ...]) -> None:
        stage.weight.copy_(weight * 2)

    stage.register_forward_pre_hook(recompute)
    return module, (X,), {}


@CASES.outside("reparametrized")
def pruned_projection() -> Any:
    # the mask is applied in a pre-hook and the product kept as a plain attribute
    module = attention()
    prune.identity(module, "in_proj_weight")
    return module, (X, X, X), {}


@CASES.outside("reparametrized")
def pruned_output_projection() -> Any:
    module = attention()
    prune.identity(module.out_proj, "weight")
    return module, (X, X, X), {}


class ComputedWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = parameter(4, 4)
        self.bias = None

    @property
    def weight(self) -> torch.Tensor:
        return self.base @ self.base


@CASES.outside("reparametrized")
def output_projection_with_a_computed_weight() -> Any:
    module = attention(bias=False)
    module.out_proj = ComputedWeight()
    return module, (X, X, X), {}


@CASES.outside("add_bias_kv")
def bias_tokens() -> Any:
    return attention(add_bias_kv=True), (X, X, X), {}


@CASES.outside("add_bias_kv")
def bias_tokens_in_a_stage() -> Any:
    module = decoder_layer()
    module.multihead_attn = attention(add_bias_kv=True)
    return module, (Y, X), {}


@CASES.outside("add_zero_attn")
def zero_token() -> Any:
    return attention(add_zero_attn=True, batch_first=True), (X, X, X), {}


@CASES.outside("add_zero_attn")
def zero_token_in_a_stack() -> Any:
    module = encoder()
    module.layers[1].self_attn.add_zero_attn = True
    return module, (X,), {}


@CASES.outside("projection_shape")
def widened_output_projection() -> Any:
    module = attention()
    module.out_proj.weight, module.out_proj.bias = parameter(6, 4), parameter(6)
    return module, (X, X, X), {}


@CASES.outside("projection_shape")
def broadcast_output_bias() -> Any:
    module = attention()
    module.out_proj.bias = parameter(1)
    return module, (X, X, X), {}


@CASES.outside("projection_shape")
def broadcast_input_bias() -> Any:
    module = attention()
    module.in_proj_bias = parameter(1)
    return module, (X, X, X), {}


@CASES.outside("feed_forward_shape")
def broadcast_feed_forward_bias() -> Any:
    module = encoder_layer()
    module.linear1.bias = parameter(1)
    return module, (X,), {}


@CASES.outside("feed_forward_shape")
def feed_forward_of_width_one() -> Any:
    # (T, 1) broadcasts in the residual addition
    module = decoder_layer()
    module.linear2 = nn.Linear(8, 1)
    return module, (Y, X), {}


@CASES.outside("mixed_layouts")
def layers_of_two_layouts() -> Any:
    module = encoder()
    module.layers[1] = encoder_layer(batch_first=True)
    return module, (X,), {}


@CASES.outside("mixed_layouts")
def attentions_of_two_layouts() -> Any:
    module = decoder_layer()
    module.multihead_attn.batch_first = True
    square = torch.ones(2, 2, 4)
    return module, (square, square), {}


@CASES.outside("mixed_layouts")
def transformer_unlike_its_stacks() -> Any:
    module = transformer()
    module.batch_first = True
    square = torch.ones(3, 3, 4)
    return module, (square, square), {}


@pytest.mark.parametrize("name", CASES)
def test_no_number_outside(name: str) -> None:
    CASES.check(name)


@pytest.mark.parametrize(
    ("cls", "method"),
    [(nn.Linear, "forward"), (nn.MultiheadAttention, "forward"), (nn.TransformerEncoderLayer, "_sa_block")],
)
def test_a_patched_class_is_not_native(monkeypatch: pytest.MonkeyPatch, cls: type, method: str) -> None:
    original = getattr(cls, method)
    monkeypatch.setattr(cls, method, lambda self, *args, **kwargs: original(self, *args, **kwargs))
    total = crawl_module(encoder_layer(), args=(X,))["totals"]["macs"]
    assert (total["status"], total["known_value"]) == ("unavailable", None)


def test_the_message_names_the_place_and_the_remedy() -> None:
    _, build = CASES["replaced_on_a_layer_of_a_stack"]
    module, args, _ = build()
    found = handlers.encoder(ModuleCall(module.eval(), args, {}, module(*args)))
    assert found["macs"].message.startswith("layers.1: forward is replaced on the instance. ")
    assert "custom_modules=" in found["macs"].message
