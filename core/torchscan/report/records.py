"""A report as flat records: one per call, the same keys in every one, ready for a data frame."""

from __future__ import annotations

from typing import Any

from torchscan.contract.states import METRICS
from torchscan.contract.tokens import describe
from torchscan.report.labels import describe_input, describe_value
from torchscan.report.schema import LayerRecord, Report

__all__ = ["records"]


def records(report: Report) -> list[dict[str, Any]]:
    """Return one flat dictionary per call, in execution order.

    Every record has the same keys: `path`, `call_index`, `name`, `depth`, `type`, `input` and `output` (in words),
    `trainable_parameters`, `frozen_parameters`, `parameter_bytes`, `parameters_shared`, `buffer_elements`,
    `buffer_bytes`, `buffers_shared`, `tokens` (in words), `tokens_status`; and for every metric:

    - `<metric>`: the number where it is complete, else `None`;
    - `<metric>_known`: the number or the lower bound, else `None`;
    - `<metric>_status`: `complete`, `partial`, `unavailable`, `covered` by an ancestor's estimate, or `None` where the
      row says nothing about it;
    - `<metric>_method`, `<metric>_scope`, `<metric>_handler`: where they apply;
    - `<metric>_owner`: the path of the call that covers it.

    Summing a column of numbers gives no total: `None` is not zero. The totals are in `report.totals`.
    """
    return [_record(layer) for layer in report.layers]


def _record(layer: LayerRecord) -> dict[str, Any]:
    tokens = layer.token_dependencies
    record: dict[str, Any] = {
        "path": layer.path,
        "call_index": layer.call_index,
        "name": layer.name,
        "depth": layer.depth,
        "type": layer.type,
        "input": describe_input(layer.input),
        "output": describe_value(layer.output),
        "trainable_parameters": layer.parameters.trainable,
        "frozen_parameters": layer.parameters.frozen,
        "parameter_bytes": layer.parameters.bytes,
        "parameters_shared": layer.parameters.shared,
        "buffer_elements": layer.buffers.elements,
        "buffer_bytes": layer.buffers.bytes,
        "buffers_shared": layer.buffers.shared,
        "tokens": describe(tokens) or None,
        "tokens_status": None if tokens is None else tokens.status,
    }
    owners, handlers = layer.metric_owners or {}, layer.handlers or {}
    for metric in METRICS:
        result, owner = layer.metrics.get(metric), owners.get(metric)
        covered = "covered" if owner is not None else None
        record[metric] = None if result is None else result.value
        record[f"{metric}_known"] = None if result is None else result.known_value
        record[f"{metric}_status"] = covered if result is None else result.status
        record[f"{metric}_method"] = None if result is None else result.method
        record[f"{metric}_scope"] = None if result is None else result.scope
        record[f"{metric}_handler"] = handlers.get(metric)
        record[f"{metric}_owner"] = None if owner is None else owner.path
    return record
