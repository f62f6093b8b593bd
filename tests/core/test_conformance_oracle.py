"""The kit's oracle: contractions that the dispatcher executes, and MACs compared with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.conformance_support import CALLS, Projection, good, make
from torchscan import Partial
from torchscan.testing import CHECKS, OracleError, check_handler, count_contractions


def test_the_oracle_counts_one_mac_per_product_term():
    # (3, 4) @ (4, 2): 3 * 4 * 2
    assert count_contractions(Projection(), torch.ones(3, 4)).total == 24
    # groups=2 over 4 channels: 2 input channels and 3 taps per output; 2 * 6 * 5 outputs
    conv = nn.Conv1d(4, 6, 3, groups=2)
    assert count_contractions(conv, torch.ones(2, 4, 7)).total == 2 * 6 * 5 * 2 * 3
    # the scatter: each of 2 * 4 * 3 inputs meets 3 output channels and 3 taps
    transposed = nn.ConvTranspose1d(4, 6, 3, groups=2, stride=2, padding=1, output_padding=1)
    assert count_contractions(transposed, torch.ones(2, 4, 3)).total == 24 * 3 * 3


def test_the_oracle_sees_through_fused_attention():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.ones(1, 3, 4)
    before = torch.backends.mha.get_fastpath_enabled()
    # 4 projections of (3, 4) @ (4, 4) and two products of 3 x 3 x 4
    assert count_contractions(attention, x, x, x, need_weights=False).total == 4 * 48 + 2 * 36
    assert torch.backends.mha.get_fastpath_enabled() is before
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    # the attention, and two products of (3, 4) @ (4, 8)
    seen = count_contractions(layer, x)
    assert seen.total == 264 + 2 * 96
    assert seen.own == 0
    assert not layer._forward_pre_hooks
    assert not layer.self_attn._forward_pre_hooks


def test_the_oracle_refuses_what_it_cannot_see():
    with pytest.raises(OracleError, match="trilinear"):
        count_contractions(nn.Bilinear(2, 3, 2), torch.ones(2, 2), torch.ones(2, 3))


def test_macs_are_compared_with_the_dispatcher_on_request():
    results = check_handler(good, CALLS, oracle=True)
    assert results.ok
    assert {result.check for result in results} == {*CHECKS, "macs_match_the_dispatcher"}

    def one_too_many(call):
        return {**good(call), "macs": 25}

    failures = check_handler(one_too_many, [make], checks=[], oracle=True).failures
    assert [result.message for result in failures] == [
        "macs is 25, but the dispatcher's contractions in the module's own body make 24"
    ]
    # ... unless the conventions count one more.
    assert check_handler(one_too_many, [make], checks=[], oracle=lambda call: 1).ok


def test_macs_that_are_not_complete_do_not_pass_for_equal():
    failures = check_handler(lambda call: {"macs": Partial(24)}, [make], checks=[], oracle=True).failures
    assert "no complete MACs" in failures[0].message
