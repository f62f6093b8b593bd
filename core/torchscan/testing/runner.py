"""Running the checks without pytest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs
from torch import nn

from torchscan.contract.call import ModuleCall
from torchscan.contract.handler import HandlerRegistration, ModuleHandler
from torchscan.testing.checks import CHECKS, macs_match_the_dispatcher
from torchscan.testing.samples import Calls, ConformanceError, Sample, samples

__all__ = ["Check", "CheckResult", "CheckResults", "Oracle", "check_handler", "listed", "planned"]

Check: TypeAlias = Callable[[Any, Sample], None]
Oracle: TypeAlias = bool | Callable[[ModuleCall], int]


@attrs.frozen
class CheckResult:
    """What one check said about one call.

    Args:
        check: the name of the check.
        call: the name of the call.
        status: `passed`, `failed`, `expected_failure`, or `unexpected_pass` (listed as a failure, and passes).
        message: what is wrong, or the reason why the failure is expected.

    """

    check: str
    call: str
    status: Literal["passed", "failed", "expected_failure", "unexpected_pass"]
    message: str = ""

    def __str__(self) -> str:
        return f"{self.check}[{self.call}]: {self.status}" + (f": {self.message}" if self.message else "")


class CheckResults(tuple[CheckResult, ...]):
    """The results of all checks, in the order they ran."""

    __slots__ = ()

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The results that must not stay: failures nobody expects, and expected ones that pass."""
        return tuple(result for result in self if result.status in ("failed", "unexpected_pass"))

    @property
    def ok(self) -> bool:
        """Whether there are no such results."""
        return not self.failures

    def raise_failures(self) -> None:
        """Raise where something must not stay.

        Raises:
            ConformanceError: lists every such result.

        """
        if failures := self.failures:
            raise ConformanceError("\n".join(map(str, failures)))


def check_handler(
    handler: ModuleHandler | HandlerRegistration | Callable[[ModuleCall], Any],
    calls: Calls,
    *,
    checks: Iterable[str | Check] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    oracle: Oracle = False,
) -> CheckResults:
    """Run every check with every call and return what each said.

    Args:
        handler: a `ModuleHandler`, a `HandlerRegistration` or a bare callable.
        calls: `Sample` objects, `(module, args, kwargs)` tuples, or functions that return such a tuple; a mapping
            names them. Functions are better: each check gets its own module.
        checks: names from `CHECKS`, or functions `(handler, sample) -> None`; by default all.
        expected_failures: `"check"` or `"check[call]"` to the reason why it fails. A listed check that passes is
            reported as `unexpected_pass`.
        oracle: also compare MACs with the contractions that the dispatcher executes on the unfused path; a function
            `ModuleCall -> int` gives the MACs that the conventions count beside them, such as those of a norm.

    Raises:
        TypeError, ValueError: an argument is not of that form.

    """
    expected = dict(expected_failures or {})
    hits = dict.fromkeys(expected, False)
    results: list[CheckResult] = []
    for name, check, sample in planned(handler, calls, checks, expected, oracle):
        key = listed(expected, name, sample.name)
        try:
            check(handler, sample)
        except ConformanceError as error:
            if key is None:
                results.append(CheckResult(name, sample.name, "failed", str(error)))
            else:
                hits[key] = True
                results.append(CheckResult(name, sample.name, "expected_failure", expected[key]))
        else:
            results.append(CheckResult(name, sample.name, "passed"))
    for key, hit in hits.items():
        if not hit:
            name, _, call = key.partition("[")
            results.append(CheckResult(name, call.rstrip("]") or "*", "unexpected_pass", expected[key]))
    return CheckResults(results)


def planned(
    handler: Any,
    calls: Calls,
    checks: Iterable[str | Check] | None,
    expected: Mapping[str, str],
    oracle: Oracle,
) -> Iterator[tuple[str, Check, Sample]]:
    """Return every check with every call, by the name of the check.

    Args:
        handler: as in `check_handler`.
        calls: as there.
        checks: as there.
        expected: the expected failures.
        oracle: as there.

    Raises:
        TypeError, ValueError: an argument is not of that form, or an expected failure names no check and no call.

    """
    if not isinstance(handler, ModuleHandler | HandlerRegistration) and not callable(handler):
        raise TypeError(f"a handler must be callable, got {type(handler).__name__}")
    chosen = [_check(check) for check in (CHECKS if checks is None else checks)]
    if oracle:
        extra = oracle if callable(oracle) else None
        chosen.append((macs_match_the_dispatcher.__name__, functools.partial(macs_match_the_dispatcher, extra=extra)))
    found = samples(calls)
    keys = {key for name, _ in chosen for key in (name, *(f"{name}[{sample.name}]" for sample in found))}
    if unknown := sorted(set(expected) - keys):
        raise ValueError(f"expected_failures names no check and no call: {', '.join(unknown)}")
    for sample in found:
        _fits(handler, sample)
    return ((name, check, sample) for name, check in chosen for sample in found)


def _check(check: str | Check) -> tuple[str, Check]:
    if not isinstance(check, str):
        return getattr(check, "__name__", repr(check)), check
    if check not in CHECKS:
        raise ValueError(f"there is no check {check!r}; the checks are {', '.join(CHECKS)}")
    return check, CHECKS[check]


def _fits(handler: Any, sample: Sample) -> None:
    """Refuse a call of a module that the registration does not claim: its checks would say nothing."""
    if not isinstance(handler, HandlerRegistration):
        return
    module: nn.Module = sample.make()[0]
    bases = type(module).__mro__ if handler.match == "subclass" else type(module).__mro__[:1]
    target = handler.target
    if isinstance(target, type):
        fits = target in bases
    else:
        fits = target.rpartition(".")[2] in {base.__name__ for base in bases}
    if not fits:
        raise ValueError(f"the call {sample.name!r} is of a {type(module).__name__}, which {target} does not claim")


def listed(expected: Mapping[str, str], check: str, call: str) -> str | None:
    """Return the key under which a check of a call is expected to fail, `None` where it is not."""
    return next((key for key in (f"{check}[{call}]", check) if key in expected), None)
