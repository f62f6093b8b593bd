"""Is this call one that the formulas describe, and if not, why?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torchscan

COUNTS = ("module_flops", "macs", "dmas")
#: A layer that rearranges, reduces or mixes named axes has no spatial geometry of its own.
SPATIAL: dict[str, Any] = {
    "receptive_field": torchscan.NOT_APPLICABLE,
    "effective_stride": torchscan.NOT_APPLICABLE,
    "effective_padding": torchscan.NOT_APPLICABLE,
}


def runs_unchanged(module: Any, name: str) -> bool:
    """Say whether the `forward` that ran is the one of `einops.layers.torch.<name>`."""
    library = sys.modules.get("einops.layers.torch")
    known: Callable[..., Any] | None = getattr(getattr(library, name, None), "forward", None)
    return known is not None and type(module).forward is known and "forward" not in vars(module)


def unavailable(reason: str, message: str) -> dict[str, Any]:
    """Return estimates in which every count is unavailable.

    Args:
        reason: why, machine-readable.
        message: why, as a sentence, with the remedy where there is one.

    """
    return {**dict.fromkeys(COUNTS, torchscan.Unavailable(reason, message=message)), **SPATIAL}


def unsupported_layout(tensor: Any) -> dict[str, Any] | None:
    """Return the estimates of a tensor outside the formulas, `None` for a dense strided one, which they describe."""
    if str(tensor.layout) == "torch.strided" and not tensor.is_nested:
        return None
    return unavailable(
        "unsupported_layout", "only dense strided tensors have a formula; convert the input to a dense one"
    )
