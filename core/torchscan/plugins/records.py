"""What a plugin host hands out: who is installed, and who offered what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from torchscan.contract.handler import HandlerRegistration
    from torchscan.contract.operators import OperatorFormula
    from torchscan.report.formats import ReportFormat

__all__ = ["GROUP", "REASONS", "OfferedFormat", "OfferedFormula", "OfferedHandler", "PluginInfo"]

#: The entry-point group, and the name of the project for pluggy.
GROUP = "torchscan"


#: Why a plugin or an offer was set aside: the `reason` of its diagnostic, the code, and what it means.
REASONS = {
    "module_missing": ("plugin_load_error", "the entry point names a module or an attribute that does not exist"),
    "dependency_missing": ("plugin_load_error", "the module was found, but something it imports is not installed"),
    "import_error": ("plugin_load_error", "importing the module raised"),
    "unreadable_metadata": ("plugin_load_error", "the distribution's entry points cannot be read"),
    "unknown_hook": ("plugin_load_error", "it implements a hook that does not exist; the message names the nearest"),
    "unknown_argument": ("plugin_load_error", "its implementation asks for an argument that the hook does not give"),
    "unmarked_hook": ("plugin_load_error", "a function has the name of a hook, but not its marker"),
    "invalid_hook": ("plugin_load_error", "pluggy refuses its implementation of a hook"),
    "hook_error": ("plugin_load_error", "its implementation of a hook raised, also midway through its offers"),
    "invalid_offer": ("plugin_load_error", "a registering hook returned something that is no registration"),
    "same_plugin": ("plugin_load_error", "two entry points name one plugin; the first is used"),
    "unmet_requirement": (
        "plugin_contract_mismatch",
        "its distribution requires another version of torchscan, or of an installed library",
    ),
    "newer_contract": (
        "plugin_contract_mismatch",
        "some of its handlers are for a newer CONTRACT_VERSION; only those are left out",
    ),
    "plugin_name": ("handler_conflict", "two distributions declare one plugin name; the first by name is used"),
    "format_name": ("handler_conflict", "two plugins offer one report format; the first is used"),
    "same_class": ("handler_conflict", "two packs claim the class of a module that ran; the first by name is used"),
}


@attrs.frozen
class PluginInfo:
    """One plugin: where it comes from, whether it is in use, and what it registers.

    Args:
        name: the entry-point name, or the import path of an object that a caller passed.
        distribution: the installed distribution that declares it; `None` for an object.
        version: the version of that distribution.
        module: the declared `module` or `module:attribute`.
        status: `ok`, `failed` (set aside; `error` says why) or `disabled` (by the caller or the environment).
        error: what went wrong, for people.
        handlers: the targets it registered handlers for, by dotted name. Filled in when handlers are collected.
        operator_formulas: the operators it has formulas for. Filled in with the handlers.
        formats: the report formats it offers. Filled in when formats are collected.

    """

    name: str
    distribution: str | None = None
    version: str | None = None
    module: str | None = None
    status: Literal["ok", "failed", "disabled"] = attrs.field(default="ok", kw_only=True)
    error: str | None = attrs.field(default=None, kw_only=True)
    handlers: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    operator_formulas: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    formats: tuple[str, ...] = attrs.field(default=(), kw_only=True)

    @property
    def label(self) -> str:
        """The plugin in a sentence: its name, distribution and version."""
        if self.distribution is None:
            return f"plugin {self.name!r}"
        return f"plugin {self.name!r} ({self.distribution} {self.version or 'of unknown version'})"

    @property
    def is_native(self) -> bool:
        """Whether this is torchscan's own plugin, which forms the last tier."""
        return self.name == "native" and self.distribution == "torchscan"


@attrs.frozen(eq=False)
class OfferedHandler:
    """One registration and who made it."""

    registration: HandlerRegistration
    plugin: PluginInfo
    tier: Literal["pack", "native"]


@attrs.frozen(eq=False)
class OfferedFormula:
    """One operator formula and who offers it."""

    formula: OperatorFormula
    plugin: PluginInfo


@attrs.frozen(eq=False)
class OfferedFormat:
    """One report format and who offers it."""

    format: ReportFormat
    plugin: PluginInfo
