"""What is known about operators, and what a call of one costs.

Formulas run once per distinct (operator, shapes) signature; after that an operator costs one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import torch

from torchscan.contract.operators import OperatorCall, OperatorFormula, OperatorKind, TensorSpec

if TYPE_CHECKING:
    from torchscan.plugins.records import OfferedFormula

__all__ = ["OperatorBook", "OperatorCost", "OperatorInfo", "checked_mapping"]

FlopFormula = Callable[..., Any]


@attrs.define(eq=False)
class OperatorInfo:
    """What is known of one overload."""

    name: str  # the packet, "aten.mm"
    overload: str
    kind: OperatorKind
    reason: str | None  # why it is ignored
    flops: FlopFormula | None  # called as flops(*args, out_val=out, **kwargs)
    formula: OperatorFormula | None
    known_gap: str | None
    writes: tuple[tuple[int, str], ...]  # positions and names of arguments written in place
    decompose: bool
    free: OperatorCost | None = None  # the one cost of an operator that is no work and has no formula
    func: Any = None
    run: Any = None  # calls it with the least ceremony
    special: bool = False  # needs more than running and counting
    trains: bool = False  # writes only where its sixth argument, `training`, is true
    forbidden: bool = False  # size queries of foreign tensor classes: answered by the tensor itself
    supplemental: bool = False  # `flops` is a plugin's formula, which sees shapes and no types
    dynamic: bool = False  # the size of its result is a matter of values


@attrs.define(eq=False)
class OperatorCost:
    """One distinct operator call and what it costs; counted by reference."""

    info: OperatorInfo
    flops: int | None = None  # the operator view; None when there is no formula, or it failed
    failure: str | None = None
    call: OperatorCall | None = None
    floating: bool = True
    _estimate: Mapping[str, int] | None = None
    _products: int | None = None

    def estimate(self) -> Mapping[str, int]:
        """Return MACs, module FLOPs and DMAs of one such call; what has no formula is left out."""
        if self._estimate is None:
            formula = self.info.formula
            if formula is None or formula.estimate is None or self.call is None:
                self._estimate = {}
            else:
                try:
                    self._estimate = dict(formula.estimate(self.call))
                except Exception:  # an uncovered call form: no estimate, never a guess
                    self._estimate = {}
        return self._estimate

    def products(self) -> int:
        """Return the product terms of one such call, as far as they are known."""
        if self._products is None:
            self._products = self.estimate().get("macs", 0) if self.info.kind == "contraction" else 0
        return self._products


def checked_mapping(custom_mapping: Mapping[Any, Any] | None) -> dict[Any, FlopFormula]:
    """Check the caller's operator formulas before anything runs.

    Args:
        custom_mapping: operator packet (`torch.ops.aten.mm`) to a formula in PyTorch's shape contract.

    Raises:
        TypeError: a key is no operator packet, or a value is no callable; the message names the key.

    """
    if custom_mapping is None:
        return {}
    if not isinstance(custom_mapping, Mapping):
        raise TypeError(
            f"custom_mapping must map operator packets to formulas, got {type(custom_mapping).__name__}; "
            "write {torch.ops.aten.mm: formula}"
        )
    from torch.utils.flop_counter import shape_wrapper

    found: dict[Any, FlopFormula] = {}
    for key, formula in custom_mapping.items():
        if not isinstance(key, torch._ops.OpOverloadPacket):
            raise TypeError(
                f"custom_mapping key {key!r} must be an operator packet such as torch.ops.aten.mm, "
                "not an overload or a name"
            )
        if not callable(formula):
            raise TypeError(f"custom_mapping[{key}] must be a callable, got {type(formula).__name__}")
        found[key] = formula if getattr(formula, "_get_raw", False) else shape_wrapper(formula)
    return found


class OperatorBook:
    """Everything known about operators for one scan: caller's formulas, PyTorch's registry, plugins' offers."""

    def __init__(self, offered: Iterable[OfferedFormula] = (), custom_mapping: Mapping[Any, Any] | None = None) -> None:
        self._custom = checked_mapping(custom_mapping)
        self._offered = {offer.formula.operator: offer.formula for offer in reversed(tuple(offered))}
        self.infos: dict[int, OperatorInfo] = {}
        self._costs: dict[Any, OperatorCost] = {}
        self._unseen: dict[int, OperatorCost] = {}

    @property
    def full(self) -> bool:
        """Whether the book has met so many signatures that a new one should be begun."""
        return len(self._costs) > 50_000

    def info(self, func: Any) -> OperatorInfo:
        """Return what is known of `func`, an overload or a higher-order operator."""
        info = self.infos.get(id(func))
        if info is None:
            info = self._describe(func)
            info.func = func
            info.run = func._op if type(func) is torch._ops.OpOverload else func
            info.special = info.forbidden or info.decompose or bool(info.writes)
            if info.kind == "ignored" and info.flops is None and info.name not in _TELLING:
                info.free = OperatorCost(info)
            self.infos[id(func)] = info
        return info

    def _describe(self, func: Any) -> OperatorInfo:
        if not isinstance(func, torch._ops.OpOverload):  # higher-order: its body is out of sight
            return OperatorInfo(f"higher_order.{func}", "", "contraction", None, None, None, None, (), False)
        from torch.utils.flop_counter import flop_registry

        packet = func._overloadpacket
        name = f"{func.namespace}.{func._opname}"
        formula = self._offered.get(name)
        flops = self._custom.get(packet)
        known_gap = None
        supplemental = False
        if flops is None:
            flops = flop_registry.get(packet)
            known_gap = formula.known_gap if formula is not None else None
            if flops is None and formula is not None and formula.flops is not None:
                from torch.utils.flop_counter import shape_wrapper

                flops = shape_wrapper(formula.flops)
                supplemental = True
        kind, reason = self._classify(func, formula, flops)
        arguments = func._schema.arguments
        writes = tuple(
            (i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        trains = func._opname in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
        if trains:  # update the running statistics although their schema does not say so
            writes = ((3, "running_mean"), (4, "running_var"))
        decompose = flops is None and formula is None and kind != "ignored" and func._can_decompose()
        return OperatorInfo(
            name,
            func._overloadname,
            kind,
            reason,
            flops,
            formula,
            known_gap,
            writes,
            decompose,
            trains=trains,
            forbidden=name in _SIZE_QUERIES,
            supplemental=supplemental,
            dynamic=torch.Tag.dynamic_output_shape in func.tags or not _is_own(func),
        )

    def _classify(
        self, func: Any, formula: OperatorFormula | None, flops: FlopFormula | None
    ) -> tuple[OperatorKind, str | None]:
        if formula is not None:
            return formula.kind, formula.reason
        if flops is not None:
            return "contraction", None
        schema = func._schema
        if all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns) and schema.returns:
            return "ignored", "Metadata-only tensor view."
        # Somebody else's operator may answer with a number that it took a contraction to compute.
        if not any(_holds_tensor(r.type) for r in schema.returns) and not schema.is_mutable and _is_own(func):
            return "ignored", "Returns no tensor."
        if torch.Tag.pointwise in func.tags:
            return "arithmetic", None
        # Nothing is known of it: it may hide a contraction, so it makes every count incomplete.
        return "contraction", None

    def cost(self, info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any] | None, out: Any) -> OperatorCost:
        """Return the cost of this call, from the cache when its signature was seen before."""
        key: tuple[Any, ...] | None
        try:
            # The usual arguments inline: this runs for every operator.
            parts: list[Any] = [id(info)]
            for value in args:
                if isinstance(value, torch.Tensor):
                    parts += (value.shape, value.dtype, value.layout)
                elif isinstance(value, (list, tuple)):
                    parts.append(_signature(value))
                else:
                    parts.append(value)
            if kwargs:
                parts.append(_signature(kwargs.items()))
            if info.dynamic:
                parts.append(_signature((out,)))
            key = tuple(parts)
            found = self._costs.get(key)
        except Exception:  # nested tensors name no shape
            key, found = None, None
        if found is None:
            found = self._measure(info, args, kwargs or {}, out)
            if key is not None:
                self._costs[key] = found
        return found

    def unseen(self, info: OperatorInfo) -> OperatorCost:
        """Return the cost of an operator that a tensor class answers by itself: it may run anything, out of sight."""
        found = self._unseen.get(id(info))
        if found is None:
            unknown = OperatorInfo(info.name, info.overload, "contraction", None, None, None, None, (), False)
            found = self._unseen[id(info)] = OperatorCost(unknown)
        return found

    def _measure(self, info: OperatorInfo, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> OperatorCost:
        cost = OperatorCost(info)
        try:
            cost.call = OperatorCall(
                info.name, info.overload, _specs(args), {k: _specs(v) for k, v in kwargs.items()}, _specs(out)
            )
            cost.floating = _floating(cost.call)
        except _SparseOperand as error:
            # Formulas describe dense tensors; a dense figure would be neither the count nor a lower bound.
            cost.failure = str(error)
            return cost
        except Exception as error:
            cost.failure = f"{type(error).__name__}: {error}"
        if info.flops is not None:
            try:
                flops = info.flops(*args, **kwargs, out_val=out)
                cost.flops = int(flops)
                if info.supplemental and info.kind == "arithmetic" and not cost.floating:
                    cost.flops = 0  # integers and truth values
            except Exception as error:
                cost.failure = f"{type(error).__name__}: {error}"
        return cost


_SIZE_QUERIES = frozenset(
    (
        "aten.sym_is_contiguous",
        "aten.is_contiguous",
        "aten.is_strides_like_format",
        "aten.is_non_overlapping_and_dense",
        "aten.size",
        "aten.sym_size",
        "aten.stride",
        "aten.sym_stride",
        "aten.storage_offset",
        "aten.sym_storage_offset",
        "aten.numel",
        "aten.sym_numel",
        "aten.dim",
        "prim.layout",
    )
)


#: No work, but their operands tell whether values left PyTorch and came back (`torchscan.engine.hidden`).
_TELLING = frozenset(("aten.detach", "aten.lift_fresh"))


def _is_own(func: Any) -> bool:
    """Say whether an operator is PyTorch's own."""
    return func.namespace in ("aten", "prim", "prims", "profiler")


def _holds_tensor(kind: Any) -> bool:
    return "Tensor" in str(kind)


def _signature(values: Any) -> tuple[Any, ...]:
    parts: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            parts += (value.shape, value.dtype, value.layout)
        elif isinstance(value, (list, tuple)):
            parts.append(_signature(value))
        else:
            parts.append(value)  # scalars too: an exponent, a norm's order or a factor of zero decides the cost
    return tuple(parts)


class _SparseOperand(ValueError):
    """An operand whose elements are not all there."""


def _specs(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided and not value.is_nested:
            raise _SparseOperand(f"a tensor of layout {value.layout}")
        shape = tuple(value.shape)
        if not all(type(size) is int for size in shape):
            raise ValueError("a tensor without one plain shape")
        return TensorSpec(shape, value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(_specs(item) for item in value)
    return value


def _floating(call: OperatorCall) -> bool:
    """Whether any operand or result is floating or complex; integer and boolean arithmetic is no FLOP."""
    stack = [call.args, tuple(call.kwargs.values()), call.output]
    seen = False
    while stack:
        value = stack.pop()
        if isinstance(value, TensorSpec):
            seen = True
            if value.dtype.is_floating_point or value.dtype.is_complex:
                return True
        elif isinstance(value, tuple):
            stack.extend(value)
    return not seen
