"""The closed formulas against a counter that performs the algorithm, over random calls of all six types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from native.transformer_modules import HANDLERS
from property.brute_force import perform
from torch_paths import fast_path
from torchscan import ModuleCall, Unavailable

lengths = st.integers(1, 3)
COUNTS = ("module_flops", "macs", "dmas")


@st.composite
def norms(draw: Any, width: int, optional: bool = False) -> nn.Module | None:
    """A feature-only norm: weight and bias independently absent, or an Identity, or (final norms) none at all."""
    kind = draw(st.sampled_from(["norm", "identity", "none"] if optional else ["norm", "norm", "identity"]))
    if kind == "none":
        return None
    if kind == "identity":
        return nn.Identity()
    norm = nn.LayerNorm(width)
    if draw(st.booleans()):
        norm.weight = None
    if draw(st.booleans()):
        norm.bias = None
    return norm


def drop_biases(draw: Any, module: nn.Module) -> None:
    """Take away the bias of each attention projection and linear map, each on its own."""
    for child in module.modules():
        for name in ("in_proj_bias", "bias"):
            if not isinstance(child, nn.LayerNorm) and getattr(child, name, None) is not None and draw(st.booleans()):
                setattr(child, name, None)


activations = st.sampled_from(
    ["relu", "gelu", torch.relu, nn.functional.relu, nn.ReLU(), nn.functional.gelu, nn.GELU()]
)


@st.composite
def layers(draw: Any, cls: type[nn.Module], width: int, batch_first: bool) -> nn.Module:
    layer = cls(
        width,
        draw(heads(width)),
        draw(st.integers(1, 4)),
        activation=draw(activations),
        norm_first=draw(st.booleans()),
        batch_first=batch_first,
    )
    for name in [n for n, _ in layer.named_children() if n.startswith("norm")]:
        setattr(layer, name, draw(norms(width)))
    drop_biases(draw, layer)
    return layer


def heads(width: int) -> st.SearchStrategy[int]:
    return st.sampled_from([h for h in (1, 2) if width % h == 0])


@st.composite
def stacks(draw: Any, cls: type[nn.Module], width: int, batch_first: bool) -> nn.Module:
    inner = nn.TransformerEncoderLayer if cls is nn.TransformerEncoder else nn.TransformerDecoderLayer
    found = draw(st.lists(layers(inner, width, batch_first), min_size=1, max_size=2))
    if len(found) == 1 and draw(st.booleans()):
        found = found * 2  # a shared layer runs, and counts, twice
    options = {"enable_nested_tensor": False} if cls is nn.TransformerEncoder else {}
    # Some PyTorch releases read attributes of the prototype that an Identity norm does not have.
    stack = cls(inner(width, 1), 1, norm=draw(norms(width, optional=True)), **options)
    stack.layers = nn.ModuleList(found)
    return stack


@st.composite
def mask_pairs(
    draw: Any, names: tuple[str, str, str], batch: int, num_heads: int | None, target: int, source: int
) -> dict[str, Any]:
    """An attention mask, a key padding mask and a causal hint; the first key is never excluded."""
    mask_name, padding_name, hint_name = names
    boolean = draw(st.booleans())

    def entries(*shape: int) -> torch.Tensor:
        size = int(torch.Size(shape).numel())
        excluded = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)
        excluded[..., 0] = False
        if boolean:
            return excluded
        values = torch.linspace(-1, 1, size, dtype=torch.float64).reshape(shape)
        return values.masked_fill(excluded, float("-inf"))

    options: dict[str, Any] = {}
    kind = draw(st.sampled_from(["none", "2-d", "3-d", "causal"]))
    if kind == "2-d":
        options[mask_name] = entries(target, source)
    elif kind == "3-d" and num_heads is not None:
        options[mask_name] = entries(batch * num_heads, target, source)
    elif kind == "causal":
        above = torch.ones(target, source, dtype=torch.bool).triu(1)
        options[mask_name] = above if boolean else torch.zeros(above.shape).double().masked_fill(above, float("-inf"))
        options[hint_name] = draw(st.booleans())
    if draw(st.booleans()):
        options[padding_name] = entries(batch, source)
    return options


def shared_heads(attentions: list[nn.MultiheadAttention]) -> int | None:
    """The head count a per-head mask must have, if there is one."""
    found = {attention.num_heads for attention in attentions}
    return found.pop() if len(found) == 1 else None


@st.composite
def calls(draw: Any, cls: type[nn.Module]) -> tuple[nn.Module, tuple[torch.Tensor, ...], bool, dict[str, Any]]:
    """A module of `cls`, inputs, their layout and options."""
    batch, source, target = draw(st.integers(1, 2)), draw(lengths), draw(lengths)
    width, batch_first = draw(st.integers(1, 4)), draw(st.booleans())
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))

    def tokens(length: int, features: int = width) -> torch.Tensor:
        shape = (batch, length, features) if batch_first else (length, batch, features)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def pairs(prefix: str, attentions: list[nn.MultiheadAttention], t: int, s: int) -> dict[str, Any]:
        names = (f"{prefix}_mask", f"{prefix}_key_padding_mask", f"{prefix}_is_causal")
        return draw(mask_pairs(names, batch, shared_heads(attentions), t, s))

    def decoder_pairs(found: list[nn.Module]) -> dict[str, Any]:
        own = pairs("tgt", [layer.self_attn for layer in found], target, target)
        return own | pairs("memory", [layer.multihead_attn for layer in found], target, source)

    inputs: tuple[torch.Tensor, ...]
    if cls is nn.MultiheadAttention:
        kdim, vdim = draw(st.one_of(st.just((width, width)), st.tuples(st.integers(1, 4), st.integers(1, 4))))
        module: nn.Module = cls(width, draw(heads(width)), kdim=kdim, vdim=vdim, batch_first=batch_first)
        drop_biases(draw, module)
        inputs = (tokens(target), tokens(source, kdim), tokens(source, vdim))
        if kdim == vdim == width and draw(st.booleans()):
            inputs, source = (inputs[0],) * 3, target
        names = ("attn_mask", "key_padding_mask", "is_causal")
        options = draw(mask_pairs(names, batch, module.num_heads, target, source))
        options["need_weights"] = draw(st.booleans())
        options["average_attn_weights"] = draw(st.booleans())
    elif cls is nn.TransformerEncoderLayer:
        module = draw(layers(cls, width, batch_first))
        inputs = (tokens(source),)
        options = pairs("src", [module.self_attn], source, source)
        if "src_is_causal" in options:
            options["is_causal"] = options.pop("src_is_causal")
    elif cls is nn.TransformerDecoderLayer:
        module = draw(layers(cls, width, batch_first))
        inputs = (tokens(target), tokens(source))
        options = decoder_pairs([module])
    elif cls is nn.TransformerEncoder:
        module = draw(stacks(cls, width, batch_first))
        inputs = (tokens(source),)
        options = pairs("src", [layer.self_attn for layer in module.layers], source, source)
        options = {{"src_mask": "mask", "src_is_causal": "is_causal"}.get(k, k): v for k, v in options.items()}
    elif cls is nn.TransformerDecoder:
        module = draw(stacks(cls, width, batch_first))
        inputs = (tokens(target), tokens(source))
        options = decoder_pairs(list(module.layers))
    else:
        module = nn.Transformer(
            width,
            1,
            batch_first=batch_first,
            custom_encoder=draw(stacks(nn.TransformerEncoder, width, batch_first)),
            custom_decoder=draw(stacks(nn.TransformerDecoder, width, batch_first)),
        )
        inputs = (tokens(source), tokens(target))
        options = pairs("src", [layer.self_attn for layer in module.encoder.layers], source, source)
        options |= decoder_pairs(list(module.decoder.layers))
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module, inputs, batch_first, options


def has_gelu(module: nn.Module) -> bool:
    return any("gelu" in str(getattr(child, "activation", "")).lower() for child in module.modules())


def check(cls: type[nn.Module], data: st.DataObject) -> None:
    module, inputs, batch_first, options = data.draw(calls(cls))
    # PyTorch's fused path refuses absent biases and affine tensors; the counts must not depend on it anyway.
    with torch.no_grad(), fast_path(False):
        output = module(*inputs, **options)
    counter, performed = perform(module, inputs, batch_first, options)
    main = output[0] if isinstance(output, tuple) else output
    torch.testing.assert_close(performed, main, rtol=1e-6, atol=1e-8)

    found = HANDLERS[cls](ModuleCall(module, inputs, options, output))

    assert found["macs"] == counter.macs
    assert found["dmas"] == counter.dmas
    if has_gelu(module):
        assert isinstance(found["module_flops"], Unavailable)
        assert found["module_flops"].reason == "gelu"
    else:
        assert found["module_flops"] == counter.flops


@pytest.mark.parametrize("cls", HANDLERS, ids=lambda cls: cls.__name__)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_formulas_agree_with_the_performed_algorithm(cls: type[nn.Module], data: st.DataObject) -> None:
    check(cls, data)


@pytest.mark.slow
@pytest.mark.parametrize("cls", HANDLERS, ids=lambda cls: cls.__name__)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_formulas_agree_with_the_performed_algorithm_at_length(cls: type[nn.Module], data: st.DataObject) -> None:
    check(cls, data)
