"""The host of everybody who brings no plugins of their own: the installed ones, read once."""

from __future__ import annotations

import os
import sys
import threading

import attrs

from torchscan.plugins.discovery import discover
from torchscan.plugins.manager import PluginHost, environment_switches
from torchscan.plugins.records import PluginInfo

__all__ = ["default_host", "reset_default_host"]


def _path_state() -> tuple[tuple[str, int], ...]:
    """What `sys.path` holds, as far as an installation would change it."""
    state = []
    for entry in sys.path:
        try:
            state.append((entry, os.stat(entry or ".").st_mtime_ns))
        except OSError:
            state.append((entry, 0))
    return tuple(state)


@attrs.define(eq=False)
class _Default:
    """The default host, and what it was made from."""

    environment: object
    path: object
    declared: object
    host: PluginHost


_default: _Default | None = None
_default_lock = threading.Lock()


def default_host() -> PluginHost:
    """Return the host of everybody who brings no plugins of their own.

    Kept until the environment variables or the folders on `sys.path` change, so that an installed pack is seen by the
    next scan. Nothing but the time of a scan depends on it.
    """
    global _default
    environment, path = environment_switches(), _path_state()
    with _default_lock:
        if _default is not None and _default.environment == environment:
            if _default.path == path:
                return _default.host
            # A folder on the path changed, which need not have anything to do with plugins.
            if _default.declared == _declared():
                _default.path = path
                return _default.host
        _default = _Default(environment, path, _declared(), PluginHost())
        return _default.host


def _declared() -> tuple[PluginInfo, ...]:
    return tuple(candidate.info for candidate in discover()[0])


def reset_default_host() -> None:
    """Forget the default host; the next scan reads the entry points again."""
    global _default
    with _default_lock:
        _default = None
