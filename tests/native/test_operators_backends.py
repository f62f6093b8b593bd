"""Operators that only other backends dispatch, called by their schema: the numbers are those of the plain operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from native.operator_log import METRICS, TABLE, one
from torch_versions import before
from torchscan import OperatorCall, TensorSpec


def spec(*shape: int, dtype: torch.dtype = torch.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def counts(name: str, *args: Any, out: Any, **kwargs: Any) -> tuple[int | None, ...]:
    """Estimate a call that is bound to the operator's schema first, so that the test cannot invent a signature."""
    schema = getattr(torch.ops.aten, name).default._schema
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    required = [argument.name for argument in positional if not argument.has_default_value()]
    assert len(required) <= len(args) <= len(positional), str(schema)
    estimate = TABLE[f"aten.{name}"].estimate
    assert estimate is not None
    found = estimate(OperatorCall(f"aten.{name}", "default", args, kwargs, out))
    return tuple(found.get(metric) for metric in METRICS)


X, W, B, Y = spec(1, 1, 4, 4), spec(1, 1, 3, 3), spec(1), spec(1, 1, 2, 2)
K, PAIR, NONE = (3, 3), (1, 1), (0, 0)
#: `Conv2d(1, 1, 3)` on (1, 1, 4, 4): 4 outputs of 9 terms and a bias; 16 + 10 + 4.
BIASED, BARE = (72, 36, 30), (68, 36, 29)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("_convolution", (X, W, B, PAIR, NONE, PAIR, False, NONE, 1, False, False, False, False), BIASED),
        ("convolution_overrideable", (X, W, B, PAIR, NONE, PAIR, False, NONE, 1), BIASED),
        ("mkldnn_convolution", (X, W, B, NONE, PAIR, PAIR, 1), BIASED),
        ("mkldnn_convolution", (X, W, None, NONE, PAIR, PAIR, 1), BARE),
        ("_nnpack_spatial_convolution", (X, W, B, NONE), BIASED),
        ("miopen_convolution", (X, W, B, NONE, PAIR, PAIR, 1, False, False), BIASED),
        ("cudnn_convolution", (X, W, NONE, PAIR, PAIR, 1, False, False, False), BARE),
        ("_slow_conv2d_forward", (X, W, K, B, PAIR, NONE), BIASED),
        ("_slow_conv2d_forward", (X, W, K, None, PAIR, NONE), BARE),
        ("_conv_depthwise2d", (X, W, K, B, PAIR, NONE, PAIR), BIASED),
        ("slow_conv_dilated2d", (X, W, K, B), BIASED),
        ("slow_conv_dilated2d", (X, W, K), BARE),
    ],
)
def test_convolutions(name, args, expected):
    assert counts(name, *args, out=Y) == expected


def test_convolutions_over_three_axes():
    # `Conv3d(1, 2, 2)` on 3x3x3: 16 outputs of 8 terms and biases
    x, w, b, y = spec(1, 1, 3, 3, 3), spec(2, 1, 2, 2, 2), spec(2), spec(1, 2, 2, 2, 2)
    three = ((2, 2, 2), b, (1, 1, 1), (0, 0, 0))
    assert counts("slow_conv3d_forward", x, w, *three, out=y) == (256, 128, 61)
    assert counts("slow_conv_dilated3d", x, w, *three[:2], out=y) == (256, 128, 61)
    assert counts("conv_depthwise3d", x, w, *three, (1, 1, 1), out=y) == (256, 128, 61)


def test_transposed_convolutions():
    # `ConvTranspose2d(1, 1, 3)` on 4x4: 16 inputs times 9 taps, twice, and 36 biases; 16 + 10 + 36
    y = spec(1, 1, 6, 6)
    assert counts("slow_conv_transpose2d", X, W, K, B, out=y) == (324, 144, 62)
    assert counts("slow_conv_transpose2d", X, W, K, out=y) == (288, 144, 61)
    backend = (NONE, NONE, PAIR, PAIR, 1, False, False)
    assert counts("cudnn_convolution_transpose", X, W, *backend, False, out=y) == (288, 144, 61)
    assert counts("miopen_convolution_transpose", X, W, B, *backend, out=y) == (324, 144, 62)


def test_linear_maps():
    x, w, b, y = spec(3, 4), spec(2, 4), spec(2), spec(3, 2)
    # `Linear(4, 2)` on (3, 4)
    assert counts("mkldnn_linear", x, w, b, out=y) == (48, 24, 28)
    assert counts("mkldnn_linear", x, w, out=y) == (42, 24, 26)


def test_scaled_and_packed_products_know_their_terms_alone():
    x, w, y = spec(3, 4, dtype=torch.float8_e4m3fn), spec(4, 2, dtype=torch.float8_e4m3fn), spec(3, 2)
    assert counts("_scaled_mm", x, w, spec(), spec(), out=y) == (None, 24, None)
    weight = spec(2, 4, dtype=torch.int8)
    assert counts("_weight_int8pack_mm", spec(3, 4), weight, spec(2), out=y) == (None, 24, None)
    # two weights in a byte: the packed matrix is narrower than its terms
    packed = spec(2, 2, dtype=torch.uint8)
    assert counts("_weight_int4pack_mm", spec(3, 4), packed, 32, spec(1, 2, 2), out=y) == (None, 24, None)


def test_a_product_of_integers_by_itself():
    left, right = spec(3, 4, dtype=torch.int8), spec(4, 2, dtype=torch.int8)
    assert counts("_int_mm", left, right, out=spec(3, 2, dtype=torch.int32)) == (0, 24, 12 + 8 + 6)


def test_an_activation_fused_to_a_product():
    bias, x, w = torch.rand(2), torch.rand(3, 4), torch.rand(4, 2)
    # 6 outputs: 7 and a bias, then a comparison, or 14 for GELU with the tanh; a pass over the 6 outputs
    assert one(lambda: torch._addmm_activation(bias, x, w)).counts == (48 + 6, 24, 28 + 12)
    assert one(lambda: torch._addmm_activation(bias, x, w, use_gelu=True)).counts == (48 + 84, 24, 28 + 12)


@pytest.mark.skipif(before("2.13"), reason="PyTorch 2.6 has no grouped product")
def test_grouped_products():
    left, right = spec(2, 3, 4), spec(2, 4, 5)
    # 2 groups of 3*5 outputs of 4 terms
    assert counts("_grouped_mm", left, right, out=spec(2, 3, 5))[1] == 120
    with pytest.raises(ValueError, match="offsets"):
        counts("_grouped_mm", spec(6, 4), right, spec(2, dtype=torch.int32), out=spec(6, 5))


def test_what_a_fused_cell_does_beside_its_projections():
    gates, state, bias = spec(2, 12), spec(2, 3), spec(12)
    # 6 units: four sums, activations, cell and output: 32
    assert counts("_thnn_fused_lstm_cell", gates, gates, state, out=state) == (6 * 32, 0, None)
    # and both biases of four gates
    assert counts("_thnn_fused_lstm_cell", gates, gates, state, bias, bias, out=state) == (6 * (32 + 8), 0, None)
    gates, bias = spec(2, 9), spec(9)
    assert counts("_thnn_fused_gru_cell", gates, gates, state, out=state) == (6 * 22, 0, None)
    assert counts("_thnn_fused_gru_cell", gates, gates, state, bias, bias, out=state) == (6 * (22 + 6), 0, None)


@pytest.mark.parametrize("name", ["cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm"])
def test_batch_norms(name):
    x, c = spec(2, 3, 4), spec(3)
    # saved statistics: the conventions' BatchNorm1d(3); statistics of the batch without stored ones
    assert counts(name, x, c, c, c, c, False, 0.1, 1e-5, out=(x, c, c)) == (102, 24, 109)
    assert counts(name, x, c, c, None, None, True, 0.1, 1e-5, out=(x, c, c)) == (198, 48, 166)
    # a training call updates what it stored
    assert counts(name, x, c, c, c, c, True, 0.1, 1e-5, out=(x, c, c)) == (None, 48, None)


def test_batch_norms_with_a_fixed_mode():
    x, c = spec(2, 3, 4), spec(3)
    assert counts("_native_batch_norm_legit_no_training", x, c, c, c, c, 0.1, 1e-5, out=(x, c, c)) == (102, 24, 109)
    assert counts("_batch_norm_no_update", x, c, c, c, c, 0.1, 1e-5, out=(x, c, c, c)) == (102, 24, 109)
    assert counts("_batch_norm_with_update", x, c, c, c, c, 0.1, 1e-5, out=(x, c, c, c)) == (None, 48, None)


def test_pooling_of_other_backends():
    x, y = spec(1, 1, 4, 4), spec(1, 1, 2, 2)
    assert counts("mkldnn_max_pool2d", x, (2, 2), out=y) == (12, 0, 20)
    assert counts("mkldnn_adaptive_avg_pool2d", x, (2, 2), out=y) == (16, 0, 20)
