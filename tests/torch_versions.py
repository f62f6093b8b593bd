"""Where releases of PyTorch differ, so that a test can say what it expects of each."""

from __future__ import annotations

import torch
from packaging.version import Version

__all__ = ["before", "since"]

_RELEASE = Version(Version(torch.__version__).base_version)


def since(version: str) -> bool:
    """Say whether this PyTorch is `version` or newer."""
    return Version(version) <= _RELEASE


def before(version: str) -> bool:
    """Say whether this PyTorch is older than `version`."""
    return not since(version)
