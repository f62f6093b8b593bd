"""Is this call one that the formulas describe? If not, why not."""

from __future__ import annotations

import math
import sys
from typing import Any, Final

import torch

from torchscan import Unavailable

__all__ = [
    "EMPTY_ROW",
    "NOT_MINE",
    "TRAINING",
    "Refused",
    "floating",
    "indices",
    "only",
    "parameter",
    "parameter_numel",
    "refusal",
]

Estimates = dict[str, Any]

#: Nothing to say: another tier, the children or the operator audit may.
NOT_MINE: Final[Estimates] = {}

_STRIDED: Final = torch.strided
_MISSING: Final = object()

# Types whose arithmetic is PyTorch's own. Any other subclass may do something else behind the same shape.
_PLAIN: Final[set[type]] = {torch.Tensor, torch.nn.Parameter}


def _never(tensor: object) -> bool:
    return False


# `torch.func` hides the mapped axes of a tensor: its shape is then too small.
_wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", _never)


class Refused(Exception):
    """The call is outside what the formulas describe; carries the estimates that say so."""

    def __init__(self, estimates: Estimates) -> None:
        super().__init__()
        self.estimates = estimates


def refusal(reason: str, message: str) -> Estimates:
    """Return estimates in which every metric is unavailable.

    Args:
        reason: machine-readable cause.
        message: the cause for people, with the remedy.

    """
    count = Unavailable(reason, message=message)
    # One diagnostic per count says it; three more about spatial scalars would say nothing new.
    spatial = Unavailable(reason, message=message, expected=True)
    return {
        "module_flops": count,
        "macs": count,
        "dmas": count,
        "receptive_field": spatial,
        "effective_stride": spatial,
        "effective_padding": spatial,
    }


def floating(tensor: object) -> torch.Tensor:
    """Return `tensor` if it is a plain, dense, strided, real floating-point tensor.

    Raises:
        Refused: it is not.

    """
    if (
        type(tensor) in _PLAIN
        and tensor.dtype.is_floating_point  # type: ignore[attr-defined]
        and tensor.layout is _STRIDED  # type: ignore[attr-defined]
        and not tensor.is_nested  # type: ignore[attr-defined]
        and not _wrapped(tensor)
    ):
        return tensor  # type: ignore[return-value]
    return _second_look(tensor, floats=True)


def indices(tensor: object) -> torch.Tensor:
    """Return `tensor` if it is a plain, dense, strided tensor of integers.

    Raises:
        Refused: it is not.

    """
    if (
        type(tensor) in _PLAIN
        and tensor.dtype in _INTEGERS  # type: ignore[attr-defined]
        and tensor.layout is _STRIDED  # type: ignore[attr-defined]
        and not tensor.is_nested  # type: ignore[attr-defined]
        and not _wrapped(tensor)
    ):
        return tensor  # type: ignore[return-value]
    return _second_look(tensor, floats=False)


_INTEGERS: Final = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8})


def _second_look(tensor: object, *, floats: bool) -> torch.Tensor:
    """Return a tensor that is fine after all, or refuse it with the reason."""
    if not isinstance(tensor, torch.Tensor):
        raise Refused(_NO_TENSOR)
    if tensor.is_nested:
        raise Refused(_NESTED)
    if type(tensor) not in _PLAIN:
        if not _is_fake(type(tensor)):
            raise Refused(_subclass(type(tensor)))
        _PLAIN.add(type(tensor))
        return floating(tensor) if floats else indices(tensor)
    if tensor.layout is not _STRIDED:
        raise Refused(_SPARSE)
    if tensor.dtype.is_complex:
        raise Refused(_COMPLEX)
    if tensor.is_quantized:
        raise Refused(_QUANTIZED)
    if floats and not tensor.dtype.is_floating_point:
        raise Refused(_INTEGER)
    if not floats and tensor.dtype not in _INTEGERS:
        raise Refused(_NO_INDEX)
    raise Refused(_FUNCTORCH)


def _is_fake(kind: type) -> bool:
    """A fake tensor has the shape and the type of a real one, and PyTorch's own arithmetic."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and kind is module.FakeTensor


def only(call: Any, name: str = "input") -> Any:
    """Return the first argument of a call, however it was passed."""
    return call.args[0] if call.args else call.kwargs[name]


def parameter(module: torch.nn.Module, name: str, expected: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of the parameter a module computes with, `None` where it has none.

    A parametrized parameter is computed anew whenever it is read, so it is not read here: its shape is `expected`.

    Args:
        module: the module.
        name: the parameter's name.
        expected: the shape it must have for this call, used where it is not stored.

    Raises:
        Refused: the stored tensor is no plain floating one, or nothing is stored.

    """
    stored = module._parameters.get(name, _MISSING)
    if stored is _MISSING:
        stored = _elsewhere(module, name)
        if stored is _MISSING:
            return expected
    return None if stored is None else floating(stored).shape


def parameter_numel(module: torch.nn.Module, name: str, expected: tuple[int, ...]) -> int | None:
    """Return how many elements the parameter has, `None` where there is none; arguments and errors as `parameter`."""
    shape = parameter(module, name, expected)
    return None if shape is None else math.prod(shape)


def _elsewhere(module: torch.nn.Module, name: str) -> object:
    """Return a tensor that is no registered parameter; `_MISSING` when it is parametrized."""
    for store in (module._buffers, module.__dict__):
        if name in store:
            return store[name]
    parametrizations = module._modules.get("parametrizations")
    if isinstance(parametrizations, torch.nn.ModuleDict) and name in parametrizations:
        steps: Any = parametrizations[name]
        # Unless it was registered as unsafe, a parametrization keeps shape and type; PyTorch's own do in any case.
        if not steps.unsafe or all(type(step).__module__ == _OWN_PARAMETRIZATIONS for step in steps):
            return _MISSING
        raise Refused(_UNSAFE)
    raise Refused(refusal("parameter_not_stored", f"the module stores no {name!r}; register it as a parameter"))


def _subclass(kind: type) -> Estimates:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return refusal(
        "tensor_subclass",
        f"a tensor of type {name} may compute anything; pass plain tensors, or supply the count with custom_modules",
    )


_OWN_PARAMETRIZATIONS: Final = "torch.nn.utils.parametrizations"
_UNSAFE = refusal(
    "unsafe_parametrization",
    "a parametrization registered with unsafe=True may change the parameter's shape; register it without",
)
_NO_TENSOR = refusal("not_a_tensor", "the formula describes calls with tensors; supply the count with custom_modules")
_NESTED = refusal("nested_tensor", "a nested tensor has no single shape; pass a padded dense tensor")
_SPARSE = refusal("sparse_tensor", "the formula describes dense strided tensors; call to_dense() first")
_COMPLEX = refusal("complex_tensor", "complex arithmetic has no built-in rule; supply the count with custom_modules")
_QUANTIZED = refusal("quantized_tensor", "quantized arithmetic has no built-in rule; count the floating-point model")
_INTEGER = refusal("integer_tensor", "the formula describes floating-point inputs; integer arithmetic is not counted")
_NO_INDEX = refusal("not_an_index", "the formula describes lookups by a tensor of integers")
_FUNCTORCH = refusal("functorch_tensor", "torch.func hides the mapped axes of this tensor; scan the plain call")

EMPTY_ROW = refusal("empty_row", "a row without elements has no statistics and no softmax")
TRAINING = refusal("training_mode", "the formula describes evaluation; call module.eval()")
