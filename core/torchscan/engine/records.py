"""What is remembered of one call: everything the report needs, and no tensor."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from torchscan.contract.states import METRICS
from torchscan.contract.tokens import TokenDependencies
from torchscan.engine.chain import Chain
from torchscan.engine.operators import OperatorCost
from torchscan.engine.tree import ModulePlace
from torchscan.plugins.resolution import Candidate
from torchscan.report.schema import CallInput, Failed, MetricOwner, Value

__all__ = ["BITS", "COUNTS", "TOKENS", "CallRecord", "bits_of"]

#: One bit per metric; token dependencies have the next one.
BITS: Final = {name: 1 << index for index, name in enumerate((*METRICS, "token_dependencies"))}
TOKENS: Final = BITS["token_dependencies"]
COUNTS: Final = BITS["module_flops"] | BITS["macs"] | BITS["dmas"]

_FAILED: Final = Failed()
_NO_SOURCES: Final[Mapping[str, Candidate]] = {}
_NO_INPUT: Final = CallInput()


@functools.lru_cache(maxsize=256)
def bits_of(names: frozenset[str]) -> int:
    """Return the bits of these metrics."""
    return sum(BITS[name] for name in names)


class CallRecord:
    """One call, as far as it has been observed; holds no tensor."""

    __slots__ = (
        "_name",
        "call_index",
        "chain",
        "children",
        "covered",
        "covered_by_caller",
        "executed",
        "failed",
        "has_submodules",
        "hooked",
        "inherited",
        "input",
        "left",
        "may_own",
        "module_type",
        "opaque",
        "operators",
        "output",
        "owned",
        "owned_by_caller",
        "owners",
        "parent",
        "place",
        "replaced",
        "silenced",
        "source",
        "sources",
        "states",
        "stirred",
        "tokens",
        "tokens_source",
    )

    def __init__(self, place: ModulePlace, call_index: int, parent: CallRecord | None, covered: int) -> None:
        self.place = place
        self.parent = parent
        self.call_index = call_index
        self.covered = covered  # metrics that an ancestor surely owns
        self.covered_by_caller = 0
        self.executed = 0  # product terms that were dispatched in what this call answers for
        self.silenced = False  # the caller answers for every count
        self.may_own = 0  # metrics that its first handler owns whatever it answers
        self.owned = 0  # metrics that this call's handlers own for the subtree
        self.owned_by_caller = 0
        self.owners: list[CallRecord | None] | None = None
        self.children = 0
        self.failed = True  # until it returns
        self.has_submodules = False
        self.replaced = False  # `forward` is the instance's own
        self.opaque = False  # no operator was seen, and yet there is a new tensor
        self.module_type: type = type(place.module)
        self.input: CallInput = _NO_INPUT
        self.output: Value = _FAILED
        self.operators: dict[OperatorCost, int] = {}
        self.hooked: dict[OperatorCost, int] | None = None  # what foreign hooks ran in this call, where there are some
        self.left: tuple[nn.Module, ...] = ()  # children with foreign forward hooks, which run after they returned
        self.stirred = False  # a hook below did something, or may have: tokens need not be where a formula expects them
        self.inherited: dict[str, list[CallRecord]] | None = None  # hooked calls below, of a metric that this call owns
        self.states: dict[str, Any] = {}  # int, or a state
        self.sources: Mapping[str, Candidate] = _NO_SOURCES  # shared between calls
        self.source: Candidate | None = None  # the one source of all states, where there is one and it did not fail
        self.tokens: TokenDependencies | None = None
        self.tokens_source: Candidate | None = None
        self.chain: Chain | None = None
        self._name: MetricOwner | None = None

    def name(self) -> MetricOwner:
        """Return path and index, as rows refer to this call."""
        if self._name is None:
            self._name = MetricOwner(self.place.path, self.call_index)
        return self._name

    def ran(self) -> Mapping[OperatorCost, int]:
        """Return every operator that ran in this call outside of its children, those of hooks included."""
        if not self.hooked:
            return self.operators
        together = dict(self.operators)
        for cost, count in self.hooked.items():
            together[cost] = together.get(cost, 0) + count
        return together
