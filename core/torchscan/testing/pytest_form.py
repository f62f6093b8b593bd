"""The checks as pytest tests, one per check and call. pytest is imported when a test file asks for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchscan.testing.runner import Check, Oracle, listed, planned
from torchscan.testing.samples import Calls, ConformanceError

__all__ = ["conformance", "conformance_cases"]


def conformance_cases(
    handler: Any,
    calls: Calls,
    *,
    checks: Iterable[str | Check] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    oracle: Oracle = False,
    name: str = "",
) -> list[Any]:
    """Return one `pytest.param` per check and call, for `pytest.mark.parametrize`.

    The arguments are those of `check_handler`; `name` begins every test id, so that the cases of several handlers fit
    in one list. Expected failures are strict: one that passes fails the test.
    """
    import pytest

    expected = dict(expected_failures or {})
    cases = []
    for check_name, check, sample in planned(handler, calls, checks, expected, oracle):
        key = listed(expected, check_name, sample.name)
        marks = () if key is None else pytest.mark.xfail(reason=expected[key], strict=True, raises=ConformanceError)
        identifier = "-".join(part for part in (name, sample.name, check_name) if part)
        cases.append(pytest.param(functools.partial(check, handler, sample), id=identifier, marks=marks))
    return cases


def conformance(
    handler: Any,
    calls: Calls,
    *,
    checks: Iterable[str | Check] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    oracle: Oracle = False,
    name: str = "",
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that runs a test once per check and call, with the argument `case`.

    The arguments are those of `conformance_cases`.

    Example:
        ```python
        @conformance(my_handler, {"small": make_small_call})
        def test_contract(case):
            case()
        ```

    """
    import pytest

    cases = conformance_cases(
        handler, calls, checks=checks, expected_failures=expected_failures, oracle=oracle, name=name
    )
    return pytest.mark.parametrize("case", cases)
