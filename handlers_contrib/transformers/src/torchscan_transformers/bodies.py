"""Own bodies: what a module of the library computes in its own `forward`, outside its children and its attention."""

from __future__ import annotations

from math import prod
from typing import Any

import torchscan
from torchscan_transformers import formulas
from torchscan_transformers.arguments import argument
from torchscan_transformers.formulas import NOTHING, Counts
from torchscan_transformers.guard import Unsupported, dense, token_features

#: Rotary embeddings whose frequencies are constants; the others recompute them for each call.
_STATIC_ROPE = frozenset(("default", "linear", "yarn", "llama3"))


def conv1d(call: torchscan.ModuleCall) -> Counts:
    """Estimate the `Conv1D` of GPT-2, a linear map with a transposed weight."""
    features, module = dense(argument(call, "x")), call.module
    weight, bias = dense(module.weight), dense(module.bias)
    inputs, outputs = weight.shape
    return formulas.linear(prod(features.shape[:-1]), inputs, outputs, bias.numel())


def rms_norm(call: torchscan.ModuleCall) -> Counts:
    """Estimate an RMS norm over the features, as `nn.RMSNorm`."""
    features, weight = dense(argument(call, "hidden_states")), dense(call.module.weight)
    elements, width = features.numel(), features.shape[-1]
    if not width:
        raise Unsupported("empty_row", "a norm over no features has no defined count")
    return formulas.rms_norm(elements, elements // width, weight.numel())


def rotary(call: torchscan.ModuleCall) -> Counts | dict[str, Any]:
    """Estimate the cosine and sine tables of rotary position embeddings."""
    module: Any = call.module
    kind = module.rope_type
    if kind not in _STATIC_ROPE:
        state = torchscan.Unavailable(
            "rope_type", message=f"rotary embeddings of type {kind!r} recompute their frequencies; no formula"
        )
        return {"module_flops": state, "macs": 0, "dmas": state}
    positions, table = argument(call, "position_ids"), call.output[0]
    return formulas.rotary_table(positions.numel(), module.inv_freq.numel(), table.numel())


def nothing(call: torchscan.ModuleCall) -> Counts:
    """Estimate a body that only prepares positions and masks: integer, boolean and constant work (F7, F8)."""
    return NOTHING


def one_residual(call: torchscan.ModuleCall) -> Counts:
    """Estimate a body with one residual addition."""
    return _residuals(call, 1)


def two_residuals(call: torchscan.ModuleCall) -> Counts:
    """Estimate a body with two residual additions."""
    return _residuals(call, 2)


def gpt2_block(call: torchscan.ModuleCall) -> Counts:
    """Estimate a GPT-2 block: a residual addition each for attention, cross-attention and feed-forward."""
    return _residuals(call, 2 if argument(call, "encoder_hidden_states") is None else 3)


def _residuals(call: torchscan.ModuleCall, additions: int) -> Counts:
    # in BERT the residual is an argument of its own, and what is added to it comes in at another width
    residual = argument(call, "input_tensor")
    elements = dense(argument(call, "hidden_states") if residual is None else residual).numel()
    return NOTHING.plus(*[formulas.combine(elements)] * additions)


def gated(call: torchscan.ModuleCall) -> Counts:
    """Estimate a gated feed-forward: the product of the two hidden activations (M3: no MACs)."""
    features = dense(argument(call, "x", "hidden_states"))
    last = getattr(call.module, "down_proj", None) or call.module.wo
    width = getattr(last, "in_features", None)
    if not isinstance(width, int):
        raise Unsupported("unknown_width", f"the hidden width of a {type(last).__name__} is not known")
    return formulas.combine(prod(features.shape[:-1]) * width)


def gpt2_embeddings(call: torchscan.ModuleCall) -> Counts:
    """Estimate the body of the GPT-2 model: token, position and token type embeddings are added."""
    module: Any = call.module
    config, tokens = module.config, _token_argument(call)
    positions = argument(call, "position_ids")
    batch, length = prod(tokens.shape[:-1]), tokens.shape[-1]
    elements = batch * length * config.hidden_size
    rows = length if positions is None else positions.numel()
    total = formulas.combine(elements, rows * config.hidden_size)
    if argument(call, "token_type_ids") is not None:
        total = total.plus(formulas.combine(elements))
    return total


def _token_argument(call: torchscan.ModuleCall) -> Any:
    """Return a tensor of the shape of the token indices, whether the tokens came as indices or as features."""
    tokens = argument(call, "input_ids")
    return argument(call, "inputs_embeds")[..., 0] if tokens is None else tokens


def bert_embeddings(call: torchscan.ModuleCall) -> Counts:
    """Estimate the BERT embeddings: token, token type and position embeddings are added."""
    elements = call.output.numel()
    _, length, width = token_features(call.output)
    positions = argument(call, "position_ids")
    rows = length if positions is None else positions.numel()
    return formulas.combine(elements).plus(formulas.combine(elements, rows * width))


def vit_embeddings(call: torchscan.ModuleCall) -> Counts:
    """Estimate the ViT embeddings: masked patches are replaced, positions are added, resampled where asked for."""
    module: Any = call.module
    batch, length, width = token_features(call.output)
    patches = batch * (length - 1) * width
    positions = module.position_embeddings
    total = NOTHING
    if (mask := argument(call, "bool_masked_pos")) is not None:
        total = total.plus(formulas.replace_tokens(patches, mask.numel(), width))
    if argument(call, "interpolate_pos_encoding"):
        _, _, height, image_width = argument(call, "pixel_values").shape
        if not (positions.shape[1] == length and height == image_width):
            known, new = positions.shape[1] - 1, (height // module.patch_size) * (image_width // module.patch_size)
            total = total.plus(formulas.interpolation(known * width, new * width, 16))  # bicubic
    return total.plus(formulas.combine(call.output.numel(), length * width))


def causal_head(call: torchscan.ModuleCall) -> Counts | dict[str, Any]:
    """Estimate the body of a language model with a head: nothing, unless a loss or indexed logits are asked for."""
    if argument(call, "labels") is not None:
        return {}  # the loss is a function of the caller's choice: left to the audit
    keep = argument(call, "logits_to_keep")
    if keep is not None and not isinstance(keep, int):
        return {"module_flops": 0, "macs": 0}  # rows are looked up: left to the audit
    return NOTHING


def t5_head(call: torchscan.ModuleCall) -> Counts | dict[str, Any]:
    """Estimate the body of T5 with a language modeling head: the decoder's output may be scaled."""
    if argument(call, "labels") is not None:
        return {}
    module: Any = call.module
    if not module.config.scale_decoder_outputs:
        return NOTHING
    batch, length, _ = token_features(call.output[0] if isinstance(call.output, tuple) else call.output.logits)
    return formulas.elementwise(batch * length * module.model_dim, 1)


def t5_classification(call: torchscan.ModuleCall) -> Counts:
    """Estimate the T5 classification head: a tanh between two linear maps."""
    return formulas.elementwise(dense(argument(call, "hidden_states")).numel(), 6)


#: FLOPs per element of each activation, by the names of `transformers.activations`.
ACTIVATIONS: dict[str, int] = {
    "GELUActivation": 5,  # scale, erf, add, half, multiply
    "NewGELUActivation": 14,  # the tanh approximation: cube 2, scale, add, scale, tanh 6, add, half, multiply
    "GELUTanh": 14,
    "FastGELUActivation": 14,
    "AccurateGELUActivation": 14,
    "ClippedGELUActivation": 7,  # GELU and two clamps
    "QuickGELUActivation": 6,  # scale, sigmoid 4, multiply
    "SiLUActivation": 5,  # sigmoid 4, multiply
    "MishActivation": 10,
    "LinearActivation": 0,
    "LaplaceActivation": 5,  # subtract, divide, erf, add, half
    "ReLUSquaredActivation": 2,
}


def activation(call: torchscan.ModuleCall) -> Counts:
    """Estimate an activation function of `transformers.activations`, one stage (D4)."""
    elements = dense(argument(call, "input", "x")).numel()
    return formulas.elementwise(elements, ACTIVATIONS[type(call.module).__name__])
