"""Single rows, by hand. B = 2 sequences of T = 5 tokens, E = 16 features, H = 4 heads of D = 4, F = 24.

Q = B·H·T·D = 160 query elements, A = B·H·T·T = 200 scores, R = B·H·T = 40 softmax rows. A dot product of 4 terms is 7
operations, of 5 terms 9.
"""

from __future__ import annotations

import pytest
import torch
from hf_models import CACHE, build, ids, inputs
from transformers import DynamicCache, ViTModel

import torchscan

# attention without rotary embeddings, keys of every head, no mask:
# scores 200·7, scale 200, softmax 5·200 - 2·40, weighted values 160·9;
# 160 + 160 + 200, 2·200, 8·200 + 4·40, 200 + 160 + 160
PLAIN = (1400 + 200 + 920 + 1440, 2 * 200 * 4, 520 + 400 + 1760 + 520)
# an explicit mask of (2, 1, 5, 5) = 50 entries: 200 additions; 50 + 2·200
MASK = (200, 0, 450)


def plus(*rows):
    return tuple(sum(column) for column in zip(*rows, strict=True))


ROWS = {
    "llama": {
        "": (0, 0, 0),
        "model": (0, 0, 0),
        # tables of (1, 5, 4) = 20: 10 angles from 5 positions and 2 frequencies, then a function and a scale for each
        "model.rotary_emb": (10 + 40 + 40, 0, 5 + 2 + 10 + 40 + 40),
        # two residuals of 160
        "model.layers.0": (320, 0, 2 * 480),
        # 3·160 + 2·10, and 160 for the weight; 160 squares and 160 products; 3·160 + 4·10 + 1 and 2·160 + 16
        "model.layers.0.input_layernorm": (660, 320, 857),
        # two key heads: 80 key and 80 value elements are read in place of 160; rotating 160 queries and 80 keys is
        # 3.5 operations each, and reads both tables of 20
        "model.layers.0.self_attn": plus(PLAIN, MASK, (560 + 280, 0, 320 + 40 + 160 + 40 - 80 - 80)),
        # the product of two activations of 2·5·24 = 240
        "model.layers.0.mlp": (240, 0, 720),
        "model.layers.0.mlp.act_fn": (5 * 240, 0, 480),
    },
    "gpt2": {
        "": (0, 0, 0),
        # 160 additions of a (1, 5, 16) position embedding
        "transformer": (160, 0, 160 + 80 + 160),
        "transformer.h.0": (320, 0, 960),
        "transformer.h.0.attn": plus(PLAIN, MASK),
        # 480 dot products of 16 terms (31) and as many biases; 160 + 16·48 + 48 + 480
        "transformer.h.0.attn.c_attn": (480 * 31 + 480, 7680, 1456),
        "transformer.h.0.mlp": (0, 0, 0),
        # the tanh approximation of GELU on 2·5·64 = 640
        "transformer.h.0.mlp.act": (14 * 640, 0, 1280),
    },
    "bert": {
        "": (0, 0, 0),
        # token types: 160 and 3·160; positions of (1, 5, 16): 160 and 160 + 80 + 160
        "embeddings": (320, 0, 480 + 400),
        "encoder.layer.0": (0, 0, 0),
        "encoder.layer.0.attention.self": PLAIN,
        "encoder.layer.0.attention.output": (160, 0, 480),
        "encoder.layer.0.output": (160, 0, 480),
        "encoder.layer.0.intermediate.intermediate_act_fn": (5 * 240, 0, 480),
        "pooler": (0, 0, 0),
    },
    "t5": {
        # heads of D = 6: 240 query and key elements, dot products of 6 terms (11); a position bias of 4·5·5 = 100
        "encoder.block.0.layer.0.SelfAttention": (
            200 * 11 + 200 + 200 + 920 + 240 * 9,
            2 * 200 * 6,
            680 + 400 + (100 + 400) + 1760 + 680,
        ),
        # 3 queries, 5 keys: 144 and 240 elements, 120 scores, 24 rows; a bias of 4·3·5 = 60 zeros is still added
        "decoder.block.0.layer.1.EncDecAttention": (
            120 * 11 + 120 + 120 + (600 - 48) + 144 * 9,
            2 * 120 * 6,
            504 + 240 + (60 + 240) + (960 + 96) + 504,
        ),
        "encoder.block.0.layer.0": (160, 0, 480),
        "encoder.block.0.layer.1": (160, 0, 480),
        "decoder.block.0.layer.1": (96, 0, 288),
        "encoder.block.0.layer.0.layer_norm": (660, 320, 857),
        "encoder": (0, 0, 0),
        # logits come from 2·3·16 = 96 features scaled by a constant
        "": (96, 0, 192),
    },
    "vit": {
        "": (0, 0, 0),
        # 4 patches and a class token: 5 tokens as above; positions of (1, 5, 16)
        "embeddings": (160, 0, 400),
        "layers.0": (320, 0, 960),
        "layers.0.attention": PLAIN,
        "layers.0.mlp.activation_fn": (5 * 240, 0, 480),
    },
}


def rows(model, **kwargs):
    report = torchscan.crawl_module(model, kwargs=kwargs)
    return {row["path"]: row for row in report["layers"] if row["call_index"] == 0}


def counts(row):
    return tuple(row["metrics"][name]["value"] for name in ("module_flops", "macs", "dmas"))


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    extra = {"scale_decoder_outputs": True} if name == "t5" else {}
    found = rows(build(name, **extra), **inputs(name))
    assert {path: counts(found[path]) for path in ROWS[name]} == ROWS[name]


def test_sdpa_with_a_causal_hint_has_no_mask_stage():
    found = rows(build("gpt2", "sdpa"), **inputs("gpt2"))
    assert counts(found["transformer.h.0.attn"]) == PLAIN


def test_a_decoding_step_reads_the_cached_keys():
    model = build("gpt2", "sdpa")
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids(4), **{CACHE: cache})
    found = rows(model, input_ids=ids(1), **{CACHE: cache})
    # 1 query, 5 keys: 32 query elements, 160 key elements, 40 scores, 8 rows
    assert counts(found["transformer.h.0.attn"]) == (
        40 * 7 + 40 + (200 - 16) + 32 * 9,
        2 * 40 * 4,
        (32 + 160 + 40) + 80 + (320 + 32) + (40 + 160 + 32),
    )


def test_masked_patches():
    model = ViTModel(build("vit").config, use_mask_token=True).eval()
    found = rows(model, **inputs("vit"), bool_masked_pos=torch.ones(2, 4, dtype=torch.bool))
    # beside the 160 additions: 2·4·16 = 128 patch features, 8 mask entries: 1 - mask, two products and a sum;
    # 128 + 8 + 16 reads and 128 writes
    assert counts(found["embeddings"]) == (160 + 8 + 3 * 128, 0, 400 + 280)


def test_resampled_positions():
    found = rows(build("vit"), pixel_values=torch.ones(1, 3, 16, 12), interpolate_pos_encoding=True)
    # 2·2 positions to 4·3, of 16 features: 192 weighted sums of 16 terms (31); 64 reads, 192 writes;
    # then 13·16 = 208 additions
    assert counts(found["embeddings"]) == (192 * 31 + 208, 192 * 16, 64 + 192 + 3 * 208)


def test_the_method_names_the_formula():
    found = rows(build("llama"), **inputs("llama"))
    assert found["model.layers.0.self_attn"]["metrics"]["macs"]["method"] == (
        "plugin:transformers:torchscan_transformers.attention.counts"
    )
    assert found["model.layers.0.mlp"]["metrics"]["macs"]["method"] == (
        "plugin:transformers:torchscan_transformers.bodies.gated"
    )
    assert found["model.layers.0.mlp"]["handlers"]["macs"] == "transformers"


def test_spatial_scalars_are_not_applicable():
    row = rows(build("llama"), **inputs("llama"))["model.layers.0.self_attn"]
    for name in ("receptive_field", "effective_stride", "effective_padding"):
        assert row["metrics"][name]["method"] == "not_applicable"
