"""What the values of a mask exclude: nothing, exactly the later positions, or something no relation can say.

The reasons of a refusal are machine-readable; docs/explanation/token-relations.md lists them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs
import torch

if TYPE_CHECKING:
    from torchscan import ModuleCall

__all__ = ["REASONS", "Pattern", "Refused", "read_pattern"]

#: Reason -> what the relation model cannot describe, and the remedy.
REASONS: Final = {
    "mask_values_unreadable": "The mask has no values that can be read (a meta or fake tensor), so what it excludes is "
    "unknown. Pass a real mask, or none.",
    "mask_nan": "The mask holds NaN, which makes every weight of its row undefined.",
    "mask_positive_infinity": "The mask holds positive infinity, which makes every weight of its row undefined.",
    "mask_overflow": "The attention mask and the key padding mask are finite, but their sum can overflow to an "
    "infinity. Use smaller entries, or negative infinity to exclude.",
    "all_masked_row": "A query may attend to no key at all, and the softmax of such a row is not defined. Allow at "
    "least one key in each row.",
    "padding_excludes_tokens": "The key padding mask excludes tokens, and the relations describe what every batch "
    "entry shares. Scan the call without padding to see its relation.",
    "mask_heads_differ": "The mask excludes other keys in one batch entry or head than in another, and one relation "
    "describes them all.",
    "irregular_mask": "The mask excludes keys in another pattern than exactly the later positions, which none of the "
    "relations describes.",
    "causal_hint_mismatch": "The causal hint promises a mask that excludes exactly the later positions, and this one "
    "does not. Pass a matching mask, or no hint.",
    "causal_hint_without_mask": "A causal hint without its mask is ambiguous in PyTorch. Pass the mask as well.",
    # of the module rather than of a mask
    "width_one_norm": "A LayerNorm over a single feature always returns its bias, so nothing depends on a token "
    "through it. Use a wider model to see its relation.",
    "inexpressible_relation": "The composed relation is none of the four kinds that a report can hold.",
}


class Refused(Exception):
    """Raised where a call is outside the relation model.

    Args:
        reason: a key of `REASONS`.
        where: the argument, or the path of the stage, that is to blame; empty where it is the whole call.

    """

    def __init__(self, reason: str, where: str = "") -> None:
        super().__init__(reason, where)
        self.reason = reason
        self.message = f"{where}: {REASONS[reason]}" if where else REASONS[reason]


@attrs.frozen
class Pattern:
    """What the masks of one attention do to its dependencies.

    Args:
        masked: there is an attention mask.
        causal: it excludes exactly the later positions; otherwise nothing.
        biased: a floating mask adds finite entries to the scores.
        padded: there is a key padding mask; it excludes nothing.
        hinted: a causal hint came with the mask, and agrees with it.

    """

    masked: bool = False
    causal: bool = False
    biased: bool = False
    padded: bool = False
    hinted: bool = False


FREE: Final = Pattern()


def read_pattern(call: ModuleCall, mask_name: str, padding_name: str, hint_name: str) -> Pattern:
    """Read the masks of one attention.

    Costs one pass over each mask and at most one boolean of the mask's size; no random number is drawn.

    Args:
        call: the call; its arguments hold the masks.
        mask_name: the name of the attention mask, of shape (T, S) or (B·H, T, S).
        padding_name: the name of the key padding mask, of shape (B, S).
        hint_name: the name of the causal hint; a hint of `None` asks PyTorch to look for itself, and promises nothing.

    Returns:
        The pattern.

    Raises:
        Refused: the masks exclude what no relation describes.

    """
    arguments = call.arguments
    mask, padding, hint = arguments[mask_name], arguments[padding_name], arguments[hint_name] is True
    if mask is None:
        if hint:
            raise Refused("causal_hint_without_mask", hint_name)
        if padding is None:
            return FREE
    causal = False
    values = bounds = padding_bounds = None
    if mask is not None:
        values = _readable(call, mask, mask_name)
        bounds = _bounds(values, mask_name)
        if bounds is None or bounds[0] == -math.inf:
            causal = _excludes_later(values, mask_name, hint)
        # With a single key there is no later position: allowing everything is causal too.
        elif hint and values.shape[-1] > 1:
            raise Refused("causal_hint_mismatch", mask_name)
    if padding is not None:
        padding_values = _readable(call, padding, padding_name)
        padding_bounds = _bounds(padding_values, padding_name)
        if padding_bounds is None or padding_bounds[0] == -math.inf:
            _check_padding(padding_values, padding_name)
        if values is not None and bounds is not None and padding_bounds is not None:
            dtype = torch.promote_types(values.dtype, padding_values.dtype)
            if _overflows(values, bounds, padding_bounds, dtype):
                raise Refused("mask_overflow", f"{mask_name} and {padding_name}")
    return Pattern(
        mask is not None, causal, bounds is not None or padding_bounds is not None, padding is not None, hint
    )


def _readable(call: ModuleCall, mask: Any, name: str) -> torch.Tensor:
    values = call.readable(mask)
    if values is None:
        raise Refused("mask_values_unreadable", name)
    # An expanded mask repeats itself; a reduction over the whole would first write it out.
    return values[0] if values.dim() == 3 and values.stride(0) == 0 else values


def _bounds(values: torch.Tensor, name: str) -> tuple[float, float] | None:
    """Return the least and the greatest entry of a floating mask, `None` for a boolean one."""
    if values.dtype is torch.bool:
        return None
    try:
        low, high = torch.aminmax(values)
    except RuntimeError:  # some releases have no such kernel for short floats
        low, high = torch.aminmax(values.float())
    least, greatest = low.item(), high.item()
    if math.isnan(least) or math.isnan(greatest):
        raise Refused("mask_nan", name)
    if greatest == math.inf:
        raise Refused("mask_positive_infinity", name)
    return least, greatest


def _excludes_later(values: torch.Tensor, name: str, hint: bool) -> bool:
    """Return whether the mask excludes exactly the later positions; `False` means that it excludes nothing."""
    if values.dtype is torch.bool:
        excluded = values
        if not bool(values.any()):
            if hint and values.shape[-1] > 1:
                raise Refused("causal_hint_mismatch", name)
            return False
    else:
        excluded = values == -math.inf
    heads_agree = True
    shared = excluded
    if excluded.dim() == 3:
        shared = excluded.all(0)
        heads_agree = excluded.shape[0] == 1 or torch.equal(shared, excluded.any(0))
    later = torch.ones(shared.shape, dtype=torch.bool, device=shared.device).triu_(1)
    if heads_agree and torch.equal(shared, later):
        return True
    if bool(excluded.all(-1).any()):
        raise Refused("all_masked_row", name)
    if hint:
        raise Refused("causal_hint_mismatch", name)
    raise Refused("irregular_mask" if heads_agree else "mask_heads_differ", name)


def _check_padding(values: torch.Tensor, name: str) -> None:
    excluded = values if values.dtype is torch.bool else values == -math.inf
    if bool(excluded.any()):
        raise Refused("all_masked_row" if bool(excluded.all(-1).any()) else "padding_excludes_tokens", name)


def _overflows(
    values: torch.Tensor, mask: tuple[float, float], padding: tuple[float, float], dtype: torch.dtype
) -> bool:
    """Return whether two finite entries of the masks can add up to an infinity."""
    limit = torch.finfo(dtype)
    if mask[1] + padding[1] > limit.max:
        return True
    if -padding[0] <= limit.max * limit.eps / 4:  # too small to carry the lowest finite number any further
        return False
    least = mask[0] if mask[0] != -math.inf else torch.where(values == -math.inf, 0.0, values).min().item()
    return least + padding[0] < limit.min
