"""Plugins that break the contract of a hook, given as objects; and what two hosts know of each other."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

import torchscan
from torchscan import HandlerRegistration, OperatorFormula
from torchscan.plugins.manager import PluginHost
from torchscan.report.formats import ReportFormat


def estimate(call):
    return {"macs": 1}


def plugin(**hooks):
    """Return a plugin object with these functions as its hooks."""
    return SimpleNamespace(**{name: torchscan.hookimpl(function) for name, function in hooks.items()})


def module(name: str, **hooks) -> ModuleType:
    made = ModuleType(name)
    for hook, function in hooks.items():
        setattr(made, hook, torchscan.hookimpl(function))
    return made


GOOD = module("good_plugin", torchscan_register_handlers=lambda: [HandlerRegistration("lib.Good", estimate)])


def host(*plugins) -> PluginHost:
    return PluginHost(plugins, autoload=False)


def only(found: PluginHost):
    """Return the one diagnostic of a host, everything collected."""
    found.collect()
    (diagnostic,) = found.diagnostics
    return diagnostic


def targets(found: PluginHost) -> list:
    return [offer.registration.target for offer in found.handlers]


def test_an_unknown_argument_is_named_and_leaves_nothing_registered():
    def old(module, inputs, layer):
        raise AssertionError("never called")

    bad = module(
        "old_plugin",
        torchscan_register_handlers=lambda: [HandlerRegistration("lib.Old", estimate)],
        torchscan_call_estimated=old,
    )
    found = host(bad, GOOD)
    diagnostic = only(found)
    assert (diagnostic.code, diagnostic.reason) == ("plugin_load_error", "unknown_argument")
    assert "torchscan_call_estimated" in diagnostic.message
    assert "unknown argument module, inputs;" in diagnostic.message
    assert targets(found) == ["lib.Good"]
    assert not found.wants_call_estimated
    assert [(info.name, info.status) for info in found.plugins] == [("old_plugin", "failed"), ("good_plugin", "ok")]


def test_an_implementation_may_ask_for_fewer_arguments():
    seen = []
    found = host(module("few", torchscan_call_estimated=lambda layer: seen.append(layer)))
    found.call_estimated("the call", "the layer")
    assert seen == ["the layer"]
    assert found.diagnostics == ()


def test_a_misspelt_hook_is_named_with_the_nearest_one():
    found = host(module("misspelt", torchscan_register_handler=estimate), GOOD)
    diagnostic = only(found)
    assert diagnostic.reason == "unknown_hook"
    assert "torchscan_register_handler;" in diagnostic.message
    assert "did you mean torchscan_register_handlers?" in diagnostic.message
    assert targets(found) == ["lib.Good"]


def test_a_hook_that_is_nothing_like_ours_lists_the_hooks():
    diagnostic = only(host(module("alien", render_everything=estimate)))
    assert diagnostic.reason == "unknown_hook"
    assert "torchscan_report_ready" in diagnostic.message


def test_an_optional_unknown_hook_is_welcome():
    made = ModuleType("optional")
    made.torchscan_from_the_future = torchscan.hookimpl(optionalhook=True)(estimate)
    assert host(made).diagnostics == ()


def test_a_hook_without_its_marker_is_reported():
    made = ModuleType("unmarked")
    made.torchscan_register_handlers = lambda: [HandlerRegistration("lib.X", estimate)]
    diagnostic = only(host(made))
    assert diagnostic.reason == "unmarked_hook"
    assert "torchscan_register_handlers is not marked with torchscan.hookimpl" in diagnostic.message


def _raises():
    raise RuntimeError("no licence")


def _raises_midway():
    yield HandlerRegistration("lib.First", estimate)
    raise RuntimeError("no licence")


def _exits():
    sys.exit(2)


@pytest.mark.parametrize(
    ("hook", "reason", "part"),
    [
        (_raises, "hook_error", "RuntimeError: no licence"),
        (_raises_midway, "hook_error", "RuntimeError: no licence"),
        (_exits, "hook_error", "SystemExit"),
        (lambda: HandlerRegistration("lib.X", estimate), "invalid_offer", "one HandlerRegistration"),
        (lambda: 7, "invalid_offer", "one int"),
        (lambda: "text", "invalid_offer", "type str"),
        (lambda: {"lib.X": estimate}, "invalid_offer", "type str"),
        (lambda: [HandlerRegistration("lib.X", estimate), None], "invalid_offer", "type NoneType"),
        (lambda: [HandlerRegistration("notdotted", estimate)], "hook_error", "ValueError"),
        (lambda: [HandlerRegistration("lib.X", "not callable")], "hook_error", "TypeError"),
        (lambda: [HandlerRegistration("lib.X", estimate, subtree=True)], "hook_error", "TypeError"),
    ],
)
def test_a_failing_offer_sets_the_whole_plugin_aside(hook, reason, part):
    bad = module(
        "bad_plugin",
        torchscan_register_handlers=hook,
        torchscan_register_operator_formulas=lambda: [OperatorFormula("lib.op", "arithmetic")],
    )
    for order in ((bad, GOOD), (GOOD, bad)):
        found = host(*order)
        diagnostic = only(found)
        assert (diagnostic.code, diagnostic.reason, diagnostic.plugin) == ("plugin_load_error", reason, "bad_plugin")
        assert part in diagnostic.message
        assert targets(found) == ["lib.Good"]
        assert found.operator_formulas == ()
        assert {info.name: info.status for info in found.plugins} == {"bad_plugin": "failed", "good_plugin": "ok"}


def test_nothing_offered_is_no_fault():
    found = host(module("silent", torchscan_register_handlers=lambda: None), ModuleType("empty"))
    assert [info.status for info in found.collect()] == ["ok", "ok"]
    assert found.diagnostics == ()
    assert found.handlers == ()


def test_a_failing_formula_hook_takes_the_handlers_with_it():
    bad = module(
        "bad_formulas",
        torchscan_register_handlers=lambda: [HandlerRegistration("lib.X", estimate)],
        torchscan_register_operator_formulas=_raises,
    )
    found = host(bad)
    assert found.handlers == ()
    assert only(found).message.count("torchscan_register_operator_formulas") == 1


def test_registrations_for_a_newer_contract_are_skipped_with_both_numbers():
    newer = torchscan.CONTRACT_VERSION + 41
    found = host(
        module(
            "newer",
            torchscan_register_handlers=lambda: [
                HandlerRegistration("lib.New", estimate, contract=newer),
                HandlerRegistration("lib.Current", estimate),
                HandlerRegistration("lib.Newer", estimate, contract=newer),
            ],
        )
    )
    diagnostic = only(found)
    assert (diagnostic.code, diagnostic.reason) == ("plugin_contract_mismatch", "newer_contract")
    for part in (f"contract {newer}", f"contract {torchscan.CONTRACT_VERSION};", "lib.New, lib.Newer"):
        assert part in diagnostic.message
    assert targets(found) == ["lib.Current"]
    assert [info.status for info in found.plugins] == ["ok"]


def test_a_raising_listener_is_told_nothing_more_and_the_others_go_on():
    told = []

    def fails(call, layer):
        told.append("bad")
        raise OSError("disk full")

    bad = module(
        "bad_listener",
        torchscan_call_estimated=fails,
        torchscan_register_handlers=lambda: [HandlerRegistration("lib.X", estimate)],
    )
    good = module("good_listener", torchscan_call_estimated=lambda call, layer: told.append("good"))
    found = host(bad, good)
    assert found.wants_call_estimated
    found.call_estimated(None, None)
    found.call_estimated(None, None)
    assert told == ["bad", "good", "good"]
    diagnostic = only(found)
    assert (diagnostic.code, diagnostic.plugin) == ("plugin_load_error", "bad_listener")
    assert "OSError: disk full" in diagnostic.message
    assert targets(found) == ["lib.X"]  # a notification changes no number
    assert host(bad).wants_call_estimated
    assert not host(GOOD).wants_call_estimated


def test_a_raising_report_listener_breaks_nothing():
    told = []
    bad = module("bad_report", torchscan_report_ready=lambda report: 1 / 0)
    good = module("good_report", torchscan_report_ready=lambda report: told.append(report))
    found = host(bad, good)
    found.report_ready("the report")
    assert told == ["the report"]
    assert "ZeroDivisionError" in only(found).message


def test_a_wrapper_of_one_plugin_reaches_no_other():
    made = ModuleType("wrapping")

    @torchscan.hookimpl(wrapper=True)
    def torchscan_register_handlers():
        yield
        return []

    made.torchscan_register_handlers = torchscan_register_handlers
    assert targets(host(made, GOOD)) == ["lib.Good"]


def test_a_plugin_with_a_property_that_raises_costs_nobody_else():
    class Fragile:
        @property
        def session(self):
            raise RuntimeError("not connected")

        @torchscan.hookimpl
        def torchscan_register_handlers(self):
            return []

    found = host(Fragile(), GOOD)
    assert targets(found) == ["lib.Good"]
    assert [info.name for info in found.plugins if info.status == "ok"][-1] == "good_plugin"


def test_objects_and_modules_are_named_by_their_import_path():
    class Profiler:
        @torchscan.hookimpl
        def torchscan_register_handlers(self):
            return [HandlerRegistration("lib.Y", estimate)]

    names = [info.name for info in host(Profiler(), Profiler(), GOOD).plugins]
    assert names[0].endswith(".test_objects_and_modules_are_named_by_their_import_path.<locals>.Profiler")
    assert names[1] == f"{names[0]}#2"
    assert names[2] == "good_plugin"


def test_one_object_given_twice_counts_once():
    assert targets(host(GOOD, GOOD)) == ["lib.Good"]


@pytest.mark.parametrize("value", ["torchscan_einops.plugin", b"x", None])
def test_text_is_no_plugin(value):
    with pytest.raises(TypeError, match="a plugin is a module or an object"):
        PluginHost([value])


def test_an_explicit_plugin_can_be_disabled_by_name():
    found = PluginHost([GOOD], autoload=False, disabled=["good_plugin"])
    assert [info.status for info in found.plugins] == ["disabled"]
    assert found.handlers == ()


def test_the_native_plugin_keeps_its_tier_when_it_is_passed_as_a_module():
    import torchscan_native.plugin

    found = PluginHost([torchscan_native.plugin], autoload=False)
    (info,) = found.plugins
    assert (info.name, info.distribution) == ("native", "torchscan")
    assert {offer.tier for offer in found.handlers} == {"native"}
    # ... and counts once beside its entry point.
    both = PluginHost([torchscan_native.plugin])
    assert [info.name for info in both.plugins].count("native") == 1


def test_two_hosts_do_not_see_each_other():
    left, right = host(GOOD), host(module("right", torchscan_register_handlers=_raises))
    assert (targets(left), targets(right)) == (["lib.Good"], [])
    assert left.diagnostics == ()
    assert len(right.diagnostics) == 1


def test_hooks_are_called_once_per_host_from_any_thread():
    calls = []

    def register():
        calls.append(threading.get_ident())
        return [HandlerRegistration("lib.X", estimate)]

    found = host(module("counted", torchscan_register_handlers=register))
    start = threading.Barrier(8)
    seen = []

    def ask():
        start.wait()
        seen.append(targets(found))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [["lib.X"]] * 8
    assert len(calls) == 1


def test_formats_are_collected_without_asking_for_handlers():
    asked = []
    made = module(
        "formats",
        torchscan_register_report_formats=lambda: [ReportFormat("haiku", lambda report, options: "five")],
        torchscan_register_handlers=lambda: asked.append(1) or [],
    )
    found = host(made)
    (offer,) = [offer for offer in found.formats if offer.format.name == "haiku"]
    assert offer.plugin.name == "formats"
    assert found.find_format("haiku").format is offer.format
    assert found.find_format("sonnet") is None
    assert asked == []
    assert found.plugins[0].formats == ("haiku",)


def test_a_taken_format_name_keeps_its_first_owner():
    first = module("first", torchscan_register_report_formats=lambda: [ReportFormat("haiku", lambda r, o: "1")])
    second = module(
        "second",
        torchscan_register_report_formats=lambda: [
            ReportFormat("haiku", lambda r, o: "2"),
            ReportFormat("html", lambda r, o: "mine"),
            ReportFormat("limerick", lambda r, o: "3"),
        ],
    )
    found = host(first, second)
    owners = {offer.format.name: offer.plugin.name for offer in found.formats}
    assert owners["haiku"] == "first"
    assert owners["html"] == "torchscan"
    assert owners["limerick"] == "second"
    assert [d.code for d in found.diagnostics] == ["handler_conflict", "handler_conflict"]
    assert "'first'" in found.diagnostics[0].message
    assert "'second'" in found.diagnostics[0].message


def test_a_failing_format_hook_leaves_the_other_formats():
    found = host(module("bad_formats", torchscan_register_report_formats=_raises))
    assert found.find_format("html") is not None
    assert "html" in {offer.format.name for offer in found.formats}
    assert only(found).reason == "hook_error"
