"""Worked examples, each through a whole scan; the arithmetic is above the figure.

B = 1, E = 4, H = 2, D = 2, F = 8, source length 3, target length 2, unless said otherwise. A dot product of 4 terms
is 7 FLOPs, of 8 terms 15, of 3 terms 5, of 2 terms 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_paths import fast_path
from torchscan import crawl_module

# nn.Transformer warns about its own default when it is built sequence-first.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

SRC = torch.ones(1, 3, 4)
TGT = torch.ones(1, 2, 4)


def causal(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def counts(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[int, int, int]:
    """Module FLOPs, MACs and DMAs of a scan, all of them complete."""
    report = crawl_module(module, args=args, kwargs=kwargs)
    totals = [report["totals"][name] for name in ("module_flops", "macs", "dmas")]
    assert [total["status"] for total in totals] == ["complete"] * 3, report["diagnostics"]
    assert {total["method"] for total in totals} == {"torchscan_formula_v1"}
    return tuple(total["value"] for total in totals)  # type: ignore[return-value]


def turned(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.transpose(0, 1).contiguous() for tensor in tensors]


# -- attention -------------------------------------------------------------------------------------------------------

ATTENTION = {
    # FLOPs: projections 3 * 12 * (7 + 1) = 288; scale 12; scores A = 2*3*3 = 18: 18 * 3 = 54;
    # softmax 5*18 - 2*6 = 78; weighted 12 * 5 = 60; output 12 * 8 = 96: 588
    # MACs: 4*3*4*4 + 2*3*3*4 = 192 + 72 = 264
    # DMAs: I = 36, P = 3*16 + 12 + 16 + 4 = 80, Q = J = 12, A = 18, R = 6: 36 + 80 + 84 + 48 + 180 + 24 = 452
    "self": ({}, (SRC, SRC, SRC), {"need_weights": False}, (588, 264, 452)),
    # no biases: 4 * 12 FLOPs less = 540; P = 64: 436
    "self, no biases": ({"bias": False}, (SRC, SRC, SRC), {"need_weights": False}, (540, 264, 436)),
    # averaged weights: A = 18 FLOPs and A + B*T*S = 18 + 9 = 27 DMAs more
    "self, averaged weights": ({}, (SRC, SRC, SRC), {}, (606, 264, 479)),
    # per-head weights are the probabilities themselves
    "self, weights per head": ({}, (SRC, SRC, SRC), {"average_attn_weights": False}, (588, 264, 452)),
    # a mask: A = 18 FLOPs, 9 + 2*18 = 45 DMAs more; the hint beside it adds nothing
    "self, causal": ({}, (SRC, SRC, SRC), {"need_weights": False, "attn_mask": causal(3)}, (606, 264, 497)),
    "self, causal with hint": (
        {},
        (SRC, SRC, SRC),
        {"need_weights": False, "attn_mask": causal(3), "is_causal": True},
        (606, 264, 497),
    ),
    # a per-head mask of 2*3*3 = 18 entries: 18 FLOPs, 18 + 36 = 54 DMAs more
    "self, mask per head": (
        {},
        (SRC, SRC, SRC),
        {"need_weights": False, "attn_mask": torch.zeros(2, 3, 3)},
        (606, 264, 506),
    ),
    # a key padding mask of 3 entries: 18 FLOPs, 3 + 36 = 39 DMAs more
    "self, padding": (
        {},
        (SRC, SRC, SRC),
        {"need_weights": False, "key_padding_mask": torch.zeros(1, 3, dtype=torch.bool)},
        (606, 264, 491),
    ),
    # both, and averaged weights: 588 + 18 + 18 + 18 FLOPs; 452 + 45 + 39 + 27 DMAs
    "self, both masks": (
        {},
        (SRC, SRC, SRC),
        {"attn_mask": torch.zeros(3, 3), "key_padding_mask": torch.zeros(1, 3)},
        (642, 264, 563),
    ),
    # FLOPs: 8*8 + 2 * 12*8 + scale 8 + scores A = 12: 36 + softmax 60 - 8 = 52 + weighted 8*5 = 40 + output 64 = 456
    # MACs: 2*2*16 + 3*4*8 + 2*2*3*4 = 64 + 96 + 48 = 208
    # DMAs: I = 32, P = 80, Q = 8, J = 12, A = 12, R = 4: 32 + 80 + 56 + 48 + 120 + 16 = 352
    "cross": ({}, (TGT, SRC, SRC), {"need_weights": False}, (456, 208, 352)),
    # FLOPs: key 12 * (11 + 1) = 144 and value 12 * (9 + 1) = 120 instead of 96 each: 456 + 48 + 24 = 528
    # MACs: 64 + 3*4*(6 + 5) + 48 = 244; DMAs: 9 input reads (3*2 + 3*1) and 12 parameter reads (2*4 + 1*4) more = 373
    "cross, kdim and vdim": (
        {"kdim": 6, "vdim": 5},
        (TGT, torch.ones(1, 3, 6), torch.ones(1, 3, 5)),
        {"need_weights": False},
        (528, 244, 373),
    ),
    # one token, one head, width one: every contraction has one term, which is a MAC and, with its bias, 2 FLOPs
    # FLOPs: 3 * 2 + scale 1 + scores 1 + softmax 5 - 2 = 3 + weighted 1 + output 2 = 14; MACs 6
    # DMAs: three projections 1 + 1 + 1 + 1 = 4 each, scale 2, scores 3, softmax 12, weighted 3, output 4: 36
    "one of everything": (
        {"embed_dim": 1, "num_heads": 1},
        (torch.ones(1, 1, 1),) * 3,
        {"need_weights": False},
        (14, 6, 36),
    ),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str, batch_first: bool) -> None:
    options, inputs, kwargs, expected = ATTENTION[name]
    module = nn.MultiheadAttention(**({"embed_dim": 4, "num_heads": 2} | options), batch_first=batch_first)
    if not batch_first:
        same = len({id(x) for x in inputs}) == 1
        inputs = tuple(turned(inputs[0]) * 3 if same else turned(*inputs))
    assert counts(module, *inputs, **kwargs) == expected


def test_arguments_by_keyword_in_any_order() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    assert counts(attention, need_weights=False, value=SRC, key=SRC, query=TGT) == (456, 208, 352)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_head_count_cancels_in_macs_alone(heads: int) -> None:
    # FLOPs: 4 * 96 + 12 + 60 = 456 whatever H; scores A * (2D - 1) with A = 9H and D = 4/H: 72 - 9H; softmax
    # 5A - 2R = 45H - 6H = 39H: 456 + 72 + 30H. DMAs: 36 + 80 + 84 + 48 + 10 * 9H + 4 * 3H = 248 + 102H
    attention = nn.MultiheadAttention(4, heads, batch_first=True)
    assert counts(attention, SRC, SRC, SRC, need_weights=False) == (528 + 30 * heads, 264, 248 + 102 * heads)


def test_biases_of_the_two_projections_are_independent() -> None:
    # the input bias is 3 * 12 FLOPs and 12 reads, the output bias 12 FLOPs and 4 reads
    without_output = nn.MultiheadAttention(4, 2)
    without_output.out_proj.bias = None
    assert counts(without_output, *turned(SRC, TGT, TGT), need_weights=False)[1] == 208
    source = turned(SRC)[0]
    assert counts(without_output, source, source, source, need_weights=False) == (588 - 12, 264, 452 - 4)
    without_input = nn.MultiheadAttention(4, 2)
    without_input.in_proj_bias = None
    assert counts(without_input, source, source, source, need_weights=False) == (588 - 36, 264, 452 - 12)


# -- layers ----------------------------------------------------------------------------------------------------------


def without_biases(module: nn.Module) -> nn.Module:
    """Take every bias away, as bias=False does in the releases that have it."""
    for child in module.modules():
        for name in ("in_proj_bias", "bias"):
            if isinstance(getattr(child, name, None), nn.Parameter):
                setattr(child, name, None)
    return module


def without_affine(module: nn.Module) -> nn.Module:
    for child in module.modules():
        if isinstance(child, nn.LayerNorm):
            child.weight = child.bias = None
    return module


def unchanged(module: nn.Module) -> nn.Module:
    return module


# Encoder layer. FLOPs: attention 588; 24*8 + 24 + 12*16 = 408; norms 2*(72 + 6 + 24) = 204; residuals 24: 1224
# MACs: 264 + 2*3*4*8 + 2*24 = 504; DMAs: 452 + (24 + 96 + 76 = 196) + 2*96 + 2*36 = 912
# No biases: FLOPs 4*12 + 24 + 12 + 2*12 = 108 less = 1116; DMAs 16 + 12 + 2*4 = 36 less = 876
# No affine: FLOPs 2*24 = 48 less = 1176; MACs 2*12 less = 480; DMAs 2*(24 + 8) = 64 less = 848
# Causal mask: FLOPs 18 more = 1242; DMAs 9 + 36 = 45 more = 957
ENCODER_LAYER = {
    "plain": (unchanged, {}, (1224, 504, 912)),
    "no biases": (without_biases, {}, (1116, 504, 876)),
    "no affine": (without_affine, {}, (1176, 480, 848)),
    "causal": (unchanged, {"src_mask": causal(3)}, (1242, 504, 957)),
    "causal with hint": (unchanged, {"src_mask": causal(3), "is_causal": True}, (1242, 504, 957)),
    # padding: 18 FLOPs, 3 + 36 = 39 DMAs more
    "padding": (unchanged, {"src_key_padding_mask": torch.zeros(1, 3)}, (1242, 504, 951)),
}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", ENCODER_LAYER)
def test_encoder_layer(name: str, norm_first: bool) -> None:
    change, kwargs, expected = ENCODER_LAYER[name]
    layer = change(nn.TransformerEncoderLayer(4, 2, 8, norm_first=norm_first))
    assert counts(layer, *turned(SRC), **kwargs) == expected


def test_encoder_layer_batch_first_on_the_fused_path() -> None:
    assert counts(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), SRC) == (1224, 504, 912)


# Decoder layer. FLOPs: self 344 + cross 456; 16*8 + 16 + 8*16 = 272; norms 3*(48 + 4 + 16) = 204; residuals 24: 1300
# MACs: 160 + 208 + 128 + 3*16 = 544; DMAs: 288 + 352 + (16 + 64 + 76 = 156) + 3*67 + 3*24 = 1069
# No biases: FLOPs 4*8 + (8 + 12 + 12 + 8) + 16 + 8 + 3*8 = 120 less = 1180; DMAs 16 + 16 + 12 + 3*4 = 56 less = 1013
# No affine: FLOPs 3*16 = 48 less = 1252; MACs 3*8 less = 520; DMAs 3*(16 + 8) = 72 less = 997
DECODER_LAYER = {
    "plain": (unchanged, {}, (1300, 544, 1069)),
    "no biases": (without_biases, {}, (1180, 544, 1013)),
    "no affine": (without_affine, {}, (1252, 520, 997)),
    # target mask: A = 8: 8 FLOPs, 4 + 16 = 20 DMAs; memory padding: A = 12: 12 FLOPs, 3 + 24 = 27 DMAs
    "masks": (
        unchanged,
        {"tgt_mask": causal(2), "tgt_is_causal": True, "memory_key_padding_mask": torch.zeros(1, 3)},
        (1320, 544, 1116),
    ),
    # per-head memory mask: 12 FLOPs, 2*2*3 + 24 = 36 DMAs
    "memory mask per head": (unchanged, {"memory_mask": torch.zeros(2, 2, 3)}, (1312, 544, 1105)),
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", DECODER_LAYER)
def test_decoder_layer(name: str, norm_first: bool, batch_first: bool) -> None:
    change, kwargs, expected = DECODER_LAYER[name]
    layer = change(nn.TransformerDecoderLayer(4, 2, 8, norm_first=norm_first, batch_first=batch_first))
    inputs = (TGT, SRC) if batch_first else turned(TGT, SRC)
    assert counts(layer, *inputs, **kwargs) == expected


def _each(weight: bool, bias: bool) -> Callable[[nn.Module], nn.Module]:
    def change(layer: nn.Module) -> nn.Module:
        for norm in (layer.norm1, layer.norm2):
            if not weight:
                norm.weight = None
            if not bias:
                norm.bias = None
        return layer

    return change


def _identities(layer: nn.Module) -> nn.Module:
    layer.norm1 = nn.Identity()
    layer.norm2 = nn.Identity()
    return layer


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # without the biases: 2*12 FLOPs, 2*4 reads less
        (_each(True, False), (1200, 504, 904)),
        # without the weights, biases kept: 2*12 FLOPs and MACs, 2*4 reads less; the affine pass stays
        (_each(False, True), (1200, 480, 904)),
        # Identities: 204 FLOPs, 48 MACs, 192 DMAs less
        (_identities, (1020, 456, 720)),
    ],
)
def test_norms_of_a_layer(change: Callable[[nn.Module], nn.Module], expected: tuple[int, int, int]) -> None:
    assert counts(change(nn.TransformerEncoderLayer(4, 2, 8)), *turned(SRC)) == expected


@pytest.mark.parametrize("activation", ["relu", F.relu, torch.relu, nn.ReLU(), nn.ReLU(inplace=True)])
def test_relu_however_it_is_spelt(activation: Any) -> None:
    assert counts(nn.TransformerEncoderLayer(4, 2, 8, activation=activation), *turned(SRC)) == (1224, 504, 912)


@pytest.mark.parametrize("activation", ["gelu", F.gelu, nn.GELU(), nn.GELU(approximate="tanh")])
def test_gelu_leaves_module_flops_open(activation: Any) -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, activation=activation)
    report = crawl_module(layer, args=tuple(turned(SRC)))
    totals = report["totals"]
    assert (totals["macs"]["value"], totals["dmas"]["value"]) == (504, 912)
    assert totals["module_flops"]["status"] == "unavailable"
    assert totals["module_flops"]["known_value"] is None
    (diagnostic,) = [d for d in report["diagnostics"] if d["metric"] == "module_flops"]
    assert (diagnostic["code"], diagnostic["reason"]) == ("unsupported_native_call", "gelu")


def test_gelu_in_one_layer_of_a_transformer() -> None:
    # MACs 504 + 24 + 544 + 16, DMAs 912 + 96 + 1069 + 67, whatever the activation
    model = nn.Transformer(4, 2, 1, 1, 8)
    model.decoder.layers[0].activation = F.gelu
    totals = crawl_module(model, args=tuple(turned(SRC, TGT)))["totals"]
    assert (totals["macs"]["value"], totals["dmas"]["value"]) == (1088, 2144)
    assert (totals["module_flops"]["status"], totals["module_flops"]["known_value"]) == ("unavailable", None)


# -- stacks ----------------------------------------------------------------------------------------------------------


def encoder(layers: int, norm: nn.Module | None, batch_first: bool = False) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first)
    return nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False)


def decoder(layers: int, norm: nn.Module | None, batch_first: bool = False) -> nn.TransformerDecoder:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=batch_first), layers, norm=norm)


@pytest.mark.parametrize("batch_first", [False, True])
def test_two_layer_stacks(batch_first: bool) -> None:
    src, tgt = (SRC, TGT) if batch_first else turned(SRC, TGT)
    # 2*1224 + 102 = 2550; 2*504 + 24 = 1032; 2*912 + 96 = 1920
    assert counts(encoder(2, nn.LayerNorm(4), batch_first), src) == (2550, 1032, 1920)
    # 2*1300 + 68 = 2668; 2*544 + 16 = 1104; 2*1069 + 67 = 2205
    assert counts(decoder(2, nn.LayerNorm(4), batch_first), tgt, src) == (2668, 1104, 2205)


@pytest.mark.parametrize("norm", [None, nn.Identity()])
def test_no_final_norm_adds_no_stage(norm: nn.Module | None) -> None:
    src, tgt = turned(SRC, TGT)
    assert counts(encoder(1, norm), src) == (1224, 504, 912)
    assert counts(decoder(1, norm), tgt, src) == (1300, 544, 1069)


def test_a_shared_layer_counts_each_time_it_runs() -> None:
    stack = encoder(2, nn.LayerNorm(4))
    stack.layers[1] = stack.layers[0]
    report = crawl_module(stack, args=tuple(turned(SRC)))
    totals = report["totals"]
    assert [totals[n]["value"] for n in ("module_flops", "macs", "dmas")] == [2550, 1032, 1920]
    # its parameters count once: attention 80, feed-forward 32 + 8 + 32 + 4 = 76, norms 2*8, and the final norm 8
    assert totals["parameters"]["value"] == 80 + 76 + 16 + 8


def test_layers_of_a_stack_may_differ() -> None:
    # a second layer with one head, F = 4 and no norms. DMAs: attention with H = 1 is 248 + 102 = 350; feed-forward
    # 24 + 4*12 + 16 + 4 + 16 + 4 = 112; residuals 72: 534. MACs 264 + 2*3*4*4 = 360.
    # FLOPs: attention 528 + 30 = 558; 12*8 + 12 + 12*8 = 204; residuals 24: 786
    stack = encoder(1, None)
    other = nn.TransformerEncoderLayer(4, 1, 4)
    other.norm1 = nn.Identity()
    other.norm2 = nn.Identity()
    stack.layers.append(other)
    assert counts(stack, *turned(SRC)) == (1224 + 786, 504 + 360, 912 + 534)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("layers", "expected"),
    # 1 + 1: 1224 + 102 + 1300 + 68; 504 + 24 + 544 + 16; 912 + 96 + 1069 + 67. 2 + 2: 2550 + 2668 and so on
    [(1, (2694, 1088, 2144)), (2, (5218, 2136, 4125))],
)
def test_transformer(layers: int, expected: tuple[int, int, int], batch_first: bool) -> None:
    model = nn.Transformer(4, 2, layers, layers, 8, batch_first=batch_first)
    inputs = (SRC, TGT) if batch_first else turned(SRC, TGT)
    assert counts(model, *inputs) == expected


def test_transformer_without_one_final_norm() -> None:
    src, tgt = turned(SRC, TGT)
    # the encoder's norm is 102 FLOPs, 24 MACs, 96 DMAs; the decoder's 68, 16, 67
    model = nn.Transformer(4, 2, custom_encoder=encoder(1, None), custom_decoder=decoder(1, nn.LayerNorm(4)))
    assert counts(model, src, tgt) == (2592, 1064, 2048)
    model = nn.Transformer(4, 2, custom_encoder=encoder(1, nn.LayerNorm(4)), custom_decoder=decoder(1, None))
    assert counts(model, src, tgt) == (2626, 1072, 2077)


def six_masks(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    shapes = {
        "src_mask": (3, 3),
        "tgt_mask": (2, 2),
        "memory_mask": (2, 3),
        "src_key_padding_mask": (1, 3),
        "tgt_key_padding_mask": (1, 2),
        "memory_key_padding_mask": (1, 3),
    }
    return {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("batch_first", [False, True])
def test_transformer_with_six_masks(batch_first: bool, dtype: torch.dtype) -> None:
    # FLOPs: two masks per attention: 2*18 + 2*8 + 2*12 = 76 more = 2770
    # DMAs: entries 9 + 3 + 4 + 2 + 6 + 3 = 27, passes 2*76 = 152: 179 more = 2323
    model = nn.Transformer(4, 2, 1, 1, 8, batch_first=batch_first)
    inputs = (SRC, TGT) if batch_first else turned(SRC, TGT)
    assert counts(model, *inputs, **six_masks(dtype)) == (2770, 1088, 2323)


def test_padding_of_a_dense_encoder_stack() -> None:
    # 18 FLOPs and 3 + 36 = 39 DMAs per layer: 2*(1224 + 18); 2*504; 2*(912 + 39)
    stack = encoder(2, None, batch_first=True)
    padding = torch.tensor([[False, False, True]])
    assert counts(stack, SRC, src_key_padding_mask=padding) == (2484, 1008, 1902)


def test_base_transformer() -> None:
    # B = 2, T = S = 64, E = 512, H = 8, F = 2048, 6 + 6 layers; N = 2*64*512 = 65536, rows 128, A = 2*8*64*64 = 65536,
    # R = 1024, U = 2*64*2048 = 262144
    # MACs: attention 4*128*512*512 + 2*2*64*64*512 = 142,606,336; feed-forward 2*128*512*2048 = 268,435,456;
    #   norm 2*65536 = 131,072. Encoder layer: 142,606,336 + 268,435,456 + 262,144 = 411,303,936; decoder layer:
    #   285,212,672 + 268,435,456 + 393,216 = 554,041,344; 6 of each and two norms: 5,792,333,824
    # DMAs: attention I 196,608 + P 1,050,624 + 11N 720,896 + 10A 655,360 + 4R 4,096 = 2,627,584; feed-forward
    #   131,072 + 1,048,576 + 2,099,712 = 3,279,360; norm 6N + 5*128 + 1 + 1024 = 394,881; residual 196,608.
    #   Encoder layer 2,627,584 + 3,279,360 + 789,762 + 393,216 = 7,089,922; decoder layer 5,255,168 + 3,279,360 +
    #   1,184,643 + 589,824 = 10,308,995; 6 of each and two norms: 104,393,502 + 789,762 = 105,183,264
    # FLOPs: attention 4*65536*1024 + 65536 + 65536*127 + 5*65536 - 2048 + 65536*127 = 285,472,768; feed-forward
    #   262144*1024 + 262144 + 65536*4096 = 537,133,056; norm 8*65536 + 256 = 524,544. Encoder layer 285,472,768 +
    #   537,133,056 + 1,049,088 + 131,072 = 823,785,984; decoder layer 570,945,536 + 537,133,056 + 1,573,632 +
    #   196,608 = 1,109,848,832; 6 of each and two norms: 11,601,808,896 + 1,049,088 = 11,602,857,984
    model = nn.Transformer(batch_first=True)
    found = counts(model, torch.ones(2, 64, 512), torch.ones(2, 64, 512))
    assert found == (11_602_857_984, 5_792_333_824, 105_183_264)


# -- where the numbers live ------------------------------------------------------------------------------------------


def test_the_owner_covers_its_subtree() -> None:
    report = crawl_module(nn.Transformer(4, 2, 1, 1, 8), args=tuple(turned(SRC, TGT)))
    root, *rest = report["layers"]
    assert root["metrics"]["macs"]["value"] == 1088
    assert {root["metric_ownership"][name] for name in ("module_flops", "macs", "dmas")} == {"subtree"}
    assert rest
    for layer in rest:
        for name in ("module_flops", "macs", "dmas"):
            assert name not in layer["metrics"]
            assert layer["metric_owners"][name] == {"path": "", "call_index": 0}


def test_spatial_scalars_do_not_apply_and_say_nothing() -> None:
    report = crawl_module(nn.MultiheadAttention(4, 2, batch_first=True), args=(SRC, SRC, SRC))
    for name in ("receptive_field", "effective_stride", "effective_padding"):
        result = report["layers"][0]["metrics"][name]
        assert (result["status"], result["method"]) == ("unavailable", "not_applicable")
    assert not [d for d in report["diagnostics"] if d["metric"] != "operator_flops"]


class Wrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
        self.block2 = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block2(self.block(self.block(x)))


def test_a_wrapper_counts_every_call_once() -> None:
    # two calls of the first layer and one of the second, whose name extends the first one's
    assert counts(Wrapper(), SRC) == (3 * 1224, 3 * 504, 3 * 912)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_fused_path_changes_nothing(enabled: bool) -> None:
    with fast_path(enabled):
        assert counts(encoder(2, nn.LayerNorm(4), batch_first=True), SRC) == (2550, 1032, 1920)
