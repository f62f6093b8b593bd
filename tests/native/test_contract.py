"""The native handlers keep the contract: the conformance kit, on every class they register for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from torchscan import HandlerRegistration
from torchscan.testing import Sample, check_handler, check_pack_import
from torchscan_native.plugin import torchscan_register_handlers

ones = torch.ones
Build = Callable[[], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]


def call(make: Callable[[], nn.Module], *shapes: tuple[int, ...], **kwargs: Any) -> Build:
    """Return a function that builds the module and passes one tensor of ones per shape."""
    return lambda: (make(), tuple(ones(*shape) for shape in shapes), dict(kwargs))


def indices(make: Callable[[], nn.Module], *shape: int, **kwargs: Any) -> Build:
    return lambda: (make(), (torch.zeros(*shape, dtype=torch.long),), dict(kwargs))


def unsupported(build: Build) -> Sample:
    return Sample(build, supported=False)


def unpooled(dims: int) -> Build:
    """Return a call of `MaxUnpool` with the values and indices of a pooling."""

    def build():
        pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
        values, where = pool(ones(1, 1, *([4] * dims)))
        return getattr(nn, f"MaxUnpool{dims}d")(2), (values, where), {}

    return build


def recurrent(kind: type[nn.RNNBase], **options: Any) -> Build:
    return call(lambda: kind(3, 2, **options), (4, 2, 3))


def loss(kind: type[nn.Module], **options: Any) -> Build:
    return call(lambda: kind(**options), (2, 3), (2, 3))


def spread(name: str, argument: Any, *sizes: int) -> dict[str, dict[str, Any]]:
    """Return one call for each of 1, 2 and 3 dimensions; `sizes` are batch and channels."""
    return {
        f"{name}{dims}d": {
            "dense": call(lambda dims=dims: getattr(nn, f"{name}{dims}d")(argument), (*sizes, *([4] * dims)))
        }
        for dims in (1, 2, 3)
    }


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(ones(2), 0.1, 0, torch.quint8)


def parametrized(apply: Callable[[nn.Module], nn.Module]) -> Build:
    """Return a call of the parametrization itself, as its module runs it."""

    def build():
        module = apply(nn.Linear(3, 2))
        inner = module.parametrizations.weight
        originals = [value for name, value in inner.named_parameters() if name.startswith("original")]
        return inner[0], tuple(originals), {}

    return build


_X, _Y = (3, 1, 4), (2, 1, 4)  # three and two tokens, one batch entry, four features


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(4, 2, 8, **options)


def decoder_layer() -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(4, 2, 8)


def transformer() -> nn.Transformer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
        return nn.Transformer(4, 2, 1, 1, 8)


CALLS: dict[str, dict[str, Any]] = {
    "Linear": {
        "dense": call(lambda: nn.Linear(4, 2), (3, 4)),
        "vector": call(lambda: nn.Linear(4, 2, bias=False), (4,)),
        "sparse": unsupported(lambda: (nn.Linear(4, 2, bias=False), (torch.eye(4).to_sparse(),), {})),
    },
    "Bilinear": {"dense": call(lambda: nn.Bilinear(2, 3, 2), (2, 2), (2, 3))},
    "Conv1d": {"groups": call(lambda: nn.Conv1d(4, 6, 3, groups=2), (2, 4, 7))},
    "Conv2d": {
        "dense": call(lambda: nn.Conv2d(1, 2, 3), (1, 1, 4, 4)),
        "circular": call(lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), (1, 1, 4, 4)),
    },
    "Conv3d": {"dense": call(lambda: nn.Conv3d(1, 2, 2), (1, 1, 3, 3, 3))},
    "ConvTranspose1d": {"groups": call(lambda: nn.ConvTranspose1d(4, 6, 3, groups=2, stride=2), (2, 4, 3))},
    "ConvTranspose2d": {"dense": call(lambda: nn.ConvTranspose2d(1, 1, 3), (1, 1, 4, 4))},
    "ConvTranspose3d": {"dense": call(lambda: nn.ConvTranspose3d(2, 2, 2), (1, 2, 2, 2, 2))},
    "LayerNorm": {"dense": call(lambda: nn.LayerNorm(4), (1, 3, 4))},
    "RMSNorm": {"dense": call(lambda: nn.RMSNorm(4), (2, 4))},
    "GroupNorm": {"dense": call(lambda: nn.GroupNorm(2, 4), (2, 4, 2))},
    "LocalResponseNorm": {"dense": call(lambda: nn.LocalResponseNorm(2), (1, 3, 2, 2))},
    **spread("BatchNorm", 3, 2, 3),
    **spread("InstanceNorm", 3, 2, 3),
    "SyncBatchNorm": {"saved": call(lambda: nn.SyncBatchNorm(3), (2, 3, 4))},
    **{
        name: {"dense": call(getattr(nn, name), (2, 4))}
        for name in (
            "ReLU", "ReLU6", "Hardtanh", "Softsign", "Hardshrink", "Sigmoid", "LeakyReLU", "Hardsigmoid", "SiLU",
            "Hardswish", "Softshrink", "Tanh", "ELU", "CELU", "SELU", "LogSigmoid", "Softplus", "Tanhshrink", "Mish",
            "GELU", "PReLU", "RReLU", "GLU", "Identity", "Flatten", "Dropout", "AlphaDropout", "FeatureAlphaDropout",
        )
    },
    "Threshold": {"dense": call(lambda: nn.Threshold(0.5, 0.0), (2, 4))},
    "Softmax": {"dense": call(lambda: nn.Softmax(-1), (2, 4))},
    "LogSoftmax": {"dense": call(lambda: nn.LogSoftmax(-1), (2, 4))},
    "Softmin": {"dense": call(lambda: nn.Softmin(-1), (2, 4))},
    "Softmax2d": {"dense": call(nn.Softmax2d, (1, 2, 2, 2))},
    **spread("MaxPool", 2, 1, 1),
    **spread("AvgPool", 2, 1, 1),
    **{
        f"LPPool{dims}d": {"dense": call(lambda dims=dims: getattr(nn, f"LPPool{dims}d")(2, 2), (1, 1, *([4] * dims)))}
        for dims in (1, 2, 3)
    },
    **spread("AdaptiveMaxPool", 3, 1, 1),
    **spread("AdaptiveAvgPool", 3, 1, 1),
    **{f"MaxUnpool{dims}d": {"dense": unpooled(dims)} for dims in (1, 2, 3)},
    "FractionalMaxPool2d": {"dense": call(lambda: nn.FractionalMaxPool2d(2, output_size=2), (1, 1, 4, 4))},
    "FractionalMaxPool3d": {"dense": call(lambda: nn.FractionalMaxPool3d(2, output_size=2), (1, 1, 4, 4, 4))},
    "Embedding": {
        "dense": indices(lambda: nn.Embedding(5, 4), 2, 2),
        "renormalised": unsupported(indices(lambda: nn.Embedding(5, 4, max_norm=1.0), 2)),
    },
    "EmbeddingBag": {"bags": indices(lambda: nn.EmbeddingBag(10, 4, mode="sum"), 2, 3)},
    "RNN": {"dense": recurrent(nn.RNN), "both": recurrent(nn.RNN, num_layers=2, bidirectional=True)},
    "LSTM": {"dense": recurrent(nn.LSTM), "projected": call(lambda: nn.LSTM(3, 4, proj_size=2), (2, 2, 3))},
    "GRU": {"dense": recurrent(nn.GRU, batch_first=True)},
    "RNNCell": {"dense": call(lambda: nn.RNNCell(3, 2), (2, 3))},
    "LSTMCell": {"dense": call(lambda: nn.LSTMCell(3, 2), (2, 3))},
    "GRUCell": {"dense": call(lambda: nn.GRUCell(3, 2), (2, 3))},
    **{
        f"ConstantPad{dims}d": {
            "dense": call(lambda dims=dims: getattr(nn, f"ConstantPad{dims}d")(1, 0.0), (1, 2, *([4] * dims)))
        }
        for dims in (1, 2, 3)
    },
    **spread("ZeroPad", 1, 1, 2),
    **spread("ReflectionPad", 1, 1, 2),
    **spread("ReplicationPad", 1, 1, 2),
    **spread("CircularPad", 1, 1, 2),
    "Fold": {"dense": call(lambda: nn.Fold((3, 3), 2), (1, 4, 4))},
    "Unfold": {"dense": call(lambda: nn.Unfold(2), (1, 1, 3, 3))},
    "PixelShuffle": {"dense": call(lambda: nn.PixelShuffle(2), (1, 4, 2, 2))},
    "PixelUnshuffle": {"dense": call(lambda: nn.PixelUnshuffle(2), (1, 1, 4, 4))},
    "ChannelShuffle": {"dense": call(lambda: nn.ChannelShuffle(2), (1, 4, 2, 2))},
    "Dropout1d": {"dense": call(nn.Dropout1d, (1, 2, 4))},
    "Dropout2d": {"dense": call(nn.Dropout2d, (1, 2, 4, 4))},
    "Dropout3d": {"dense": call(nn.Dropout3d, (1, 2, 4, 4, 4))},
    "Unflatten": {"dense": call(lambda: nn.Unflatten(1, (2, 2)), (2, 4))},
    "Upsample": {
        "nearest": call(lambda: nn.Upsample(size=4), (1, 1, 2, 2)),
        "bilinear": call(lambda: nn.Upsample(size=4, mode="bilinear"), (1, 1, 2, 2)),
    },
    "UpsamplingNearest2d": {"dense": call(lambda: nn.UpsamplingNearest2d(4), (1, 1, 2, 2))},
    "UpsamplingBilinear2d": {"dense": call(lambda: nn.UpsamplingBilinear2d(4), (1, 1, 2, 2))},
    "CosineSimilarity": {"dense": call(nn.CosineSimilarity, (2, 3), (2, 3))},
    "PairwiseDistance": {"dense": call(nn.PairwiseDistance, (2, 3), (2, 3))},
    **{
        name: {"dense": loss(getattr(nn, name))}
        for name in (
            "L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "BCELoss", "BCEWithLogitsLoss",
        )
    },
    "KLDivLoss": {"dense": loss(nn.KLDivLoss, reduction="batchmean")},
    "MarginRankingLoss": {"dense": call(nn.MarginRankingLoss, (3,), (3,), (3,))},
    "NLLLoss": {"dense": lambda: (nn.NLLLoss(), (ones(2, 3), torch.zeros(2, dtype=torch.long)), {})},
    "CrossEntropyLoss": {"dense": lambda: (nn.CrossEntropyLoss(), (ones(2, 3), torch.zeros(2, dtype=torch.long)), {})},
    "_WeightNorm": {"dense": parametrized(parametrizations.weight_norm)},
    "_SpectralNorm": {"dense": parametrized(parametrizations.spectral_norm)},
    "_Orthogonal": {"dense": unsupported(parametrized(parametrizations.orthogonal))},
    "MultiheadAttention": {
        "cross": call(lambda: nn.MultiheadAttention(4, 2), _Y, _X, _X, need_weights=False),
        "wide": call(lambda: nn.MultiheadAttention(4, 2, kdim=6, vdim=5), _Y, (3, 1, 6), (3, 1, 5)),
        "masked": call(
            lambda: nn.MultiheadAttention(4, 2, batch_first=True),
            (1, 3, 4), (1, 3, 4), (1, 3, 4),
            attn_mask=nn.Transformer.generate_square_subsequent_mask(3), need_weights=False,
        ),
        "unbatched": unsupported(call(lambda: nn.MultiheadAttention(4, 2), (2, 4), (3, 4), (3, 4))),
        "extra keys": unsupported(call(lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), _Y, _X, _X)),
    },
    "TransformerEncoderLayer": {
        "dense": call(encoder_layer, _X),
        "batch first": call(lambda: encoder_layer(batch_first=True), (1, 3, 4)),
        "norm first": call(lambda: encoder_layer(norm_first=True, bias=False), _X),
    },
    "TransformerDecoderLayer": {"dense": call(decoder_layer, _Y, _X)},
    "TransformerEncoder": {
        "dense": call(lambda: nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False), _X)
    },
    "TransformerDecoder": {"dense": call(lambda: nn.TransformerDecoder(decoder_layer(), 2), _Y, _X)},
    "Transformer": {"dense": call(transformer, _X, _Y)},
    "Quantize": {
        "dense": unsupported(lambda: (torch.ao.nn.quantized.Quantize(0.1, 0, torch.quint8), (ones(2),), {}))
    },
    "DeQuantize": {"dense": unsupported(lambda: (torch.ao.nn.quantized.DeQuantize(), (quantized(),), {}))},
}  # fmt: skip

#: What the dispatcher's contractions do not show: N square-sum terms per norm and N products with its weight.
NORMS = {
    "TransformerEncoderLayer": {"dense": 2 * 24, "batch first": 2 * 24, "norm first": 2 * 24},  # N = 3*4
    "TransformerDecoderLayer": {"dense": 3 * 16},  # N = 2*4
    "TransformerEncoder": {"dense": 4 * 24},
    "TransformerDecoder": {"dense": 6 * 16},
    "Transformer": {"dense": 3 * 24 + 4 * 16},
}

#: Classes whose MACs are contractions of the dispatcher and nothing else.
CONTRACTIONS = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "RNN", "GRU",
    "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention", "ReLU", "Softmax", "MaxPool2d", "Dropout", "Identity",
    "Flatten", "PixelShuffle",
)  # fmt: skip


def name_of(registration: HandlerRegistration) -> str:
    target = registration.target
    return target.rpartition(".")[2] if isinstance(target, str) else target.__name__


def dotted(registration: HandlerRegistration) -> str:
    target = registration.target
    return target if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"


REGISTRATIONS = {dotted(registration): registration for registration in torchscan_register_handlers()}
OURS = {
    name: registration
    for name, registration in REGISTRATIONS.items()
    # Quantized classes share one refusal; the linear map inside attention is the ordinary one.
    if not name.startswith("torch.ao.nn.") or name.endswith("uantize")
    if not name.endswith("NonDynamicallyQuantizableLinear")
}


def test_every_registered_class_has_a_call():
    assert sorted({name_of(registration) for registration in OURS.values()} - set(CALLS)) == []
    assert sorted(set(CALLS) - {name_of(registration) for registration in OURS.values()}) == []


@pytest.mark.parametrize("target", OURS)
def test_the_contract_is_kept(target: str):
    registration = OURS[target]
    with warnings.catch_warnings():
        # Quantized tensors are deprecated in PyTorch; people still have them.
        warnings.filterwarnings("ignore", message=".*deprecated.*", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*deprecated.*", category=UserWarning)
        warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
        check_handler(registration, CALLS[name_of(registration)]).raise_failures()


@pytest.mark.parametrize("name", [*CONTRACTIONS, *NORMS])
def test_macs_are_the_contractions_that_the_dispatcher_executes(name: str):
    (registration,) = (each for each in OURS.values() if name_of(each) == name)
    for call_name, build in CALLS[name].items():
        extra = NORMS.get(name, {}).get(call_name, 0)
        results = check_handler(registration, {call_name: build}, checks=[], oracle=lambda call, extra=extra: extra)
        results.raise_failures()
        assert len(results) == 1


def test_the_plugin_imports_without_torch():
    check_pack_import("torchscan_native.plugin")
