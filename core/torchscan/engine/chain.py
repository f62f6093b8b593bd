"""The spatial geometry of a call whose children form one chain of tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from torchscan.contract.states import Unavailable
from torchscan.engine.operators import OperatorCost

__all__ = ["NO_CHAIN", "Chain"]

#: Paths that join may differ in geometry; no one number describes them.
NO_CHAIN: Final = dict.fromkeys(
    ("receptive_field", "effective_stride", "effective_padding"), Unavailable("not_a_chain", expected=True)
)


class Chain:
    """Follows whether the children of a call form one chain of tensors, and its spatial geometry.

    receptive field += (kernel - 1) * jump; padding += padding * jump; jump *= stride. Derivation:
    docs/derivations/spatial.md.
    """

    __slots__ = ("broken", "first", "last", "padding", "receptive_field", "spatial", "stride")

    def __init__(self) -> None:
        self.first: Any = None
        self.last: Any = None
        self.receptive_field: float = 1
        self.stride: float = 1
        self.padding: float = 0
        self.broken = False
        self.spatial = False  # a child has a geometry

    def link(self, args: tuple[Any, ...], output: Any, states: Mapping[str, Any]) -> None:
        """Add one child call."""
        field = states.get("receptive_field")
        stride = states.get("effective_stride")
        padding = states.get("effective_padding")
        source = args[0] if args else None
        if (
            type(field) is not int
            or type(stride) is not int
            or type(padding) is not int
            or not isinstance(source, torch.Tensor)
            or not isinstance(output, torch.Tensor)
            or (self.last is not None and self.last() is not source)
        ):
            self.broken = True
            return
        if self.last is None:
            self.first = weakref.ref(source)
        self.receptive_field += (field - 1) * self.stride
        self.padding += padding * self.stride
        self.stride *= stride
        self.last = weakref.ref(output)

    def ends(self, args: tuple[Any, ...], output: Any, operators: Iterable[OperatorCost]) -> bool:
        """Say whether everything the call did is this one chain, from its first argument to its output."""
        return (
            not self.broken
            and self.last is not None
            and self.last() is output
            and bool(args)
            and self.first() is args[0]
            and all(cost.info.kind == "ignored" for cost in operators)
        )
