"""Parameters and buffers, each element once, however many names or calls reach it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.nn.parameter import Parameter, is_lazy

from torchscan.engine.records import CallRecord
from torchscan.engine.tree import ModulePlace, own_tensors
from torchscan.report.schema import BufferCount, ParameterCount

__all__ = ["StoredTensors", "count_stored"]


class _Extents:
    """Which bytes of which storages have been counted."""

    def __init__(self) -> None:
        self._objects: set[int] = set()
        self._extents: dict[Any, list[tuple[int, int]]] = {}
        self._maps: dict[Any, torch.Tensor] = {}
        self.unsure = False  # views too large to be told apart overlap

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
        nbytes = whole.nbytes()
        if storage not in self._extents and nbytes == count * size:
            self._extents[storage] = [(0, nbytes)]  # the usual case: a storage of its own
            return count
        start = int(tensor.storage_offset()) * size
        span = (1 + sum((n - 1) * abs(int(s)) for n, s in zip(tensor.shape, tensor.stride(), strict=True))) * size
        found = self._extents.setdefault(storage, [])
        if (storage in self._maps or span != count * size) and start + span <= nbytes <= _LARGEST_MAP:
            return self._add_scattered(storage, found, tensor, nbytes, size)
        # Shared pieces may overlap in part (one flat buffer, many views), so extents are merged, not matched.
        free = span
        for low, high in found:
            free -= max(0, min(high, start + span) - max(low, start))
        self.unsure |= span > count * size and free < span
        if free > 0:
            found.append((start, start + span))
            found[:] = _merged(found)
        return min(count, free // size)

    def _add_scattered(
        self, storage: Any, found: list[tuple[int, int]], tensor: torch.Tensor, nbytes: int, size: int
    ) -> int:
        """Count a tensor that leaves gaps, such as some columns of a matrix: others may lie in them.

        One byte is kept for each byte of the storage, so that any two views can be told apart.
        """
        counted = self._maps.get(storage)
        if counted is None:
            counted = self._maps[storage] = torch.zeros(nbytes, dtype=torch.bool, device="cpu")
            for low, high in found:
                counted[low:high] = True
        # An axis that repeats itself holds one of each.
        axes = [(n, int(stride) * size) for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
        sizes, strides = [n for n, _ in axes], [stride for _, stride in axes]
        mine = counted.as_strided((*sizes, size), (*strides, 1), int(tensor.storage_offset()) * size)
        before = int(counted.count_nonzero())
        mine.fill_(True)
        return (int(counted.count_nonzero()) - before) // size


#: Up to so many bytes of one storage are told apart one by one.
_LARGEST_MAP: Final = 1 << 28


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
        self.unknown_parameters = False  # one has no size yet, or shares its storage in too many pieces
        self.unknown_buffers = False
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
    owners: list[tuple[CallRecord | None, ModulePlace]] = [*ran]
    owners += [(first.get(path), place) for path, missed in idle.items() for place in missed]
    # Parameters first: a buffer that shows a parameter's memory is that parameter, wherever it is registered.
    parameters: dict[CallRecord | None, ParameterCount] = {}
    for runner, place in owners:
        if place.module._parameters:
            parameters[runner] = _count_parameters(sums, seen, place, parameters.get(runner, _NO_PARAMETERS))
    sums.unknown_parameters |= seen.unsure
    buffers: dict[CallRecord | None, BufferCount] = {}
    for runner, place in owners:
        if place.module._buffers:
            buffers[runner] = _count_buffers(sums, seen, place, buffers.get(runner, _NO_BUFFERS))
    sums.unknown_buffers |= seen.unsure
    return sums, {
        record: (parameters.get(record, _NO_PARAMETERS), buffers.get(record, _NO_BUFFERS)) for record in first.values()
    }


_NO_PARAMETERS = ParameterCount()
_NO_BUFFERS = BufferCount()


def _count_parameters(sums: StoredTensors, seen: _Extents, place: ModulePlace, row: ParameterCount) -> ParameterCount:
    """Count a module's own parameters; return the row with them."""
    trainable = frozen = size = 0
    shared = False
    for parameter in own_tensors(place.module, "_parameters"):
        if type(parameter) is not Parameter and is_lazy(parameter):
            sums.unknown_parameters = True
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
    if not size and not shared:
        return row
    sums.trainable += trainable
    sums.frozen += frozen
    sums.parameter_bytes += size
    # Whether the row shares is a matter of its own module, which comes first.
    shared = shared if row is _NO_PARAMETERS else row.shared
    return ParameterCount(row.trainable + trainable, row.frozen + frozen, row.bytes + size, shared)


def _count_buffers(sums: StoredTensors, seen: _Extents, place: ModulePlace, row: BufferCount) -> BufferCount:
    """Count a module's own buffers; return the row with them."""
    elements = size = 0
    shared = False
    for buffer in own_tensors(place.module, "_buffers"):
        if is_lazy(buffer):
            sums.unknown_buffers = True
            continue
        count, item = buffer.numel(), buffer.element_size()
        sums.kinds.add((buffer.device, buffer.dtype))
        new = seen.add(buffer, count, item)
        shared |= new < count
        elements += new
        size += new * item
    if not elements and not shared:
        return row
    sums.buffer_elements += elements
    sums.buffer_bytes += size
    shared = shared if row is _NO_BUFFERS else row.shared
    return BufferCount(row.elements + elements, row.bytes + size, shared)
