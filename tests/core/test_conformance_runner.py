"""How checks are run: expected failures, the forms of calls and checks, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.conformance_support import CALLS, Projection, float_count, good, make
from torchscan import HandlerRegistration
from torchscan.testing import CHECKS, ConformanceError, Sample, check_handler, conformance_cases


def test_an_expected_failure_is_listed_with_its_reason():
    results = check_handler(float_count, CALLS, expected_failures={"counts_are_whole": "floats on purpose"})
    assert results.ok
    expected = [result for result in results if result.status == "expected_failure"]
    assert {(result.check, result.message) for result in expected} == {("counts_are_whole", "floats on purpose")}


def test_an_expected_failure_for_one_call_leaves_the_others_strict():
    results = check_handler(
        float_count, CALLS, checks=["counts_are_whole"], expected_failures={"counts_are_whole[plain]": "known"}
    )
    assert {result.call: result.status for result in results} == {
        "with-mask": "failed",
        "plain": "expected_failure",
        "unsupported": "passed",
    }


def test_an_expected_failure_that_passes_is_reported():
    results = check_handler(good, CALLS, expected_failures={"counts_are_whole[plain]": "once upon a time"})
    (failure,) = results.failures
    assert (failure.check, failure.call, failure.status) == ("counts_are_whole", "plain", "unexpected_pass")
    with pytest.raises(ConformanceError, match="once upon a time"):
        results.raise_failures()


@pytest.mark.parametrize("key", ["counts_are_hole", "counts_are_whole[nowhere]"])
def test_an_expected_failure_with_a_typo_is_refused(key):
    with pytest.raises(ValueError, match="expected_failures names no check and no call"):
        check_handler(good, CALLS, expected_failures={key: "because"})


def test_pytest_cases_carry_expected_failures_as_strict_marks():
    cases = conformance_cases(good, CALLS, expected_failures={"states_are_legal[plain]": "why"}, name="projection")
    marked = {case.id: case.marks for case in cases if case.marks}
    assert list(marked) == ["projection-plain-states_are_legal"]
    (mark,) = marked["projection-plain-states_are_legal"]
    assert (mark.name, mark.kwargs["reason"], mark.kwargs["strict"]) == ("xfail", "why", True)
    assert len(cases) == len(CHECKS) * len(CALLS)


# What it takes


def test_calls_come_as_tuples_functions_or_samples():
    module, args, kwargs = make()
    results = check_handler(good, [(module, args, kwargs), (module, args), make, Sample(make, "named")])
    assert results.ok
    assert list(dict.fromkeys(result.call for result in results)) == ["Projection-0", "Projection-1", "make", "named"]


@pytest.mark.parametrize("calls", [[3], [(3, 4)], [(nn.ReLU(),)], [nn.ReLU()], [(nn.ReLU(), torch.ones(1))]])
def test_something_else_is_refused(calls):
    with pytest.raises(TypeError, match="call"):
        check_handler(good, calls)


def test_no_call_at_all_and_two_of_one_name_are_refused():
    with pytest.raises(ValueError, match="no call"):
        check_handler(good, [])
    with pytest.raises(ValueError, match="'make'"):
        check_handler(good, [make, make])


def test_an_unknown_check_and_a_handler_that_cannot_be_called_are_refused():
    with pytest.raises(ValueError, match="there is no check 'speed'"):
        check_handler(good, [make], checks=["speed"])
    with pytest.raises(TypeError, match="callable"):
        check_handler(3, [make])


def test_a_registration_is_checked_with_modules_it_claims():
    registration = HandlerRegistration(Projection, good, match="exact")
    assert check_handler(registration, CALLS).ok
    assert check_handler(HandlerRegistration(f"{Projection.__module__}.Projection", good), CALLS).ok
    with pytest.raises(ValueError, match="is of a ReLU"):
        check_handler(registration, [(nn.ReLU(), (torch.ones(1),))])


def test_a_check_of_your_own_runs_beside_the_others():
    def answers_fast(handler, sample):
        raise ConformanceError("too slow")

    results = check_handler(good, [make], checks=["states_are_legal", answers_fast])
    assert [str(result) for result in results] == [
        "states_are_legal[make]: passed",
        "answers_fast[make]: failed: too slow",
    ]


def test_the_samples_are_left_as_they_were_when_checks_fail():
    module, args, kwargs = make()
    module.train()
    check_handler(lambda call: 1 / 0, [(module, args, kwargs)])
    assert module.training
    assert module.act.training
    assert not module.act._forward_hooks
