"""Calls outside the boundaries: PyTorch runs them, and a scan shows no number and says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from native.test_transformer_build_boundaries import CASES as BUILT
from native.test_transformer_refused import CASES as REFUSED
from native.transformer_modules import Cases, X, Y, attention, encoder, encoder_layer, transformer
from torch_versions import since
from torchscan import crawl_module
from torchscan_native.transformer.boundaries import BOUNDARIES

# nn.Transformer warns about its own default when it is built sequence-first; packing, of being a prototype
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:.*nested tensors.*:UserWarning")

CASES = Cases()


@CASES.outside("unbatched_input")
def unbatched_attention() -> Any:
    return attention(), (X[:, 0],) * 3, {}


@CASES.outside("unbatched_input")
def unbatched_layer() -> Any:
    return encoder_layer(), (X[:, 0],), {}


@CASES.outside("unbatched_input")
def unbatched_transformer() -> Any:
    return transformer(), (X[:, 0], Y[:, 0]), {}


@CASES.outside("empty_input")
def no_batch_entries() -> Any:
    return attention(), (X[:, :0],) * 3, {"need_weights": False}


@CASES.outside("empty_input")
def no_source_tokens() -> Any:
    return attention(), (X, X[:0], X[:0]), {"need_weights": False}


@CASES.outside("empty_input")
def no_tokens_in_a_layer() -> Any:
    return encoder_layer(), (X[:, :0],), {}


if since("2.13"):  # PyTorch 2.6 has no such product

    @CASES.outside("sparse_tensor")
    def sparse_parameter() -> Any:
        module = encoder_layer()
        module.linear1.weight = nn.Parameter(torch.eye(8, 4).to_sparse(), requires_grad=False)
        return module, (X,), {}


class OwnTensor(torch.Tensor):
    pass


@CASES.outside("tensor_subclass")
def subclassed_input() -> Any:
    x = torch.ones(3, 1, 4).as_subclass(OwnTensor)
    return attention(), (x, x, x), {}


@CASES.outside("tensor_subclass")
def subclassed_mask() -> Any:
    return attention(), (X, X, X), {"attn_mask": torch.zeros(3, 3).as_subclass(OwnTensor)}


class OwnParameter(nn.Parameter):
    pass


@CASES.outside("tensor_subclass")
def subclassed_parameter() -> Any:
    module = encoder_layer()
    module.linear2.weight = OwnParameter(torch.ones(4, 8))
    return module, (X,), {}


@CASES.outside("mask_shape")
def flattened_mask_on_the_fused_path() -> Any:
    # PyTorch's fused path views a mask of (1, T*T) as (T, T)
    return attention(batch_first=True), (torch.ones(1, 3, 4),) * 3, {"attn_mask": torch.zeros(1, 9, dtype=torch.bool)}


@CASES.outside("mask_shape")
def mask_that_a_hint_makes_unread() -> Any:
    mask = torch.zeros(1, 1, dtype=torch.bool)
    return attention(), (X, X, X), {"attn_mask": mask, "is_causal": True, "need_weights": False}


@CASES.outside("causal_hint_without_mask")
def hint_without_mask_on_the_fused_path() -> Any:
    x = torch.ones(1, 3, 4)
    return attention(batch_first=True), (x, x, x), {"is_causal": True}


@CASES.outside("causal_hint_without_mask")
def hint_without_mask_in_a_stack() -> Any:
    layer = encoder_layer(batch_first=True)
    module = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return module, (torch.ones(1, 3, 4),), {"is_causal": True}


@CASES.outside("padding_with_nested_tensors")
def padding_that_is_packed() -> Any:
    module = nn.TransformerEncoder(encoder_layer(batch_first=True), 1, enable_nested_tensor=True)
    padding = torch.tensor([[False, False, True], [False, False, True]])
    return module, (torch.ones(2, 3, 4),), {"src_key_padding_mask": padding}


@CASES.outside("padding_with_nested_tensors")
def padding_that_might_be_packed() -> Any:
    # nothing is padded, but that is for the values to say
    module = nn.TransformerEncoder(encoder_layer(batch_first=True), 1, enable_nested_tensor=True)
    return module, (torch.ones(2, 3, 4),), {"src_key_padding_mask": torch.zeros(2, 3, dtype=torch.bool)}


@CASES.outside("padding_with_nested_tensors")
def padding_in_a_transformer() -> Any:
    padding = torch.tensor([[False, False, True]])
    src, tgt = torch.ones(1, 3, 4), torch.ones(1, 2, 4)
    return transformer(batch_first=True), (src, tgt), {"src_key_padding_mask": padding}


@CASES.outside("argument_type")
def hint_that_is_no_bool() -> Any:
    return attention(), (X, X, X), {"attn_mask": torch.zeros(3, 3), "is_causal": 1}


@CASES.outside("argument_type")
def option_that_is_no_bool() -> Any:
    return attention(), (X, X, X), {"need_weights": 1}


@CASES.outside("output_shape")
def tokens_dropped_by_a_hook() -> Any:
    module = encoder()
    module.layers[0].register_forward_hook(lambda layer, args, output: output[:2])
    return module, (X,), {}


class Mapped(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(self.inner)(x)


@CASES.outside("functional_transform")
def mapped_over_a_hidden_dimension() -> Any:
    return Mapped(encoder_layer()), (torch.ones(5, 3, 1, 4),), {}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of vmap
def test_no_number_outside(name: str) -> None:
    CASES.check(name)


def test_every_boundary_has_a_case() -> None:
    reached = {reason for reason, _ in (BUILT | CASES).values()} | set(REFUSED)
    assert reached | {"gelu"} == set(BOUNDARIES)


def test_padding_names_packing_and_its_remedy() -> None:
    module, args, kwargs = CASES["padding_that_is_packed"][1]()
    report = crawl_module(module, args=args, kwargs=kwargs)
    messages = {d["message"] for d in report["diagnostics"] if d["code"] == "unsupported_native_call"}
    assert messages
    for message in messages:
        assert "padding" in message
        assert "nested" in message
        assert "enable_nested_tensor=False" in message
    assert 1008 not in [report["totals"]["macs"][key] for key in ("value", "known_value")]
