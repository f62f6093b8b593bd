"""Random configurations, and heads that no handler knows: complete is exact, incomplete is a lower bound."""

from __future__ import annotations

import pytest
import torch
import transformers
from hf_models import BUILDERS, build, ids, inputs
from hf_oracle import observe
from hypothesis import given, settings
from hypothesis import strategies as st

import torchscan

SIZES = st.integers(1, 3)


@st.composite
def decoders(draw):
    """A LLaMA, Mistral or Qwen2 with its inputs."""
    head_dim, groups, key_heads = 2 * draw(SIZES), draw(SIZES), draw(SIZES)
    options = {
        "num_key_value_heads": key_heads,
        "num_attention_heads": groups * key_heads,
        "hidden_size": groups * key_heads * head_dim,
        "head_dim": head_dim,
        "intermediate_size": draw(st.integers(1, 9)),
        "num_hidden_layers": draw(SIZES),
        "hidden_act": draw(st.sampled_from(("silu", "gelu", "relu", "gelu_new"))),
    }
    name = draw(st.sampled_from(("llama", "mistral", "qwen2")))
    if name == "mistral":
        options["sliding_window"] = draw(st.sampled_from((None, 2, 64)))
    length, batch = draw(st.integers(1, 5)), draw(SIZES)
    inputs = {"input_ids": ids(length, batch), "use_cache": draw(st.booleans())}
    if draw(st.booleans()):
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, : draw(st.integers(0, length - 1))] = 0
        inputs["attention_mask"] = mask
    return name, options, inputs


def compare(name, options, inputs):
    flops, contractions, norms = observe(build(name, **options), **inputs)
    for attention in ("eager", "sdpa"):
        totals = torchscan.crawl_module(build(name, attention, **options), kwargs=inputs)["totals"]
        assert totals["macs"]["value"] == contractions + norms
        if attention == "eager":
            assert totals["module_flops"]["value"] == flops


@settings(max_examples=20, deadline=None)
@given(decoders())
def test_decoders(case):
    compare(*case)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(decoders())
def test_decoders_at_length(case):
    compare(*case)


HEADS = [
    ("bert", "BertForMaskedLM", {}, {}),
    ("bert", "BertForPreTraining", {}, {}),
    ("bert", "BertForSequenceClassification", {}, {}),
    ("bert", "BertForTokenClassification", {}, {}),
    ("bert", "BertForQuestionAnswering", {}, {}),
    ("bert", "BertForNextSentencePrediction", {}, {}),
    ("bert", "BertLMHeadModel", {"is_decoder": True}, {}),
    ("gpt2", "GPT2Model", {}, {}),
    ("gpt2", "GPT2DoubleHeadsModel", {"summary_type": "last"}, {}),
    ("gpt2", "GPT2ForSequenceClassification", {"pad_token_id": 0}, {}),
    ("gpt2", "GPT2ForTokenClassification", {}, {}),
    ("gpt2", "GPT2ForQuestionAnswering", {}, {}),
    ("llama", "LlamaForSequenceClassification", {"pad_token_id": 0}, {}),
    ("llama", "LlamaForTokenClassification", {}, {}),
    ("llama", "LlamaForQuestionAnswering", {}, {}),
    ("mistral", "MistralForTokenClassification", {}, {}),
    ("qwen2", "Qwen2ForTokenClassification", {}, {}),
    ("t5", "T5EncoderModel", {}, {}),
    ("t5", "T5ForTokenClassification", {}, {}),
    ("t5", "T5Model", {}, {"decoder_input_ids": ids(3)}),
    ("t5", "T5ForQuestionAnswering", {}, {"decoder_input_ids": ids(3)}),
    ("vit", "ViTForImageClassification", {}, {}),
    ("vit", "ViTForMaskedImageModeling", {"encoder_stride": 4}, {}),
]


@pytest.mark.parametrize(("name", "kind", "options", "extra"), HEADS, ids=[head[1] for head in HEADS])
def test_heads(name, kind, options, extra):
    config = type(build(name).config)(**{**build(name).config.to_dict(), **options})
    model = getattr(transformers, kind)(config).eval()
    model.set_attn_implementation("eager")
    first = {"pixel_values": torch.ones(2, 3, 8, 8)} if name == "vit" else {"input_ids": ids()}
    totals = torchscan.crawl_module(model, kwargs={**first, **extra})["totals"]
    flops, contractions, norms = observe(model, **first, **extra)
    assert (totals["macs"]["status"], totals["macs"]["value"]) == ("complete", contractions + norms)
    found = totals["module_flops"]
    assert found["value"] == flops if found["status"] == "complete" else found["known_value"] <= flops


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "vit"])
@pytest.mark.parametrize("extra", [{"output_attentions": True}, {"output_hidden_states": True}, {"return_dict": False}])
def test_how_outputs_are_returned_changes_nothing(name, extra):
    plain = torchscan.crawl_module(build(name), kwargs=inputs(name))["totals"]
    found = torchscan.crawl_module(build(name), kwargs={**inputs(name), **extra})["totals"]
    for metric in ("module_flops", "macs", "dmas"):
        assert found[metric] == plain[metric]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "t5"])
def test_tokens_may_come_as_features(name):
    features = {"inputs_embeds": torch.ones(2, 5, 16)}
    if name == "t5":
        features["decoder_inputs_embeds"] = torch.ones(2, 3, 16)
    model = build(name)
    flops, contractions, norms = observe(model, **features)
    totals = torchscan.crawl_module(model, kwargs=features)["totals"]
    assert totals["macs"]["value"] == contractions + norms
    assert totals["module_flops"]["value"] == flops
