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


def unsupported_tensor(tensor: Any) -> torchscan.Unavailable | None:
    """Return why a tensor is outside the formulas, or `None`: they describe dense strided tensors."""
    if str(tensor.layout) != "torch.strided" or tensor.is_nested:
        return torchscan.Unavailable(
            "unsupported_layout", message="only dense strided tensors have a formula; convert the input to a dense one"
        )
    return None


def unavailable(state: torchscan.Unavailable) -> dict[str, Any]:
    """Return every count as unavailable for one reason."""
    return {**dict.fromkeys(COUNTS, state), **SPATIAL}
