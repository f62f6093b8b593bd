"""Reports for tests: built by hand, read from `tests/data`, or generated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from torchscan.contract.diagnostics import CODES, Diagnostic
from torchscan.contract.states import METRICS, UNITS
from torchscan.contract.tokens import Output, Relation, Source, TokenDependencies
from torchscan.report.schema import (
    BufferCount,
    CallInput,
    Context,
    Failed,
    IgnoredOperator,
    Inputs,
    LayerRecord,
    MappingItem,
    MappingValue,
    MetricOwner,
    MetricResult,
    NestedTensorValue,
    NoneValue,
    ObjectValue,
    OperatorContext,
    OperatorReport,
    ParameterCount,
    PluginUsed,
    Report,
    Scalar,
    SequenceValue,
    TensorValue,
    Totals,
)

DATA = Path(__file__).parent.parent / "data"
STORED_0_2_0 = sorted(p for p in (DATA / "v0_2_0").glob("*.json") if not p.name.startswith("other_"))
STORED_1 = sorted((DATA / "v1").glob("*.json"))
STORED = [*STORED_0_2_0, *STORED_1]

#: The relation of a causal call of four tokens.
CAUSAL = TokenDependencies("complete", (Source(("query",), 1, 4, Relation("prefix")),), Output(1, 4), (), "m")


def stored(name: str) -> dict[str, Any]:
    """Return a stored report as JSON reads it; `name` is like `v0_2_0/mixed`."""
    return json.loads((DATA / f"{name}.json").read_text())


def known(value: float, unit: str = "MACs", scope: str = "module_call", method: str = "m") -> MetricResult:
    return MetricResult("complete", value, value, unit, scope, method)


def bound(value: float, unit: str = "MACs", scope: str = "module_call", method: str = "m") -> MetricResult:
    return MetricResult("partial", None, value, unit, scope, method)


def unknown(unit: str = "MACs", scope: str = "module_call", method: str = "m") -> MetricResult:
    return MetricResult("unavailable", None, None, unit, scope, method)


def tensor(*shape: int) -> TensorValue:
    return TensorValue(shape, "torch.float32", "cpu", False)


def layer(path: str = "", type: str = "Linear", call_index: int = 0, **fields: Any) -> LayerRecord:
    """Return a row; its name and depth follow from its path."""
    metrics = {
        "calls": MetricResult("complete", 1, 1, "calls", "module_call", "pytorch_hook"),
        **fields.pop("metrics", {}),
    }
    return LayerRecord(
        path,
        call_index,
        fields.pop("name", path.rpartition(".")[2] or type.lower()),
        path.count(".") + 1 if path else 0,
        type,
        CallInput((tensor(1, 4),), {}),
        fields.pop("output", tensor(1, 2)),
        fields.pop("parameters", ParameterCount()),
        BufferCount(),
        metrics,
        **fields,
    )


def report(*layers: LayerRecord, totals: Mapping[str, MetricResult] | None = None, **fields: Any) -> Report:
    """Return a report of `layers`; totals not given are complete and zero."""
    units = {"module_flops": "FLOPs", "macs": "MACs", "dmas": "DMAs", "operator_flops": "FLOPs"}
    zeros = {
        name: known(
            0, units.get(name, "bytes" if "bytes" in name else "elements"), "forward" if name in units else "model"
        )
        for name in Totals.__annotations__
    }
    context = {
        "torchscan_version": "1.0.0",
        "torch_version": "2.13.0",
        "python_version": "3.11.0",
        "model_type": "tests.Model",
        "execution_mode": "evaluation_no_grad",
        "training_before": True,
        "devices": ("cpu",),
        "dtypes": ("torch.float32",),
        **fields.pop("context", {}),
    }
    return Report(
        Context(**context),
        Inputs("provided", (tensor(1, 4),), {}),
        layers or (layer("", "Model"),),
        Totals(**{**zeros, **(totals or {})}),
        OperatorReport(OperatorContext("2.13.0", "counter"), known(0, "FLOPs", "workload", "counter")),
        **fields,
    )


def deep_report(calls: int) -> Report:
    """Return a report of about `calls` calls: blocks of ten, in a tree of three levels, with every metric."""
    rows = [layer("", "Model")]
    for block in range(calls // 10):
        rows.append(layer(f"blocks.{block}", "Block"))
        for leaf in range(9):
            number = block * 9 + leaf
            metrics = {name: known(number * 1000 + 1, UNITS[name]) for name in METRICS}
            rows.append(layer(f"blocks.{block}.layer{leaf}", f"Layer{leaf}", metrics=metrics))
    whole = sum(n * 1000 + 1 for n in range(calls // 10 * 9))
    return report(*rows, totals={"macs": known(whole, "MACs", "forward")})


# -- generated reports -------------------------------------------------------------------------------------------------

_text = st.text(max_size=8) | st.sampled_from(["macs", "<script>", "a|b", "\u202e", "x" * 300])
_count = st.integers(0, 100) | st.integers(0, 2**80)
_number = _count | st.floats(0, 1e6, allow_nan=False)
_places = st.sampled_from(["torch.float32", "torch.bool"])


@st.composite
def metric_results(draw: st.DrawFn) -> MetricResult:
    make = draw(st.sampled_from([known, bound, None]))
    texts = (draw(st.sampled_from(["MACs", "DMAs"])), draw(st.sampled_from(["module_call", "subtree"])), draw(_text))
    return unknown(*texts) if make is None else make(draw(_number), *texts)


_leaves = (
    st.builds(TensorValue, st.lists(_count, max_size=3).map(tuple), _places, st.just("cpu"), st.booleans())
    | st.builds(NestedTensorValue, _places, st.just("cpu"), st.booleans())
    | st.builds(Scalar, _text)
    | st.builds(ObjectValue, _text)
    | st.just(NoneValue())
    | st.builds(Failed, st.sampled_from(["failed", "pending"]))
)
_keys = st.none() | _text | st.integers(-5, 5) | st.booleans()
values = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(SequenceValue, st.lists(inner, max_size=2).map(tuple), st.sampled_from(["tuple", "list"]))
        | st.builds(
            MappingValue,
            _text,
            st.lists(st.builds(MappingItem, inner, _text, _keys), max_size=2).map(tuple),
            st.sampled_from(["mapping", "dataclass"]),
        )
    ),
    max_leaves=4,
)
_inputs = st.builds(CallInput, st.lists(values, max_size=2).map(tuple), st.dictionaries(_text, values, max_size=2))


@st.composite
def token_dependencies(draw: st.DrawFn) -> TokenDependencies:
    if draw(st.booleans()):
        return TokenDependencies("unavailable", reason=draw(st.none() | _text), assumptions=("a",), method="m")
    length = draw(st.integers(2, 9))
    relation = draw(
        st.sampled_from([Relation("all"), Relation("none"), Relation("prefix", 1), Relation("same_position", None, 1)])
    )
    sources = (Source(("query", "key"), 1, length, relation), Source(("value",), 0, length, Relation("all", 2)))
    return TokenDependencies("complete", sources, Output(1, length), ("evaluation",), "m")


@st.composite
def layers(draw: st.DrawFn, key: tuple[str, int]) -> LayerRecord:
    names = st.sampled_from(METRICS)
    return LayerRecord(
        *key,
        draw(_text),
        draw(_count),
        draw(_text),
        draw(_inputs),
        draw(values),
        ParameterCount(draw(_count), draw(_count), draw(_count), draw(st.booleans())),
        BufferCount(draw(_count), draw(_count), draw(st.booleans())),
        draw(st.dictionaries(names, metric_results(), max_size=3)),
        metric_ownership=draw(
            st.none() | st.dictionaries(names, st.sampled_from(["module_call", "subtree"]), max_size=2)
        ),
        metric_owners=draw(st.none() | st.dictionaries(names, st.builds(MetricOwner, _text, _count), max_size=2)),
        token_dependencies=draw(st.none() | token_dependencies()),
        handlers=draw(st.none() | st.dictionaries(names, _text, max_size=2)),
        parent=draw(st.none() | st.builds(MetricOwner, st.sampled_from(["", "a", "x"]), st.integers(0, 2))),
    )


_diagnostics = st.builds(
    Diagnostic,
    st.sampled_from(sorted(CODES)),
    _text,
    st.sampled_from(["warning", "error"]),
    st.none() | _text,
    path=st.none() | _text,
    call_index=st.none() | _count,
    operator=st.none() | _text,
    plugin=st.none() | _text,
    reason=st.none() | _text,
    calls=st.none() | _count,
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Return any report that can be written, sense or nonsense."""
    keys = draw(
        st.lists(st.tuples(st.sampled_from(["", "a", "a.b", "<b>"]), st.integers(0, 2)), max_size=3, unique=True)
    )
    context = Context(
        *(draw(_text) for _ in range(5)),
        draw(st.booleans()),
        ("cpu",),
        draw(st.lists(_text, max_size=2).map(tuple)),
        analysis_mode=draw(st.none() | _text),
        metrics=draw(st.none() | st.just(("macs",))),
        plugins=draw(st.none() | st.lists(st.builds(PluginUsed, _text, st.none() | _text), max_size=2).map(tuple)),
    )
    operators = OperatorReport(
        OperatorContext(draw(_text), draw(_text)),
        draw(metric_results()),
        draw(st.dictionaries(_text, _count, max_size=2)),
        draw(st.dictionaries(_text, _count, max_size=2)),
        draw(st.dictionaries(_text, st.builds(IgnoredOperator, _count, _text), max_size=2)),
        draw(st.lists(_diagnostics, max_size=2).map(tuple)),
    )
    return Report(
        context,
        Inputs(draw(st.sampled_from(["generated", "provided"])), (draw(values),), {"x": draw(values)}),
        tuple(draw(layers(key)) for key in keys),
        Totals(*(draw(metric_results()) for _ in range(10))),
        operators,
        draw(st.lists(_diagnostics, max_size=3).map(tuple)),
    )
