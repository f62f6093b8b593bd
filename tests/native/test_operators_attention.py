"""Fused attention counts what the unfused path dispatches, on every path, and what the conventions say."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from native.operator_log import TABLE, dispatched, one, total
from torch_paths import fast_path
from torch_versions import since
from torchscan import OperatorCall, TensorSpec
from torchscan.testing import unfused

FUSED = "_scaled_dot_product_flash_attention_for_cpu"
B, H, T, S, D = 2, 4, 3, 5, 8


def operands(kv_heads=H, source=S):
    return torch.rand(B, H, T, D), torch.rand(B, kv_heads, source, D), torch.rand(B, kv_heads, source, D)


CALLS = {
    "plain": ({}, {}),
    "additive mask": ({}, {"attn_mask": torch.zeros(T, S)}),
    "mask per head": ({}, {"attn_mask": torch.zeros(1, H, T, S)}),
    "boolean mask": ({}, {"attn_mask": torch.ones(T, S, dtype=torch.bool)}),
    "causal": ({"source": T}, {"is_causal": True}),
    "own scale": ({}, {"scale": 0.5}),
    "fewer key heads": ({"kv_heads": 2}, {"enable_gqa": True}),
    "one source": ({"source": 1}, {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_path_changes_no_number(name):
    shapes, options = CALLS[name]
    q, k, v = operands(**shapes)

    def call():
        return F.scaled_dot_product_attention(q, k, v, **options)

    fused = dispatched(call)
    if since("2.13") or "enable_gqa" not in options:  # PyTorch 2.6 shares heads on the unfused path alone
        assert f"aten.{FUSED}" in {op.call.name for op in fused}
    with unfused():
        plain = dispatched(call)
        plain_total = total(call)
    assert "aten.bmm" in {op.call.name for op in plain}
    assert total(call) == plain_total
    assert sum(op.view or 0 for op in fused) == sum(op.view or 0 for op in plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_device_and_type_change_no_number(dtype):
    real = [t.to(dtype) for t in operands()]
    meta = [torch.empty_like(t, device="meta") for t in real]
    assert total(lambda: F.scaled_dot_product_attention(*meta)) == total(lambda: F.scaled_dot_product_attention(*real))


def test_by_hand():
    x = torch.rand(1, 2, 3, 4)
    found = one(lambda: F.scaled_dot_product_attention(x, x, x), FUSED)
    # Q = J = V = O = 24, A = 2*3*3 = 18, R = 6
    # scale 24+24; scores 18 dot products of 4 terms 18*7; softmax 5*18-2*6; 24 sums of 3 terms 24*5
    # 18*4 + 24*3
    # scale 48+48; 24+24+18; softmax 8*18+4*6; 18+24+24
    assert found.counts == (48 + 126 + 78 + 120, 144, 96 + 66 + 168 + 66)
    # the view counts 2 K: 2*144, and the same scaling and softmax
    assert found.view == 288 + 48 + 78


def test_the_width_of_the_value_is_its_own():
    q, k, v = torch.rand(2, 2, 3, 4), torch.rand(2, 2, 5, 4), torch.rand(2, 2, 5, 6)
    # scores 2*2*3*5*4 = 240, weighted values 2*2*3*6*5 = 360
    assert total(lambda: F.scaled_dot_product_attention(q, k, v))[1] == 600


def test_dropout_leaves_the_macs():
    q, k, v = (TensorSpec((B, H, T, D), torch.float32),) * 3
    estimate = TABLE[f"aten.{FUSED}"].estimate
    assert estimate is not None
    # two products of 2*4*3*3 = 72 scores with 8 terms each
    assert estimate(OperatorCall(f"aten.{FUSED}", "default", (q, k, v, 0.1), {}, (q, q))) == {"macs": 2 * 72 * 8}


def test_an_empty_axis_is_refused():
    q, k = TensorSpec((1, 1, 2, 4), torch.float32), TensorSpec((1, 1, 0, 4), torch.float32)
    estimate = TABLE[f"aten.{FUSED}"].estimate
    assert estimate is not None
    with pytest.raises(ValueError, match="empty attention axis"):
        estimate(OperatorCall(f"aten.{FUSED}", "default", (q, k, k), {}, (q, q)))


def spec(*shape):
    return TensorSpec(shape, torch.float16)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("_scaled_dot_product_flash_attention", (), {}),
        ("_scaled_dot_product_efficient_attention", (None, False), {}),
        ("_scaled_dot_product_cudnn_attention", (None, False), {}),
        ("_scaled_dot_product_fused_attention_overrideable", (), {}),
        ("_scaled_dot_product_attention_math_for_mps", (), {}),
    ],
)
def test_every_backend_counts_the_same(name, args, kwargs):
    q, k = spec(1, 2, 3, 4), spec(1, 2, 3, 4)
    formula = TABLE[f"aten.{name}"]
    assert formula.estimate is not None
    # the numbers of the hand-derived call
    assert formula.estimate(OperatorCall(f"aten.{name}", "default", (q, k, k, *args), kwargs, (q, q))) == {
        "module_flops": 372,
        "macs": 144,
        "dmas": 396,
    }


def test_heads_that_cuda_pads_count_as_they_were():
    formula = TABLE["aten._scaled_dot_product_flash_attention"]
    assert formula.estimate is not None

    def counts(width, scale):
        q = spec(1, 2, 3, width)
        return formula.estimate(OperatorCall(formula.operator, "default", (q, q, q), {"scale": scale}, (q, q)))

    # 2 * 3 * 3 = 18 scores of D terms, 2 * 3 * D values of 3 terms
    for padded, scale, d in ((16, 12**-0.5, 12), (16, 0.25, 16), (16, None, 16), (24, 20**-0.5, 20), (64, 0.125, 64)):
        assert counts(padded, scale)["macs"] == 18 * d + 6 * d * 3
    # what another caller chose for the scale does not look like a padded width
    for scale in (1.0, 0.5, 0.1, 5.0):
        assert counts(16, scale)["macs"] == 18 * 16 + 6 * 16 * 3
    assert counts(8, 8**-0.5)["macs"] == 18 * 8 + 6 * 8 * 3
    with pytest.raises(ValueError, match="padded"):
        counts(8, 0.5)


def test_a_bias_of_the_backend_is_a_mask():
    q, bias = spec(1, 2, 3, 4), spec(1, 2, 3, 3)
    formula = TABLE["aten._scaled_dot_product_efficient_attention"]
    assert formula.estimate is not None
    # one add per score, 18; the mask's 18 elements and a pass over the scores
    assert formula.estimate(OperatorCall(formula.operator, "default", (q, q, q, bias, False), {}, (q, q))) == {
        "module_flops": 372 + 18,
        "macs": 144,
        "dmas": 396 + 18 + 36,
    }


# The conventions' attention table, E = 4, H = 2, F = 8, 3 tokens.


def test_the_fast_path_of_multi_head_attention():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.rand(1, 3, 4)
    name = "_native_multi_head_attention"
    assert one(lambda: attention(x, x, x, need_weights=False), name).counts == (588, 264, 452)
    # head-averaged weights: A = 18 more FLOPs, A + B*T*S = 18 + 9 accesses
    assert one(lambda: attention(x, x, x), name).counts == (606, 264, 479)
    assert one(lambda: attention(x, x, x, average_attn_weights=False), name).counts == (588, 264, 452)
    # the view: 2 * 264 without the fused biases, scale 12, softmax 78
    assert one(lambda: attention(x, x, x, need_weights=False), name).view == 528 + 12 + 78


def test_a_masked_fast_path_reads_its_mask():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x, mask = torch.rand(1, 3, 4), torch.zeros(3, 3).triu(1).bool()
    found = one(lambda: attention(x, x, x, attn_mask=mask, need_weights=False), "_native_multi_head_attention")
    stored = found.call.args[9].numel
    # one pass over the 18 scores and the mask as PyTorch handed it over
    assert found.counts == (588 + 18, 264, 452 + stored + 36)


def test_the_fast_path_of_an_encoder_layer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    found = one(lambda: layer(torch.rand(1, 3, 4)), "_transformer_encoder_layer_fwd")
    assert found.counts == (1224, 504, 912)
    # attention 618; 2*192 for the two linears; ReLU 24; norms 204; residuals 24
    assert found.view == 618 + 384 + 24 + 204 + 24


def test_gelu_leaves_the_module_flops_of_a_layer_open():
    layer = nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True).eval()
    found = one(lambda: layer(torch.rand(1, 3, 4)), "_transformer_encoder_layer_fwd")
    assert found.counts == (None, 504, 912)
    # 5 FLOPs per hidden element in place of 1
    assert found.view == 618 + 384 + 5 * 24 + 204 + 24


def test_both_paths_of_an_encoder_layer_execute_the_same():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    x = torch.rand(1, 3, 4)
    fast = sum(op.view or 0 for op in dispatched(lambda: layer(x)))
    with fast_path(False):
        slow = dispatched(lambda: layer(x))
    assert f"aten.{FUSED}" in {op.call.name for op in slow}
    # the unfused attention scales the 12 elements of the key as well
    assert sum(op.view or 0 for op in slow) == fast + 12
