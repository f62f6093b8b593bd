"""The operator view: what the dispatcher executed, PyTorch's formulas first, the table where they end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchscan
from native.operator_log import TABLE, one
from torchscan import OperatorCall, TensorSpec

ones = torch.ones


def view(function, *args):
    return torchscan.measure_flops(lambda: function(*args))


def test_the_conventions_example():
    linear = nn.Linear(4, 2)

    def product(a, b):
        return a @ b

    # 8 outputs of 3 terms: 2*24
    assert view(product, ones(2, 3), ones(3, 4))["total"]["value"] == 48
    # 4 outputs of 4 terms, the bias is fused: 2*16
    both = view(lambda a, b: linear(a @ b), ones(2, 3), ones(3, 4))
    assert both["total"]["value"] == 80
    assert both["by_operator"] == {"aten.mm": 48, "aten.addmm": 32}


def test_a_separate_add_counts():
    # 24 product terms, then 8 adds
    found = view(lambda a, b, c: a @ b + c, ones(2, 3), ones(3, 4), ones(4))
    assert found["by_operator"] == {"aten.mm": 48, "aten.add": 8}


def test_the_module_counts_differ_by_design():
    report = torchscan.scan(nn.Linear(4, 2, bias=False), args=(ones(2, 4),))
    # 4 outputs: 7 FLOPs in the module's count, 8 in the view
    assert (report.totals.module_flops.value, report.operator_flops.total.value) == (28, 32)


def test_integer_arithmetic_is_no_flop_but_an_integer_product_is():
    tokens = torch.ones(2, 3, dtype=torch.int64)
    found = view(lambda: (tokens + 1, tokens @ tokens.T, tokens / 2))
    # 4 outputs of 3 terms; the 6 quotients are real numbers
    assert found["by_operator"] == {"aten.add": 0, "aten.mm": 24, "aten.div": 6}


def test_factors_are_left_out_of_products():
    found = view(lambda: torch.addmm(ones(4), ones(2, 3), ones(3, 4), beta=2, alpha=3))
    assert found["total"]["value"] == 48


def test_views_copies_and_creation_are_listed_with_a_reason():
    found = view(lambda: ones(2, 3).T.contiguous().view(-1).double() + torch.zeros(6))
    reasons = {name: entry["reason"] for name, entry in found["ignored_operators"].items()}
    assert reasons["aten.clone"] == reasons["aten._to_copy"] == "Layout copies and conversions are excluded."
    assert reasons["aten.zeros"] == reasons["aten.ones"] == "Tensor creation is excluded: constants cost nothing."
    assert reasons["aten.view"] == "Metadata-only tensor view."
    assert all(reasons.values())
    assert found["by_operator"] == {"aten.add": 6}
    moved = view(lambda: torch.cat([ones(2), ones(2)]).roll(1))
    assert {"aten.cat", "aten.roll"} <= moved["ignored_operators"].keys()
    assert (moved["total"]["status"], moved["total"]["value"]) == ("complete", 0)
    assert found["total"]["status"] == "complete"


def test_matrix_vector_products():
    # 2 outputs of 3 terms; one of 3
    assert view(lambda: ones(2, 3) @ ones(3))["by_operator"] == {"aten.mv": 12}
    assert view(lambda: ones(3) @ ones(3))["by_operator"] == {"aten.dot": 6}


def test_lstm_on_the_cpu():
    lstm = nn.LSTM(3, 2)
    with torch.no_grad():
        found = one(lambda: lstm(ones(4, 2, 3)), "mkldnn_rnn_layer")
    # T=4, B=2, H=2: 16 units; four gates of 3 + 2 terms at 2 FLOPs each, and 32 that belong to no matrix
    assert found.view == 16 * (4 * 2 * 5 + 32)
    # the module's count: 4*(5 + 3) of the dot products, 8 biases, 32
    assert found.counts[0] == 16 * (4 * (5 + 3) + 8 + 32) == 1152


def test_lstm_in_two_directions_and_layers():
    lstm = nn.LSTM(3, 2, num_layers=2, bidirectional=True)
    report = torchscan.scan(lstm, args=(ones(4, 2, 3),))
    # layer 1 receives 3, layer 2 receives 2*2: per direction 16 units of 4*2*(3+2) + 32 and 4*2*(4+2) + 32
    assert report.operator_flops.by_operator["aten.mkldnn_rnn_layer"] == 2 * 16 * (40 + 32) + 2 * 16 * (48 + 32)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_fused_recurrent_operator_of_cuda(bidirectional):
    def spec(*shape):
        return TensorSpec(shape, torch.float32)

    directions = 2 if bidirectional else 1
    args = (
        spec(4, 2, 3), [spec(8, 3), spec(8, 2), spec(8), spec(8)], 4, None, spec(directions, 2, 2),
        spec(directions, 2, 2), 2, 2, 0, 1, False, 0.0, False, bidirectional, (), None,
    )  # fmt: skip
    estimate = TABLE["aten._cudnn_rnn"].estimate
    assert estimate is not None
    found = estimate(OperatorCall("aten._cudnn_rnn", "default", args, {}, spec(4, 2, 2)))
    # the conventions' LSTM, I=3, H=2, T=4, B=2, once per direction
    assert found == {"module_flops": 1152 * directions, "macs": 320 * directions, "dmas": 776 * directions}


def test_a_packed_sequence_counts_what_really_ran():
    lstm = nn.LSTM(3, 2)
    packed = nn.utils.rnn.pack_padded_sequence(ones(4, 2, 3), torch.tensor([4, 2]))
    found = torchscan.measure_flops(lambda: lstm(packed))
    # 6 tokens and no padding: 4*2 gate values of 3 and of 2 terms each
    assert found["by_operator"]["aten.addmm"] == 6 * 8 * 2 * 3 + 6 * 8 * 2 * 2


def test_a_packed_sequence_in_a_fused_operator_is_refused():
    lstm = nn.LSTM(3, 2)
    call = one(lambda: lstm(ones(4, 2, 3)), "mkldnn_rnn_layer").call
    estimate = TABLE[call.name].estimate
    assert estimate is not None
    packed = (*call.args[:8], (2, 2, 1, 1), *call.args[9:])
    with pytest.raises(ValueError, match="packed"):
        estimate(OperatorCall(call.name, call.overload, packed, call.kwargs, call.output))


def test_the_gap_of_pytorchs_attention_formula_stays_open():
    x = torch.empty(1, 2, 3, 4, device="meta")
    found = view(torch.ops.aten._scaled_dot_product_flash_attention, x, x, x)
    # two products of 18 scores with 4 terms: PyTorch's own count
    assert found["total"]["known_value"] == 2 * 2 * 18 * 4
    assert found["total"]["status"] == "partial"
    (diagnostic,) = [d for d in found["diagnostics"] if d["code"] == "incomplete_operator_formula"]
    assert diagnostic["operator"] == "aten._scaled_dot_product_flash_attention"
    assert "softmax" in diagnostic["message"]


def test_the_attention_of_the_cpu_has_no_gap():
    x = ones(1, 2, 3, 4)
    found = view(F.scaled_dot_product_attention, x, x, x)
    assert found["total"]["status"] == "complete"
    # products 288, scaling 48, softmax 78
    assert found["total"]["value"] == 414


def test_attention_backward_names_what_it_misses():
    x = ones(1, 2, 3, 4, requires_grad=True)
    found = view(lambda: F.scaled_dot_product_attention(x, x, x).sum().backward())
    name = "aten._scaled_dot_product_flash_attention_for_cpu_backward"
    # five products of 18 scores with 4 terms
    assert found["by_operator"][name] == 2 * 18 * 4 * 5
    assert [d["operator"] for d in found["diagnostics"]] == [name]


def test_a_training_step_by_hand():
    weight = ones(2, 3, requires_grad=True)
    x, target = ones(4, 3), ones(4, 2)

    def step():
        loss = F.mse_loss(F.linear(x, weight).relu(), target)
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)

    found = torchscan.measure_flops(step)
    assert found["diagnostics"] == []
    by_operator = found["by_operator"]
    # forward (4,3)·(3,2) and the weight's gradient (2,4)·(4,3): 2*24 each
    assert by_operator["aten.mm"] == 48 + 48
    # 8 outputs: one comparison; backward compare and select
    assert (by_operator["aten.relu"], by_operator["aten.threshold_backward"]) == (8, 16)
    # subtract, square, 7 adds and a divide; backward subtract, scale, product
    assert (by_operator["aten.mse_loss"], by_operator["aten.mse_loss_backward"]) == (16 + 8, 24)
    # 6 scaled gradients, 6 subtracts
    assert by_operator["aten.sub_"] == 12
    assert found["total"]["value"] == 96 + 24 + 24 + 24 + 12


@pytest.mark.parametrize(
    ("operator", "call", "expected"),
    [
        # N = 8, R = 2
        ("_softmax_backward_data", lambda x: x.softmax(-1), 4 * 8 - 2),
        ("_log_softmax_backward_data", lambda x: x.log_softmax(-1), 4 * 8 - 2),
        ("sigmoid_backward", torch.sigmoid, 3 * 8),
        ("tanh_backward", torch.tanh, 3 * 8),
        ("silu_backward", F.silu, 9 * 8),
        ("gelu_backward", F.gelu, 11 * 8),
        ("gelu_backward", lambda x: F.gelu(x, approximate="tanh"), 23 * 8),
        ("hardswish_backward", F.hardswish, 7 * 8),
        ("elu_backward", F.elu, 4 * 8),
        ("leaky_relu_backward", F.leaky_relu, 3 * 8),
        # normalise 16; input 8 - 2 + 16 - 2 + 4 + 32
        ("native_layer_norm_backward", lambda x: F.layer_norm(x, (4,)), 16 + 6 + 14 + 4 + 32),
        # 2 windows of 4: a divide and 4 adds each
        ("avg_pool2d_backward", lambda x: F.avg_pool2d(x[None], (2, 2)), 2 * 5),
        ("max_pool2d_with_indices_backward", lambda x: F.max_pool2d(x[None], (2, 2)), 2),
        # (2,4) to (4,8): 32 outputs of 4 taps, a product and an add each
        ("upsample_bilinear2d_backward", lambda x: F.interpolate(x[None, None], size=(4, 8), mode="bilinear"), 256),
        ("upsample_nearest2d_backward", lambda x: F.interpolate(x[None, None], size=(4, 8)), 32),
    ],
)
def test_gradients_by_hand(operator, call, expected):
    x = torch.rand(2, 4, requires_grad=True)
    found = torchscan.measure_flops(lambda: call(x).sum().backward())
    assert found["by_operator"][f"aten.{operator}"] == expected


def test_an_affine_norms_gradients():
    x, w, b = torch.rand(2, 4, requires_grad=True), ones(4, requires_grad=True), ones(4, requires_grad=True)
    found = torchscan.measure_flops(lambda: F.layer_norm(x, (4,), w, b).sum().backward())
    # 72 as without parameters, 8 products with the weight; weight 2*8 - 4; bias 8 - 4
    assert found["by_operator"]["aten.native_layer_norm_backward"] == 72 + 8 + 12 + 4


@pytest.mark.parametrize(
    ("options", "per_element"),
    [
        ({}, 13),
        ({"weight_decay": 0.1}, 15),
        ({"amsgrad": True}, 14),
        ({"maximize": True}, 14),
    ],
)
def test_a_fused_adam_step(options, per_element):
    parameter = ones(5, requires_grad=True)
    parameter.grad = ones(5)
    optimizer = torch.optim.Adam([parameter], fused=True, **options)
    assert torchscan.measure_flops(optimizer.step)["by_operator"]["aten._fused_adam_"] == 5 * per_element


def test_a_fused_sgd_step():
    parameter = ones(5, requires_grad=True)
    parameter.grad = ones(5)
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, fused=True)
    # scale, subtract; the first step only stores its gradient as the velocity
    assert torchscan.measure_flops(optimizer.step)["by_operator"]["aten._fused_sgd_"] == 5 * 2
    # afterwards the velocity is scaled and added to
    assert torchscan.measure_flops(optimizer.step)["by_operator"]["aten._fused_sgd_"] == 5 * 4


PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "operator-view.md"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
def test_the_pages_examples_print_what_they_say(block, capsys):
    exec(compile(block, PAGE.name, "exec"), {})
    expected = re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)
    assert expected
    assert capsys.readouterr().out.splitlines() == expected
