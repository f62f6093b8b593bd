"""Parameters and buffers, each element once, however many names or calls reach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class _Row:
    """What one call reaches first, of parameters or of buffers."""

    __slots__ = ("frozen", "shared", "size", "trainable")

    def __init__(self) -> None:
        self.trainable = 0
        self.frozen = 0
        self.size = 0
        self.shared: bool | None = None  # a matter of the row's own module, which comes first

    def key(self) -> tuple[int, int, int, bool | None]:
        """Return all that a row shows of it."""
        return self.trainable, self.frozen, self.size, self.shared


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
    owners = _owners(places, first)
    # Parameters first: a buffer that shows a parameter's memory is that parameter, wherever it is registered.
    parameters, lazy = _count("_parameters", owners, seen, sums.kinds)
    sums.unknown_parameters = lazy or seen.unsure
    buffers, lazy = _count("_buffers", owners, seen, sums.kinds)
    sums.unknown_buffers = lazy or seen.unsure
    for row in parameters.values():
        sums.trainable += row.trainable
        sums.frozen += row.frozen
        sums.parameter_bytes += row.size
    for row in buffers.values():
        sums.buffer_elements += row.trainable + row.frozen
        sums.buffer_bytes += row.size
    return sums, _counted(first.values(), parameters, buffers)


def _counted(
    records: Iterable[CallRecord],
    parameters: Mapping[CallRecord | None, _Row],
    buffers: Mapping[CallRecord | None, _Row],
) -> dict[CallRecord, tuple[ParameterCount, BufferCount]]:
    """Return what rows show; equal ones share it, as layers of a stack have as many parameters each."""
    known: dict[Any, tuple[ParameterCount, BufferCount]] = {}
    found: dict[CallRecord, tuple[ParameterCount, BufferCount]] = {}
    for record in records:
        own, kept = parameters.get(record), buffers.get(record)
        key = (None if own is None else own.key(), None if kept is None else kept.key())
        if (counts := known.get(key)) is None:
            counts = known[key] = (
                _NO_PARAMETERS
                if own is None
                else ParameterCount(own.trainable, own.frozen, own.size, bool(own.shared)),
                _NO_BUFFERS
                if kept is None
                else BufferCount(kept.trainable + kept.frozen, kept.size, bool(kept.shared)),
            )
        found[record] = counts
    return found


_NO_PARAMETERS: Final = ParameterCount()
_NO_BUFFERS: Final = BufferCount()


def _owners(places: Iterable[ModulePlace], first: dict[str, CallRecord]) -> list[tuple[CallRecord | None, ModulePlace]]:
    """Return every module with the call whose row has its tensors: in the order of the calls, then what never ran."""
    idle: list[tuple[CallRecord | None, ModulePlace]] = []
    ran: dict[CallRecord, list[ModulePlace]] = {record: [] for record in first.values()}
    for place in places:
        path = place.path
        if path in first:
            ran[first[path]].append(place)
            continue
        while path and path not in first:
            path = path.rpartition(".")[0]
        idle.append((first.get(path), place))
    return [*((record, place) for record, own in ran.items() for place in own), *idle]


def _count(
    registry: str, owners: Iterable[tuple[CallRecord | None, ModulePlace]], seen: _Extents, kinds: set[Any]
) -> tuple[dict[CallRecord | None, _Row], bool]:
    """Count the tensors that modules have in one registry, `"_parameters"` or `"_buffers"`.

    Returns:
        What each call reaches first, and whether a tensor has no size yet.

    """
    rows: dict[CallRecord | None, _Row] = {}
    lazy = False
    for record, place in owners:
        tensors = own_tensors(place.module, registry)
        if not tensors:
            continue
        row = rows.get(record)
        if row is None:
            row = rows[record] = _Row()
        shared = False
        before = row.size
        for tensor in tensors:
            if type(tensor) is not Parameter and is_lazy(tensor):
                lazy = True
                continue
            count, item = tensor.numel(), tensor.element_size()
            kinds.add((tensor.device, tensor.dtype))
            new = seen.add(tensor, count, item)
            shared |= new < count
            row.size += new * item
            if tensor.requires_grad:
                row.trainable += new
            else:
                row.frozen += new
        if row.shared is None and (shared or row.size > before):
            row.shared = shared
    return rows, lazy
