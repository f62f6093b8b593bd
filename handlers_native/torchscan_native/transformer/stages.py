"""Reading the stages of a module: what is there, whether it is native, and its sizes."""

from __future__ import annotations

from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import nn

from torchscan_native.transformer.boundaries import Outside
from torchscan_native.transformer.dims import AttentionDims, FeedForwardDims, NormDims
from torchscan_native.transformer.natives import OUTPUT_PROJECTIONS, check_stage
from torchscan_native.transformer.operands import Masks, has_parameter, parameter_shape

__all__ = ["attention_dims", "attention_layout", "check_dropout", "feed_forward_dims", "norm_dims"]

#: In-place forms read and write as much as the others.
_RELU: Final = (F.relu, torch.relu, torch.relu_)
_GELU: Final = (F.gelu,)
_ACTIVATION_FLAGS: Final = {"relu": (0, 1), "gelu": (0, 2)}


def attention_layout(state: dict[str, Any]) -> bool:
    """Return `batch_first` of an attention.

    Raises:
        Outside: it is no `bool`, or the attention is in training mode.

    """
    if state["training"]:
        raise Outside("training_mode", "it is in training mode")
    batch_first = state["batch_first"]
    if batch_first is not True and batch_first is not False:
        raise Outside("argument_type", f"batch_first is a {type(batch_first).__name__}")
    return bool(batch_first)


def attention_dims(
    state: dict[str, Any],
    batch: int,
    target: int,
    source: int,
    widths: tuple[int, int, int],
    masks: Masks,
    averaged_weights: bool = False,
) -> AttentionDims:
    """Read one attention.

    Args:
        state: instance dictionary of the `nn.MultiheadAttention`.
        batch: B.
        target: T.
        source: S.
        widths: of the query, key and value inputs.
        masks: the explicit masks.
        averaged_weights: head-averaged weights are returned.

    Raises:
        Outside: it is no native attention of these inputs.

    """
    parameters = state["_parameters"]
    if (
        parameters.get("bias_k") is not None
        or parameters.get("bias_v") is not None
        or (state.get("bias_k") is not None or state.get("bias_v") is not None)
    ):
        raise Outside("add_bias_kv", "it has a key or value bias token")
    if state["add_zero_attn"]:
        raise Outside("add_zero_attn", "it appends a zero token")
    embed_dim, num_heads = state["embed_dim"], state["num_heads"]
    if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
        raise Outside("projection_shape", f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}")
    if state["_qkv_same_embed_dim"]:
        kdim = vdim = embed_dim
        if not has_parameter(parameters, "in_proj_weight", (3 * embed_dim, embed_dim), "projection_shape"):
            raise Outside("projection_shape", "it is absent", "in_proj_weight")
    else:
        kdim, vdim = widths[1], widths[2]
        for name, width in (("q_proj_weight", embed_dim), ("k_proj_weight", kdim), ("v_proj_weight", vdim)):
            if not has_parameter(parameters, name, (embed_dim, width), "projection_shape"):
                raise Outside("projection_shape", "it is absent", name)
    if widths != (embed_dim, kdim, vdim):
        raise Outside("input_shape", f"the inputs are {widths} wide, the attention {(embed_dim, kdim, vdim)}")
    input_bias = has_parameter(parameters, "in_proj_bias", (3 * embed_dim,), "projection_shape")
    try:
        output_bias = _output_bias(state["_modules"].get("out_proj"), embed_dim)
    except Outside as error:
        raise error.within("out_proj") from None
    masks.check_heads(batch, num_heads)
    return AttentionDims(
        batch,
        target,
        source,
        embed_dim,
        num_heads,
        kdim,
        vdim,
        input_bias,
        output_bias,
        masks.elements,
        averaged_weights,
    )


def _output_bias(projection: Any, embed_dim: int) -> int:
    """Read the output projection, whose tensors are used and whose `forward` is not."""
    if not isinstance(projection, nn.Module):
        raise Outside("foreign_stage", f"it is a {type(projection).__name__}")
    parameters = projection._parameters
    if type(projection) not in OUTPUT_PROJECTIONS:
        # Whatever it is, the attention reads these two attributes; they must be what is registered.
        for name in ("weight", "bias"):
            if getattr(projection, name, None) is not parameters.get(name):
                raise Outside("reparametrized", "it is not the registered parameter", name)
    if not has_parameter(parameters, "weight", (embed_dim, embed_dim), "projection_shape"):
        raise Outside("projection_shape", "it is absent", "weight")
    return has_parameter(parameters, "bias", (embed_dim,), "projection_shape")


def feed_forward_dims(state: dict[str, Any], tokens: int, embed_dim: int) -> FeedForwardDims:
    """Read the feed-forward block of a layer.

    Args:
        state: instance dictionary of the layer.
        tokens: B·T.
        embed_dim: E.

    Raises:
        Outside: a stage is not native, or has another shape.

    """
    modules = state["_modules"]
    first = check_stage(modules.get("linear1"), nn.Linear, "linear1")["_parameters"]
    second = check_stage(modules.get("linear2"), nn.Linear, "linear2")["_parameters"]
    reason = "feed_forward_shape"
    try:
        weight = parameter_shape(first, "weight")
        if weight is None or len(weight) != 2 or weight[1] != embed_dim or not weight[0]:
            found = None if weight is None else tuple(weight)
            raise Outside(reason, f"its shape is {found} and not (F, {embed_dim})", "weight")
        hidden = weight[0]
        hidden_bias = has_parameter(first, "bias", (hidden,), reason)
    except Outside as error:
        raise error.within("linear1") from None
    try:
        if not has_parameter(second, "weight", (embed_dim, hidden), reason):
            raise Outside(reason, "it is absent", "weight")
        output_bias = has_parameter(second, "bias", (embed_dim,), reason)
    except Outside as error:
        raise error.within("linear2") from None
    return FeedForwardDims(tokens, embed_dim, hidden, hidden_bias, output_bias, _activation(state, modules))


def _activation(state: dict[str, Any], modules: dict[str, Any]) -> Literal["relu", "gelu"]:
    name: Literal["relu", "gelu"]
    if "activation" in modules:
        stage = modules["activation"]
        if type(stage) is nn.ReLU:
            name = "relu"
        elif type(stage) is nn.GELU:
            name = "gelu"
        else:
            raise Outside("foreign_activation", f"it is a {type(stage).__name__}", "activation")
        check_stage(stage, type(stage), "activation")
    else:
        function = state["activation"]
        if any(function is other for other in _RELU):
            name = "relu"
        elif any(function is other for other in _GELU):
            name = "gelu"
        else:
            found = getattr(function, "__name__", type(function).__name__)
            raise Outside("foreign_activation", f"it is {found}", "activation")
    # The fused path of an encoder layer obeys this flag, the staged path the function itself.
    if state.get("activation_relu_or_gelu", 0) not in _ACTIVATION_FLAGS[name]:
        raise Outside("foreign_activation", "activation_relu_or_gelu contradicts it", "activation")
    return name


def norm_dims(norm: Any, name: str, rows: int, width: int) -> NormDims | None:
    """Read a normalization.

    Args:
        norm: the stage, or `None`.
        name: its attribute name.
        rows: B·T.
        width: E.

    Returns:
        `None` for none and for an Identity.

    Raises:
        Outside: it is no native LayerNorm over exactly the features.

    """
    if norm is None:
        return None
    if type(norm) is nn.Identity:
        check_stage(norm, nn.Identity, name)
        return None
    state = check_stage(norm, nn.LayerNorm, name, "foreign_norm")
    shape = (width,)
    if state["normalized_shape"] != shape:
        raise Outside("norm_shape", f"it normalizes over {state['normalized_shape']} and not {shape}", name)
    parameters = state["_parameters"]
    try:
        weight = has_parameter(parameters, "weight", shape, "norm_shape")
        bias = has_parameter(parameters, "bias", shape, "norm_shape")
    except Outside as error:
        raise error.within(name) from None
    return NormDims(rows, width, weight, bias)


def check_dropout(modules: dict[str, Any], *names: str) -> None:
    """Check that each dropout is one, in evaluation mode; an Identity in its place does nothing either.

    Raises:
        Outside: one is not.

    """
    for name in names:
        stage = modules.get(name)
        if type(stage) is nn.Identity:
            check_stage(stage, nn.Identity, name)
        elif check_stage(stage, nn.Dropout, name)["training"]:
            raise Outside("training_mode", "it is in training mode", name)
