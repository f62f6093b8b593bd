"""Every handler keeps the contract: the conformance kit, on the calls that small models really make.

Its oracle compares the MACs of an own body with the contractions dispatched there.
"""

from __future__ import annotations

import functools

import pytest
import torch
from hf_models import BATCH, build, inputs
from torchscan_transformers.plugin import entries, torchscan_register_handlers

from torchscan.testing import Sample, check_pack_import, conformance_cases

RUNS = {
    **{name: (name, {}, {}) for name in ("llama", "mistral", "qwen2", "gpt2", "bert", "t5", "vit")},
    "llama-sdpa": ("llama", {"attn_implementation": "sdpa"}, {}),
    "t5-gated": ("t5", {"feed_forward_proj": "gated-gelu"}, {}),
    "bert-cross": (
        "bert",
        {"is_decoder": True, "add_cross_attention": True},
        {"encoder_hidden_states": torch.ones(BATCH, 3, 16)},
    ),
}


@functools.cache
def calls(run):
    """Return the first call of every class of a model: class name to (module, args, kwargs)."""
    name, options, extra = RUNS[run]
    model = build(name, **options)
    found = {}

    def note(module, args, kwargs, output):
        found.setdefault(type(module).__name__, (module, args, kwargs))

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in model.modules()]
    with torch.no_grad():
        model(**inputs(name), **extra, **({} if name in ("bert", "vit") else {"use_cache": False}))
    for hook in hooks:
        hook.remove()
    return found


def sample(target):
    kind = target.rpartition(":")[2]
    for run in RUNS:
        if kind in calls(run):
            return Sample(functools.partial(calls(run).get, kind), run)
    if target.startswith("transformers.activations:"):
        import transformers.activations

        return Sample(lambda: (_activation(getattr(transformers.activations, kind)), (torch.ones(2, 3),), {}))
    if kind == "T5ClassificationHead":
        from transformers.models.t5.modeling_t5 import T5ClassificationHead

        head = T5ClassificationHead(build("t5").config).eval()
        return Sample(lambda: (head, (torch.ones(2, 16),), {}))
    raise AssertionError(f"no call of {target}")


def _activation(kind):
    return (kind(-1.0, 1.0) if kind.__name__ == "ClippedGELUActivation" else kind()).eval()


def norm_terms(call):
    """Return what the conventions count beside contractions: squares and weight products of a norm (M2)."""
    return 2 * call.output.numel() if type(call.module).__name__.endswith(("RMSNorm", "T5LayerNorm")) else 0


OFFERS = {offer.target: offer for offer in torchscan_register_handlers()}


def checks(entry):
    """Return all checks, or one where the same function already answers for another class of the same code."""
    same = "mistral" in entry.target or "qwen2" in entry.target or entry.target.startswith("transformers.activations:")
    return ("states_are_legal",) if same and not entry.target.endswith(":NewGELUActivation") else None


CASES = [
    case
    for entry in entries()
    for case in conformance_cases(
        OFFERS[entry.target.replace(":", ".")],
        [sample(entry.target)],
        checks=checks(entry),
        oracle=norm_terms,
        name=entry.target.rpartition(":")[2],
    )
]


@pytest.mark.parametrize("case", CASES)
def test_contract(case):
    case()


def test_the_pack_imports_without_its_library():
    check_pack_import("torchscan_transformers.plugin", ("transformers", "torch"))
