"""Tiny models of every architecture, built from a configuration with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import transformers

BATCH, TOKENS, VOCABULARY = 2, 5, 32
_SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT = {**_SMALL, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
_DECODER = {**_TEXT, "num_key_value_heads": 2}


def ids(length: int = TOKENS, batch: int = BATCH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def llama(**options):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**_DECODER, **options}))


def mistral(**options):
    return transformers.MistralForCausalLM(transformers.MistralConfig(**{**_DECODER, "sliding_window": 64, **options}))


def qwen2(**options):
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{**_DECODER, **options}))


def gpt2(**options):
    config = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**config, **options}))


def bert(**options):
    return transformers.BertModel(transformers.BertConfig(**{**_TEXT, **options}))


def t5(**options):
    config = {
        "d_model": 16,
        "d_kv": 6,  # heads that do not divide the width
        "d_ff": 24,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": 4,
        "vocab_size": VOCABULARY,
        "decoder_start_token_id": 0,
    }
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**{**config, **options}))


def vit(**options):
    config = {**_SMALL, "image_size": 8, "patch_size": 4, "num_channels": 3}
    return transformers.ViTModel(transformers.ViTConfig(**{**config, **options}))


BUILDERS: dict[str, Callable[..., torch.nn.Module]] = {
    "llama": llama,
    "mistral": mistral,
    "qwen2": qwen2,
    "gpt2": gpt2,
    "bert": bert,
    "t5": t5,
    "vit": vit,
}
#: transformers 5.21 renamed the argument.
CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaModel.forward).parameters else "past_key_values"
CAUSAL = ("llama", "mistral", "qwen2", "gpt2")


def inputs(name: str) -> dict[str, torch.Tensor]:
    if name == "vit":
        return {"pixel_values": torch.ones(BATCH, 3, 8, 8)}
    if name == "t5":
        return {"input_ids": ids(), "decoder_input_ids": ids(3)}
    return {"input_ids": ids()}


def build(name: str, attention: str = "eager", **options) -> torch.nn.Module:
    torch.manual_seed(0)
    return BUILDERS[name](**{"attn_implementation": attention, **options}).eval()
