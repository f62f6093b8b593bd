"""Work that PyTorch's own forward pre-hooks do in a layer's call: weight norm, spectral norm, pruning."""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchscan.contract.states import COUNT_METRICS
from torchscan_native.layers.formulas import parametrization as formulas
from torchscan_native.layers.formulas.rules import Counts
from torchscan_native.layers.guard import TRAINING, Refused, floating

__all__ = ["with_hooks"]


def with_hooks(module: torch.nn.Module, estimates: dict[str, Any]) -> dict[str, Any]:
    """Return the estimates with the work of the known pre-hooks added; other hooks are not the module's work.

    Raises:
        Refused: a hook computes with tensors outside of what the formulas describe, or updates its vectors.

    """
    estimates = dict(estimates)
    for hook in module._forward_pre_hooks.values():
        work = _work(module, hook)
        if work is not None:
            for metric, count in zip(COUNT_METRICS, work, strict=True):
                if isinstance(estimates.get(metric), int):
                    estimates[metric] += count
    return estimates


def _work(module: torch.nn.Module, hook: object) -> Counts | None:
    if _is(hook, "torch.nn.utils.weight_norm", "WeightNorm"):
        direction = floating(module._parameters[f"{hook.name}_v"])  # type: ignore[attr-defined]
        gain = floating(module._parameters[f"{hook.name}_g"])  # type: ignore[attr-defined]
        return formulas.weight_norm(direction.numel(), gain.numel())
    if _is(hook, "torch.nn.utils.spectral_norm", "SpectralNorm"):
        if module.training:
            raise Refused(TRAINING)
        weight = floating(module._parameters[f"{hook.name}_orig"])  # type: ignore[attr-defined]
        height = weight.shape[hook.dim]  # type: ignore[attr-defined]
        return formulas.spectral_norm(height, weight.numel() // height if height else 0)
    if _is(hook, "torch.nn.utils.prune", "BasePruningMethod"):
        weight = floating(module._parameters[f"{hook._tensor_name}_orig"])  # type: ignore[attr-defined]
        return formulas.mask(weight.numel())
    return None


def _is(value: object, module: str, name: str) -> bool:
    # The package re-exports functions under the names of these modules, so they are found by their full path.
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)
