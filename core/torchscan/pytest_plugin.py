"""The pytest plugin: a budget as an assertion. Imports nothing of torchscan until a test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchscan.report.gate import Verdict

__all__ = ["torchscan_budget"]


@pytest.fixture(scope="session")
def torchscan_budget() -> Callable[..., Verdict]:
    """Return a function that fails the test where a report breaks its budget.

    Its arguments are those of `torchscan.report.gate.check_report`: a report (typed, as a dictionary, or a file),
    `max`, `require_complete`, `baseline` and `tolerance`.

    Example:
        ```python
        def test_budget(torchscan_budget):
            report = torchscan.scan(model, (3, 224, 224))
            torchscan_budget(report, max={"macs": "6e9"}, require_complete=["macs", "dmas"])
        ```

    """
    from torchscan.report.gate import check_report

    def hold(report: Any, **checks: Any) -> Verdict:
        __tracebackhide__ = True
        verdict = check_report(report, **checks)
        if not verdict.ok:
            pytest.fail(f"the report breaks its budget\n{verdict.to_text()}", pytrace=False)
        return verdict

    return hold
