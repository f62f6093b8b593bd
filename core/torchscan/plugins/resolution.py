"""Which handler decides which metric: tiers in order, and the closest class of the MRO within a tier."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.handler import HandlerRegistration, ModuleHandler

if TYPE_CHECKING:
    from torchscan.plugins.records import OfferedHandler

__all__ = ["NATIVE_METHOD", "Candidate", "Resolver", "caller_registrations"]

Tier: TypeAlias = Literal["caller", "pack", "native"]
_TIERS: tuple[Tier, ...] = ("caller", "pack", "native")

#: The name of the native conventions; a convention that changes gets a new name.
NATIVE_METHOD = "torchscan_formula_v1"


def qualified_name(value: object) -> str:
    """Return `module.qualname` of a class, function, bound method, partial or callable object."""
    while isinstance(value, functools.partial):
        value = value.func
    if not hasattr(value, "__qualname__"):
        value = type(value)
    return f"{getattr(value, '__module__', '?')}.{value.__qualname__}"


@attrs.frozen(eq=False)
class Candidate:
    """A handler that applies to a module type, and who offered it."""

    handler: ModuleHandler
    tier: Tier
    plugin: str
    method: str
    registration: HandlerRegistration


def caller_registrations(custom_modules: Mapping[Any, Any] | None) -> tuple[HandlerRegistration, ...]:
    """Check the caller's `custom_modules` before any model runs.

    Args:
        custom_modules: module class (or its dotted name) to `ModuleHandler` or callable.

    Raises:
        TypeError: a key or a value has the wrong type; the message names the key.
        ValueError: a name is not dotted; the message names the key.

    """
    if custom_modules is None:
        return ()
    if not isinstance(custom_modules, Mapping):
        raise TypeError(
            f"custom_modules must map module classes to handlers, got {type(custom_modules).__name__}; "
            "write {MyModule: ModuleHandler(estimate)}"
        )
    from torch import nn

    found = []
    for key, value in custom_modules.items():
        if not isinstance(key, str) and not (isinstance(key, type) and issubclass(key, nn.Module)):
            raise TypeError(
                f"custom_modules key {key!r} must be a class derived from torch.nn.Module, or its dotted name"
            )
        if isinstance(value, type) or not callable(value):
            raise TypeError(
                f"custom_modules[{_key_name(key)}] must be a ModuleHandler or a callable taking a ModuleCall, "
                f"got {value!r}"
            )
        try:
            found.append(HandlerRegistration(key, value))
        except (TypeError, ValueError) as error:
            raise type(error)(f"custom_modules[{_key_name(key)}]: {error}") from None
    return tuple(found)


def _key_name(key: object) -> str:
    return key.__qualname__ if isinstance(key, type) else repr(key)


class _Table:
    """The offers of one tier."""

    def __init__(self, offers: Iterable[tuple[HandlerRegistration, str]]) -> None:
        self.by_class: dict[type, list[tuple[HandlerRegistration, str]]] = {}
        self.by_name: dict[str, list[tuple[HandlerRegistration, str]]] = {}
        for offer in offers:
            target = offer[0].target
            if isinstance(target, str):
                self.by_name.setdefault(target, []).append(offer)
            else:
                self.by_class.setdefault(target, []).append(offer)

    def find(self, cls: type) -> list[tuple[HandlerRegistration, str]]:
        """Return the offers for the closest class of the MRO, several when they conflict."""
        for base in cls.__mro__:
            offers = [
                offer
                for offer in (*self.by_class.get(base, ()), *self._named(base))
                if offer[0].match == "subclass" or base is cls
            ]
            if offers:
                return offers
        return []

    def _named(self, base: type) -> list[tuple[HandlerRegistration, str]]:
        own = f"{base.__module__}.{base.__qualname__}"
        found = list(self.by_name.get(own, ()))
        for name, offers in self.by_name.items():
            # A public alias (`torch.nn.Linear`) names the class as well as the module that defines it. A library
            # that is not imported cannot own the module at hand.
            if name != own and name.rpartition(".")[2] == base.__name__ and _lookup(name) is base:
                found.extend(offers)
        return found


def _lookup(name: str) -> object:
    module_name, _, attribute = name.rpartition(".")
    owner: object = sys.modules.get(module_name)
    if owner is None:  # a nested class
        outer, _, middle = module_name.rpartition(".")
        owner = getattr(sys.modules.get(outer), middle, None)
    return getattr(owner, attribute, None)


class Resolver:
    """Finds, once per module type, the candidates in tier order."""

    def __init__(self, caller: Sequence[HandlerRegistration] = (), offered: Iterable[OfferedHandler] = ()) -> None:
        offered = tuple(offered)
        self._tables: dict[Tier, _Table] = {
            "caller": _Table((registration, "caller") for registration in caller),
            "pack": _Table((o.registration, o.plugin.name) for o in offered if o.tier == "pack"),
            "native": _Table((o.registration, o.plugin.name) for o in offered if o.tier == "native"),
        }
        self._plans: dict[type, tuple[Candidate, ...]] = {}
        self.conflicts: dict[type, Diagnostic] = {}

    def plan(self, cls: type) -> tuple[Candidate, ...]:
        """Return the candidates for modules of type `cls`: at most one per tier, in tier order."""
        plan = self._plans.get(cls)
        if plan is None:
            plan = self._plans[cls] = self._resolve(cls)
        return plan

    def conflicts_of(self, kinds: Iterable[type]) -> list[Diagnostic]:
        """Return the conflicts that concern modules of these types."""
        return [self.conflicts[kind] for kind in sorted(kinds, key=qualified_name) if kind in self.conflicts]

    def _resolve(self, cls: type) -> tuple[Candidate, ...]:
        plan = []
        for tier in _TIERS:
            offers = self._tables[tier].find(cls)
            if not offers:
                continue
            # Registration and installation order must not decide; names do.
            offers = sorted(offers, key=lambda offer: (offer[1], qualified_name(offer[0].handler.estimate)))
            registration, plugin = offers[0]
            if len(offers) > 1:
                self._report(cls, tier, offers)
            plan.append(
                Candidate(registration.handler, tier, plugin, _method(tier, plugin, registration.handler), registration)
            )
        return tuple(plan)

    def _report(self, cls: type, tier: Tier, offers: list[tuple[HandlerRegistration, str]]) -> None:
        names = ", ".join(f"{name} ({qualified_name(r.handler.estimate)})" for r, name in offers)
        self.conflicts[cls] = Diagnostic(
            "handler_conflict",
            f"{qualified_name(cls)} is claimed by several {tier} handlers: {names}; {offers[0][1]} was used. "
            "Disable one of the plugins, or pass custom_modules= to decide.",
            plugin=offers[0][1],
            reason="same_class",
        )


def _method(tier: Tier, plugin: str, handler: ModuleHandler) -> str:
    if tier == "native":
        return NATIVE_METHOD
    name = qualified_name(handler.estimate)
    return f"custom_module_handler:{name}" if tier == "caller" else f"plugin:{plugin}:{name}"
