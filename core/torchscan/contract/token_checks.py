"""Does a `TokenDependencies` fit the call it came from?

The classes of `torchscan.contract.tokens` refuse what is wrong by itself; here it meets the live arguments and output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchscan.contract.tokens import TokenDependencies

if TYPE_CHECKING:
    from torchscan.contract.call import ModuleCall

__all__ = ["check_token_dependencies", "main_tensor"]


def _shape(value: object) -> tuple[int, ...] | None:
    """Return the shape of a tensor-like object, and `None` for anything else (and for nested tensors)."""
    try:
        return tuple(value.shape)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError, TypeError):
        return None


def _parts(value: object) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (tuple, list)):
        yield from value
    elif hasattr(value, "__dataclass_fields__"):
        yield from (getattr(value, name) for name in value.__dataclass_fields__)


def main_tensor(output: object) -> Any:
    """Return the main tensor of an output: itself, or the first tensor of a tuple, list, mapping or dataclass.

    Returns:
        The tensor, or `None` where there is none.

    """
    if _shape(output) is not None:
        return output
    return next((found for part in _parts(output) if (found := main_tensor(part)) is not None), None)


def _check_axis(name: str, value: object, axis: int, length: int) -> None:
    shape = _shape(value)
    if shape is None:
        raise TypeError(f"{name} is no tensor with one shape, got {type(value).__name__}")
    if axis >= len(shape):
        raise ValueError(f"{name}: sequence_axis is {axis}, but its shape is {shape}")
    if shape[axis] != length:
        raise ValueError(f"{name}: length is {length}, but axis {axis} of its shape {shape} has {shape[axis]}")


def check_token_dependencies(dependencies: object, call: ModuleCall) -> TokenDependencies:
    """Return `dependencies` in canonical form, after a look at the call they describe.

    Args:
        dependencies: what a handler returned.
        call: the call it was given.

    Returns:
        The same dependencies, every relation in its canonical form.

    Raises:
        TypeError: it is no `TokenDependencies`, or names something that is no tensor.
        ValueError: it names no argument of the call, groups other tensors than the call did, leaves the signature
            order, gives an axis or a length that the tensor does not have, or is unavailable without a reason. The
            message names the field.

    """
    if not isinstance(dependencies, TokenDependencies):
        raise TypeError(f"token_dependencies must be a TokenDependencies, got {type(dependencies).__name__}")
    if dependencies.scope != "module_call":
        raise ValueError(f"scope must be 'module_call', got {dependencies.scope!r}")
    if dependencies.output is None:
        if not dependencies.reason:
            raise ValueError("an unavailable TokenDependencies needs a reason")
        return dependencies
    given = {**call.arguments, **call.kwargs}
    order = {name: position for position, name in enumerate(given)}
    owners: dict[int, str] = {}
    before = -1
    for source in dependencies.sources:
        first = source.arguments[0]
        for name in source.arguments:
            if name not in given:
                raise ValueError(f"source {name!r} is no argument of this call; it has {', '.join(given) or 'none'}")
            if given[name] is not given[first]:
                raise ValueError(f"source {'/'.join(source.arguments)}: {first} and {name} are different tensors")
        positions = [order[name] for name in source.arguments]
        if positions != sorted(positions) or positions[0] < before:
            raise ValueError(f"source {'/'.join(source.arguments)} is out of signature order ({', '.join(given)})")
        before = positions[0]
        _check_axis(f"source {first!r}", given[first], source.sequence_axis, source.length)
        if (other := owners.setdefault(id(given[first]), first)) != first:
            raise ValueError(f"{other} and {first} are the same tensor, so they belong to one source")
    _check_axis("output", main_tensor(call.output), dependencies.output.sequence_axis, dependencies.output.length)
    return dependencies.canonical()
