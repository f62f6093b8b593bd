"""Calls just inside the boundaries: what looks unusual and is counted all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from native.transformer_modules import COUNTS, X, Y, attention, decoder_layer, encoder, encoder_layer, replace_forward
from torchscan import ModuleCall, crawl_module
from torchscan_native.transformer import handlers

# the constructor says when it switches nested tensors off by itself
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")


class Unused(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the attention reads the tensors and never calls this")


def macs(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return crawl_module(module, args=args, kwargs=kwargs)["totals"]["macs"]["value"]


def test_the_output_projection_may_have_another_forward() -> None:
    # 4*3*16 + 2*9*4 = 264, and 504 for the layer
    module = attention()
    replace_forward(module.out_proj)
    assert macs(module, X, X, X) == 264
    module.out_proj = Unused(4, 4)
    assert macs(module, X, X, X) == 264
    layer = encoder_layer()
    layer.self_attn.out_proj = Unused(4, 4)
    assert macs(layer, X) == 504


def test_an_observing_hook_changes_nothing() -> None:
    module = encoder()
    seen = []
    handle = module.layers[0].register_forward_hook(lambda layer, args, output: seen.append(output.shape))
    assert macs(module, X) == 2 * 504
    assert seen == [X.shape]
    handle.remove()


def test_a_pre_hook_on_the_called_module_is_part_of_its_call() -> None:
    # two tokens reach forward: 4*2*16 + 2*4*4 = 160
    module = attention()
    module.register_forward_pre_hook(lambda module, args: tuple(x[:2] for x in args))
    report = crawl_module(module, args=(X, X, X))
    assert report["totals"]["macs"]["value"] == 160


def test_an_identity_may_stand_for_a_dropout() -> None:
    layer = encoder_layer()
    layer.dropout = nn.Identity()
    assert macs(layer, X) == 504


def test_padding_is_dense_where_pytorch_never_packs() -> None:
    padding = torch.zeros(1, 3, dtype=torch.bool)
    # sequence first: the constructor itself switches nested tensors off
    assert macs(nn.TransformerEncoder(encoder_layer(), 1), X, src_key_padding_mask=padding) == 504
    # an attention mask beside the padding
    packed = nn.TransformerEncoder(encoder_layer(batch_first=True), 1)
    assert packed.use_nested_tensor
    x = torch.ones(1, 3, 4)
    assert macs(packed, x, mask=torch.zeros(3, 3, dtype=torch.bool), src_key_padding_mask=padding) == 504


def test_meta_tensors_are_dense() -> None:
    module = encoder_layer().to("meta")
    assert macs(module, X.to("meta")) == 504


def test_fake_tensors_are_dense() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        module = encoder_layer().eval()
        x = torch.ones(3, 1, 4)
        output = module(x)
    found = handlers.encoder_layer(ModuleCall(module, (x,), {}, output, requested=frozenset(COUNTS)))
    assert found["macs"] == 504


def test_inputs_may_be_parameters_and_of_any_floating_type() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        module = attention().to(dtype)
        x = nn.Parameter(torch.ones(3, 1, 4, dtype=dtype))
        assert macs(module, x, x, x) == 264


def test_heads_and_hidden_widths_of_swapped_stages() -> None:
    # a cross attention of its own key and value width: 160 + (64 + 3*4*12 + 48) + 128 + 48
    module = decoder_layer()
    module.multihead_attn = nn.MultiheadAttention(4, 1, kdim=6, vdim=6)
    assert macs(module, Y, torch.ones(3, 1, 6)) == 160 + 256 + 128 + 48


def test_errors_of_pytorch_reach_the_caller() -> None:
    with pytest.raises(AssertionError, match="embedding dimension"):
        crawl_module(attention(), args=(torch.ones(3, 1, 6),) * 3)
