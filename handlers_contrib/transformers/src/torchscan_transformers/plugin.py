"""The plugin: which classes it knows. Loading it imports neither transformers nor torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torchscan
from torchscan_transformers import attention, bodies, tokens
from torchscan_transformers.attention import SDPA, Facts
from torchscan_transformers.guard import Estimate, Guarded, Relate

_MODELS = "transformers.models"
#: The decoders that share LLaMA's architecture: module and prefix of the class names.
LLAMA_LIKE = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}
_ATTENTION_FUNCTIONS = (SDPA, "transformers.integrations.sdpa_attention:repeat_kv")
_CACHES = (
    "transformers.cache_utils:DynamicLayer.update",
    "transformers.cache_utils:DynamicSlidingWindowLayer.update",
    "transformers.cache_utils:StaticLayer.update",
)
_MASKS = tuple(
    f"transformers.masking_utils:{name}"
    for name in (
        "create_causal_mask",
        "create_sliding_window_causal_mask",
        "create_bidirectional_mask",
        "_preprocess_mask_arguments",
        "eager_mask",
        "sdpa_mask",
    )
)


def _attention(
    target: str, read: Callable[[torchscan.ModuleCall], Facts], *functions: str, memory: str = "hidden_states"
) -> Guarded:
    return Guarded(
        target,
        (
            f"{target}.forward",
            f"{target.partition(':')[0]}:eager_attention_forward",
            *functions,
            *_ATTENTION_FUNCTIONS,
            *_CACHES,
        ),
        attention.counts,
        functools.partial(tokens.attention, memory_name=memory),
        read,
    )


def _body(target: str, counts: Estimate, *functions: str, relation: Relate | None = None) -> Guarded:
    return Guarded(target, (f"{target}.forward", *functions), counts, relation)


def _layer(attention_path: str) -> Relate:
    return functools.partial(tokens.layer, attention_path=attention_path)


def _model(*, causal: bool, output: str = "last_hidden_state") -> Relate:
    return functools.partial(tokens.model, causal=causal, output=output)


def _llama(module: str, prefix: str) -> Iterator[Guarded]:
    home = f"{_MODELS}.{module}.modeling_{module}"
    yield _attention(
        f"{home}:{prefix}Attention",
        attention.llama_facts,
        f"{home}:apply_rotary_pos_emb",
        f"{home}:rotate_half",
        f"{home}:repeat_kv",
    )
    yield _body(f"{home}:{prefix}RMSNorm", bodies.rms_norm)
    yield _body(f"{home}:{prefix}RotaryEmbedding", bodies.rotary)
    yield _body(f"{home}:{prefix}MLP", bodies.gated)
    yield _body(f"{home}:{prefix}DecoderLayer", bodies.two_residuals, relation=_layer("self_attn"))
    yield _body(f"{home}:{prefix}Model", bodies.nothing, *_MASKS, relation=_model(causal=True))
    yield _body(f"{home}:{prefix}ForCausalLM", bodies.causal_head, relation=_model(causal=True, output="logits"))


def _gpt2() -> Iterator[Guarded]:
    home = f"{_MODELS}.gpt2.modeling_gpt2"
    yield _body("transformers.pytorch_utils:Conv1D", bodies.conv1d)
    yield _attention(
        f"{home}:GPT2Attention",
        attention.gpt2_facts,
        f"{home}:GPT2Attention._upcast_and_reordered_attn",
        memory="encoder_hidden_states",
    )
    yield _body(f"{home}:GPT2MLP", bodies.nothing)
    yield _body(f"{home}:GPT2Block", bodies.gpt2_block, relation=_layer("attn"))
    yield _body(f"{home}:GPT2Model", bodies.gpt2_embeddings, *_MASKS, relation=_model(causal=True))
    yield _body(f"{home}:GPT2LMHeadModel", bodies.causal_head, relation=_model(causal=True, output="logits"))


def _bert() -> Iterator[Guarded]:
    home = f"{_MODELS}.bert.modeling_bert"
    yield _body(f"{home}:BertEmbeddings", bodies.bert_embeddings)
    yield _attention(f"{home}:BertSelfAttention", attention.bert_facts)
    yield _attention(f"{home}:BertCrossAttention", attention.bert_cross_facts, memory="encoder_hidden_states")
    for name, counts in (
        ("SelfOutput", bodies.one_residual),
        ("Output", bodies.one_residual),
        ("Attention", bodies.nothing),
        ("Intermediate", bodies.nothing),
        ("Encoder", bodies.nothing),
        ("Pooler", bodies.nothing),
    ):
        yield _body(f"{home}:Bert{name}", counts)
    yield _body(
        f"{home}:BertLayer", bodies.nothing, f"{home}:BertLayer.feed_forward_chunk", relation=_layer("attention.self")
    )
    yield _body(
        f"{home}:BertModel",
        bodies.nothing,
        f"{home}:BertModel._create_attention_masks",
        *_MASKS,
        relation=_bert_model,
    )


def _bert_model(call: torchscan.ModuleCall) -> torchscan.TokenDependencies:
    config: Any = call.module.config
    return tokens.model(call, causal=bool(config.is_decoder), output="last_hidden_state")


def _t5() -> Iterator[Guarded]:
    home = f"{_MODELS}.t5.modeling_t5"
    yield _body(f"{home}:T5LayerNorm", bodies.rms_norm)
    yield _body(f"{home}:T5DenseGatedActDense", bodies.gated)
    yield _body(f"{home}:T5LayerFF", bodies.one_residual)
    yield _body(f"{home}:T5LayerSelfAttention", bodies.one_residual)
    yield _body(f"{home}:T5LayerCrossAttention", bodies.one_residual)
    yield _attention(
        f"{home}:T5Attention",
        attention.t5_facts,
        f"{home}:T5Attention.compute_bias",
        f"{home}:T5Attention._relative_position_bucket",
        "transformers.integrations.sdpa_attention:create_position_bias_mask",
        memory="key_value_states",
    )
    yield _body(f"{home}:T5Stack", bodies.nothing, *_MASKS)
    yield _body(f"{home}:T5ForConditionalGeneration", bodies.t5_head)
    yield _body(f"{home}:T5ClassificationHead", bodies.t5_classification)


def _vit() -> Iterator[Guarded]:
    home = f"{_MODELS}.vit.modeling_vit"
    yield _body(f"{home}:ViTEmbeddings", bodies.vit_embeddings, f"{home}:ViTEmbeddings.interpolate_pos_encoding")
    yield _attention(f"{home}:ViTAttention", attention.vit_facts)
    yield _body(f"{home}:ViTMLP", bodies.nothing)
    yield _body(f"{home}:ViTLayer", bodies.two_residuals, relation=_layer("attention"))
    yield _body(f"{home}:ViTModel", bodies.nothing, *_MASKS)


def _activations() -> Iterator[Guarded]:
    home = "transformers.activations"
    # these call a function that they chose when they were made
    chosen = {
        "GELUActivation": ("__init__", "_gelu_python"),
        "GELUTanh": ("__init__", "_gelu_tanh_python"),
        "MishActivation": ("__init__",),
    }
    for name in bodies.ACTIVATIONS:
        functions = [f"{home}:{name}.{function}" for function in chosen.get(name, ())]
        yield _body(f"{home}:{name}", bodies.activation, *functions)


@functools.cache
def entries() -> tuple[Guarded, ...]:
    """Return every handler of the pack."""
    found = [entry for module, prefix in LLAMA_LIKE.items() for entry in _llama(module, prefix)]
    return (*found, *_gpt2(), *_bert(), *_t5(), *_vit(), *_activations())


def relied_on() -> frozenset[str]:
    """Return every function of the library that the handlers describe, `module:qualified.name`."""
    return frozenset(name for entry in entries() for name in entry.sources.names)


@torchscan.hookimpl
def torchscan_register_handlers() -> Iterator[torchscan.HandlerRegistration]:
    """Offer handlers for the models of transformers, by name."""
    for entry in entries():
        yield torchscan.HandlerRegistration(entry.target.replace(":", "."), entry.handler())
