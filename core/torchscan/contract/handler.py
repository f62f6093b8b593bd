"""Handlers: what anybody registers, and what a handler returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from torchscan.contract.call import ModuleCall
from torchscan.contract.states import METRICS, MetricState, Number
from torchscan.contract.tokens import TokenDependencies
from torchscan.contract.validators import one_of

__all__ = [
    "CONTRACT_VERSION",
    "Estimate",
    "Estimates",
    "HandlerRegistration",
    "ModuleEstimates",
    "ModuleHandler",
]

#: The version of everything in `torchscan.contract`. A registration made for a newer one is skipped and reported.
CONTRACT_VERSION: Final = 1

#: What one metric may be: a number, a state, `None` (unavailable), or a six-field wire mapping.
Estimate: TypeAlias = Number | MetricState | Mapping[str, Any] | None


class _Unset:
    """The type of a metric that a handler leaves out."""

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = _Unset()


@attrs.frozen(kw_only=True)
class ModuleEstimates(Mapping[str, Any]):
    """What a handler knows about one call; a field left out is not the handler's to say.

    A plain mapping with the same keys does as well. Each field takes a number, a `Complete`, `Partial` or
    `Unavailable`, `None` (unavailable), or the six-field mapping of the wire.
    """

    module_flops: Estimate | _Unset = UNSET
    macs: Estimate | _Unset = UNSET
    dmas: Estimate | _Unset = UNSET
    receptive_field: Estimate | _Unset = UNSET
    effective_stride: Estimate | _Unset = UNSET
    effective_padding: Estimate | _Unset = UNSET
    token_dependencies: TokenDependencies | _Unset | None = UNSET

    def __getitem__(self, name: str) -> Any:
        if name not in _FIELDS or getattr(self, name) is UNSET:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in _FIELDS if getattr(self, name) is not UNSET)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_FIELDS = (*METRICS, "token_dependencies")

Estimates: TypeAlias = Mapping[str, Any]


def _metric_set(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):
        raise TypeError(f"subtree_metrics must be a collection of metric names, got the string {names!r}")
    found = frozenset(names)
    if unknown := sorted(map(str, found - frozenset(METRICS))):
        raise ValueError(f"subtree_metrics names no metric: {', '.join(unknown)}; the metrics are {', '.join(METRICS)}")
    return found


def _callable(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not callable(value):
        raise TypeError(f"a handler must be callable, got {type(value).__name__}")


@attrs.frozen
class ModuleHandler:
    """One callback `ModuleCall -> estimates`, and the metrics for which it answers for its whole subtree.

    Args:
        estimate: called once per call of a matching module, after its `forward`, without gradients and with operator
            counting suspended. It returns a mapping or `ModuleEstimates`.
        subtree_metrics: metrics that cover everything executed inside the call. Descendants keep their rows but lose
            the metric, even when this handler's own estimate fails.

    """

    estimate: Callable[[ModuleCall], Estimates] = attrs.field(validator=_callable)
    subtree_metrics: frozenset[str] = attrs.field(default=(), converter=_metric_set)

    def __call__(self, call: ModuleCall) -> Estimates:
        """Estimate one call."""
        return self.estimate(call)


def _as_handler(value: object) -> ModuleHandler:
    return value if isinstance(value, ModuleHandler) else ModuleHandler(value)  # type: ignore[arg-type]


def _target(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, type):
        return
    if isinstance(value, str):
        if len(parts := value.split(".")) > 1 and all(part.isidentifier() for part in parts):
            return
        raise ValueError(f"a target by name must be dotted, such as 'einops.layers.torch.Rearrange', got {value!r}")
    raise TypeError(f"a target must be a class or its dotted name, got {type(value).__name__}")


def _version(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"contract must be an int such as torchscan.CONTRACT_VERSION, got {value!r}")


@attrs.frozen
class HandlerRegistration:
    """An offer to handle one module class.

    Args:
        target: the class, or its dotted name (`"einops.layers.torch.Rearrange"`), so that a pack costs nothing until
            its library is in use.
        handler: a `ModuleHandler`, or a bare callable.
        match: `"exact"` for that very type only, `"subclass"` for its subclasses too.
        contract: the `CONTRACT_VERSION` the handler was written for.

    """

    target: type | str = attrs.field(validator=_target)
    handler: ModuleHandler = attrs.field(converter=_as_handler)
    match: Literal["exact", "subclass"] = attrs.field(default="subclass", validator=one_of(("exact", "subclass")))
    contract: int = attrs.field(default=CONTRACT_VERSION, validator=_version)
