"""`PluginHost`: the plugins of one scanner, each guarded on its own.

A host has no global state. Everything it does is lazy: plugins are imported on first use, handlers and formulas are
collected when a scan wants them, and report formats when a report is rendered, which must not import torch.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable
from itertools import groupby
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal

import attrs
import pluggy
from packaging.utils import canonicalize_name

from torchscan._version import __version__
from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.handler import CONTRACT_VERSION, HandlerRegistration
from torchscan.contract.operators import OperatorFormula
from torchscan.plugins.discovery import DeclaredPlugin, discover
from torchscan.plugins.loading import PluginProblem, connect, guarded, implements, import_plugin, offers
from torchscan.plugins.messages import contract_mismatch, format_clash, name_clash, target_name
from torchscan.plugins.records import OfferedFormat, OfferedFormula, OfferedHandler, PluginInfo

if TYPE_CHECKING:
    from torchscan.contract.call import ModuleCall
    from torchscan.report.schema import LayerRecord, Report

__all__ = ["PluginHost", "environment_switches"]

#: The formats that come with torchscan, through the hook that every pack uses.
_BUILTIN_FORMATS: Final = "torchscan.report.builtin"
_BUILTIN: Final = PluginInfo("torchscan", "torchscan", __version__, module=_BUILTIN_FORMATS)


@attrs.define(eq=False)
class _Slot:
    """One plugin of a host, and what it has offered so far."""

    info: PluginInfo
    plugin: object = None
    manager: pluggy.PluginManager | None = None
    handlers: tuple[OfferedHandler, ...] = ()
    formulas: tuple[OfferedFormula, ...] = ()
    formats: tuple[OfferedFormat, ...] = ()
    muted: bool = False


class PluginHost:
    """The plugins of one scanner.

    Explicit plugins come first, in the order given, then the installed ones in the order of their names. A plugin
    that fails in any way is set aside as a whole and reported in `diagnostics`; the others go on.

    Args:
        plugins: modules or objects with hook implementations, beside the installed ones.
        autoload: whether to load installed plugins; `None` asks the environment: `TORCHSCAN_PLUGIN_AUTOLOAD=0`
            (or `false`, `no`, `off`) switches it off.
        disabled: names of plugins (or of their distributions) to leave out, in addition to those in the environment
            variable `TORCHSCAN_DISABLE_PLUGINS`, separated by commas.

    Raises:
        TypeError: a plugin is given as text, or `disabled` is one string.

    """

    def __init__(
        self, plugins: Iterable[object] = (), *, autoload: bool | None = None, disabled: Iterable[str] = ()
    ) -> None:
        if isinstance(disabled, str):
            raise TypeError(f"disabled must be a collection of plugin names, got the string {disabled!r}")
        self._explicit = tuple(plugins)
        for plugin in self._explicit:
            if plugin is None or isinstance(plugin, (str, bytes)):
                raise TypeError(f"a plugin is a module or an object with hooks, got {plugin!r}")
        environment = environment_switches()
        self._autoload = environment[0] if autoload is None else autoload
        self._disabled = frozenset((*disabled, *environment[1]))
        self._lock = threading.RLock()
        self._slots: list[_Slot] = []
        self._diagnostics: list[Diagnostic] = []
        self._handlers: tuple[OfferedHandler, ...] | None = None
        self._builtin: tuple[OfferedFormat, ...] | None = None
        self._started: set[str] = set()
        self._done: set[str] = set()

    # What it found

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin, also those set aside and those disabled; imports them."""
        self._once("load", self._load)
        return tuple(slot.info for slot in self._slots)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is wrong with the plugins, as far as they have been used."""
        self._once("load", self._load)
        return tuple(self._diagnostics)

    @property
    def handlers(self) -> tuple[OfferedHandler, ...]:
        """Every handler offered, in a deterministic order: plugin by plugin, as each offers them."""
        self._once("work", self._collect_work)
        if (found := self._handlers) is None:
            found = tuple(offer for slot in self._slots for offer in slot.handlers)
            if self.settled:
                self._handlers = found
        return found

    @property
    def settled(self) -> bool:
        """Whether everything has been collected; a plugin that scans while it is loaded sees a host that is not."""
        return "work" in self._done

    @property
    def operator_formulas(self) -> tuple[OfferedFormula, ...]:
        """Every operator formula offered, in the same order."""
        self._once("work", self._collect_work)
        return tuple(offer for slot in self._slots for offer in slot.formulas)

    @property
    def formats(self) -> tuple[OfferedFormat, ...]:
        """Every report format: torchscan's own, then those of plugins; a name that is taken keeps its first owner."""
        self._once("formats", self._collect_formats)
        return (*self._builtin_formats(), *(offer for slot in self._slots for offer in slot.formats))

    def find_format(self, name: str) -> OfferedFormat | None:
        """Return the format of that name, or `None`; loads no plugin for a format of torchscan's own."""
        for offer in self._builtin_formats():
            if offer.format.name == name:
                return offer
        return next((offer for offer in self.formats if offer.format.name == name), None)

    def collect(self) -> tuple[PluginInfo, ...]:
        """Collect everything there is and return the plugins with all that they register."""
        self._once("work", self._collect_work)
        self._once("formats", self._collect_formats)
        return self.plugins

    # What it tells

    @property
    def wants_call_estimated(self) -> bool:
        """Whether any plugin listens to `torchscan_call_estimated`."""
        return bool(self._listeners("torchscan_call_estimated"))

    def call_estimated(self, call: ModuleCall, layer: LayerRecord) -> None:
        """Tell every listener that a call was estimated."""
        self._tell("torchscan_call_estimated", lambda hook: hook.torchscan_call_estimated(call=call, layer=layer))

    def report_ready(self, report: Report) -> None:
        """Tell every listener that a report is built."""
        self._tell("torchscan_report_ready", lambda hook: hook.torchscan_report_ready(report=report))

    # How it works

    def _once(self, step: str, work: Callable[[], None]) -> None:
        if step in self._done:
            return
        with self._lock:
            # A plugin that scans while it is being loaded sees what there is so far; other threads wait.
            if step not in self._started:
                self._started.add(step)
                work()
                self._done.add(step)

    def _load(self) -> None:
        candidates, problems = discover() if self._autoload or self._explicit else ((), ())
        self._add_explicit(candidates)
        if not self._autoload:
            return
        self._diagnostics.extend(problems)
        given = {slot.info.module for slot in self._slots}
        left = [candidate for candidate in candidates if candidate.info.module not in given]
        for name, group in groupby(left, key=lambda candidate: candidate.info.name):
            self._add_installed(name, list(group))

    def _add_explicit(self, candidates: tuple[DeclaredPlugin, ...]) -> None:
        known = {candidate.info.module: candidate.info for candidate in candidates}
        seen: list[object] = []
        for plugin in self._explicit:
            if any(plugin is other for other in seen):
                continue
            seen.append(plugin)
            info = (known.get(plugin.__name__) if isinstance(plugin, ModuleType) else None) or _described(plugin)
            taken = sum(slot.info.name.partition("#")[0] == info.name for slot in self._slots)
            if taken:
                info = attrs.evolve(info, name=f"{info.name}#{taken + 1}")
            if self._is_disabled(info):
                self._slots.append(_Slot(attrs.evolve(info, status="disabled")))
            else:
                self._add(_Slot(info), lambda plugin=plugin: plugin)  # type: ignore[misc]

    def _add_installed(self, name: str, group: list[DeclaredPlugin]) -> None:
        """Add the one plugin of that name that is to be used.

        The first distribution by name keeps it, unless it fails: a broken pack must not hide a working one.
        """
        wanted = [candidate for candidate in group if not self._is_disabled(candidate.info)]
        for candidate in group:
            if candidate not in wanted:
                self._slots.append(_Slot(attrs.evolve(candidate.info, status="disabled")))
        winner: PluginInfo | None = None
        for candidate in wanted:
            slot = _Slot(candidate.info)
            if winner is not None:
                slot.info = attrs.evolve(
                    slot.info, status="failed", error=f"the name {name!r} is taken by {winner.distribution}"
                )
                self._slots.append(slot)
            elif self._add(slot, lambda candidate=candidate: import_plugin(candidate)):  # type: ignore[misc]
                winner = candidate.info
        if len(wanted) > 1:
            self._diagnostics.append(name_clash(name, [candidate.info for candidate in wanted], winner))

    def _add(self, slot: _Slot, get: Callable[[], object]) -> bool:
        self._slots.append(slot)
        try:
            slot.plugin = get()
            if slot.plugin is None:
                raise PluginProblem(f"its entry point {slot.info.module!r} is None", reason="module_missing")
            if (twin := next((s for s in self._slots if s is not slot and s.plugin is slot.plugin), None)) is not None:
                raise PluginProblem(f"it is the same plugin as {twin.info.label}", reason="same_plugin")
            slot.manager = connect(slot.plugin, slot.info.name)
        except PluginProblem as problem:
            self._set_aside(slot, problem)
            return False
        return True

    def _set_aside(self, slot: _Slot, problem: PluginProblem) -> None:
        diagnostic = problem.diagnostic(slot.info)
        self._diagnostics.append(diagnostic)
        slot.info = attrs.evolve(
            slot.info, status="failed", error=problem.message, handlers=(), operator_formulas=(), formats=()
        )
        slot.manager = None
        slot.handlers, slot.formulas, slot.formats = (), (), ()
        self._handlers = None

    def _each(self, work: Callable[[_Slot, pluggy.PluginManager], None]) -> None:
        self._once("load", self._load)
        for slot in list(self._slots):
            if slot.manager is not None:
                try:
                    work(slot, slot.manager)
                except PluginProblem as problem:
                    self._set_aside(slot, problem)

    def _collect_work(self) -> None:
        self._each(self._collect_work_of)

    def _collect_work_of(self, slot: _Slot, manager: pluggy.PluginManager) -> None:
        offered = offers(manager, "torchscan_register_handlers", HandlerRegistration)
        formulas = offers(manager, "torchscan_register_operator_formulas", OperatorFormula)
        registrations = [registration for registration in offered if registration.contract <= CONTRACT_VERSION]
        if newer := [registration for registration in offered if registration.contract > CONTRACT_VERSION]:
            self._diagnostics.append(contract_mismatch(slot.info, newer))
        slot.info = attrs.evolve(
            slot.info,
            handlers=tuple(target_name(registration) for registration in registrations),
            operator_formulas=tuple(formula.operator for formula in formulas),
        )
        tier: Literal["pack", "native"] = "native" if slot.info.is_native else "pack"
        slot.handlers = tuple(OfferedHandler(registration, slot.info, tier) for registration in registrations)
        slot.formulas = tuple(OfferedFormula(formula, slot.info) for formula in formulas)
        self._handlers = None

    def _collect_formats(self) -> None:
        self._each(self._collect_formats_of)

    def _collect_formats_of(self, slot: _Slot, manager: pluggy.PluginManager) -> None:
        if not implements(manager, "torchscan_register_report_formats"):
            return
        from torchscan.report.formats import ReportFormat

        offered = offers(manager, "torchscan_register_report_formats", ReportFormat)
        taken = {
            offer.format.name: offer.plugin
            for offer in (*self._builtin_formats(), *(o for other in self._slots for o in other.formats))
        }
        kept = []
        for report_format in offered:
            if (owner := taken.get(report_format.name)) is None:
                taken[report_format.name] = slot.info
                kept.append(report_format)
            else:
                self._diagnostics.append(format_clash(report_format.name, owner, slot.info))
        slot.info = attrs.evolve(slot.info, formats=tuple(report_format.name for report_format in kept))
        slot.formats = tuple(OfferedFormat(report_format, slot.info) for report_format in kept)

    def _builtin_formats(self) -> tuple[OfferedFormat, ...]:
        if self._builtin is None:
            from torchscan.report.formats import ReportFormat

            manager = connect(importlib.import_module(_BUILTIN_FORMATS), _BUILTIN.name)
            found = offers(manager, "torchscan_register_report_formats", ReportFormat)
            self._builtin = tuple(OfferedFormat(report_format, _BUILTIN) for report_format in found)
        return self._builtin

    def _is_disabled(self, info: PluginInfo) -> bool:
        if info.name in self._disabled:
            return True
        distribution = canonicalize_name(info.distribution) if info.distribution else None
        # `torchscan` as a name of a distribution would be a way to switch off the native handlers by accident.
        return distribution not in (None, "torchscan") and any(
            canonicalize_name(name) == distribution for name in self._disabled
        )

    def _listeners(self, hook: str) -> list[tuple[_Slot, pluggy.PluginManager]]:
        self._once("load", self._load)
        return [
            (slot, slot.manager)
            for slot in self._slots
            if slot.manager is not None and not slot.muted and implements(slot.manager, hook)
        ]

    def _tell(self, hook: str, call: Callable[[pluggy.HookRelay], object]) -> None:
        for slot, manager in self._listeners(hook):
            try:
                guarded(hook, lambda manager=manager: call(manager.hook))  # type: ignore[misc]
            except PluginProblem as problem:
                # Its handlers stay: the numbers of the next scan must not depend on a failed notification of this one.
                slot.muted = True
                diagnostic = problem.diagnostic(slot.info)
                message = diagnostic.message.replace("is set aside", "is told nothing more", 1)
                self._diagnostics.append(attrs.evolve(diagnostic, message=message))
                slot.info = attrs.evolve(slot.info, error=problem.message)


def _described(plugin: object) -> PluginInfo:
    if isinstance(plugin, ModuleType):
        return PluginInfo(plugin.__name__, module=plugin.__name__)
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return PluginInfo(f"{kind.__module__}.{kind.__qualname__}")


def environment_switches() -> tuple[bool, tuple[str, ...]]:
    """Return what the environment says: whether installed plugins are loaded, and the names of those left out."""
    names = os.environ.get("TORCHSCAN_DISABLE_PLUGINS", "").split(",")
    autoload = os.environ.get("TORCHSCAN_PLUGIN_AUTOLOAD", "").strip().lower() not in ("0", "false", "no", "off")
    return autoload, tuple(name.strip() for name in names if name.strip())
