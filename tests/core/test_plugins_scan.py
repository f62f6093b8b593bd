"""Plugins as a scan sees them: tiers, conflicts, failures beside them, and two scanners side by side."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import ModuleType

import pytest
import torch
from torch import nn

import torchscan
from plugin_sites import Site, handler_pack
from torchscan import HandlerRegistration, IncompleteAnalysisError, ModuleHandler, OperatorFormula, Scanner

X = torch.ones(1, 3)
LINEAR = "torch.nn.modules.linear.Linear"


class Leaf(nn.Module):
    def forward(self, x):
        return x * 2


def plugin(name: str, *registrations: HandlerRegistration, **hooks) -> ModuleType:
    made = ModuleType(name)
    hooks.setdefault("torchscan_register_handlers", lambda: list(registrations))
    for hook, function in hooks.items():
        setattr(made, hook, torchscan.hookimpl(function))
    return made


def offers(name: str, target, match="subclass", **metrics) -> ModuleType:
    return plugin(name, HandlerRegistration(target, lambda call: metrics, match))


def macs(scanner: Scanner, module: nn.Module | None = None, **options):
    return scanner.scan(nn.Linear(3, 2) if module is None else module, args=(X,), **options).totals.macs


# Tiers


def test_a_pack_comes_before_native_and_the_caller_before_both():
    scanner = Scanner([offers("pack", nn.Linear, macs=50)])
    report = scanner.scan(nn.Linear(3, 2), args=(X,))
    (layer,) = report.layers
    assert layer.metrics["macs"].value == 50
    assert layer.metrics["macs"].method.startswith("plugin:pack:")
    assert layer.metrics["dmas"].value == 13  # native: 3 + 8 + 2
    assert layer.handlers["macs"] == "pack"
    assert layer.handlers["dmas"] == "native"
    assert macs(scanner, custom_modules={nn.Linear: lambda call: {"macs": 7}}).value == 7


def test_an_installed_pack_counts_without_being_named(site: Site):
    assert torchscan.scan(nn.Linear(3, 2), args=(X,)).totals.macs.value == 6
    site.pack("counts", handler_pack(macs=50), "2.1")
    report = torchscan.scan(nn.Linear(3, 2), args=(X,))
    assert report.totals.macs.value == 50
    used = {p.name: (p.distribution, p.version) for p in report.context.plugins}
    assert used["counts"] == ("torchscan-counts", "2.1")
    assert used["native"] == ("torchscan", torchscan.__version__)


def test_an_exact_offer_leaves_subclasses_to_others():
    class Special(nn.Linear):
        pass

    scanner = Scanner([offers("pack", nn.Linear, match="exact", macs=50)], autoload=False)
    assert macs(scanner).value == 50
    assert macs(scanner, Special(3, 2)).status == "unavailable"
    assert macs(Scanner([offers("pack", nn.Linear, macs=50)], autoload=False), Special(3, 2)).value == 50


def test_a_target_by_name_needs_no_import_of_its_library(site: Site):
    # Two names of one class: where it is defined, and where its users import it from.
    library = site.root / "lazylib"
    library.mkdir()
    (library / "__init__.py").write_text("from lazylib.inner import Layer\n")
    (library / "inner.py").write_text(
        "from torch import nn\nclass Layer(nn.Module):\n    def forward(self, x): return x\n"
    )
    for name, target in (("public", "lazylib.Layer"), ("defined", "lazylib.inner.Layer")):
        scanner = Scanner([offers(name, target, macs=50)], autoload=False)
        assert macs(scanner).status == "unavailable"
        assert "lazylib" not in sys.modules
        from lazylib import Layer

        assert macs(scanner, Layer()).value == 50
        for module in ("lazylib", "lazylib.inner"):
            del sys.modules[module]


def test_with_native_blocked_the_core_runs_and_says_that_everything_is_unavailable():
    report = Scanner(disabled=["native"]).scan(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), args=(X,))
    assert {report.totals.macs.status, report.totals.dmas.status} == {"unavailable"}
    assert report.totals.parameters.value == 8
    assert {d.code for d in report.diagnostics if d.path == "0"} == {"unsupported_module_metric"}
    assert "native" not in {p.name for p in report.context.plugins}
    code = (
        "import sys; sys.modules['torchscan_native'] = None\n"
        "import torch, torchscan\n"
        "report = torchscan.scan(torch.nn.Linear(3, 2), args=(torch.ones(1, 3),))\n"
        "assert report.totals.macs.status == 'unavailable'\n"
        "assert [d for d in report.diagnostics if d.code == 'plugin_load_error' and d.plugin == 'native']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Conflicts


def test_two_packs_that_claim_one_class_are_a_reported_conflict_whatever_the_order():
    left, right = offers("left", Leaf, macs=1), offers("right", Leaf, macs=2)
    outcomes = []
    for order in ((left, right), (right, left)):
        report = Scanner(order, autoload=False).scan(Leaf(), args=(X,))
        (conflict,) = [d for d in report.diagnostics if d.code == "handler_conflict"]
        assert "left" in conflict.message
        assert "right" in conflict.message
        assert "Leaf" in conflict.message
        outcomes.append((report.totals.macs, conflict))
    assert outcomes[0] == outcomes[1]
    # Nobody asked about the class: no conflict to speak of.
    quiet = Scanner([left, right], autoload=False).scan(nn.Linear(3, 2), args=(X,))
    assert not [d for d in quiet.diagnostics if d.code == "handler_conflict"]


def test_a_conflict_is_an_error_under_strict_and_custom_modules_decide_it():
    scanner = Scanner([offers("left", Leaf, macs=1), offers("right", Leaf, macs=2)], autoload=False)
    with pytest.raises(IncompleteAnalysisError) as caught:
        scanner.scan(Leaf(), args=(X,), strict=True, metrics=["macs"])
    assert "handler_conflict" in {d.code for d in caught.value.report.diagnostics}


# Broken neighbours

BROKEN = {
    "import": "import absent_library_of_a_pack",
    "hook": "import torchscan\n@torchscan.hookimpl\ndef torchscan_register_handlers():\n    raise RuntimeError('x')\n",
    "argument": "import torchscan\n@torchscan.hookimpl\ndef torchscan_call_estimated(module, inputs): ...\n",
    "unknown hook": "import torchscan\n@torchscan.hookimpl\ndef torchscan_register_layers(): ...\n",
    "rubbish": "import torchscan\n@torchscan.hookimpl\ndef torchscan_register_handlers():\n    return [1, 2]\n",
    "newer": (
        "import torchscan\n@torchscan.hookimpl\ndef torchscan_register_handlers():\n"
        f"    return [torchscan.HandlerRegistration('{LINEAR}', lambda call: {{'macs': 1}}, contract=99)]\n"
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_neighbour_changes_no_number_and_is_named(site: Site, kind: str):
    plain = torchscan.crawl_module(nn.Linear(3, 2), args=(X,))
    site.pack("neighbour", BROKEN[kind], "0.3")
    site.pack("zgood", handler_pack("torch.nn.modules.activation.ReLU", macs=50))
    report = torchscan.crawl_module(nn.Linear(3, 2), args=(X,))
    assert report["totals"] == plain["totals"]
    assert report["layers"] == plain["layers"]
    (diagnostic,) = [d for d in report["diagnostics"] if d.get("plugin") == "neighbour"]
    assert diagnostic["code"] == ("plugin_contract_mismatch" if kind == "newer" else "plugin_load_error")
    assert "torchscan-neighbour 0.3" in diagnostic["message"]
    assert torchscan.scan(nn.ReLU(), args=(X,)).totals.macs.value == 50


@pytest.mark.parametrize("kind", BROKEN)
def test_under_strict_a_broken_neighbour_is_an_error(site: Site, kind: str):
    torchscan.scan(nn.Linear(3, 2), args=(X,), strict=True, metrics=["macs"])
    site.pack("neighbour", BROKEN[kind])
    with pytest.raises(IncompleteAnalysisError) as caught:
        torchscan.scan(nn.Linear(3, 2), args=(X,), strict=True, metrics=["macs"])
    assert caught.value.report.totals.macs.value == 6
    torchscan.Scanner(disabled=["neighbour"]).scan(nn.Linear(3, 2), args=(X,), strict=True, metrics=["macs"])


def test_a_pack_handler_that_raises_is_named_and_its_metrics_are_unavailable():
    def raises(call):
        raise RuntimeError("no formula")

    report = Scanner([plugin("fragile", HandlerRegistration(nn.Linear, raises))]).scan(
        nn.Sequential(nn.Linear(3, 2), nn.ReLU()), args=(X,)
    )
    first = report.layers[1]
    assert first.metrics["macs"].status == "unavailable"  # native does not stand in for a formula that failed
    found = [d for d in report.diagnostics if d.plugin == "fragile" and d.metric == "macs"]
    assert [(d.code, d.path) for d in found] == [("module_metric_error", "0")]
    assert "no formula" in found[0].message
    assert report.layers[2].metrics["dmas"].value == 4


def test_an_owning_pack_covers_the_subtree_like_a_caller():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            return self.inner(x)

    owner = ModuleHandler(lambda call: {"macs": 100}, subtree_metrics={"macs"})
    report = Scanner([plugin("owner", HandlerRegistration(Block, owner))]).scan(Block(), args=(X,))
    assert report.totals.macs.value == 100
    assert "macs" not in report.layers[1].metrics
    assert report.layers[1].metric_owners["macs"].path == ""
    assert report.layers[1].metrics["dmas"].value == 13


# Scanners side by side


def test_two_scanners_with_different_plugins_do_not_see_each_other():
    one, two = Scanner([offers("one", Leaf, macs=1)]), Scanner([offers("two", Leaf, macs=2)])
    assert (macs(one, Leaf()).value, macs(two, Leaf()).value) == (1, 2)
    assert torchscan.scan(Leaf(), args=(X,)).totals.macs.status == "unavailable"
    names = {p.name for p in one.scan(Leaf(), args=(X,)).context.plugins}
    assert "one" in names
    assert "two" not in names


def test_two_scanners_in_two_threads_stay_apart():
    results: dict[int, set] = {1: set(), 2: set()}
    start = threading.Barrier(2)

    def work(number: int):
        scanner = Scanner([offers(f"plugin{number}", Leaf, macs=number)], autoload=False)
        start.wait()
        for _ in range(20):
            results[number].add(macs(scanner, Leaf()).value)

    threads = [threading.Thread(target=work, args=(number,)) for number in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1: {1}, 2: {2}}


def test_operator_formulas_of_a_plugin_hold_for_its_scanner_alone():
    def flops(shape, *args, out_shape=None, **kwargs):
        return 1000

    formulas = plugin(
        "formulas", torchscan_register_operator_formulas=lambda: [OperatorFormula("aten.mul", "arithmetic", flops)]
    )
    module = Leaf()
    counted = Scanner([formulas], autoload=False).scan(module, args=(X,))
    assert counted.operator_flops.by_operator["aten.mul"] == 1000
    without = Scanner(autoload=False).scan(module, args=(X,))
    assert "aten.mul" not in without.operator_flops.by_operator


# Listeners


def test_an_embedding_profiler_hears_every_call_as_it_happens_and_then_the_report():
    heard = []
    listener = plugin(
        "listener",
        torchscan_call_estimated=lambda call, layer: heard.append(
            (layer.path, type(call.module), layer.metrics.get("macs"))
        ),
        torchscan_report_ready=lambda report: heard.append(report),
    )
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    report = Scanner([listener]).scan(model, args=(X,))
    assert [entry[0] for entry in heard[:-1]] == ["0", "1", ""]  # children before parents
    assert heard[0][1] is nn.Linear
    assert heard[0][2].value == 6
    assert heard[-1] is report


def test_a_listener_that_raises_breaks_no_scan_and_changes_no_number():
    calls = []

    def fails(call, layer):
        calls.append(layer.path)
        raise OSError("disk full")

    listener = plugin("failing_listener", torchscan_call_estimated=fails)
    scanner = Scanner([listener])
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    for _ in range(2):
        report = scanner.scan(model, args=(X,))
        assert report.totals.macs.value == 6 + 4
        (diagnostic,) = [d for d in report.diagnostics if d.plugin == "failing_listener"]
        assert diagnostic.code == "plugin_load_error"
        assert "disk full" in diagnostic.message
    assert calls == ["0"]


# The library stays unimported


def test_scanning_with_packs_installed_imports_none_of_their_libraries(site: Site):
    (site.root / "heavylib.py").write_text("raise AssertionError('imported')\n")
    site.pack("heavy", handler_pack("heavylib.Layer"))
    report = torchscan.scan(nn.Linear(3, 2), args=(X,))
    assert report.totals.macs.value == 6
    assert "heavylib" not in sys.modules
    assert not [d for d in report.diagnostics if d.plugin == "heavy"]
