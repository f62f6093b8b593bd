"""The conformance kit judges a good handler as good, and for every check there is a bad handler that only it fails."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from core.conformance_support import CALLS, Projection, float_count, good, make
from torchscan import Complete, ModuleHandler, Output, Relation, Source, TokenDependencies, Unavailable
from torchscan.testing import CHECKS, ConformanceError, check_handler, conformance


@conformance(good, CALLS)
def test_a_good_handler_passes_every_check(case):
    case()


def test_a_good_handler_has_no_failures_and_every_result_names_its_check_and_call():
    results = check_handler(good, CALLS)
    assert results.failures == ()
    assert results.ok
    results.raise_failures()
    assert {(result.check, result.call) for result in results} == {(check, call) for check in CHECKS for call in CALLS}
    assert {result.status for result in results} == {"passed"}


# One bad handler per check: what it does wrong, and what the kit says.

_KEPT: list[Any] = []
_COUNT = [0]


def illegal_state(call):
    return {**good(call), "module_flops": -1}


def unknown_metric(call):
    return {**good(call), "flops": 3}


def wrong_wire_unit(call):
    wire = {"status": "complete", "value": 1, "known_value": 1, "unit": "MACs", "scope": "module_call", "method": "m"}
    return {**good(call), "dmas": wire}


def no_mapping(call):
    return 24


def relation_of_another_call(call):
    dependencies = TokenDependencies("complete", (Source(("y",), 0, 3, Relation("all")),), Output(0, 3))
    return {**good(call), "token_dependencies": dependencies}


def fraction_count(call):
    return {**good(call), "module_flops": Complete(2.5)}


def silent(call):
    return {}


def no_reason(call):
    return {**good(call), "module_flops": None}


def empty_reason(call):
    return {**good(call), "module_flops": Unavailable()}


def numbers_for_everything(call):
    return {**good(call), "macs": 24}


def asks_for_storage(call):
    call.arguments["x"].untyped_storage()  # raises for a sparse tensor
    return good(call)


def needs_floats(call):
    if call.arguments["x"].is_complex():
        raise ValueError("complex")
    return good(call)


def annotates_module(call):
    call.module.macs = 24
    return good(call)


def trains_module(call):
    call.module.act.training = True
    return good(call)


def writes_parameter(call):
    call.module.weight.data[0, 0] += 1
    return good(call)


def writes_cache(call):
    call.module.cache["calls"] += 1
    return good(call)


def leaves_hook(call):
    call.module.act.register_forward_hook(lambda *_: None)
    return good(call)


def writes_input(call):
    call.arguments["x"].add_(1)
    return good(call)


def writes_input_and_takes_it_back(call):
    call.arguments["x"].add_(1).sub_(1)
    return good(call)


def wants_gradients(call):
    call.args[0].requires_grad_()
    return good(call)


def sets_default_dtype(call):
    torch.set_default_dtype(torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32)
    return good(call)


def enters_gradient_mode(call):
    torch.set_grad_enabled(True)
    return good(call)


def leaves_global_hook(call):
    _KEPT.append(torch.nn.modules.module.register_module_forward_hook(lambda *_: None))
    return good(call)


def draws(call):
    torch.rand(1)
    return good(call)


def draws_python(call):
    random.random()
    return good(call)


def counts_calls(call):
    _COUNT[0] += 1
    return {**good(call), "module_flops": _COUNT[0]}


def depends_on_request(call):
    return {**good(call), "module_flops": len(call.requested)}


def leaves_out_on_request(call):
    return good(call) if len(call.requested) > 1 else {}


def looks_at_positions(call):
    return {**good(call), "module_flops": len(call.args)}


def reads_values(call):
    values = call.readable(call.output)
    return {**good(call), "module_flops": 0 if values is None else int(values.sum())}


def huge(call):
    return {**good(call), "module_flops": 10**5000}


def keeps_input(call):
    _KEPT.append(call.arguments["x"])
    return good(call)


def keeps_output(call):
    _KEPT.append(call.output)
    return good(call)


def keeps_call(call):
    _KEPT.append(call)
    return good(call)


owns_and_leaves_out = ModuleHandler(good, subtree_metrics={"module_flops"})

BAD = [
    (illegal_state, "states_are_legal", "non-negative"),
    (unknown_metric, "states_are_legal", "'flops' is no metric"),
    (wrong_wire_unit, "states_are_legal", "the unit must be"),
    (no_mapping, "states_are_legal", "returned int, not a mapping"),
    (relation_of_another_call, "states_are_legal", "y"),
    (float_count, "counts_are_whole", "a count is an int"),
    (fraction_count, "counts_are_whole", "a count is an int"),
    (silent, "supported_call_is_answered", "no number"),
    (no_reason, "unavailable_says_why", "module_flops is unavailable without a reason"),
    (empty_reason, "unavailable_says_why", "module_flops is unavailable without a reason"),
    (numbers_for_everything, "unavailable_says_why", "macs has a number"),
    (asks_for_storage, "strange_tensors_raise_nothing", "with sparse tensors: the handler raised"),
    (needs_floats, "strange_tensors_raise_nothing", "with complex tensors: the handler raised"),
    (annotates_module, "module_is_left_as_found", "attribute macs"),
    (trains_module, "module_is_left_as_found", "act: training"),
    (writes_parameter, "module_is_left_as_found", "weight"),
    (writes_cache, "module_is_left_as_found", "attribute cache"),
    (leaves_hook, "module_is_left_as_found", "act: _forward_hooks"),
    (writes_input, "inputs_are_left_as_found", "args"),
    (writes_input_and_takes_it_back, "inputs_are_left_as_found", "args"),
    (wants_gradients, "inputs_are_left_as_found", "args"),
    (sets_default_dtype, "global_state_is_left_as_found", "default dtype"),
    (leaves_global_hook, "global_state_is_left_as_found", "process-wide module hooks"),
    (draws, "random_state_is_left_as_found", "torch's generator"),
    (draws_python, "random_state_is_left_as_found", "random's generator"),
    (counts_calls, "answer_is_repeatable", "module_flops two answers"),
    (depends_on_request, "asking_for_less_changes_nothing", "module_flops alone"),
    (leaves_out_on_request, "asking_for_less_changes_nothing", "alone"),
    (looks_at_positions, "spelling_changes_nothing", "module_flops differently"),
    (reads_values, "values_change_nothing", "module_flops is Complete(value=0)"),
    (owns_and_leaves_out, "ownership_holds", "owns module_flops"),
    (huge, "result_survives_json", "cannot be stored"),
    (keeps_input, "no_activation_is_kept", "args"),
    (keeps_output, "no_activation_is_kept", "output"),
    (keeps_call, "no_activation_is_kept", "the call"),
]


@pytest.fixture(autouse=True)
def clean():
    yield
    torch.set_default_dtype(torch.float32)
    for kept in _KEPT:
        if hasattr(kept, "remove"):
            kept.remove()
    _KEPT.clear()


def name_of(handler) -> str:
    return getattr(handler, "__name__", "owns_and_leaves_out")


@pytest.mark.parametrize(("handler", "check", "message"), BAD, ids=[f"{c}-{name_of(h)}" for h, c, _ in BAD])
def test_a_bad_handler_fails_its_check(handler, check, message):
    results = check_handler(handler, CALLS, checks=[check])
    assert results.failures
    assert {result.check for result in results.failures} == {check}
    assert any(message in result.message for result in results.failures), results.failures
    with pytest.raises(ConformanceError, match=check):
        results.raise_failures()


def test_every_check_has_a_bad_handler():
    assert {check for _, check, _ in BAD} | {"no_operator_leaks"} == set(CHECKS)


def test_work_that_a_handler_leaves_behind_for_later_is_a_leak():
    """The sample's own module runs twice within the call, so what the first answer left behind shows in the second."""

    class Again(nn.Module):
        def forward(self, x, depth=1):
            return self(x, depth - 1) if depth else x + 1

    def leaves_work_behind(call):
        if not call.module._forward_pre_hooks and call.arguments["depth"] == 0:
            call.module.register_forward_hook(lambda module, args, output: output * 2)
        return {"macs": 0}

    def fresh():
        return Again(), (torch.ones(2),), {}

    results = check_handler(leaves_work_behind, [fresh], checks=["no_operator_leaks"])
    assert "shows in the caller's own mode" in results.failures[0].message
    assert check_handler(lambda call: {"macs": 0}, [fresh], checks=["no_operator_leaks"]).ok


def test_modules_with_random_weights_are_made_alike():
    class Sometimes(nn.Module):
        """Computes more or less, as its weight has it."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(1))

        def forward(self, x):
            return x + 1 if self.weight < 0.5 else x + 1 + 1

    def fresh():
        return Sometimes(), (torch.ones(2),), {}

    for seed in range(6):
        torch.manual_seed(seed)
        results = check_handler(lambda call: {"macs": 0}, [fresh], checks=["no_operator_leaks"])
        assert results.ok, results.failures


def test_arithmetic_inside_a_handler_is_no_leak():
    def compares(call):
        assert bool((call.output == call.output).all())
        call.module.act(call.output)
        return {"macs": 0}

    assert check_handler(compares, [make], checks=["no_operator_leaks"]).ok


def test_a_metric_taken_from_children_that_is_not_owned_is_no_failure_and_an_owned_one_is_checked():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Projection()

        def forward(self, x):
            return self.inner(x)

    calls = [(Block(), (torch.ones(3, 4),), {})]
    inclusive = ModuleHandler(lambda call: {"macs": 24}, subtree_metrics={"macs"})
    assert check_handler(inclusive, calls, checks=["ownership_holds"], oracle=True).ok
    # The same number as a plain estimate would count the child's product twice; the dispatcher sees none in the body.
    twice = check_handler(ModuleHandler(lambda call: {"macs": 24}), calls, checks=["ownership_holds"], oracle=True)
    assert [result.check for result in twice.failures] == ["macs_match_the_dispatcher"]
    assert "macs is 24" in twice.failures[0].message
    assert "own body make 0" in twice.failures[0].message


def test_a_module_that_keeps_its_own_output_is_not_blamed_on_the_handler():
    class Keeps(nn.Module):
        def forward(self, x):
            self.last = x + 1
            return self.last

    def fresh():
        return Keeps(), (torch.ones(2),), {}

    assert check_handler(lambda call: {"macs": 0}, [fresh], checks=["no_activation_is_kept"]).ok


class PositionalOnly(nn.Module):
    def forward(self, x, /):
        return x * 2


class AnyNumber(nn.Module):
    def forward(self, *tensors):
        return sum(tensors)


class Wrapper(nn.Module):
    def forward(self, *args, **kwargs):
        return args[0] * 2


@pytest.mark.parametrize("module", [PositionalOnly(), AnyNumber(), Wrapper()], ids=lambda module: type(module).__name__)
def test_arguments_that_have_no_names_have_one_spelling(module):
    def counts_positions(call):
        return {"module_flops": len(call.args)}

    results = check_handler(counts_positions, [(module, (torch.ones(3),))])
    assert results.ok, results.failures
