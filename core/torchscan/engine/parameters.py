"""Parameters and buffers, each element once, however many names or calls reach it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parameter import Parameter, is_lazy

from torchscan.engine.observer import CallRecord
from torchscan.engine.tree import ModulePlace, own_tensors
from torchscan.report.schema import BufferCount, ParameterCount

__all__ = ["StoredTensors", "count_stored"]


class _Extents:
    """Which bytes of which storages have been counted."""

    def __init__(self) -> None:
        self._objects: set[int] = set()
        self._extents: dict[Any, list[tuple[int, int]]] = {}

    def add(self, tensor: torch.Tensor, count: int, size: int) -> int:
        """Return how many elements of `tensor` had not been counted, and count them."""
        if id(tensor) in self._objects:
            return 0
        self._objects.add(id(tensor))
        try:
            whole = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError, AttributeError):
            return count  # sparse, nested and opaque tensors have no one storage: each object is its own
        if count == 0:
            return 0
        storage = whole._cdata
        if storage not in self._extents and whole.nbytes() == count * size:
            self._extents[storage] = [(0, count * size)]  # the usual case: a storage of its own
            return count
        start = int(tensor.storage_offset()) * size
        # Shared pieces may overlap in part (one flat buffer, many views), so extents are merged, not matched.
        span = (1 + sum((n - 1) * abs(int(s)) for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * size
        found = self._extents.setdefault(storage, [])
        if not found:
            found.append((start, start + span))
            return min(count, span // size)
        free = span
        for low, high in found:
            free -= max(0, min(high, start + span) - max(low, start))
        if free > 0:
            found.append((start, start + span))
            found[:] = _merged(found)
        return min(count, free // size)


def _merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(extents):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


class StoredTensors:
    """Sums of a model's parameters and buffers."""

    def __init__(self) -> None:
        self.trainable = 0
        self.frozen = 0
        self.parameter_bytes = 0
        self.buffer_elements = 0
        self.buffer_bytes = 0
        self.lazy = False  # a parameter has no size yet
        self.kinds: set[tuple[torch.device, torch.dtype]] = set()


def count_stored(
    places: Iterable[ModulePlace], records: Iterable[CallRecord]
) -> tuple[StoredTensors, dict[CallRecord, tuple[ParameterCount, BufferCount]]]:
    """Return the model's sums, and what each call reaches first.

    A module's own tensors belong to the row of its first call; those of a module that never ran belong to the row of
    the nearest ancestor that did.
    """
    sums = StoredTensors()
    seen = _Extents()
    rows: dict[CallRecord, tuple[ParameterCount, BufferCount]] = {}
    first: dict[str, CallRecord] = {}
    for record in records:
        first.setdefault(record.place.path, record)
    idle: dict[str, list[ModulePlace]] = {}
    ran: list[tuple[CallRecord, ModulePlace]] = []
    for place in places:
        if (runner := first.get(place.path)) is not None:
            ran.append((runner, place))
            continue
        path = place.path
        while path and path not in first:
            path = path.rpartition(".")[0]
        idle.setdefault(path, []).append(place)
    order = {record: index for index, record in enumerate(first.values())}
    ran.sort(key=lambda pair: order[pair[0]])
    for record, place in ran:
        rows[record] = _count(sums, seen, [place])
    for path, missed in idle.items():
        own, buffers = _count(sums, seen, missed)
        if (runner := first.get(path)) is not None:
            mine, held = rows[runner]
            rows[runner] = (
                ParameterCount(
                    mine.trainable + own.trainable, mine.frozen + own.frozen, mine.bytes + own.bytes, mine.shared
                ),
                BufferCount(held.elements + buffers.elements, held.bytes + buffers.bytes, held.shared),
            )
    return sums, rows


_NO_PARAMETERS = ParameterCount()
_NO_BUFFERS = BufferCount()


def _count(sums: StoredTensors, seen: _Extents, places: Iterable[ModulePlace]) -> tuple[ParameterCount, BufferCount]:
    trainable = frozen = size = elements = buffer_size = 0
    shared = buffer_shared = False
    for place in places:
        for parameter in own_tensors(place.module, "_parameters"):
            if type(parameter) is not Parameter and is_lazy(parameter):
                sums.lazy = True
                continue
            count, item = parameter.numel(), parameter.element_size()
            sums.kinds.add((parameter.device, parameter.dtype))
            new = seen.add(parameter, count, item)
            shared |= new < count
            size += new * item
            if parameter.requires_grad:
                trainable += new
            else:
                frozen += new
        for buffer in own_tensors(place.module, "_buffers"):
            count, item = buffer.numel(), buffer.element_size()
            sums.kinds.add((buffer.device, buffer.dtype))
            new = seen.add(buffer, count, item)
            buffer_shared |= new < count
            elements += new
            buffer_size += new * item
    sums.trainable += trainable
    sums.frozen += frozen
    sums.parameter_bytes += size
    sums.buffer_elements += elements
    sums.buffer_bytes += buffer_size
    own = ParameterCount(trainable, frozen, size, shared) if size or shared else _NO_PARAMETERS
    held = BufferCount(elements, buffer_size, buffer_shared) if elements or buffer_shared else _NO_BUFFERS
    return own, held
