"""The native token relations against the Jacobian of the real module.

The relation of a call is written out as a matrix and must equal the sparsity pattern of
`torch.autograd.functional.jacobian`, per distinct input tensor. The pattern is a union over several parameter draws,
so that a dead ReLU does not hide a path.
"""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from native.transformer_modules import HANDLERS
from torchscan import ModuleCall, TokenDependencies

WIDTH = 4
DRAWS = 3
#: Genuine entries are far larger; rounding leaves some 1e-17 where two equal terms cancel (a softmax over one key).
ZERO = 1e-12

Inputs = dict[str, torch.Tensor]


def derived(module: nn.Module, inputs: Inputs, options: dict[str, Any]) -> TokenDependencies:
    with torch.no_grad():
        call = ModuleCall(module, (), {**inputs, **options}, module(**inputs, **options))
    found = HANDLERS[type(module)](call)["token_dependencies"]
    assert isinstance(found, TokenDependencies)
    assert found.status == "complete", (found.reason, found.message)
    return found


def observed(module: nn.Module, inputs: Inputs, options: dict[str, Any], axis: int) -> dict[tuple[str, ...], Any]:
    """Return the Jacobian's sparsity pattern over tokens, per distinct input tensor."""
    tensors = list({id(tensor): tensor for tensor in inputs.values()}.values())
    names = [tuple(name for name, value in inputs.items() if value is tensor) for tensor in tensors]

    def run(*leaves: torch.Tensor) -> torch.Tensor:
        replaced = {name: leaf for group, leaf in zip(names, leaves, strict=True) for name in group}
        output = module(**replaced, **options)
        return output[0] if isinstance(output, tuple) else output

    patterns = [torch.zeros(()) for _ in tensors]
    for draw in range(DRAWS):
        generator = torch.Generator().manual_seed(draw)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
        leaves = tuple(torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in tensors)
        for index, jacobian in enumerate(torch.autograd.functional.jacobian(run, leaves)):
            # (3 output axes, 3 input axes) -> (output tokens, input tokens)
            tokens = jacobian.abs().movedim((axis, 3 + axis), (0, 1)).flatten(2).amax(-1)
            patterns[index] = torch.maximum(patterns[index], tokens)
    return {group: (pattern > ZERO).tolist() for group, pattern in zip(names, patterns, strict=True)}


def agree(module: nn.Module, inputs: Inputs, options: dict[str, Any], axis: int) -> None:
    module.eval()
    found = derived(module, inputs, options)
    assert found.output is not None
    length = found.output.length
    expanded = {
        source.arguments: [list(row) for row in source.relation.matrix(length, source.length)]
        for source in found.sources
    }
    assert expanded == observed(module, inputs, options, axis)
    for source in found.sources:
        assert source.relation == source.relation.canonical(length, source.length)
        assert source.sequence_axis == found.output.sequence_axis == axis


# -- supported masks -------------------------------------------------------------------------------------------------


@attrs.frozen
class MaskKind:
    """A way to build an attention mask that the relation model supports."""

    causal: bool
    dtype: str  # "bool" or "float"
    biased: bool
    per_head: bool
    hint: bool

    def build(self, batch: int, heads: int, target: int, source: int) -> torch.Tensor:
        later = torch.ones(target, source, dtype=torch.bool).triu(1)
        excluded = later if self.causal else torch.zeros_like(later)
        if self.per_head:
            excluded = excluded.expand(batch * heads, target, source).clone()
        if self.dtype == "bool":
            return excluded
        generator = torch.Generator().manual_seed(7)
        mask = torch.zeros(excluded.shape, dtype=torch.float64)
        if self.biased:
            mask = torch.randn(excluded.shape, generator=generator, dtype=torch.float64)
        return mask.masked_fill(excluded, -torch.inf)


MASKS = [None] + [
    MaskKind(causal, dtype, biased, per_head, hint)
    for causal, dtype, biased, per_head, hint in itertools.product(
        (False, True), ("bool", "float"), (False, True), (False, True), (False, True)
    )
    if not (biased and dtype == "bool") and (causal or not hint)
]


def padding(kind: str, mask: MaskKind | None, batch: int, source: int) -> torch.Tensor | None:
    """A key padding mask that excludes nothing; of the other mask's type, as PyTorch asks."""
    if kind == "none":
        return None
    if mask is not None:
        kind = mask.dtype
    if kind == "bool":
        return torch.zeros(batch, source, dtype=torch.bool)
    return torch.linspace(-1, 1, batch * source, dtype=torch.float64).reshape(batch, source)


def masks(
    names: tuple[str, str, str], kind: MaskKind | None, pad: str, sizes: tuple[int, int, int, int]
) -> dict[str, Any]:
    batch, _, _, source = sizes
    found: dict[str, Any] = {}
    if kind is not None:
        found[names[0]] = kind.build(*sizes)
        if kind.hint:
            found[names[2]] = True
    if (padded := padding(pad, kind, batch, source)) is not None:
        found[names[1]] = padded
    return found


LENGTHS = range(1, 6)


def tokens(batch: int, length: int, width: int, batch_first: bool) -> torch.Tensor:
    return torch.zeros((batch, length, width) if batch_first else (length, batch, width), dtype=torch.float64)


# -- attention: every pair of lengths, every mask ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", MASKS, ids=str)
def test_attention_of_every_pair_of_lengths(kind: MaskKind | None) -> None:
    module = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=torch.float64)
    for target, source in itertools.product(LENGTHS, LENGTHS):
        query, key, value = (tokens(1, length, WIDTH, True) for length in (target, source, source))
        inputs = {"query": query, "key": key, "value": value}
        names = ("attn_mask", "key_padding_mask", "is_causal")
        agree(module, inputs, masks(names, kind, "none", (1, 2, target, source)), 1)


@st.composite
def attention_cases(draw: st.DrawFn) -> tuple[nn.Module, Inputs, dict[str, Any], int]:
    batch_first, bias, need_weights = (draw(st.booleans()) for _ in range(3))
    batch, heads, target = draw(st.integers(1, 2)), draw(st.sampled_from((1, 2))), draw(st.integers(1, 5))
    shared = draw(st.sampled_from(("qkv", "kv", "qk", "qv", "")))
    source = target if "q" in shared else draw(st.integers(1, 5))
    kdim = draw(st.sampled_from((WIDTH, 3))) if shared == "" else WIDTH
    module = nn.MultiheadAttention(WIDTH, heads, bias=bias, batch_first=batch_first, kdim=kdim, dtype=torch.float64)
    query = tokens(batch, target, WIDTH, batch_first)
    key = query if shared in ("qkv", "qk") else tokens(batch, source, kdim, batch_first)
    value = query if shared in ("qkv", "qv") else key if shared == "kv" else tokens(batch, source, WIDTH, batch_first)
    kind, pad = draw(st.sampled_from(MASKS)), draw(st.sampled_from(("none", "bool", "float")))
    options = masks(("attn_mask", "key_padding_mask", "is_causal"), kind, pad, (batch, heads, target, source))
    inputs = {"query": query, "key": key, "value": value}
    return module, inputs, {**options, "need_weights": need_weights}, int(batch_first)


@given(attention_cases())
@settings(max_examples=60, deadline=None)
def test_attention_of_any_grouping(case: tuple[nn.Module, Inputs, dict[str, Any], int]) -> None:
    agree(*case)


# -- layers, stacks, the whole ----------------------------------------------------------------------------------------


@attrs.frozen
class Build:
    batch_first: bool
    norm_first: bool
    bias: bool
    activation: str
    heads: int
    batch: int
    final_norm: bool

    @property
    def options(self) -> dict[str, Any]:
        return {
            "dim_feedforward": 6,
            "activation": self.activation,
            "batch_first": self.batch_first,
            "norm_first": self.norm_first,
            "bias": self.bias,
            "dtype": torch.float64,
        }

    def norm(self) -> nn.Module | None:
        return nn.LayerNorm(WIDTH, dtype=torch.float64) if self.final_norm else None

    def encoder_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, self.heads, **self.options)

    def decoder_layer(self) -> nn.TransformerDecoderLayer:
        return nn.TransformerDecoderLayer(WIDTH, self.heads, **self.options)


builds = st.builds(
    Build,
    batch_first=st.booleans(),
    norm_first=st.booleans(),
    bias=st.booleans(),
    activation=st.sampled_from(("relu", "gelu")),
    heads=st.sampled_from((1, 2)),
    batch=st.integers(1, 2),
    final_norm=st.booleans(),
)
lengths = st.integers(1, 5)
depths = st.integers(1, 3)
mask_kinds = st.sampled_from(MASKS)
pads = st.sampled_from(("none", "bool", "float"))


@given(builds, lengths, st.none() | depths, mask_kinds, pads)
@settings(max_examples=60, deadline=None)
def test_encoder_layers_and_stacks(
    build: Build, length: int, depth: int | None, kind: MaskKind | None, pad: str
) -> None:
    sizes = (build.batch, build.heads, length, length)
    if depth is None:
        module: nn.Module = build.encoder_layer()
        options = masks(("src_mask", "src_key_padding_mask", "is_causal"), kind, pad, sizes)
    else:
        module = nn.TransformerEncoder(build.encoder_layer(), depth, build.norm(), enable_nested_tensor=False)
        options = masks(("mask", "src_key_padding_mask", "is_causal"), kind, pad, sizes)
    inputs = {"src": tokens(build.batch, length, WIDTH, build.batch_first)}
    agree(module, inputs, options, int(build.batch_first))


TARGET = ("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal")
MEMORY = ("memory_mask", "memory_key_padding_mask", "memory_is_causal")


@given(
    builds,
    lengths,
    lengths,
    st.booleans(),
    st.none() | depths,
    st.tuples(mask_kinds, mask_kinds),
    st.tuples(pads, pads),
)
@settings(max_examples=60, deadline=None)
def test_decoder_layers_and_stacks(
    build: Build,
    target: int,
    source: int,
    one_tensor: bool,
    depth: int | None,
    kinds: tuple[MaskKind | None, MaskKind | None],
    padding_kinds: tuple[str, str],
) -> None:
    source = target if one_tensor else source
    module: nn.Module = build.decoder_layer()
    if depth is not None:
        module = nn.TransformerDecoder(build.decoder_layer(), depth, build.norm())
    options = masks(TARGET, kinds[0], padding_kinds[0], (build.batch, build.heads, target, target))
    options |= masks(MEMORY, kinds[1], padding_kinds[1], (build.batch, build.heads, target, source))
    tgt = tokens(build.batch, target, WIDTH, build.batch_first)
    memory = tgt if one_tensor else tokens(build.batch, source, WIDTH, build.batch_first)
    agree(module, {"tgt": tgt, "memory": memory}, options, int(build.batch_first))


@pytest.mark.parametrize("memory_kind", [None, MASKS[-1]], ids=["free memory", "causal memory"])
@pytest.mark.parametrize("kind", [None, MASKS[-1]], ids=["free target", "causal target"])
def test_a_deeper_decoder_of_every_pair_of_lengths(kind: MaskKind | None, memory_kind: MaskKind | None) -> None:
    build = Build(True, False, True, "gelu", 2, 1, False)
    module = nn.TransformerDecoder(build.decoder_layer(), 2)
    for target, source in itertools.product(LENGTHS, LENGTHS):
        options = masks(TARGET, kind, "none", (1, 2, target, target))
        options |= masks(MEMORY, memory_kind, "none", (1, 2, target, source))
        agree(module, {"tgt": tokens(1, target, WIDTH, True), "memory": tokens(1, source, WIDTH, True)}, options, 1)


def agree_transformer(
    build: Build,
    target: int,
    source: int,
    one_tensor: bool,
    depth: tuple[int, int],
    kinds: tuple[MaskKind | None, MaskKind | None, MaskKind | None],
    padding_kinds: tuple[str, str, str],
) -> None:
    source = target if one_tensor else source
    encoder = nn.TransformerEncoder(build.encoder_layer(), depth[0], build.norm(), enable_nested_tensor=False)
    options = {key: value for key, value in build.options.items() if key != "dim_feedforward"}
    module = nn.Transformer(WIDTH, build.heads, 1, depth[1], 6, custom_encoder=encoder, **options)
    names = ("src_mask", "src_key_padding_mask", "src_is_causal")
    call = masks(names, kinds[0], padding_kinds[0], (build.batch, build.heads, source, source))
    call |= masks(TARGET, kinds[1], padding_kinds[1], (build.batch, build.heads, target, target))
    call |= masks(MEMORY, kinds[2], padding_kinds[2], (build.batch, build.heads, target, source))
    src = tokens(build.batch, source, WIDTH, build.batch_first)
    tgt = src if one_tensor else tokens(build.batch, target, WIDTH, build.batch_first)
    agree(module, {"src": src, "tgt": tgt}, call, int(build.batch_first))


transformer_cases = st.tuples(
    builds,
    lengths,
    lengths,
    st.booleans(),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.tuples(mask_kinds, mask_kinds, mask_kinds),
    st.tuples(pads, pads, pads),
)


@given(transformer_cases)
@settings(max_examples=40, deadline=None)
def test_transformers(case: tuple[Any, ...]) -> None:
    agree_transformer(*case)


@pytest.mark.slow
@given(transformer_cases)
@settings(max_examples=1000, deadline=None)
def test_many_transformers(case: tuple[Any, ...]) -> None:
    agree_transformer(*case)
