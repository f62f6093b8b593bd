"""Token relations: equal to what differentiating shows, and unavailable where no relation says it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hf_models import BATCH, CACHE, CAUSAL, build, ids, inputs
from torch.autograd.functional import jacobian
from torchscan_transformers.guard import Unsupported
from torchscan_transformers.masks import allowed
from torchscan_transformers.plugin import entries
from transformers import DynamicCache

import torchscan

HANDLERS = {entry.target.rpartition(":")[2]: entry for entry in entries()}
TOKENS = 4


def double(name, attention="eager", **options):
    """Build a model in double precision whose parameters are large enough for every path to show."""
    model = build(name, attention, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    return model


def main(output):
    if isinstance(output, torch.Tensor):
        return output
    found = getattr(output, "logits", None)
    found = getattr(output, "last_hidden_state", None) if found is None else found
    return output[0] if found is None else found


def pattern(function, tensor):
    """Return which input tokens (axis 1) move which output tokens (axis 1)."""
    seen = None
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        value = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        matrix = jacobian(function, value)  # (b, t, e, b, s, e)
        here = matrix.movedim((1, matrix.dim() - 2), (0, 1)).flatten(2).abs().amax(-1) > 1e-12  # above rounding
        seen = here if seen is None else seen | here
    return tuple(tuple(row) for row in seen.tolist())


def record(model, kinds, **kwargs):
    """Run a model and return the first call of some classes: (module, args, kwargs, output)."""
    found = {}

    def note(module, args, kwargs, output):
        found.setdefault(type(module).__name__, (module, args, kwargs, output))

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in model.modules()]
    with torch.no_grad():
        model(**kwargs)
    for hook in hooks:
        hook.remove()
    return [found[kind] for kind in kinds]


def relation_of(module, args, kwargs, output):
    call = torchscan.ModuleCall(module, args, kwargs, output)
    return HANDLERS[type(module).__name__](call)["token_dependencies"]


def agrees(module, args, kwargs, output, **names):
    """Compare every source with the dependency on that argument; return the relations by argument."""
    dependencies = relation_of(module, args, kwargs, output)
    assert dependencies.status == "complete", dependencies
    length = main(output).shape[1]
    assert dependencies.output == torchscan.Output(1, length)
    for source in dependencies.sources:
        name = source.arguments[0]
        position = names.get(name)

        def run(value, name=name, position=position):
            if position is None:
                return main(module(*args, **{**kwargs, name: value}))
            return main(module(*args[:position], value, *args[position + 1 :], **kwargs))

        tensor = kwargs[name] if position is None else args[position]
        assert source.length == tensor.shape[1]
        assert source.relation.matrix(length, source.length) == pattern(run, tensor), name
    return {source.arguments: str(source.relation) for source in dependencies.sources}


ATTENTION = {
    "llama": ("LlamaAttention", "LlamaDecoderLayer"),
    "mistral": ("MistralAttention", "MistralDecoderLayer"),
    "qwen2": ("Qwen2Attention", "Qwen2DecoderLayer"),
    "gpt2": ("GPT2Attention", "GPT2Block"),
    "bert": ("BertSelfAttention", "BertLayer"),
    "vit": ("ViTAttention", "ViTLayer"),
}
POSITIONS = {
    "GPT2Attention": {"hidden_states": 0},
    "GPT2Block": {"hidden_states": 0},
    "BertSelfAttention": {"hidden_states": 0},
    "BertLayer": {"hidden_states": 0},
    "ViTAttention": {"hidden_states": 0},
    "ViTLayer": {"hidden_states": 0},
    "T5Attention": {"hidden_states": 0},
    "LlamaDecoderLayer": {"hidden_states": 0},
    "MistralDecoderLayer": {"hidden_states": 0},
    "Qwen2DecoderLayer": {"hidden_states": 0},
    "BertCrossAttention": {"hidden_states": 0},
}


def tokens(name, length=TOKENS):
    if name == "vit":
        return {"pixel_values": torch.ones(1, 3, 8, 8, dtype=torch.float64)}
    return {"input_ids": ids(length, 1), **({} if name == "bert" else {"use_cache": False})}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ATTENTION)
def test_self_attention_and_its_layer(name, attention):
    model = double(name, attention)
    for call in record(model, ATTENTION[name], **tokens(name)):
        found = agrees(*call, **POSITIONS.get(type(call[0]).__name__, {}))
        assert found == {("hidden_states",): "prefix" if name in CAUSAL else "all"}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*CAUSAL, "bert"])
@pytest.mark.parametrize("length", [1, 3])
def test_whole_models(name, attention, length):
    model = double(name, attention)
    for part in (model, model if name == "bert" else model.base_model):
        features = torch.zeros(1, length, 16, dtype=torch.float64)
        extra = {} if name == "bert" else {"use_cache": False}
        with torch.no_grad():
            output = part(inputs_embeds=features, **extra)
        found = agrees(part, (), {"inputs_embeds": features, **extra}, output)
        assert found == {("inputs_embeds",): "prefix" if name in CAUSAL and length > 1 else "all"}


@pytest.mark.parametrize("name", CAUSAL)
def test_a_model_says_it_of_its_token_indices(name):
    model = build(name)
    report = torchscan.crawl_module(model, kwargs={**inputs(name), "use_cache": True})
    root = report["layers"][0]["token_dependencies"]
    assert root["status"] == "complete"
    (source,) = root["sources"]
    assert (source["arguments"], source["sequence_axis"], source["length"]) == (["input_ids"], 1, 5)
    assert source["relation"]["kind"] == "prefix"
    complete = [row for row in report["layers"] if row.get("token_dependencies", {}).get("status") == "complete"]
    # the model, its base, two layers and their attention
    assert len(complete) == 6


def test_a_decoder_that_reads_the_future_is_caught():
    # the causal relation is not assumed from the class: without the mask the module is not causal
    model = double("llama")
    ((module, args, kwargs, _),) = record(model, ["LlamaAttention"], **tokens("llama"))
    kwargs = {**kwargs, "attention_mask": None}
    with torch.no_grad():
        output = module(*args, **kwargs)
    assert agrees(module, args, kwargs, output) == {("hidden_states",): "all"}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", ["t5", "bert", "gpt2"])
def test_cross_attention(name, attention, length):
    memory = torch.randn(1, length, 16, dtype=torch.float64)
    if name == "t5":
        model = double("t5", attention)
        kind, memory_name = "T5Attention", "key_value_states"
        decoder = model.decoder
        (call,) = record(
            decoder.block[0].layer[1],
            [kind],
            hidden_states=torch.ones(1, 4, 16, dtype=torch.float64),
            key_value_states=memory,
        )
    elif name == "bert":
        kind, memory_name = "BertCrossAttention", "encoder_hidden_states"
        model = double("bert", attention, is_decoder=True, add_cross_attention=True)
        (call,) = record(model, [kind], **tokens("bert"), encoder_hidden_states=memory, use_cache=False)
    else:
        kind, memory_name = "GPT2Attention", "encoder_hidden_states"
        model = double("gpt2", attention, add_cross_attention=True)
        (call,) = record(
            model.transformer.h[0].crossattention,
            [kind],
            hidden_states=torch.ones(1, 4, 16, dtype=torch.float64),
            encoder_hidden_states=memory,
        )
    position = {} if "hidden_states" in call[2] else {"hidden_states": 0}
    found = agrees(*call, **position)
    # a softmax over one key is constant: the queries affect nothing
    assert found == {("hidden_states",): "same_position" if length > 1 else "none", (memory_name,): "all"}


def test_t5_self_attention():
    model = double("t5")
    (encoder,) = record(model.encoder, ["T5Attention"], input_ids=ids(TOKENS, 1))
    assert agrees(*encoder, hidden_states=0) == {("hidden_states",): "all"}
    (decoder,) = record(model.decoder, ["T5Attention"], input_ids=ids(TOKENS, 1), use_cache=False)
    assert agrees(*decoder, hidden_states=0) == {("hidden_states",): "prefix"}


def test_queries_and_keys_from_one_tensor():
    model = double("t5")
    features = torch.ones(1, 4, 16, dtype=torch.float64)
    module = model.decoder.block[0].layer[1].EncDecAttention
    kwargs = {"hidden_states": features, "key_value_states": features}
    with torch.no_grad():
        output = module(**kwargs)
    (source,) = relation_of(module, (), kwargs, output).sources
    assert source.arguments == ("hidden_states", "key_value_states")
    assert source.relation == torchscan.Relation("all")


def masks(name):
    """Return masks for 4 tokens with what the relation must be, in the terms of an attention implementation."""
    smallest = torch.finfo(torch.float64).min
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    window = causal & torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(-1)
    padded = causal.clone()
    padded[:, 0] = False
    columns = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    columns[:, 0] = False

    def written(allowed, low=smallest):
        if name == "sdpa":
            return allowed[None, None]
        return torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.float64).masked_fill(~allowed, low)

    return {
        "full": (written(torch.ones_like(causal)), "all"),
        "causal": (written(causal), "prefix"),
        "causal with minus infinity": (written(causal, float("-inf")), "prefix"),
        "bias": (torch.randn(1, 1, TOKENS, TOKENS, dtype=torch.float64), "all"),
        "window": (written(window), "irregular_mask"),
        "padding": (written(padded), "masked_row"),
        "one column": (written(columns), "irregular_mask"),
        "nan": (torch.full((1, 1, TOKENS, TOKENS), float("nan"), dtype=torch.float64), "mask_not_finite"),
        "infinity": (torch.full((1, 1, TOKENS, TOKENS), float("inf"), dtype=torch.float64), "mask_not_finite"),
    }


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", masks("eager"))
def test_masks(case, attention):
    model = double("llama", attention)
    mask, expected = masks(attention)[case]
    ((module, args, kwargs, _),) = record(model, ["LlamaAttention"], **tokens("llama"))
    kwargs = {**kwargs, "attention_mask": mask}
    with torch.no_grad():
        output = module(*args, **kwargs)
    if expected in ("all", "prefix"):
        assert agrees(module, args, kwargs, output) == {("hidden_states",): expected}
        return
    found = relation_of(module, args, kwargs, output)
    assert (found.status, found.reason, found.sources) == ("unavailable", expected, ())
    # the dense work is known all the same
    call = torchscan.ModuleCall(module, args, kwargs, output)
    assert isinstance(HANDLERS["LlamaAttention"](call)["macs"], int)


def reason(model, **kwargs):
    with torch.no_grad():
        output = model(**kwargs)
    found = relation_of(model, (), kwargs, output)
    return found.reason if found.status == "unavailable" else str(found.sources[0].relation)


def test_models_say_why_not():
    llama = build("llama")
    ones, zeros = torch.ones(BATCH, 5, dtype=torch.long), torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])
    assert reason(llama, input_ids=ids(), attention_mask=ones) == "prefix"
    assert reason(llama, input_ids=ids(), attention_mask=zeros) == "padding"
    assert reason(llama, input_ids=ids(), attention_mask=torch.ones(1, 1, 5, 5)) == "mask_shape"
    assert reason(llama, input_ids=ids(), position_ids=torch.arange(5)[None]) == "packed_sequences"
    assert reason(llama, input_ids=ids(), logits_to_keep=1) == "sliced_output"
    assert reason(llama, input_ids=ids(), labels=ids()) == "loss"
    assert reason(build("mistral", sliding_window=5), input_ids=ids()) == "prefix"
    assert reason(build("mistral", sliding_window=4), input_ids=ids()) == "sliding_window"
    assert reason(build("bert"), input_ids=ids(), attention_mask=ones) == "all"
    assert reason(build("bert", is_decoder=True), input_ids=ids(), use_cache=False) == "prefix"
    crossed = build("gpt2", add_cross_attention=True)
    assert reason(crossed, input_ids=ids(), encoder_hidden_states=torch.ones(2, 3, 16)) == "cross_attention_layer"


def test_a_padding_mask_that_excludes_something_is_unavailable_in_every_attention():
    report = torchscan.crawl_module(
        build("gpt2"),
        kwargs={"input_ids": ids(), "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])},
    )
    assert report["totals"]["macs"]["status"] == "complete"
    reasons = {
        (item["path"].rpartition(".")[2], item["reason"])
        for item in report["diagnostics"]
        if item["code"] == "unsupported_token_dependencies"
    }
    assert ("attn", "masked_row") in reasons or ("attn", "irregular_mask") in reasons
    assert ("", "padding") in reasons


def test_tokens_of_earlier_calls_are_no_tokens_of_this_one():
    model = build("gpt2")
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids(4), **{CACHE: cache})
    report = torchscan.crawl_module(model, kwargs={"input_ids": ids(2), CACHE: cache})
    reasons = {item["reason"] for item in report["diagnostics"] if item["metric"] == "token_dependencies"}
    assert reasons == {"past_tokens"}


def test_one_foreign_part_is_enough_to_say_nothing():
    class Mixer(torch.nn.Linear):
        def forward(self, features):
            return super().forward(features.flip(1))

    model = build("llama")
    model.model.layers[1].mlp.down_proj = Mixer(24, 16)
    assert reason(model, input_ids=ids()) == "unknown_part"
    hooked = build("llama")
    hooked.model.norm.register_forward_hook(lambda module, args, output: output.flip(1))
    assert reason(hooked, input_ids=ids()) == "hooks"
    # hooks of the library that record attention weights change nothing
    recorded = build("llama")
    assert reason(recorded, input_ids=ids(), output_attentions=True) == "prefix"


def test_masks_are_read_once_and_not_kept():
    mask = torch.zeros(1, 1, 4, 4)
    assert allowed(mask, mask, 4, 4, additive=True) == "full"
    mask[0, 0, 0, 1] = float("-inf")
    with pytest.raises(Unsupported):  # changed in place: read again
        allowed(mask, mask, 4, 4, additive=True)
    reference = weakref.ref(mask)
    del mask
    gc.collect()
    assert reference() is None


def relations(report):
    return {row["path"]: row["token_dependencies"] for row in report["layers"] if "token_dependencies" in row}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_fake_execution_has_the_same_relations(attention):
    model = build("llama", attention)
    real = torchscan.crawl_module(model, kwargs=inputs("llama"))
    fake = torchscan.crawl_module(model, kwargs=inputs("llama"), execution="fake")
    assert relations(fake) == relations(real)


def test_no_values_no_relation():
    found = {}
    for attention in ("eager", "sdpa"):
        with torch.device("meta"):
            model = build("llama", attention)
        report = torchscan.crawl_module(model, kwargs={"input_ids": ids().to("meta")})
        found[attention] = relations(report)["model.layers.0.self_attn"]["status"]
    # SDPA gets no mask to read
    assert found == {"eager": "unavailable", "sdpa": "complete"}
