"""Which plugins are installed: entry points of the group `torchscan`, read one distribution at a time."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distributions, version

import attrs
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from torchscan._version import __version__
from torchscan.contract.diagnostics import Diagnostic
from torchscan.plugins.records import GROUP, PluginInfo

__all__ = ["DeclaredPlugin", "discover", "unmet_requirement"]


@attrs.frozen(eq=False)
class DeclaredPlugin:
    """A declared plugin that is not imported yet."""

    info: PluginInfo
    entry_point: EntryPoint
    requires: tuple[str, ...] = ()


def discover() -> tuple[tuple[DeclaredPlugin, ...], tuple[Diagnostic, ...]]:
    """Return every declared plugin, and what could not be read.

    The order is that of the names, then of the distributions' names, whatever the order on the path; `torchscan`'s
    own come first among equal names. A distribution that is on the path twice counts once, the first one, as it
    would be imported.
    """
    candidates: list[DeclaredPlugin] = []
    problems: list[Diagnostic] = []
    for distribution in _installed():
        try:
            declared = _declared(distribution)
        except Exception as error:  # a malformed file of one distribution must not cost the others
            name = _name(distribution) or "?"
            problems.append(
                Diagnostic(
                    "plugin_load_error",
                    f"the entry points of distribution {name} {_version(distribution)} cannot be read "
                    f"({type(error).__name__}: {error}); its plugins are left out",
                    severity="error",
                    plugin=name,
                    reason="unreadable_metadata",
                )
            )
        else:
            candidates.extend(_candidate(distribution, entry_point) for entry_point in declared)
    candidates.sort(key=_order)
    return tuple(candidates), tuple(sorted(problems, key=lambda problem: problem.message))


def unmet_requirement(requires: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first requirement that an installed version does not meet, with that version.

    A requirement that is not installed at all is no conflict: a pack names classes as text and waits for its library.
    """
    for text in requires:
        try:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            # The running code counts for torchscan itself, not what an older installation left on the path.
            ours = canonicalize_name(requirement.name) == "torchscan"
            installed = __version__ if ours else version(requirement.name)
            if not requirement.specifier.contains(Version(installed), prereleases=True):
                return text, installed
        except (InvalidRequirement, InvalidVersion, PackageNotFoundError):
            continue
    return None


def _installed() -> Iterator[Distribution]:
    """Return the distributions with an entry-point file of the group, each once, as it would be imported."""
    found: dict[str, list[Distribution]] = {}
    # Reading one small file per distribution is cheap, parsing the metadata of all of them is not.
    for distribution in distributions():
        if _meant_for_us(distribution) and (name := _name(distribution)) is not None:
            found.setdefault(canonicalize_name(name), []).append(distribution)
    for name, copies in found.items():
        first = _location(Distribution.from_name(name))
        # An interrupted upgrade leaves two versions in one folder, listed in no certain order.
        same = [distribution for distribution in copies if _location(distribution) == first]
        if same:
            yield max(same, key=_sortable_version)


def _location(distribution: Distribution) -> str:
    return str(distribution.locate_file(""))


def _sortable_version(distribution: Distribution) -> Version:
    try:
        return Version(distribution.version)
    except Exception:
        return Version("0")


def _declared(distribution: Distribution) -> list[EntryPoint]:
    # Two equal lines are one declaration.
    return list(dict.fromkeys(distribution.entry_points.select(group=GROUP)))


def _candidate(distribution: Distribution, entry_point: EntryPoint) -> DeclaredPlugin:
    name = _name(distribution) or "?"
    info = PluginInfo(entry_point.name, name, _version(distribution), entry_point.value)
    try:
        requires = tuple(distribution.requires or ())
    except Exception:
        requires = ()
    return DeclaredPlugin(info, entry_point, requires)


def _order(candidate: DeclaredPlugin) -> tuple[str, bool, str, str]:
    distribution = canonicalize_name(candidate.info.distribution or "")
    return candidate.info.name, distribution != "torchscan", distribution, candidate.info.module or ""


def _meant_for_us(distribution: Distribution) -> bool:
    try:
        return f"[{GROUP}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:
        return canonicalize_name(_name(distribution) or "").startswith("torchscan-")


def _name(distribution: Distribution) -> str | None:
    try:
        name = distribution.metadata["Name"]
    except Exception:
        return None
    return name or None


def _version(distribution: Distribution) -> str | None:
    try:
        return distribution.version or None
    except Exception:
        return None
