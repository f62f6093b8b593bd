"""Token relations: what a pattern does to the axis that its author named as the token axis.

A relation is offered only where it is certain: one axis of the input has a token name and stands alone, and the
output has that axis alone too, or one axis with the numbered or suffixed form of that name.
"""

from __future__ import annotations

import re

import torchscan
from torchscan_einops.patterns import Group, Layout

#: What authors call a token axis. A bare `n` is one only beside a batch axis, since images use it for the batch.
NAMES = frozenset(("t", "l", "s", "n", "seq", "sequence", "time", "token", "tokens", "length", "len", "step", "steps"))
BATCH = frozenset(("b", "batch", "bs", "bsz"))
ASSUMPTION = "the axis named {!r} is the token axis"
_SUFFIX = re.compile(r"(?:_(?:in|out|new|from|to)|_?\d+)$")


def _stem(axis: str) -> str | None:
    """Return the token name that an axis is a form of (`t0`, `t_out` are forms of `t`), or `None`."""
    if axis in NAMES:
        return axis
    stem = _SUFFIX.sub("", axis)
    return stem if stem in NAMES else None


def _token_axis(groups: tuple[Group, ...], bare_n: bool) -> tuple[int, str, str] | None:
    """Return (index, axis, name) of the only token axis, if it stands alone."""
    found = [
        (index, axis, stem, len(group))
        for index, group in enumerate(groups)
        for axis in group
        if (stem := _stem(axis)) is not None and (stem != "n" or bare_n)
    ]
    if len(found) != 1 or found[0][3] != 1:
        return None
    return found[0][:3]


def relation(plan: Layout) -> torchscan.TokenDependencies | None:
    """Return the relation of a layer's output tokens to its input tokens, or `None` where no token axis is certain.

    Args:
        plan: the pattern applied to the input's shape.

    """
    bare_n = not BATCH.isdisjoint(plan.order)
    source, target = _token_axis(plan.left, bare_n), _token_axis(plan.right, bare_n)
    if source is None or target is None:
        return None
    (read_axis, read, read_name), (write_axis, written, written_name) = source, target
    length, width = plan.sizes[read], plan.sizes[written]
    if not length or not width or read_name != written_name:
        return None
    if read == written:
        kind = torchscan.Relation("same_position")
    elif any(written in group for group in plan.left) or any(read in group for group in plan.right):
        return None
    else:
        kind = torchscan.Relation("all")  # the contraction reaches every token
    return torchscan.TokenDependencies(
        status="complete",
        sources=(torchscan.Source(("input",), read_axis, length, kind),),
        output=torchscan.Output(write_axis, width),
        assumptions=(ASSUMPTION.format(read),),
    )
