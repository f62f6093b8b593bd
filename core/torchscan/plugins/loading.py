"""One plugin at a time: import it, check it against the hooks, call its hooks, and say what went wrong."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pluggy

from torchscan.contract import hookspecs
from torchscan.contract.diagnostics import Diagnostic
from torchscan.plugins.discovery import DeclaredPlugin, unmet_requirement
from torchscan.plugins.records import GROUP, PluginInfo

__all__ = ["HOOKS", "PluginProblem", "connect", "guarded", "implements", "import_plugin", "offers"]

T = TypeVar("T")

log = logging.getLogger("torchscan.plugins")

#: The names of all hooks.
HOOKS: tuple[str, ...] = tuple(sorted(name for name in dir(hookspecs) if name.startswith("torchscan_")))

# What a plugin may raise without ending the scan: a module that calls `sys.exit` is just as broken as one that fails.
_ANY = (Exception, SystemExit)


class PluginProblem(Exception):
    """A plugin has to be set aside; becomes a diagnostic.

    Args:
        message: the cause, as the end of a sentence about the plugin.
        code: the diagnostic code.
        reason: the machine-readable cause.

    """

    def __init__(self, message: str, *, reason: str, code: str = "plugin_load_error") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def diagnostic(self, info: PluginInfo) -> Diagnostic:
        """Return this problem as a diagnostic about `info`."""
        text = f"{info.label} is set aside: {self.message}"
        return Diagnostic(self.code, text, severity="error", plugin=info.name, reason=self.reason)


def import_plugin(candidate: DeclaredPlugin) -> object:
    """Import a declared plugin.

    Raises:
        PluginProblem: its requirements conflict, its module or a dependency is missing, or importing it raised.

    """
    if candidate.info.distribution != "torchscan" and (conflict := unmet_requirement(candidate.requires)):
        requirement, installed = conflict
        raise PluginProblem(
            f"it requires {requirement}, but version {installed} is installed",
            code="plugin_contract_mismatch",
            reason="unmet_requirement",
        )
    entry_point = candidate.entry_point
    try:
        module = entry_point.module
    except (AttributeError, AssertionError):  # which of the two depends on the version of Python
        raise PluginProblem(
            f"its entry point {entry_point.value!r} is neither a module nor module:attribute", reason="module_missing"
        ) from None
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        log.debug("importing %s", candidate.info.label, exc_info=True)
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise PluginProblem(
                f"its entry point names the module {module!r}, which does not exist; reinstall or remove "
                f"{candidate.info.distribution}",
                reason="module_missing",
            ) from error
        missing = error.name or str(error)
        raise PluginProblem(
            f"its module {module!r} was found, but it imports {missing!r}, which is not installed",
            reason="dependency_missing",
        ) from error
    except AttributeError as error:
        log.debug("importing %s", candidate.info.label, exc_info=True)
        if entry_point.attr and error.name == entry_point.attr.split(".")[0]:
            raise PluginProblem(
                f"its entry point names {entry_point.value!r}, but the module {module!r} has no {entry_point.attr!r}",
                reason="module_missing",
            ) from error
        raise PluginProblem(f"importing {module!r} raised {_cause(error)}", reason="import_error") from error
    except _ANY as error:
        log.debug("importing %s", candidate.info.label, exc_info=True)
        raise PluginProblem(f"importing {module!r} raised {_cause(error)}", reason="import_error") from error


def connect(plugin: object, name: str) -> pluggy.PluginManager:
    """Check a plugin against the hooks and return a manager that holds it alone.

    One manager per plugin: a plugin that is refused leaves nothing behind, and neither a raising implementation nor a
    wrapper of one plugin reaches another.

    Args:
        plugin: the module or object with the hooks.
        name: what the manager calls it.

    Raises:
        PluginProblem: it implements an unknown hook, asks for an unknown argument, or forgot the marker.

    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name=name)
        manager.check_pending()
        marked = [impl.function for hook in HOOKS for impl in getattr(manager.hook, hook).get_hookimpls()]
        for hook in HOOKS:
            function = getattr(plugin, hook, None)
            if callable(function) and function not in marked and function is not getattr(hookspecs, hook):
                raise PluginProblem(f"its {hook} is not marked with torchscan.hookimpl", reason="unmarked_hook")
    except pluggy.PluginValidationError as error:
        raise _explained(manager, plugin, error) from error
    except PluginProblem:
        raise
    except _ANY as error:
        raise PluginProblem(f"looking for its hooks raised {_cause(error)}", reason="hook_error") from error
    return manager


def implements(manager: pluggy.PluginManager, hook: str) -> bool:
    """Return whether the plugin of this manager implements `hook`."""
    return bool(getattr(manager.hook, hook).get_hookimpls())


def offers(manager: pluggy.PluginManager, hook: str, kind: type[T]) -> tuple[T, ...]:
    """Call a registering hook and return its offers.

    Args:
        manager: that of one plugin.
        hook: the name of the hook.
        kind: what it has to offer.

    Raises:
        PluginProblem: it raised, also midway through a generator, or offered something that is no `kind`.

    """
    return guarded(hook, lambda: tuple(_read(getattr(manager.hook, hook)(), hook, kind)))


def guarded(hook: str, call: Callable[[], T]) -> T:
    """Call into a plugin and return what it answers.

    Args:
        hook: the name of the hook, for the message.
        call: calls it.

    Raises:
        PluginProblem: the call raised.

    """
    try:
        return call()
    except PluginProblem:
        raise
    except _ANY as error:
        log.debug("calling %s", hook, exc_info=True)
        raise PluginProblem(f"its {hook} raised {_cause(error)}", reason="hook_error") from error


def _read(results: list[Any], hook: str, kind: type[T]) -> Iterator[T]:
    for result in results:
        if isinstance(result, kind) or not hasattr(result, "__iter__"):
            raise PluginProblem(
                f"its {hook} returned one {type(result).__name__}, not a collection of {kind.__name__}",
                reason="invalid_offer",
            )
        for offer in result:
            if not isinstance(offer, kind):
                raise PluginProblem(
                    f"its {hook} offered a value of type {type(offer).__name__}, not a {kind.__name__}",
                    reason="invalid_offer",
                )
            yield offer


def _explained(manager: pluggy.PluginManager, plugin: object, error: Exception) -> PluginProblem:
    """Say which hook and which argument; pluggy's own text lists arguments in no certain order."""
    for name in dir(plugin):
        if (options := manager.parse_hookimpl_opts(plugin, name)) is None:
            continue
        hook = options.get("specname") or name
        if hook not in HOOKS:
            close = difflib.get_close_matches(hook, HOOKS, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; the hooks are {', '.join(HOOKS)}"
            return PluginProblem(f"it implements the unknown hook {hook}{hint}", reason="unknown_hook")
        known = inspect.signature(getattr(hookspecs, hook)).parameters
        asked = inspect.signature(getattr(plugin, name)).parameters
        if unknown := [argument for argument in asked if argument not in known]:
            given = f"the hook gives {', '.join(known)}" if known else "the hook gives no arguments"
            return PluginProblem(
                f"its {hook} asks for the unknown argument {', '.join(unknown)}; {given}", reason="unknown_argument"
            )
    return PluginProblem(" ".join(str(error).split()), reason="invalid_hook")


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
