"""What a host says when offers clash, or are for another contract."""

from __future__ import annotations

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.handler import CONTRACT_VERSION, HandlerRegistration
from torchscan.plugins.records import PluginInfo

__all__ = ["contract_mismatch", "format_clash", "name_clash", "target_name"]


def target_name(registration: HandlerRegistration) -> str:
    """Return the target of a registration by its dotted name."""
    target = registration.target
    return target if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"


def contract_mismatch(info: PluginInfo, newer: list[HandlerRegistration]) -> Diagnostic:
    """Return the diagnostic about handlers that are for a newer contract."""
    versions = ", ".join(str(version) for version in sorted({registration.contract for registration in newer}))
    names = ", ".join(target_name(registration) for registration in newer)
    return Diagnostic(
        "plugin_contract_mismatch",
        f"{info.label} has handlers for contract {versions}, but this torchscan provides contract "
        f"{CONTRACT_VERSION}; without them: {names}",
        plugin=info.name,
        reason="newer_contract",
    )


def name_clash(name: str, infos: list[PluginInfo], winner: PluginInfo | None) -> Diagnostic:
    """Return the diagnostic about two distributions that declare one plugin name."""
    sides = " and ".join(f"{info.distribution} {info.version}" for info in infos)
    outcome = f"{winner.distribution} is used" if winner is not None else "none of them can be used"
    return Diagnostic(
        "handler_conflict",
        f"the distributions {sides} declare the same plugin name {name!r}; {outcome}. Uninstall one, or name its "
        f"distribution in TORCHSCAN_DISABLE_PLUGINS",
        plugin=name,
        reason="plugin_name",
    )


def format_clash(name: str, owner: PluginInfo, other: PluginInfo) -> Diagnostic:
    """Return the diagnostic about two plugins that offer one report format."""
    return Diagnostic(
        "handler_conflict",
        f"{owner.label} and {other.label} offer the same report format {name!r}; that of {owner.name!r} is used",
        plugin=other.name,
        reason="format_name",
    )
