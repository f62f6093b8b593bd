"""The handlers. A handler takes a finished call and returns what it knows about it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from torchscan import NOT_APPLICABLE, Unavailable

if TYPE_CHECKING:
    from torchscan import ModuleCall

#: A receptive field has no meaning for a layer without a spatial axis.
_SPATIAL = dict.fromkeys(("receptive_field", "effective_stride", "effective_padding"), NOT_APPLICABLE)


def low_rank(call: ModuleCall) -> Mapping[str, Any]:
    """Estimate `y = (x @ down) @ up` for `n` rows, `down` of shape `(I, R)` and `up` of shape `(R, O)`.

    A dot product of `K` terms is `K` MACs and `2K - 1` FLOPs; a stage reads its operands and writes its result once.

    Args:
        call: the finished call; read it, keep nothing of it.

    Returns:
        The three counts. A call outside the formula gets a reason instead of a number.

    """
    x = call.arguments["x"]
    if str(x.layout) != "torch.strided" or x.is_nested or not x.is_floating_point():
        # Say why, and what to do about it. Never answer with a number that might be wrong.
        why = Unavailable("unsupported_input", message="LowRank is counted for dense real floating-point inputs only.")
        return {"module_flops": why, "macs": why, "dmas": why, **_SPATIAL}
    inner, rank = call.module.down.shape
    outer = call.module.up.shape[1]
    n = prod(x.shape[:-1])
    return {
        "module_flops": n * rank * (2 * inner - 1) + n * outer * (2 * rank - 1),
        "macs": n * inner * rank + n * rank * outer,
        "dmas": (n * inner + inner * rank + n * rank) + (n * rank + rank * outer + n * outer),
        **_SPATIAL,
    }
