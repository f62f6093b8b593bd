"""Patterns: from the text of a layer and the shape of its input to elementary axes and their sizes.

einops itself parses. It is imported on the first call of one of its layers, when it is loaded anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import attrs

#: A group is the elementary axes that one tensor axis is composed of, by key, outer first.
Group = tuple[str, ...]
Lengths = tuple[tuple[str, int], ...]

_ELLIPSIS = "…"


@attrs.frozen
class Side:
    """One side of a pattern.

    Attributes:
        groups: one group per tensor axis; `None` stands for the ellipsis. An axis `1` is an empty group.
        numbers: the anonymous axes (`2`, `3`) by the key that stands for them in `groups`.

    """

    groups: tuple[Group | None, ...]
    numbers: Mapping[str, int] = attrs.field(factory=dict, eq=False)


@attrs.frozen
class Layout:
    """A pattern applied to a shape.

    Attributes:
        left: the groups of the input, the ellipsis replaced by its axes.
        right: the groups of the output, likewise.
        sizes: the size of each elementary axis, by key.

    """

    left: tuple[Group, ...]
    right: tuple[Group, ...]
    sizes: Mapping[str, int]

    @property
    def order(self) -> tuple[str, ...]:
        """The elementary axes of the input, in memory order."""
        return tuple(axis for group in self.left for axis in group)

    def size(self, axes: Sequence[str]) -> int:
        """Return the number of positions that some axes have together."""
        return prod(self.sizes[axis] for axis in axes)


@functools.lru_cache(maxsize=1024)
def parse(expression: str) -> Side:
    """Parse one side of a pattern with the parser of einops.

    Raises:
        einops.EinopsError: the expression is no pattern.

    """
    from einops.parsing import ParsedExpression

    numbers: dict[str, int] = {}

    def key(axis: Any) -> str:
        if isinstance(axis, str):
            return axis
        name = f"{axis.value}#{len(numbers)}"  # every anonymous axis is an axis of its own
        numbers[name] = axis.value
        return name

    groups: list[Group | None] = []
    for group in ParsedExpression(expression).composition:
        groups.append(None if group == _ELLIPSIS else tuple(key(axis) for axis in group))
    return Side(tuple(groups), numbers)


@functools.lru_cache(maxsize=4096)
def layout(pattern: str, lengths: Lengths, shape: tuple[int, ...]) -> Layout:
    """Apply a pattern to the shape of an input that its layer has accepted.

    Args:
        pattern: such as `"b c (h p) -> b h (p c)"`.
        lengths: the sizes given to the layer.
        shape: the shape of the input.

    Raises:
        ValueError: the sizes do not add up; the layer itself would have refused them.

    """
    left_text, right_text = pattern.split("->")
    left, right = parse(left_text), parse(right_text)
    named = sum(group is not None for group in left.groups)
    hidden = tuple(f"{_ELLIPSIS}{index}" for index in range(len(shape) - named))
    left_groups = _expand(left.groups, hidden)
    right_groups = _expand(right.groups, hidden)
    if len(left_groups) != len(shape):
        raise ValueError(f"pattern {pattern!r} has {len(left_groups)} axes, the input has {len(shape)}")
    sizes = {**dict(lengths), **left.numbers, **right.numbers}
    for group, length in zip(left_groups, shape, strict=True):
        unknown = [axis for axis in group if axis not in sizes]
        known = prod(sizes[axis] for axis in group if axis in sizes)
        if len(unknown) == 1 and known:
            sizes[unknown[0]], rest = divmod(length, known)
        else:
            rest = length - known if not unknown else 1
        if rest:
            raise ValueError(f"an axis of length {length} does not fit {' '.join(group) or '1'} in {pattern!r}")
    return Layout(left_groups, right_groups, sizes)


def _expand(groups: tuple[Group | None, ...], hidden: Group) -> tuple[Group, ...]:
    """Replace the ellipsis: one group per hidden axis, or all of them inside a parenthesis."""
    result: list[Group] = []
    for group in groups:
        if group is None:
            result.extend((axis,) for axis in hidden)
        elif _ELLIPSIS in group:
            at = group.index(_ELLIPSIS)
            result.append(group[:at] + hidden + group[at + 1 :])
        else:
            result.append(group)
    return tuple(result)
