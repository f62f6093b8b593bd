"""Whole models: the totals are what the dispatcher sees on the eager path, exactly."""

from __future__ import annotations

import pytest
import torch
from hf_models import BATCH, BUILDERS, CACHE, CAUSAL, TOKENS, build, ids, inputs
from hf_oracle import observe
from transformers import DynamicCache, StaticCache, T5Config, T5ForSequenceClassification, ViTConfig, ViTModel

import torchscan

COUNTS = ("module_flops", "macs", "dmas")


def totals(model, **kwargs):
    report = torchscan.crawl_module(model, kwargs=kwargs)
    found = {name: report["totals"][name] for name in COUNTS}
    assert {name: state["status"] for name, state in found.items()} == dict.fromkeys(COUNTS, "complete")
    return {name: state["value"] for name, state in found.items()}


def check(model, **kwargs):
    flops, contractions, norms = observe(model, **kwargs)
    found = totals(model, **kwargs)
    assert found["macs"] == contractions + norms
    assert found["module_flops"] == flops
    return found


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("name", BUILDERS)
def test_eager(name, use_cache):
    extra = {} if name in ("vit", "bert") else {"use_cache": use_cache}
    check(build(name), **inputs(name), **extra)


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("name", BUILDERS)
def test_sdpa_has_the_same_contractions(name, use_cache):
    extra = {} if name in ("vit", "bert") else {"use_cache": use_cache}
    eager = totals(build(name), **inputs(name), **extra)
    sdpa = totals(build(name, "sdpa"), **inputs(name), **extra)
    assert sdpa["macs"] == eager["macs"]
    # Where eager adds a causal mask to the scores, SDPA has a hint and no mask.
    assert sdpa["module_flops"] <= eager["module_flops"]
    if name in ("bert", "vit"):
        assert sdpa == eager


PADDING = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "vit"])
def test_a_padding_mask_leaves_the_dense_work_alone(name, attention):
    model = build(name, attention)
    plain = totals(model, **inputs(name))
    found = totals(model, **inputs(name), attention_mask=PADDING)
    assert found["macs"] == plain["macs"]
    if attention == "eager":
        check(model, **inputs(name), attention_mask=PADDING)
    elif name != "t5":  # whose decoder still has a causal hint and no mask
        # the mask is explicit now, as in eager attention
        assert found == totals(build(name), **inputs(name), attention_mask=PADDING)


@pytest.mark.parametrize("name", [*CAUSAL, "bert"])
def test_a_prepared_mask(name):
    mask = torch.full((TOKENS, TOKENS), torch.finfo(torch.float32).min).triu(1).expand(BATCH, 1, -1, -1)
    found = check(build(name), **inputs(name), attention_mask=mask)
    assert found == totals(build(name, "sdpa"), **inputs(name), attention_mask=mask)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", CAUSAL)
def test_tokens_after_a_cached_prompt(name, length):
    for attention in ("eager", "sdpa"):
        model = build(name, attention)
        caches = []
        for _ in range(2):
            cache = DynamicCache(config=model.config)
            with torch.no_grad():
                model(input_ids=ids(4), **{CACHE: cache}, use_cache=True)
            caches.append(cache)
        _, contractions, norms = observe(build(name), input_ids=ids(length), **{CACHE: caches[0]})
        found = totals(model, input_ids=ids(length), **{CACHE: caches[1]})
        assert found["macs"] == contractions + norms


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["mistral", "qwen2"])
def test_a_sliding_window(name, attention):
    options = {"sliding_window": 3}
    if name == "qwen2":
        options |= {"use_sliding_window": True, "max_window_layers": 1}
    eager, model = build(name, **options), build(name, attention, **options)
    _, contractions, norms = observe(eager, **inputs(name), use_cache=False)
    assert totals(model, **inputs(name), use_cache=False)["macs"] == contractions + norms
    # Seven tokens in three steps through a cache that keeps two keys of each sliding layer.
    caches = [DynamicCache(config=model.config) for _ in range(2)]
    for step in (4, 2, 1):
        _, contractions, norms = observe(eager, input_ids=ids(step), **{CACHE: caches[0]})
        assert totals(model, input_ids=ids(step), **{CACHE: caches[1]})["macs"] == contractions + norms


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_static_cache(attention):
    model = build("llama", attention)
    caches = [StaticCache(config=model.config, max_cache_len=9) for _ in range(2)]
    for step in (4, 1):
        with torch.no_grad():
            real = totals(model, input_ids=ids(step), **{CACHE: caches[1]})
        if attention == "eager":
            _, contractions, norms = observe(model, input_ids=ids(step), **{CACHE: caches[0]})
            assert real["macs"] == contractions + norms
        elif step == 4:
            # SDPA cuts the unused keys off a prompt: the work of no cache at all
            assert real["macs"] == totals(model, input_ids=ids(4), use_cache=False)["macs"]


@pytest.mark.parametrize(
    ("name", "options", "extra"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}, {}),
        ("llama", {"num_key_value_heads": 4, "head_dim": 8, "hidden_act": "gelu"}, {"logits_to_keep": 2}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}, {}),
        ("gpt2", {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True}, {}),
        ("gpt2", {"activation_function": "gelu"}, {"token_type_ids": ids() % 2}),
        ("gpt2", {"activation_function": "relu", "scale_attn_weights": False}, {}),
        ("gpt2", {"activation_function": "silu"}, {"position_ids": torch.arange(TOKENS)[None]}),
        ("gpt2", {"activation_function": "quick_gelu"}, {}),
        ("gpt2", {"activation_function": "gelu_fast"}, {}),
        ("gpt2", {"activation_function": "gelu_python"}, {}),
        ("gpt2", {"activation_function": "gelu_pytorch_tanh"}, {}),
        ("gpt2", {"activation_function": "gelu_python_tanh"}, {}),
        ("gpt2", {"activation_function": "gelu_accurate"}, {}),
        ("gpt2", {"activation_function": "gelu_10"}, {}),
        ("gpt2", {"activation_function": "laplace"}, {}),
        ("gpt2", {"activation_function": "relu2"}, {}),
        ("gpt2", {"activation_function": "linear"}, {}),
        ("gpt2", {"add_cross_attention": True}, {"encoder_hidden_states": torch.ones(BATCH, 3, 16)}),
        ("bert", {"is_decoder": True}, {"token_type_ids": ids() % 2}),
        ("bert", {"chunk_size_feed_forward": 5}, {}),
        (
            "bert",
            {"is_decoder": True, "add_cross_attention": True},
            {"encoder_hidden_states": torch.ones(BATCH, 3, 16)},
        ),
        ("t5", {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, {}),
        ("t5", {"feed_forward_proj": "gated-silu", "scale_decoder_outputs": True}, {"attention_mask": PADDING}),
        ("t5", {"is_encoder_decoder": True}, {"decoder_attention_mask": torch.ones(BATCH, 3, dtype=torch.long)}),
        ("vit", {"qkv_bias": False, "hidden_act": "gelu_new"}, {}),
    ],
)
def test_configurations(name, options, extra):
    check(build(name, **options), **inputs(name), **extra)


def test_larger_images_resample_the_positions():
    model = build("vit")
    # bicubic resampling of 2x2 positions to 4x3 for 16 features: 192 values of 16 terms each
    check(model, pixel_values=torch.ones(1, 3, 16, 12), interpolate_pos_encoding=True)
    check(model, pixel_values=torch.ones(1, 3, 8, 8), interpolate_pos_encoding=True)


def test_masked_patches():
    config = build("vit").config
    assert isinstance(config, ViTConfig)
    model = ViTModel(config, use_mask_token=True).eval()
    check(model, pixel_values=torch.ones(BATCH, 3, 8, 8), bool_masked_pos=torch.ones(BATCH, 4, dtype=torch.bool))


def test_a_classification_head():
    config = T5Config(**{**build("t5").config.to_dict(), "num_labels": 3, "eos_token_id": 1})
    model = T5ForSequenceClassification(config).eval()
    tokens = ids()
    tokens[:, -1] = 1
    report = torchscan.crawl_module(model, kwargs={"input_ids": tokens, "decoder_input_ids": tokens})
    assert report["totals"]["macs"]["status"] == "complete"
    rows = {row["path"]: row for row in report["layers"]}
    # tanh of 2·16 features
    assert rows["classification_head"]["metrics"]["module_flops"]["value"] == 2 * 16 * 6


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_numbers_changes_nothing(name, dtype):
    values = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs(name).items()}
    assert totals(build(name).to(dtype), **values) == totals(build(name), **inputs(name))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", BUILDERS)
def test_fake_execution_and_the_meta_device_change_nothing(name, attention):
    expected = totals(build(name, attention), **inputs(name))
    fake = torchscan.crawl_module(build(name, attention), kwargs=inputs(name), execution="fake")
    assert {metric: fake["totals"][metric]["value"] for metric in COUNTS} == expected
    with torch.device("meta"):
        model = build(name, attention)
    found = torchscan.crawl_module(model, kwargs={key: value.to("meta") for key, value in inputs(name).items()})
    assert {metric: found["totals"][metric]["value"] for metric in COUNTS} == expected
