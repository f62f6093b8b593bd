"""Outside of what the formulas describe: a reason, or nothing, and never a number."""

from __future__ import annotations

import importlib
import types

import pytest
import torch
import transformers
from hf_models import BATCH, CACHE, build, ids, inputs
from torch import nn
from torchscan_transformers.plugin import entries
from torchscan_transformers.sources import digest, resolve
from torchscan_transformers.verified import DIGESTS
from transformers.models.llama import modeling_llama

import torchscan

HANDLERS = {entry.target.rpartition(":")[2]: entry for entry in entries()}
COUNTS = ("module_flops", "macs", "dmas")


def attention_call(attention="eager", **changes):
    """Return a call of the first attention of a LLaMA, with some arguments changed."""
    model = build("llama", attention)
    module = model.model.layers[0].self_attn
    seen = {}

    def note(module, args, kwargs):
        seen.update(kwargs)

    hook = module.register_forward_pre_hook(note, with_kwargs=True)
    with torch.no_grad():
        model(input_ids=ids(), use_cache=False)
    hook.remove()
    return module, {**seen, **changes}


def answer(module, kwargs, handler="LlamaAttention", output=None):
    if output is None:
        with torch.no_grad():
            output = module(**kwargs)
    return HANDLERS[handler](torchscan.ModuleCall(module, (), kwargs, output))


def reason(found):
    assert all(isinstance(found[name], torchscan.Unavailable) and found[name].message for name in COUNTS)
    (only,) = {found[name].reason for name in COUNTS}
    return only


def test_the_installed_version_is_one_that_was_tested():
    assert transformers.__version__
    for entry in entries():
        for name in entry.sources.names:
            function = resolve(name)
            if function is None:
                importlib.import_module(name.partition(":")[0])
                function = resolve(name)
            assert digest(function) in DIGESTS[name], name


def test_another_attention_implementation():
    registry = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    module, kwargs = attention_call()
    with torch.no_grad():
        output = module(**kwargs)
    for name in ("flash_attention_2", "flex_attention", "paged|eager", None):
        module.config._attn_implementation = name
        assert reason(answer(module, kwargs, output=output)) == "attention_implementation"
    # a name that is known, with a function that is not
    module.config._attn_implementation = "sdpa"
    registry["sdpa"] = lambda *args, **kwargs: None
    try:
        assert reason(answer(module, kwargs, output=output)) == "attention_implementation"
    finally:
        del registry["sdpa"]
    found = answer(module, kwargs, output=(output[0], None))
    assert isinstance(found["macs"], int)
    assert found["token_dependencies"].status == "complete"


def test_training_mode():
    module, kwargs = attention_call()
    module.train()
    found = answer(module, kwargs)
    assert reason(found) == "training_mode"
    assert found["token_dependencies"].reason == "training_mode"


class OwnForward(modeling_llama.LlamaAttention):
    def forward(self, hidden_states, **kwargs):
        output, weights = super().forward(hidden_states, **kwargs)
        return output @ output.transpose(1, 2) @ output, weights


class Renamed(modeling_llama.LlamaAttention):
    pass


class RenamedLayer(modeling_llama.LlamaDecoderLayer):
    pass


class OwnLayer(modeling_llama.LlamaDecoderLayer):
    def forward(self, hidden_states, **kwargs):
        return super().forward(hidden_states, **kwargs) * 2


def test_another_forward_is_not_ours():
    module, kwargs = attention_call()
    module.__class__ = OwnForward
    assert answer(module, kwargs) == {}
    module.__class__ = Renamed
    assert isinstance(answer(module, kwargs)["macs"], int)
    module.forward = types.MethodType(lambda self, **kwargs: (kwargs["hidden_states"], None), module)
    assert answer(module, kwargs) == {}


def test_the_wrapper_that_the_library_puts_around_a_subclass_is_no_other_forward():
    layer = build("llama").model.layers[0]
    _, kwargs = attention_call()
    layer.__class__ = RenamedLayer
    assert answer(layer, kwargs, "LlamaDecoderLayer")["module_flops"] == 2 * BATCH * 5 * 16
    layer.__class__ = OwnLayer
    assert answer(layer, kwargs, "LlamaDecoderLayer") == {}


def test_a_subclass_with_its_own_forward_is_partial_and_never_complete():
    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.__class__ = OwnForward
    found = torchscan.crawl_module(model, kwargs=inputs("llama"))["totals"]["macs"]
    assert found["status"] == "partial"


def test_source_that_nobody_tested(monkeypatch):
    module, kwargs = attention_call()
    assert isinstance(answer(module, kwargs)["macs"], int)

    def eager_attention_forward(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
        weights = torch.softmax(query @ key.repeat_interleave(2, 1).transpose(2, 3), -1)
        return (weights @ weights @ value.repeat_interleave(2, 1)).transpose(1, 2), weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", eager_attention_forward)
    found = answer(module, kwargs)
    assert reason(found) == "unverified_source"
    assert "eager_attention_forward" in found["macs"].message
    assert transformers.__version__ in found["macs"].message
    monkeypatch.undo()
    assert isinstance(answer(module, kwargs)["macs"], int)


def test_a_rewritten_method_of_the_class(monkeypatch):
    module, kwargs = attention_call()

    def forward(self, hidden_states, **kwargs):
        return self.o_proj(hidden_states), None

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", forward)
    assert reason(answer(module, kwargs)) == "unverified_source"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"head_mask": torch.ones(4)}, "head_mask"),
        ({"layer_head_mask": torch.ones(4)}, "layer_head_mask"),
        ({"position_bias": torch.zeros(1, 4, 5, 5)}, "position_bias"),
        ({"attention_mask": torch.zeros(5, 5)}, "mask_shape"),
    ],
)
def test_arguments_outside_the_formula(changes, expected):
    module, kwargs = attention_call(**changes)
    assert reason(answer(module, kwargs)) == expected


def test_tensors_outside_the_formula():
    module, kwargs = attention_call()
    with torch.no_grad():
        output = module(**kwargs)
    for change, expected in (
        (torch.Tensor.to_sparse, "unsupported_layout"),
        (lambda tensor: tensor.to(torch.complex64), "unsupported_dtype"),
        (lambda tensor: tensor[0], "unsupported_shape"),
        (lambda tensor: torch.nested.nested_tensor(list(tensor), layout=torch.jagged), "unsupported_layout"),
    ):
        changed = {**kwargs, "hidden_states": change(kwargs["hidden_states"])}
        assert reason(answer(module, changed, output=output)) == expected


def test_heads_that_are_not_where_the_configuration_says():
    module, kwargs = attention_call("sdpa")
    with torch.no_grad():
        output = module(**kwargs)
    module.q_proj = nn.Linear(16, 8)
    assert reason(answer(module, kwargs, output=output)) == "unexpected_heads"
    module, kwargs = attention_call()
    with torch.no_grad():
        attended, weights = module(**kwargs)
    assert reason(answer(module, kwargs, output=(attended, weights[:, :2]))) == "unexpected_heads"


def test_no_tokens_and_no_sequences():
    module, kwargs = attention_call()
    with torch.no_grad():
        attended, weights = module(**kwargs)
    empty = {**kwargs, "hidden_states": kwargs["hidden_states"][:, :0]}
    assert reason(answer(module, empty, output=(attended[:, :0], weights[:, :, :0]))) == "empty_attention"
    nobody = {**kwargs, "hidden_states": kwargs["hidden_states"][:0]}
    found = answer(module, nobody, output=(attended[:0], weights[:0]))
    assert tuple(found[name] for name in COUNTS) == (0, 0, 0)


class OwnCache(transformers.DynamicCache):
    pass


def test_a_cache_of_an_unknown_kind():
    model = build("llama", "sdpa")
    report = torchscan.crawl_module(model, kwargs={"input_ids": ids(), CACHE: OwnCache(config=model.config)})
    assert report["totals"]["macs"]["status"] == "partial"
    assert "unknown_cache" in {item.get("reason") for item in report["diagnostics"]}
    # eager attention returns its weights, whose width is the number of keys
    model = build("llama")
    report = torchscan.crawl_module(model, kwargs={"input_ids": ids(), CACHE: OwnCache(config=model.config)})
    assert report["totals"]["macs"]["status"] == "complete"


def test_quantized_weights():
    layer = build("gpt2").transformer.h[0].attn.c_attn
    layer.weight = nn.Parameter(torch.ones(16, 48, dtype=torch.int8), requires_grad=False)
    found = answer(layer, {"x": torch.ones(2, 16)}, "Conv1D", output=torch.ones(2, 48))
    assert reason(found) == "unsupported_dtype"


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(24, dtype=torch.uint8), requires_grad=False)

    def forward(self, features):
        return features[..., :16]


def test_a_feed_forward_of_unknown_width():
    module = build("llama").model.layers[0].mlp
    module.down_proj = Packed()
    assert reason(answer(module, {"x": torch.ones(2, 5, 16)}, "LlamaMLP")) == "unknown_width"


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        {
            "rope_type": "longrope",
            "short_factor": [1.0, 1.0],
            "long_factor": [2.0, 2.0],
            "factor": 2.0,
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 32,
        },
    ],
)
def test_rotary_embeddings_that_recompute_their_frequencies(parameters):
    model = build("llama", rope_parameters=parameters)
    report = torchscan.crawl_module(model, kwargs=inputs("llama"))
    row = next(row for row in report["layers"] if row["path"] == "model.rotary_emb")
    assert {name: row["metrics"][name]["status"] for name in COUNTS} == {
        "module_flops": "unavailable",
        "macs": "complete",
        "dmas": "unavailable",
    }
    assert report["totals"]["macs"]["status"] == "complete"
    assert report["totals"]["module_flops"]["status"] == "partial"


def test_a_loss_and_looked_up_logits_are_left_to_the_audit():
    model = build("llama")
    plain = torchscan.crawl_module(model, kwargs=inputs("llama"))["totals"]
    found = torchscan.crawl_module(model, kwargs={**inputs("llama"), "labels": ids()})["totals"]
    assert found["macs"] == plain["macs"] | {"method": found["macs"]["method"]}
    assert found["module_flops"]["status"] == found["dmas"]["status"] == "partial"
    # the first logits of two positions are looked up: a number for each metric but the accesses of the look-up
    found = torchscan.crawl_module(model, kwargs={**inputs("llama"), "logits_to_keep": torch.tensor([0, 2])})["totals"]
    assert found["macs"]["status"] == "complete"
    # three of five positions less through the head of 16·32
    assert found["macs"]["value"] == plain["macs"]["value"] - BATCH * 3 * 16 * 32


def test_half_precision_t5_clamps_in_its_blocks():
    model = build("t5").to(torch.float16)
    found = torchscan.crawl_module(model, kwargs=inputs("t5"))["totals"]
    assert found["macs"]["status"] == "complete"
    # the block's clamp is no part of any formula here
    assert found["module_flops"]["status"] == "partial"
