"""Which masks the relation model describes, and the reason of each refusal."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchscan
from torch_paths import fast_path
from torchscan import ModuleCall, Relation, TokenDependencies
from torchscan_native.transformer import handlers
from torchscan_native.transformer.mask_values import REASONS

T, S = 3, 3
LATER = torch.ones(T, S, dtype=torch.bool).triu(1)
INF = math.inf


def module() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(4, 2, batch_first=True).eval()


def derived(target: int = T, source: int = S, **options: Any) -> TokenDependencies:
    """Return what the handler derives for two batch entries; the output's values play no part in it."""
    query = torch.ones(2, target, 4)
    memory = query if target == source else torch.ones(2, source, 4)
    arguments = {"query": query, "key": memory, "value": memory, **options}
    call = ModuleCall(module(), (), arguments, (torch.ones(2, target, 4), None))
    found = handlers.attention(call)["token_dependencies"]
    assert isinstance(found, TokenDependencies)
    return found


def kind(**options: Any) -> Relation:
    found = derived(**options)
    assert found.status == "complete", found.message
    (source,) = found.sources
    return source.relation


def reason(**options: Any) -> str | None:
    found = derived(**options)
    assert found.status == "unavailable"
    assert found.sources == ()
    assert found.message
    return found.reason


def floats(excluded: torch.Tensor, finite: float = 0.0) -> torch.Tensor:
    return torch.full(excluded.shape, finite).masked_fill(excluded, -INF)


NOTHING = torch.zeros(T, S, dtype=torch.bool)
HEADS = 4  # two batch entries of two heads

FREE = {
    "bool": NOTHING,
    "zeros": floats(NOTHING),
    "finite": torch.linspace(-3, 3, T * S).reshape(T, S),
    "half": torch.full((T, S), -60000.0, dtype=torch.float16),
    "bfloat16": torch.full((T, S), 2.0, dtype=torch.bfloat16),
    "lowest": torch.full((T, S), torch.finfo(torch.float32).min),
    "per head": torch.randn(HEADS, T, S),
    "per head bool": NOTHING.repeat(HEADS, 1, 1),
}
CAUSAL = {
    "bool": LATER,
    "float": floats(LATER),
    "biased": torch.randn(T, S).masked_fill(LATER, -INF),
    "double": floats(LATER).double(),
    "half": floats(LATER).half(),
    "per head": torch.randn(HEADS, T, S).masked_fill(LATER, -INF),
    "per head bool": LATER.repeat(HEADS, 1, 1),
    "expanded": floats(LATER).expand(HEADS, T, S),
    "not contiguous": floats(LATER.T.contiguous()).T,
}


@pytest.mark.parametrize("mask", FREE.values(), ids=FREE)
def test_masks_that_exclude_nothing(mask: torch.Tensor) -> None:
    assert kind(attn_mask=mask) == Relation("all")
    assert reason(attn_mask=mask, is_causal=True) == "causal_hint_mismatch"


@pytest.mark.parametrize("mask", CAUSAL.values(), ids=CAUSAL)
@pytest.mark.parametrize("hint", [False, True])
def test_masks_that_exclude_the_later_positions(mask: torch.Tensor, hint: bool) -> None:
    assert kind(attn_mask=mask, is_causal=hint) == Relation("prefix")


def changed(mask: torch.Tensor, index: tuple[int, ...], value: float | bool) -> torch.Tensor:
    copy = mask.clone()
    copy[index] = value
    return copy


ONE_HEAD = changed(LATER.repeat(HEADS, 1, 1), (3, 2, 0), True)

REFUSED = {
    "one more exclusion": (changed(LATER, (2, 0), True), "irregular_mask"),
    "one exclusion fewer": (changed(LATER, (0, 2), False), "irregular_mask"),
    "floating, one more": (changed(floats(LATER), (2, 1), -INF), "irregular_mask"),
    "earlier positions": (LATER.flip(0, 1), "irregular_mask"),  # rows {0, 1, 2}, {1, 2}, {2}
    "a window": (LATER | torch.ones(T, S, dtype=torch.bool).tril(-2), "irregular_mask"),
    "every head alike, yet irregular": (changed(LATER, (2, 0), True).repeat(HEADS, 1, 1), "irregular_mask"),
    "one head of four": (ONE_HEAD, "mask_heads_differ"),
    "one head of four, floating": (floats(ONE_HEAD), "mask_heads_differ"),
    "causal in one head only": (changed(NOTHING.repeat(HEADS, 1, 1), (0, 0, 2), True), "mask_heads_differ"),
    "not a number": (changed(floats(NOTHING), (1, 1), math.nan), "mask_nan"),
    "not a number, causal": (changed(floats(LATER), (1, 0), math.nan), "mask_nan"),
    "not a number and infinite": (changed(changed(floats(LATER), (1, 0), math.nan), (1, 1), INF), "mask_nan"),
    "infinite": (changed(floats(NOTHING), (1, 1), INF), "mask_positive_infinity"),
    "infinite, causal, half": (changed(floats(LATER), (1, 0), INF).half(), "mask_positive_infinity"),
    "a row without a key": (changed(LATER, (0, 0), True), "all_masked_row"),
    "nothing allowed": (~NOTHING, "all_masked_row"),
    "nothing allowed, floating": (floats(~NOTHING), "all_masked_row"),
    "a row of one head": (changed(LATER.repeat(HEADS, 1, 1), (2, 0, 0), True), "all_masked_row"),
    "no values": (torch.zeros(T, S, device="meta"), "mask_values_unreadable"),
    "no truth values": (torch.zeros(T, S, device="meta", dtype=torch.bool), "mask_values_unreadable"),
}


@pytest.mark.parametrize(("mask", "expected"), REFUSED.values(), ids=REFUSED)
def test_masks_outside_the_model_have_a_reason_of_their_own(mask: torch.Tensor, expected: str) -> None:
    assert reason(attn_mask=mask) == expected
    # A hint makes a wrong pattern a broken promise; the other reasons stand.
    hinted = "causal_hint_mismatch" if expected in ("irregular_mask", "mask_heads_differ") else expected
    assert reason(attn_mask=mask, is_causal=True) == hinted


def test_a_hint_alone_is_ambiguous() -> None:
    assert reason(is_causal=True) == "causal_hint_without_mask"


def test_with_one_key_allowing_it_is_causal_too() -> None:
    # The first row allows key 0, and there is no later key to exclude.
    mask = torch.zeros(T, 1, dtype=torch.bool)
    found = derived(source=1, attn_mask=mask, is_causal=True)
    assert [source.relation for source in found.sources] == [Relation("none"), Relation("all")]
    assert derived(source=1, attn_mask=mask.float(), is_causal=True).sources == found.sources


@pytest.mark.parametrize("target", [1, 2, 5])
def test_a_causal_mask_need_not_be_square(target: int) -> None:
    mask = torch.ones(target, 4, dtype=torch.bool).triu(1)
    found = derived(target=target, source=4, attn_mask=mask)
    expected = tuple(tuple(j <= i for j in range(4)) for i in range(target))
    value = found.sources[-1]
    assert value.relation.matrix(target, 4) == expected


PADDING = {
    "nothing": (torch.zeros(2, S, dtype=torch.bool), None),
    "finite": (torch.randn(2, S), None),
    "one token": (torch.tensor([[False] * 3, [False, False, True]]), "padding_excludes_tokens"),
    "one token, floating": (torch.tensor([[0.0] * 3, [0.0, 0.0, -INF]]), "padding_excludes_tokens"),
    "an empty sentence": (torch.tensor([[False] * 3, [True] * 3]), "all_masked_row"),
    "not a number": (torch.tensor([[0.0, math.nan, 0.0], [0.0] * 3]), "mask_nan"),
    "infinite": (torch.tensor([[0.0, INF, 0.0], [0.0] * 3]), "mask_positive_infinity"),
    "no values": (torch.zeros(2, S, device="meta"), "mask_values_unreadable"),
}


@pytest.mark.parametrize(("mask", "expected"), PADDING.values(), ids=PADDING)
def test_padding(mask: torch.Tensor, expected: str | None) -> None:
    if expected is None:
        assert kind(key_padding_mask=mask) == Relation("all")
        assert kind(key_padding_mask=mask, attn_mask=LATER) == Relation("prefix")
    else:
        assert reason(key_padding_mask=mask) == expected
        assert reason(key_padding_mask=mask, attn_mask=LATER) == expected


def test_two_finite_masks_may_add_up_to_an_infinity() -> None:
    low = torch.finfo(torch.float32).min
    deep = torch.full((2, S), low)
    assert reason(attn_mask=torch.full((T, S), low), key_padding_mask=deep) == "mask_overflow"
    assert reason(attn_mask=torch.full((T, S), -low), key_padding_mask=-deep) == "mask_overflow"
    assert reason(attn_mask=floats(LATER, low), key_padding_mask=deep) == "mask_overflow"
    # -inf + a finite number is -inf: what is excluded stays so, and nothing else becomes it.
    assert kind(attn_mask=floats(LATER, -5.0), key_padding_mask=deep / 2) == Relation("prefix")
    assert kind(attn_mask=torch.full((T, S), low), key_padding_mask=torch.full((2, S), -100.0)) == Relation("all")
    assert kind(attn_mask=floats(LATER), key_padding_mask=deep) == Relation("prefix")


# -- the other types ask the same questions of each of their attentions ---------------------------------------------

IRREGULAR = changed(LATER, (2, 0), True)
X = torch.ones(2, 3, 4)
ENCODER_LAYER = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
DECODER_LAYER = nn.TransformerDecoderLayer(4, 2, 8, batch_first=True)
PADDED = torch.tensor([[False] * 3, [False, False, True]])


@pytest.mark.parametrize(
    ("model", "inputs", "options", "expected"),
    [
        (ENCODER_LAYER, 1, {"src_mask": IRREGULAR}, "irregular_mask"),
        (ENCODER_LAYER, 1, {"src_key_padding_mask": PADDED}, "padding_excludes_tokens"),
        (nn.TransformerEncoder(ENCODER_LAYER, 2, enable_nested_tensor=False), 1, {"mask": IRREGULAR}, "irregular_mask"),
        (
            nn.TransformerEncoder(ENCODER_LAYER, 2, enable_nested_tensor=False),
            1,
            {"src_key_padding_mask": PADDED},
            "padding_excludes_tokens",
        ),
        (DECODER_LAYER, 2, {"tgt_mask": IRREGULAR}, "irregular_mask"),
        (DECODER_LAYER, 2, {"memory_mask": IRREGULAR}, "irregular_mask"),
        (DECODER_LAYER, 2, {"memory_key_padding_mask": PADDED}, "padding_excludes_tokens"),
        (nn.TransformerDecoder(DECODER_LAYER, 2), 2, {"tgt_key_padding_mask": PADDED}, "padding_excludes_tokens"),
        (nn.Transformer(4, 2, 1, 1, 8, batch_first=True), 2, {"tgt_mask": IRREGULAR}, "irregular_mask"),
        (nn.Transformer(4, 2, 1, 1, 8, batch_first=True), 2, {"memory_mask": IRREGULAR}, "irregular_mask"),
        (nn.Transformer(4, 2, 1, 1, 8, batch_first=True), 2, {"src_mask": IRREGULAR}, "irregular_mask"),
    ],
)
def test_one_diagnostic_per_call_while_dense_counts_stay_complete(
    model: nn.Module, inputs: int, options: dict[str, Any], expected: str
) -> None:
    args = (X, torch.ones(2, 3, 4))[:inputs]
    report = torchscan.scan(model, args=args, kwargs=options)
    row = report.layers[0]
    assert row.token_dependencies is not None
    assert (row.token_dependencies.status, row.token_dependencies.reason) == ("unavailable", expected)
    assert row.token_dependencies.sources == ()
    assert row.metrics["macs"].status == row.metrics["dmas"].status == "complete"
    (diagnostic,) = [d for d in report.diagnostics if d.metric == "token_dependencies" and d.path == ""]
    assert diagnostic.code == "unsupported_token_dependencies"
    assert diagnostic.reason == expected
    # The message names the mask and what to do or why not.
    assert next(iter(options)) in diagnostic.message


@pytest.mark.parametrize(
    "build",
    [
        lambda: (nn.TransformerEncoderLayer(1, 1, 2, batch_first=True), 1),
        lambda: (nn.TransformerDecoderLayer(1, 1, 2, batch_first=True), 2),
        lambda: (nn.Transformer(1, 1, 1, 1, 2, batch_first=True), 2),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_a_norm_over_one_feature_is_constant(build: Any) -> None:
    model, inputs = build()
    report = torchscan.scan(model, args=(torch.ones(2, 3, 1), torch.ones(2, 3, 1))[:inputs])
    row = report.layers[0]
    assert row.token_dependencies is not None
    assert row.token_dependencies.reason == "width_one_norm"
    assert row.metrics["macs"].status == "complete"


def test_one_feature_without_norms_is_described() -> None:
    layer = nn.TransformerEncoderLayer(1, 1, 2, batch_first=True)
    layer.norm1 = layer.norm2 = nn.Identity()  # type: ignore[assignment]
    with fast_path(False):  # which takes no Identity for a norm
        report = torchscan.scan(layer, args=(torch.ones(2, 3, 1),))
    found = report.layers[0].token_dependencies
    assert found is not None
    assert [source.relation for source in found.sources] == [Relation("all")]


def test_a_boundary_of_the_formulas_is_one_of_the_relation_too() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True, add_zero_attn=True)
    found = torchscan.scan(attention, args=(X, X, X)).layers[0].token_dependencies
    assert found is not None
    assert (found.status, found.reason) == ("unavailable", "add_zero_attn")


def test_reading_a_mask_leaves_it_and_the_random_state_alone() -> None:
    mask = torch.randn(T, S).masked_fill(LATER, -INF)
    arguments = {"attn_mask": mask, "key_padding_mask": torch.zeros(2, S)}
    call = ModuleCall(module(), (X, X, X), arguments, (X, None))
    before, version, state = mask.clone(), mask._version, torch.get_rng_state()
    assert handlers.attention(call)["token_dependencies"].status == "complete"
    assert torch.equal(mask, before)
    assert mask._version == version
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_is_documented(name: str) -> None:
    page = Path(__file__).parents[2] / "docs/explanation/token-relations.md"
    assert f"`{name}`" in page.read_text(encoding="utf-8")


def test_without_computing_the_callers_own_mask_can_still_be_read() -> None:
    report = torchscan.scan(ENCODER_LAYER, args=(X,), kwargs={"src_mask": LATER}, execution="fake")
    found = report.layers[0].token_dependencies
    assert found is not None
    assert [source.relation for source in found.sources] == [Relation("prefix")]


class MasksByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(4, 3)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = self.scores(x)[0] > 1e6  # which entries, only the computed values can tell
        return self.layer(x, src_mask=large)  # type: ignore[no-any-return]


def test_without_computing_a_mask_that_depends_on_values_has_none() -> None:
    found = torchscan.scan(MasksByValue(), args=(X,)).layers[2].token_dependencies
    assert found is not None
    assert [source.relation for source in found.sources] == [Relation("all")]  # nothing is that large
    found = torchscan.scan(MasksByValue(), args=(X,), execution="fake").layers[2].token_dependencies
    assert found is not None
    assert found.reason == "mask_values_unreadable"
