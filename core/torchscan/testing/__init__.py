"""The conformance kit: does a handler keep the contract?

```python
from torchscan.testing import check_handler

results = check_handler(attention, [(MyAttention(8, 2), (torch.ones(1, 3, 8),), {})])
results.raise_failures()
```

With pytest, one test per check and call:

```python
from torchscan.testing import conformance

@conformance(attention, {"self": make_self_attention, "cross": make_cross_attention})
def test_contract(case):
    case()
```

The names of the checks and the arguments of these functions are public and move with `CONTRACT_VERSION`.
"""

from __future__ import annotations

from torchscan.testing.checks import CHECKS
from torchscan.testing.imports import check_pack_import
from torchscan.testing.oracle import OracleError, count_contractions, unfused
from torchscan.testing.pytest_form import conformance, conformance_cases
from torchscan.testing.runner import CheckResult, CheckResults, check_handler
from torchscan.testing.samples import ConformanceError, Sample

__all__ = [
    "CHECKS",
    "CheckResult",
    "CheckResults",
    "ConformanceError",
    "OracleError",
    "Sample",
    "check_handler",
    "check_pack_import",
    "conformance",
    "conformance_cases",
    "count_contractions",
    "unfused",
]
