"""What is installed, read from folders that look like a site-packages."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import torchscan
from plugin_sites import Site, handler_pack
from torchscan.plugins.default import default_host, reset_default_host
from torchscan.plugins.discovery import unmet_requirement
from torchscan.plugins.manager import PluginHost


def by_name(host: PluginHost, name: str) -> list:
    return [info for info in host.collect() if info.name == name]


def about(host: PluginHost, name: str) -> list:
    return [diagnostic for diagnostic in host.diagnostics if diagnostic.plugin == name]


def test_native_comes_through_the_door_that_packs_use():
    (native,) = by_name(PluginHost(), "native")
    assert (native.distribution, native.module) == ("torchscan", "torchscan_native.plugin")
    assert native.version == torchscan.__version__
    assert native.status == "ok"
    assert native.is_native


def test_an_installed_pack_is_found_with_its_distribution_and_version(site: Site):
    site.pack("dk1", handler_pack("mylib.layers.Attention"), "3.4")
    host = PluginHost()
    (info,) = by_name(host, "dk1")
    assert (info.name, info.distribution, info.version, info.module) == ("dk1", "torchscan-dk1", "3.4", "dk1_plugin")
    assert info.status == "ok"
    assert info.handlers == ("mylib.layers.Attention",)
    assert about(host, "dk1") == []  # the library is absent, and that is quiet
    (offer,) = [offer for offer in host.handlers if offer.plugin.name == "dk1"]
    assert offer.tier == "pack"
    assert offer.registration.target == "mylib.layers.Attention"


def test_the_order_of_handlers_is_that_of_the_names_whatever_the_path(tmp_path: Path, monkeypatch):
    for letter in "abc":
        Site(tmp_path / letter).pack(f"dk2{letter}", handler_pack())
    original = list(sys.path)
    orders = []
    for folders in itertools.permutations("abc"):
        monkeypatch.setattr(sys, "path", [*(str(tmp_path / letter) for letter in folders), *original])
        orders.append([o.plugin.name for o in PluginHost().handlers if o.plugin.name.startswith("dk2")])
    assert orders == [["dk2a", "dk2b", "dk2c"]] * 6


def test_a_missing_module_and_a_missing_dependency_read_differently(site: Site):
    site.module("dk3_pack", "import dk3_not_installed\n")
    site.distribution("dk3-pack", plugins={"dk3": "dk3_pack", "dk3_gone": "dk3_no_such_module"})
    host = PluginHost()
    (dependency,) = about(host, "dk3")
    (gone,) = about(host, "dk3_gone")
    assert {dependency.code, gone.code} == {"plugin_load_error"}
    assert dependency.reason == "dependency_missing"
    assert gone.reason == "module_missing"
    assert "dk3_not_installed" in dependency.message
    assert "'dk3_pack' was found" in dependency.message
    assert "dk3_no_such_module" in gone.message
    assert "does not exist" in gone.message
    for diagnostic in (dependency, gone):
        assert "dk3-pack 1.0" in diagnostic.message
        assert "Traceback" not in diagnostic.message


def test_a_missing_submodule_of_the_pack_itself_is_its_own_fault(site: Site):
    package = site.root / "dk4_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text("import dk4_pack.absent\n")
    site.distribution("dk4-pack", plugins={"dk4": "dk4_pack.plugin", "dk4_no_plugin": "dk4_pack.no_plugin"})
    host = PluginHost()
    assert [d.reason for d in about(host, "dk4")] == ["dependency_missing"]
    assert "dk4_pack.absent" in about(host, "dk4")[0].message
    assert [d.reason for d in about(host, "dk4_no_plugin")] == ["module_missing"]


def test_a_missing_attribute_of_the_module_is_named(site: Site):
    site.module("dk5_pack", "VALUE = 1\n")
    site.distribution("dk5-pack", plugins={"dk5": "dk5_pack:Plugin"})
    (diagnostic,) = about(PluginHost(), "dk5")
    assert diagnostic.reason == "module_missing"
    assert "'dk5_pack' has no 'Plugin'" in diagnostic.message


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise RuntimeError('no accelerator')", "RuntimeError: no accelerator"),
        ("1 / 0", "ZeroDivisionError"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("None.attribute", "AttributeError"),
        ("from torchscan import NoSuchName", "ImportError"),
    ],
)
def test_a_module_that_fails_to_import_is_set_aside_alone(site: Site, source: str, cause: str):
    site.pack("dk6bad", source, "0.9")
    site.pack("dk6good", handler_pack())
    host = PluginHost()
    (diagnostic,) = about(host, "dk6bad")
    assert (diagnostic.code, diagnostic.severity, diagnostic.reason) == ("plugin_load_error", "error", "import_error")
    assert "torchscan-dk6bad 0.9" in diagnostic.message
    assert cause in diagnostic.message
    assert [info.status for info in by_name(host, "dk6bad")] == ["failed"]
    assert cause in by_name(host, "dk6bad")[0].error
    assert [o.plugin.name for o in host.handlers if o.plugin.name.startswith("dk6")] == ["dk6good"]


def test_a_keyboard_interrupt_during_an_import_is_not_swallowed(site: Site):
    site.pack("dk7", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        PluginHost().collect()


def test_an_unmet_requirement_names_the_pack_and_both_versions(site: Site):
    site.pack("dk8", "raise AssertionError('never imported')", "2.0", requires=("torchscan>=999",))
    host = PluginHost()
    (diagnostic,) = about(host, "dk8")
    assert (diagnostic.code, diagnostic.reason) == ("plugin_contract_mismatch", "unmet_requirement")
    for part in ("torchscan-dk8", "2.0", "torchscan>=999", torchscan.__version__):
        assert part in diagnostic.message
    assert [info.status for info in by_name(host, "dk8")] == ["failed"]
    assert "dk8_plugin" not in sys.modules


def test_requirements_that_hold_or_do_not_apply_are_no_conflict(site: Site):
    site.pack(
        "dk9",
        handler_pack(),
        requires=(
            "torchscan>=1,<2",
            "dk9-absent-library>=3",  # quiet: the pack names its classes as text
            "torchscan>=999; extra == 'future'",
            "torchscan>=999; python_version < '3'",
            "attrs",
            "not a requirement at all !!",
        ),
    )
    host = PluginHost()
    assert about(host, "dk9") == []
    assert [info.status for info in by_name(host, "dk9")] == ["ok"]


def test_an_installed_library_of_the_wrong_version_is_a_conflict(site: Site):
    site.module("dk10lib", "")
    site.raw_distribution("dk10lib", "2.5", "")
    assert unmet_requirement(("attrs", "dk10lib<2")) == ("dk10lib<2", "2.5")
    assert unmet_requirement(("dk10lib>=2",)) is None


def test_two_distributions_with_one_name_are_a_reported_clash(tmp_path: Path, monkeypatch):
    for name in ("beta", "alpha"):
        folder = Site(tmp_path / name)
        folder.module(f"dk11_{name}", handler_pack(f"lib.{name}.Layer"))
        folder.distribution(f"dk11-{name}", plugins={"dk11": f"dk11_{name}"})
    original = list(sys.path)
    outcomes = []
    for folders in (("alpha", "beta"), ("beta", "alpha")):
        monkeypatch.setattr(sys, "path", [*(str(tmp_path / name) for name in folders), *original])
        host = PluginHost()
        outcomes.append((by_name(host, "dk11"), about(host, "dk11")))
    assert outcomes[0] == outcomes[1]
    (alpha, beta), (clash,) = outcomes[0]
    assert (alpha.distribution, alpha.status) == ("dk11-alpha", "ok")
    assert (beta.distribution, beta.status) == ("dk11-beta", "failed")
    assert clash.code == "handler_conflict"
    for part in ("dk11-alpha 1.0", "dk11-beta 1.0", "'dk11'"):
        assert part in clash.message


def test_a_broken_pack_does_not_hide_the_working_one_of_the_same_name(site: Site):
    site.module("dk12_alpha", "raise RuntimeError")
    site.module("dk12_beta", handler_pack())
    site.distribution("dk12-alpha", plugins={"dk12": "dk12_alpha"})
    site.distribution("dk12-beta", plugins={"dk12": "dk12_beta"})
    host = PluginHost()
    assert [(i.distribution, i.status) for i in by_name(host, "dk12")] == [
        ("dk12-alpha", "failed"),
        ("dk12-beta", "ok"),
    ]
    assert [d.code for d in about(host, "dk12")] == ["plugin_load_error", "handler_conflict"]


def test_disabling_a_distribution_settles_a_clash(site: Site):
    for name in ("alpha", "beta"):
        site.module(f"dk13_{name}", handler_pack())
        site.distribution(f"dk13-{name}", plugins={"dk13": f"dk13_{name}"})
    host = PluginHost(disabled=["dk13_alpha"])  # any spelling of a distribution's name
    assert {(i.distribution, i.status) for i in by_name(host, "dk13")} == {
        ("dk13-alpha", "disabled"),
        ("dk13-beta", "ok"),
    }
    assert about(host, "dk13") == []
    assert "dk13_alpha" not in sys.modules


def test_nobody_takes_the_name_of_the_native_plugin(site: Site):
    site.module("dk14_plugin", handler_pack())
    site.distribution("aaa-dk14", plugins={"native": "dk14_plugin"})  # sorts before "torchscan"
    host = PluginHost()
    used = [info for info in by_name(host, "native") if info.status == "ok"]
    assert [info.distribution for info in used] == ["torchscan"]
    assert [d.code for d in about(host, "native")] == ["handler_conflict"]


def test_one_distribution_twice_on_the_path_is_no_clash(tmp_path: Path, monkeypatch):
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        Site(tmp_path / folder).pack("dk15", handler_pack(f"lib.{folder}.Layer"), version)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    host = PluginHost()
    assert [(i.version, i.handlers) for i in by_name(host, "dk15")] == [("2.0", ("lib.first.Layer",))]
    assert about(host, "dk15") == []


def test_a_newer_copy_without_the_plugin_shadows_an_older_one(tmp_path: Path, monkeypatch):
    Site(tmp_path / "first").raw_distribution("torchscan-dk16", "2.0", "")
    Site(tmp_path / "second").pack("dk16", handler_pack())
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert by_name(PluginHost(), "dk16") == []


def test_of_two_versions_left_in_one_folder_the_newer_counts(site: Site):
    site.module("dk17_plugin", handler_pack())
    for version in ("1.10", "1.9"):
        site.distribution("torchscan-dk17", version, plugins={"dk17": "dk17_plugin"})
    assert [info.version for info in by_name(PluginHost(), "dk17")] == ["1.10"]


def test_one_module_under_two_names_counts_once(site: Site):
    site.module("dk22_plugin", handler_pack())
    site.distribution("dk22", plugins={"dk22a": "dk22_plugin", "dk22b": "dk22_plugin"})
    host = PluginHost()
    assert [info.status for name in ("dk22a", "dk22b") for info in by_name(host, name)] == ["ok", "failed"]
    (diagnostic,) = about(host, "dk22b")
    assert (diagnostic.code, diagnostic.reason) == ("plugin_load_error", "same_plugin")
    assert "'dk22a' (dk22 1.0)" in diagnostic.message


def test_an_entry_point_that_is_none_is_reported(site: Site):
    site.module("dk23_plugin", "PLUGIN = None\n")
    site.distribution("dk23", plugins={"dk23": "dk23_plugin:PLUGIN"})
    (diagnostic,) = about(PluginHost(), "dk23")
    assert diagnostic.reason == "module_missing"


@pytest.mark.parametrize("text", ["[torchscan]\nno equals sign\n", "[torchscan]\n= nothing\n", "[torchscan]\nx = !!\n"])
def test_malformed_entry_points_cost_only_their_distribution(site: Site, text: str):
    site.raw_distribution("dk18-malformed", "1.0", text)
    site.pack("dk18", handler_pack())
    host = PluginHost()
    assert [info.status for info in by_name(host, "dk18")] == ["ok"]
    assert any("dk18-malformed" in d.message and d.code == "plugin_load_error" for d in host.diagnostics)


def test_unreadable_metadata_of_a_stranger_is_none_of_our_business(site: Site):
    info = site.raw_distribution("dk19-stranger", "1.0", "")
    (info / "entry_points.txt").write_bytes(b"\xff\xfe[console_scripts]\n")
    (site.root / "dk19_empty-1.0.dist-info").mkdir()
    site.pack("dk19", handler_pack())
    host = PluginHost()
    assert [info.status for info in by_name(host, "dk19")] == ["ok"]
    assert not any("stranger" in d.message or "dk19_empty" in d.message for d in host.diagnostics)


def test_the_environment_switches_plugins_off(site: Site, monkeypatch):
    site.pack("dk20", handler_pack())
    site.pack("dk20other", handler_pack())
    monkeypatch.setenv("TORCHSCAN_DISABLE_PLUGINS", " dk20 , native,")
    host = PluginHost()
    assert [info.status for info in by_name(host, "dk20")] == ["disabled"]
    assert [info.status for info in by_name(host, "native")] == ["disabled"]
    assert {offer.plugin.name for offer in host.handlers} >= {"dk20other"}
    assert not {offer.plugin.name for offer in host.handlers} & {"dk20", "native"}
    assert "dk20_plugin" not in sys.modules
    for off in ("0", "false", "No", " off "):
        monkeypatch.setenv("TORCHSCAN_PLUGIN_AUTOLOAD", off)
        assert PluginHost().plugins == ()
    assert PluginHost(autoload=True, disabled=["dk20other"]).plugins  # an argument decides over the environment


def test_a_disabled_name_given_as_one_string_is_refused():
    with pytest.raises(TypeError, match="'einops'"):
        PluginHost(disabled="einops")


def test_the_default_host_is_kept_until_something_changes(site: Site, monkeypatch):
    reset_default_host()
    first = default_host()
    first.collect()
    assert default_host() is first
    (site.root / "unrelated.txt").write_text("x")
    assert default_host() is first
    site.pack("dk21", handler_pack())
    second = default_host()
    assert second is not first
    assert by_name(second, "dk21")
    assert not by_name(first, "dk21")
    monkeypatch.setenv("TORCHSCAN_DISABLE_PLUGINS", "dk21")
    third = default_host()
    assert third is not second
    assert [info.status for info in by_name(third, "dk21")] == ["disabled"]
    reset_default_host()
    assert default_host() is not third
    reset_default_host()


def test_listing_plugins_and_formats_imports_no_torch():
    code = (
        "import sys\n"
        "from torchscan.plugins.manager import PluginHost\n"
        "host = PluginHost()\n"
        "assert [p for p in host.plugins if p.name == 'native']\n"
        "assert host.find_format('html') is not None\n"
        "assert {'html', 'text'} <= {offer.format.name for offer in host.formats}\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: torchscan.HandlerRegistration("some.Layer", len, match="x"),
            "HandlerRegistration.match must be one of exact, subclass, got 'x'",
        ),
        (
            lambda: torchscan.HandlerRegistration("some.Layer", len, contract="1"),
            "contract must be an int such as torchscan.CONTRACT_VERSION, got '1'",
        ),
        (
            lambda: torchscan.OperatorFormula("aten.mm", len),
            "OperatorFormula.kind must be one of contraction, arithmetic, movement, ignored, "
            "got builtin_function_or_method",
        ),
        (
            lambda: torchscan.OperatorFormula("aten.mm", "ignored", terms="all"),
            "OperatorFormula.terms must be one of products, squares, sums, got 'all'",
        ),
        (lambda: torchscan.ReportFormat("A", len), "ReportFormat.name must look like 'my-format', got 'A'"),
        (
            lambda: torchscan.ReportFormat("a", len, suffixes=("pdf",)),
            "ReportFormat.suffixes must look like '.mine', got 'pdf'",
        ),
        (lambda: torchscan.Source(("x",), 1, 3, "all"), "Source.relation must be of type Relation, got str"),
        (
            lambda: torchscan.TokenDependencies("complete", output=3),
            "TokenDependencies.output must be of type Output, got int",
        ),
    ],
)
def test_what_is_wrong_with_an_offer_is_one_sentence(build, sentence):
    with pytest.raises((TypeError, ValueError)) as caught:
        build()
    # The whole of it: no representation of a class or of an object, which would end up in reports.
    assert str(caught.value) == sentence
