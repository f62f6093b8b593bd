"""What the tests of the core share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin_sites import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An empty folder on `sys.path`; what is imported from it is forgotten afterwards."""
    before = set(sys.modules)
    found = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(found.root))
    yield found
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
