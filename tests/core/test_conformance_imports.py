"""`check_pack_import` passes a good pack and names what is wrong with a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugin_sites import Site, handler_pack
from torchscan.testing import ConformanceError, check_pack_import


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    found = Site(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(found.root))
    found.module("modelled", "VALUE = 1\n")
    return found


def test_a_pack_that_names_its_library_as_text_passes(site: Site):
    site.module("good_pack", handler_pack("modelled.Layer"))
    check_pack_import("good_pack", ["modelled"])


BAD = {
    "import modelled\n" + handler_pack("modelled.Layer"): "No module named 'modelled'",
    "import torch\n" + handler_pack("modelled.Layer"): "imports torch",
    handler_pack("modelled.Layer").replace("    yield", "    import modelled\n    yield"): "No module named 'modelled'",
    "import torchscan\n": "it registers nothing",
    "import torchscan\n@torchscan.hookimpl\ndef torchscan_register_handler(): ...\n": "unknown hook",
    "1 / 0\n": "ZeroDivisionError",
}


@pytest.mark.parametrize("source", BAD, ids=["library", "torch", "hook", "nothing", "misspelt", "raises"])
def test_a_bad_pack_is_refused_with_the_cause(site: Site, source: str):
    site.module("bad_pack", source)
    with pytest.raises(ConformanceError, match="bad_pack does not import on its own") as caught:
        check_pack_import("bad_pack", ["modelled"])
    assert BAD[source] in str(caught.value)


def test_a_library_that_happens_to_be_installed_does_not_count(site: Site):
    # The check makes it absent: here it could be imported, and the pack is refused all the same.
    site.module("bad_pack", "import modelled\n" + handler_pack("modelled.Layer"))
    check_pack_import("bad_pack")
    with pytest.raises(ConformanceError):
        check_pack_import("bad_pack", ["modelled"])


def test_a_pack_that_is_not_there_is_refused(site: Site):
    with pytest.raises(ConformanceError, match="absent_pack"):
        check_pack_import("absent_pack")


def test_one_string_is_no_collection_of_libraries():
    with pytest.raises(TypeError, match="'einops'"):
        check_pack_import("torchscan_einops.plugin", "einops")
