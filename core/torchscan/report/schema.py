"""The report as attrs classes, field for field what is on the wire (schema version 1).

Reading and writing is `torchscan.report.wire`'s; this module imports neither torch nor cattrs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from torchscan.contract.diagnostics import Diagnostic
from torchscan.contract.states import Complete, MetricState, Number, Partial, Unavailable, checked_number
from torchscan.contract.tokens import TokenDependencies

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "SCHEMA_VERSION",
    "BufferCount",
    "CallInput",
    "Context",
    "Diagnostic",
    "Failed",
    "IgnoredOperator",
    "Inputs",
    "LayerRecord",
    "MappingItem",
    "MappingValue",
    "MetricOwner",
    "MetricResult",
    "NestedTensorValue",
    "NoneValue",
    "ObjectValue",
    "OperatorContext",
    "OperatorReport",
    "ParameterCount",
    "PluginUsed",
    "Report",
    "Scalar",
    "SequenceValue",
    "TensorValue",
    "Totals",
    "Value",
]

SCHEMA_VERSION: Final = 1

Status: TypeAlias = Literal["complete", "partial", "unavailable"]


def _number(value: Number | None) -> Number | None:
    return None if value is None else checked_number(value)


@attrs.frozen
class MetricResult:
    """One metric as it stands in a report.

    Args:
        status: `complete`, `partial` or `unavailable`.
        value: the number, when complete; else `None`.
        known_value: the number when complete, the lower bound when partial, else `None`.
        unit: `FLOPs`, `MACs`, `DMAs`, `elements`, `bytes` or `calls`.
        scope: `module_call`, `subtree`, `forward`, `model` or `workload`.
        method: how it was found; two different methods are not comparable.

    """

    status: Status
    value: Number | None = attrs.field(converter=_number)
    known_value: Number | None = attrs.field(converter=_number)
    unit: str
    scope: str
    method: str

    def __attrs_post_init__(self) -> None:
        value, known = self.value, self.known_value
        if self.status == "complete":
            if value is None or value != known:
                raise ValueError(f"a complete metric has value == known_value, got {value} and {known}")
        elif self.status == "partial":
            if value is not None or known is None:
                raise ValueError(f"a partial metric has no value and a known_value, got {value} and {known}")
        elif self.status == "unavailable":
            if value is not None or known is not None:
                raise ValueError(f"an unavailable metric has no numbers, got {value} and {known}")
        else:
            raise ValueError(f"status must be complete, partial or unavailable, got {self.status!r}")

    @classmethod
    def of(cls, state: MetricState, *, unit: str, scope: str, method: str) -> MetricResult:
        """Return `state` as a result."""
        if isinstance(state, Complete):
            return cls("complete", state.value, state.value, unit, scope, method)
        if isinstance(state, Partial):
            return cls("partial", None, state.known_value, unit, scope, method)
        return cls("unavailable", None, None, unit, scope, method)

    @property
    def state(self) -> MetricState:
        """The state without unit, scope and method."""
        if self.value is not None:
            return Complete(self.value)
        if self.known_value is not None:
            return Partial(self.known_value)
        return Unavailable(self.method)


@attrs.frozen
class TensorValue:
    """A tensor: its metadata, never its contents."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    kind: Literal["tensor"] = "tensor"


@attrs.frozen
class NestedTensorValue:
    """A nested tensor, which has no one shape; none is invented."""

    dtype: str
    device: str
    requires_grad: bool
    kind: Literal["nested_tensor"] = "nested_tensor"


@attrs.frozen
class SequenceValue:
    """A tuple or a list."""

    items: tuple[Value, ...]
    kind: Literal["tuple", "list"] = "tuple"


@attrs.frozen
class MappingItem:
    """One entry; the key itself is kept only when it is an integer, a `bool` or an identifier."""

    value: Value
    key_type: str
    key: str | int | bool | None = None


@attrs.frozen
class MappingValue:
    """A mapping, or the fields of a dataclass."""

    type: str
    items: tuple[MappingItem, ...]
    kind: Literal["mapping", "dataclass"] = "mapping"


@attrs.frozen
class Scalar:
    """A plain value, by type only."""

    type: str
    kind: Literal["scalar"] = "scalar"


@attrs.frozen
class ObjectValue:
    """Anything else, by type only."""

    type: str
    kind: Literal["object"] = "object"


@attrs.frozen
class NoneValue:
    """`None`."""

    kind: Literal["none"] = "none"


@attrs.frozen
class Failed:
    """The output of a call that raised (`pending` in reports stored by TorchScan 0.2.0)."""

    kind: Literal["failed", "pending"] = "failed"


Value: TypeAlias = (
    TensorValue | NestedTensorValue | SequenceValue | MappingValue | Scalar | ObjectValue | NoneValue | Failed
)


@attrs.frozen
class CallInput:
    """The arguments of a call."""

    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = attrs.field(factory=dict)


@attrs.frozen
class ParameterCount:
    """Parameters first reached by this call, in elements.

    A parameter counts on the first row that reaches it, with those of descendants that never ran; `shared` says that
    an earlier row already holds one of this module's own.
    """

    trainable: int = 0
    frozen: int = 0
    bytes: int = 0
    shared: bool = False

    @property
    def total(self) -> int:
        """Trainable and frozen parameters together."""
        return self.trainable + self.frozen


@attrs.frozen
class BufferCount:
    """Buffers first reached by this call, in elements."""

    elements: int = 0
    bytes: int = 0
    shared: bool = False


@attrs.frozen
class MetricOwner:
    """A call by its place: the one whose estimate covers a descendant's metric, or the one that made a call."""

    path: str
    call_index: int


@attrs.frozen
class LayerRecord:
    """One module call.

    `parent` is the call inside which it ran; a module that is shared can be called far from where its path says. The
    root has none, and neither have the rows of reports stored by TorchScan 0.2.0.
    """

    path: str
    call_index: int
    name: str
    depth: int
    type: str
    input: CallInput
    output: Value
    parameters: ParameterCount
    buffers: BufferCount
    metrics: Mapping[str, MetricResult]
    metric_ownership: Mapping[str, str] | None = None
    metric_owners: Mapping[str, MetricOwner] | None = None
    token_dependencies: TokenDependencies | None = None
    handlers: Mapping[str, str] | None = None
    parent: MetricOwner | None = None


@attrs.frozen
class PluginUsed:
    """A plugin that took part in a scan."""

    name: str
    distribution: str | None = None
    version: str | None = None


@attrs.frozen
class Context:
    """What was scanned, and with what."""

    torchscan_version: str
    torch_version: str
    python_version: str
    model_type: str
    execution_mode: str
    training_before: bool
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    analysis_mode: str | None = None
    execution: str | None = None
    functional: str | None = None
    metrics: tuple[str, ...] | None = None
    plugins: tuple[PluginUsed, ...] | None = None


@attrs.frozen
class Inputs:
    """The arguments of the scanned call."""

    source: Literal["generated", "provided"]
    args: tuple[Value, ...] = ()
    kwargs: Mapping[str, Value] = attrs.field(factory=dict)


@attrs.frozen
class Totals:
    """The sums over the whole call."""

    parameters: MetricResult
    trainable_parameters: MetricResult
    frozen_parameters: MetricResult
    parameter_bytes: MetricResult
    buffer_elements: MetricResult
    buffer_bytes: MetricResult
    module_flops: MetricResult
    operator_flops: MetricResult
    macs: MetricResult
    dmas: MetricResult

    def __iter__(self) -> Iterator[tuple[str, MetricResult]]:
        return ((field.name, getattr(self, field.name)) for field in attrs.fields(type(self)))


@attrs.frozen
class IgnoredOperator:
    """Operators that are no work, and why."""

    calls: int
    reason: str


@attrs.frozen
class OperatorContext:
    """How operators were counted."""

    torch_version: str
    method: str


@attrs.frozen
class OperatorReport:
    """The operator view: what the dispatcher executed, under PyTorch's own formulas."""

    context: OperatorContext
    total: MetricResult
    by_module: Mapping[str, int] = attrs.field(factory=dict)
    by_operator: Mapping[str, int] = attrs.field(factory=dict)
    ignored_operators: Mapping[str, IgnoredOperator] = attrs.field(factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    schema_version: int = SCHEMA_VERSION


@attrs.frozen
class Report:
    """Everything torchscan knows about one call of a model."""

    context: Context
    inputs: Inputs
    layers: tuple[LayerRecord, ...]
    totals: Totals
    operator_flops: OperatorReport
    diagnostics: tuple[Diagnostic, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def __attrs_post_init__(self) -> None:
        seen: set[tuple[str, int]] = set()
        for layer in self.layers:
            if (key := (layer.path, layer.call_index)) in seen:
                raise ValueError(f"layers hold call {key[1]} of the path {key[0]!r} twice")
            seen.add(key)

    def to_dict(self) -> dict[str, Any]:
        """Return the wire form: plain JSON-ready data."""
        from torchscan.report.wire import report_to_dict

        return report_to_dict(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the wire form as JSON text."""
        from torchscan.report.wire import report_to_json

        return report_to_json(self, indent=indent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """Read a report back from its wire form, also one stored by TorchScan 0.2.0.

        Raises:
            ReportError: a field is missing or wrong; the message names its path.

        """
        from torchscan.report.wire import report_from_dict

        return report_from_dict(data)

    @classmethod
    def load(cls, file: str | Path) -> Report:
        """Read a stored report from a JSON file.

        Raises:
            ReportError: the file is no report of a known schema version.
            OSError: the file cannot be read.

        """
        from torchscan.report.wire import load_report

        return load_report(file)

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        from torchscan.report.notebook import repr_html

        return repr_html(self)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat dictionary per call, ready for a data frame."""
        from torchscan.report.records import records

        return records(self)
