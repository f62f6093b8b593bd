"""Token relations of native calls, as a scan reports them; each expectation is argued in words above it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import torchscan
from torchscan import Relation, TokenDependencies
from torchscan.contract.tokens import describe
from torchscan_native.transformer.tokens import decoder, encoder

ALL, SAME, PREFIX, NONE = (Relation(kind) for kind in ("all", "same_position", "prefix", "none"))  # type: ignore[arg-type]


def ones(batch: int, length: int, width: int = 4) -> torch.Tensor:
    return torch.ones(batch, length, width)


def causal(target: int, source: int) -> torch.Tensor:
    return torch.ones(target, source, dtype=torch.bool).triu(1)


def row(module: nn.Module, *args: torch.Tensor, **kwargs: Any) -> TokenDependencies:
    report = torchscan.scan(module, args=args, kwargs=kwargs)
    found = report.layers[0].token_dependencies
    assert found is not None
    assert [d for d in report.diagnostics if d.metric == "token_dependencies"] == []
    return found


def relations(found: TokenDependencies) -> dict[str, Relation]:
    assert found.status == "complete"
    return {"/".join(source.arguments): source.relation for source in found.sources}


def attention(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(4, 2, batch_first=True, **options)


# -- attention -------------------------------------------------------------------------------------------------------


def test_self_attention_is_one_source() -> None:
    x = ones(2, 3)
    found = row(attention(), x, x, x)
    assert relations(found) == {"query/key/value": ALL}
    assert found.output == torchscan.Output(1, 3)
    assert (found.sources[0].sequence_axis, found.sources[0].length) == (1, 3)
    assert describe(found) == "all"
    assert relations(row(attention(), x, x, x, attn_mask=causal(3, 3))) == {"query/key/value": PREFIX}


def test_the_token_axis_follows_the_layout() -> None:
    # Two batch entries of three query and five key tokens, sequence first.
    query, key = torch.ones(3, 2, 4), torch.ones(5, 2, 4)
    found = row(nn.MultiheadAttention(4, 2), query, key, key)
    assert found.output == torchscan.Output(0, 3)
    assert [(s.sequence_axis, s.length) for s in found.sources] == [(0, 3), (0, 5)]


def test_cross_attention_keeps_the_query_local() -> None:
    query, memory = ones(1, 2), ones(1, 3)
    found = row(attention(), query, memory, memory)
    assert relations(found) == {"query": SAME, "key/value": ALL}
    assert describe(found) == "local + source"


def test_views_of_one_storage_are_three_sources() -> None:
    x = ones(1, 3)
    found = relations(row(attention(), x.view(1, 3, 4), x.view(1, 3, 4), x.view(1, 3, 4)))
    assert found == {"query": SAME, "key": ALL, "value": ALL}


def test_arguments_are_grouped_however_they_are_shared() -> None:
    x, y = ones(1, 3), ones(1, 3)
    # A value at every position and the own query: together every position.
    assert relations(row(attention(), x, y, x)) == {"query/value": ALL, "key": ALL}
    assert relations(row(attention(), x, x, y)) == {"query/key": ALL, "value": ALL}
    # Causal: own query from position 1 on, keys up to the own one from 1 on, values up to the own one.
    masked = {"attn_mask": causal(3, 3)}
    later = Relation("prefix", first_position=1)
    assert relations(row(attention(), x, x, y, **masked)) == {"query/key": later, "value": PREFIX}
    assert relations(row(attention(), x, y, x, **masked)) == {"query/value": PREFIX, "key": later}


def test_the_first_causal_row_depends_on_values_only() -> None:
    query, key, value = ones(1, 3), ones(1, 3), ones(1, 3)
    found = relations(row(attention(), query, key, value, attn_mask=causal(3, 3)))
    assert found == {
        "query": Relation("same_position", first_position=1),
        "key": Relation("prefix", first_position=1),
        "value": PREFIX,
    }


def test_a_softmax_over_one_key_weighs_it_with_one() -> None:
    query, key, value = ones(1, 3), ones(1, 1), ones(1, 1)
    found = row(attention(), query, key, value)
    assert relations(found) == {"query": NONE, "key": NONE, "value": ALL}
    assert describe(found) == "source"
    # One causal query sees one of four keys, so again only a value matters: the one at its own position.
    found = row(attention(), ones(1, 1), ones(1, 4), ones(1, 4), attn_mask=causal(1, 4))
    assert relations(found) == {"query": NONE, "key": NONE, "value": SAME}


def test_keys_of_another_width_change_nothing() -> None:
    query, key, value = ones(1, 2), ones(1, 3, 6), ones(1, 3, 5)
    found = relations(row(attention(kdim=6, vdim=5), query, key, value))
    assert found == {"query": SAME, "key": ALL, "value": ALL}


# -- layers and stacks -----------------------------------------------------------------------------------------------


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, **options)


def decoder_layer(**options: Any) -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(4, 2, 8, batch_first=True, **options)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoders(norm_first: bool) -> None:
    x = ones(2, 3)
    layer = encoder_layer(norm_first=norm_first)
    stack = nn.TransformerEncoder(layer, 3, nn.LayerNorm(4), enable_nested_tensor=False)
    assert relations(row(layer, x)) == {"src": ALL}
    assert relations(row(layer, x, src_mask=causal(3, 3))) == {"src": PREFIX}
    assert relations(row(stack, x)) == {"src": ALL}
    found = row(stack, x, mask=causal(3, 3), is_causal=True)
    assert relations(found) == {"src": PREFIX}
    assert describe(found) == "causal"


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(norm_first: bool) -> None:
    layer, tgt, memory = decoder_layer(norm_first=norm_first), ones(2, 3), ones(2, 5)
    assert relations(row(layer, tgt, memory)) == {"tgt": ALL, "memory": ALL}
    found = row(layer, tgt, memory, tgt_mask=causal(3, 3), tgt_is_causal=True)
    assert relations(found) == {"tgt": PREFIX, "memory": ALL}
    assert describe(found) == "causal + source"
    # Cross-attention comes after self-attention, so one layer does not mix what it reads from memory.
    assert relations(row(layer, tgt, memory, memory_mask=causal(3, 5))) == {"tgt": ALL, "memory": PREFIX}
    assert relations(row(layer, tgt, tgt, tgt_mask=causal(3, 3))) == {"tgt/memory": ALL}


def test_a_second_decoder_layer_mixes_what_the_first_read() -> None:
    # Three targets, five memory tokens. The first layer reads the prefixes {0}, {0, 1}, {0, 1, 2}; free
    # self-attention of the second spreads their union to every target: positions below min(T, S) = 3.
    tgt, memory = ones(1, 3), ones(1, 5)
    one, two = (nn.TransformerDecoder(decoder_layer(), depth) for depth in (1, 2))
    assert relations(row(one, tgt, memory, memory_mask=causal(3, 5))) == {"tgt": ALL, "memory": PREFIX}
    assert relations(row(two, tgt, memory, memory_mask=causal(3, 5))) == {"tgt": ALL, "memory": Relation("all", 3)}
    # With T = 5 > S = 3 the union is the whole memory, without a limit.
    assert relations(row(two, ones(1, 5), ones(1, 3), memory_mask=causal(5, 3))) == {"tgt": ALL, "memory": ALL}
    # Causal self-attention never spreads a later prefix to an earlier target.
    found = relations(row(two, tgt, memory, tgt_mask=causal(3, 3), memory_mask=causal(3, 5)))
    assert found == {"tgt": PREFIX, "memory": PREFIX}


def test_transformer_reads_its_source_through_the_encoder() -> None:
    module = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)
    src, tgt = ones(2, 5), ones(2, 3)
    found = row(module, src, tgt, tgt_mask=causal(3, 3))
    assert relations(found) == {"src": ALL, "tgt": PREFIX}
    assert found.output == torchscan.Output(1, 3)
    # A free encoder has spread the source before causal memory attention cuts it.
    assert relations(row(module, src, tgt, memory_mask=causal(3, 5)))["src"] == ALL
    # Only where both are causal does the source stay a prefix.
    masked = {"memory_mask": causal(3, 5), "src_mask": causal(5, 5)}
    assert relations(row(module, src, tgt, **masked))["src"] == PREFIX
    assert relations(row(module, src, src, tgt_mask=causal(5, 5))) == {"src/tgt": ALL}


def test_deep_stacks_stop_at_their_fixed_point() -> None:
    assert encoder(7, False, 10**9) == ALL
    assert encoder(7, True, 10**9) == PREFIX
    assert decoder(3, 5, False, True, 10**9) == (ALL, Relation("all", 3))
    assert decoder(3, 5, True, True, 10**9) == (PREFIX, PREFIX)


def test_the_four_kinds_can_say_every_native_composition() -> None:
    # `encoder` and `decoder` raise where they cannot.
    for target, source in itertools.product(range(1, 9), range(1, 9)):
        for causal_target, causal_memory, causal_source in itertools.product((False, True), repeat=3):
            for depth in range(1, 5):
                _, memory = decoder(target, source, causal_target, causal_memory, depth)
                through = memory.through(encoder(source, causal_source, depth), target, source, source)
                assert through is not None


def test_children_of_a_stack_have_their_own_relations() -> None:
    stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 2)
    report = torchscan.scan(stack, args=(torch.ones(3, 1, 4), torch.ones(5, 1, 4)))
    words = {layer.path: describe(layer.token_dependencies) for layer in report.layers}
    assert words[""] == "all + source"
    assert words["layers.1"] == "all + source"
    assert words["layers.1.self_attn"] == "all"
    assert words["layers.1.multihead_attn"] == "local + source"


# -- what it rests on ------------------------------------------------------------------------------------------------


def test_assumptions_say_what_the_relation_rests_on() -> None:
    x = ones(1, 3)

    def text(module: nn.Module, *args: torch.Tensor, **kwargs: Any) -> str:
        return " ".join(row(module, *args, **kwargs).assumptions)

    plain = text(encoder_layer(), x)
    assert "generic finite" in plain
    assert "dropout is off" in plain
    assert "mask" not in plain
    masked = text(encoder_layer(), x, src_mask=causal(3, 3), is_causal=True)
    assert "The src_mask excludes exactly the later positions" in masked
    assert "causal hint" in masked
    biased = text(encoder_layer(), x, src_mask=torch.full((3, 3), 0.5))
    assert "The src_mask excludes no token" in biased
    assert "Finite entries of a floating mask bias the scores" in biased
    padded = text(attention(), x, x, x, key_padding_mask=torch.zeros(1, 3, dtype=torch.bool))
    assert "The key_padding_mask excludes no token" in padded
    assert "attention output alone" in padded
    assert "same tensor object" in padded


def test_structure_mode_and_narrower_metrics_have_no_token_analysis() -> None:
    x = ones(1, 3)
    for options in ({"mode": "structure"}, {"metrics": ("macs",)}):
        report = torchscan.scan(attention(), args=(x, x, x), **options)  # type: ignore[arg-type]
        assert report.layers[0].token_dependencies is None


def test_strict_counts_an_unavailable_relation() -> None:
    x = ones(1, 3)
    irregular = torch.tensor([[False, False, True], [False] * 3, [False] * 3])
    with pytest.raises(torchscan.IncompleteAnalysisError) as caught:
        torchscan.scan(
            attention(), args=(x, x, x), kwargs={"attn_mask": irregular}, strict=True, metrics=("token_dependencies",)
        )
    (found,) = caught.value.report.layers
    assert found.token_dependencies is not None
    assert found.token_dependencies.status == "unavailable"
    # The same call with a mask that a relation describes passes.
    torchscan.scan(
        attention(), args=(x, x, x), kwargs={"attn_mask": causal(3, 3)}, strict=True, metrics=("token_dependencies",)
    )
