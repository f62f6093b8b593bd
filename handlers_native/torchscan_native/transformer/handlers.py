"""From a call to its estimates: guard, dims, formulas.

Each handler owns module FLOPs, MACs and DMAs of everything executed inside its call. The spatial scalars have no
meaning for token modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from torchscan import NOT_APPLICABLE, ModuleCall, ModuleHandler, TokenDependencies, Unavailable
from torchscan_native.transformer import dmas, flops, guard, macs, tokens
from torchscan_native.transformer.boundaries import BOUNDARIES, Boundary
from torchscan_native.transformer.dims import Dims

__all__ = ["attention", "decoder", "decoder_layer", "encoder", "encoder_layer", "transformer"]

COUNTS: Final = ("module_flops", "macs", "dmas")
SPATIAL: Final = ("receptive_field", "effective_stride", "effective_padding")
_NO_SPATIAL: Final = dict.fromkeys(SPATIAL, NOT_APPLICABLE)
_GELU: Final = Boundary("gelu", BOUNDARIES["gelu"])

D = TypeVar("D", bound=Dims)


def _unavailable(boundary: Boundary) -> Unavailable:
    return Unavailable(boundary.reason, code="unsupported_native_call", message=boundary.message)


def _handler(
    check: Callable[[ModuleCall], guard.Supported[D] | Boundary],
    module_flops: Callable[[D], int],
    macs: Callable[[D], int],
    dmas: Callable[[D], int],
) -> ModuleHandler:
    """Return the handler of one native type.

    Args:
        check: its guard.
        module_flops: its FLOP formula.
        macs: its MAC formula.
        dmas: its DMA formula.

    """
    formulas = (("module_flops", module_flops), ("macs", macs), ("dmas", dmas))

    def estimate(call: ModuleCall) -> dict[str, Any]:
        requested = call.requested
        wants_tokens = "token_dependencies" in requested
        estimates: dict[str, Any] = dict(_NO_SPATIAL)
        if not wants_tokens and requested.isdisjoint(COUNTS):
            return estimates
        plan = check(call)
        if isinstance(plan, Boundary):
            estimates.update(dict.fromkeys(COUNTS, _unavailable(plan)))
            if wants_tokens:
                estimates["token_dependencies"] = TokenDependencies.unavailable(plan.reason, plan.message)
            return estimates
        for name, formula in formulas:
            if name in requested:
                estimates[name] = formula(plan.dims)
        if "module_flops" in requested and flops.uses_gelu(plan.dims):
            estimates["module_flops"] = _unavailable(_GELU)
        if wants_tokens:
            estimates["token_dependencies"] = tokens.token_dependencies(call, plan)
        return estimates

    return ModuleHandler(estimate, subtree_metrics=COUNTS)


attention: Final = _handler(guard.check_attention, flops.attention_flops, macs.attention_macs, dmas.attention_dmas)
encoder_layer: Final = _handler(
    guard.check_encoder_layer, flops.encoder_layer_flops, macs.encoder_layer_macs, dmas.encoder_layer_dmas
)
decoder_layer: Final = _handler(
    guard.check_decoder_layer, flops.decoder_layer_flops, macs.decoder_layer_macs, dmas.decoder_layer_dmas
)
encoder: Final = _handler(guard.check_encoder, flops.encoder_flops, macs.encoder_macs, dmas.encoder_dmas)
decoder: Final = _handler(guard.check_decoder, flops.decoder_flops, macs.decoder_macs, dmas.decoder_dmas)
transformer: Final = _handler(
    guard.check_transformer, flops.transformer_flops, macs.transformer_macs, dmas.transformer_dmas
)
