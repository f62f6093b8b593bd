"""Checks of the tensors of a call: inputs, masks and parameters. Metadata only; no value is read."""

from __future__ import annotations

from typing import Any, Final

import attrs
import torch
from torch import nn

from torchscan_native.transformer.boundaries import Outside

__all__ = ["Masks", "check_batched", "check_tensor", "has_parameter", "parameter_shape", "read_masks", "read_option"]

_PLAIN: Final = frozenset({torch.Tensor, nn.Parameter})
_STRIDED: Final = torch.strided
_MISSING: Final = object()


def _kind_problem(tensor: Any) -> tuple[str, str] | None:
    """Return why a value of an unusual type is outside, or `None` for a fake tensor."""
    kind = type(tensor)
    if not isinstance(tensor, torch.Tensor):
        return "argument_type", f"it is a {kind.__name__} and not a tensor"
    if tensor.is_nested:
        return "nested_tensor", "it is nested"
    if kind.__name__ == "FakeTensor" and kind.__module__ == "torch._subclasses.fake_tensor":
        return None
    return "tensor_subclass", f"it is a {kind.__name__}"


def check_dense(tensor: Any, name: str) -> None:
    """Check that `tensor` is a plain (or fake, or meta) dense strided tensor.

    Raises:
        Outside: it is not.

    """
    if type(tensor) not in _PLAIN and (problem := _kind_problem(tensor)) is not None:
        raise Outside(*problem, name)
    if tensor.is_nested:
        raise Outside("nested_tensor", "it is nested", name)
    if tensor.layout is not _STRIDED:
        raise Outside("sparse_tensor", f"its layout is {tensor.layout}", name)


def check_tensor(tensor: Any, name: str) -> None:
    """Check that `tensor` is dense, strided, real and floating-point.

    Raises:
        Outside: it is not.

    """
    check_dense(tensor, name)
    dtype = tensor.dtype
    if not dtype.is_floating_point:
        raise Outside("complex_tensor" if dtype.is_complex else "integer_tensor", f"its dtype is {dtype}", name)


def check_batched(tensor: Any, name: str, batch_first: bool) -> tuple[int, int, int]:
    """Check one input.

    Args:
        tensor: the input.
        name: its argument name.
        batch_first: its layout.

    Returns:
        Batch, tokens and width.

    Raises:
        Outside: it is no dense real floating batched tensor with at least one batch entry and token.

    """
    check_tensor(tensor, name)
    shape = tensor.shape
    if len(shape) != 3:
        raise Outside("unbatched_input", f"it has {len(shape)} dimensions", name)
    batch, tokens, width = shape
    if not batch_first:
        batch, tokens = tokens, batch
    if not (batch and tokens):
        raise Outside("empty_input", f"its shape is {tuple(shape)}", name)
    return batch, tokens, width


def parameter_shape(parameters: dict[str, Any], name: str) -> tuple[int, ...] | None:
    """Return the shape of a registered parameter, `None` when it is registered as absent.

    Raises:
        Outside: it is not registered, or no dense real floating tensor.

    """
    tensor = parameters.get(name, _MISSING)
    if tensor is None:
        return None
    if tensor is _MISSING:
        raise Outside("reparametrized", "it is not a registered parameter", name)
    check_tensor(tensor, name)
    return tensor.shape  # type: ignore[no-any-return]


def has_parameter(parameters: dict[str, Any], name: str, shape: tuple[int, ...], reason: str) -> int:
    """Return 1 when the parameter is present with exactly `shape`, 0 when it is registered as absent.

    A broadcast bias runs in PyTorch too, but is another stage than the formula's.

    Raises:
        Outside: anything else; `reason` is used for another shape.

    """
    tensor = parameters.get(name, _MISSING)
    if tensor is None:
        return 0
    if type(tensor) is nn.Parameter and tensor.layout is _STRIDED:
        # The common case, spelt out: a deep stack has a thousand of them.
        try:
            if tensor.shape == shape and tensor.dtype.is_floating_point:
                return 1
        except RuntimeError:  # a nested tensor has no shape
            pass
    found = parameter_shape(parameters, name)
    if found != shape:
        raise Outside(reason, f"its shape is {tuple(found or ())} and not {shape}", name)
    return 1


@attrs.frozen
class Masks:
    """The explicit masks of one attention.

    Args:
        elements: stored elements of each, attention mask before key padding mask.
        rows: leading size of a per-head attention mask, which must be B·H; `None` for a 2-D one or none.
        name: argument name of the attention mask; a layer and its stack call the same masks by other names.

    """

    elements: tuple[int, ...]
    rows: int | None
    name: str = attrs.field(eq=False)

    def check_heads(self, batch: int, num_heads: int) -> None:
        """Check a per-head mask against the head count.

        Raises:
            Outside: its leading size is not B·H.

        """
        if self.rows is not None and self.rows != batch * num_heads:
            raise Outside("mask_shape", f"its leading size is {self.rows} and not {batch} * {num_heads}", self.name)


NO_MASKS: Final = Masks((), None, "")


def _mask_elements(mask: Any, name: str) -> int:
    check_dense(mask, name)
    dtype = mask.dtype
    if dtype is not torch.bool and not dtype.is_floating_point:
        raise Outside("mask_dtype", f"its dtype is {dtype}", name)
    return mask.numel()  # type: ignore[no-any-return]


def read_masks(
    arguments: Any, mask_name: str, padding_name: str, hint_name: str, batch: int, target: int, source: int
) -> Masks:
    """Check the masks and the causal hint of one attention.

    Args:
        arguments: the bound arguments of the call.
        mask_name: the name of the attention mask, of shape (T, S) or (B·H, T, S).
        padding_name: the name of the key padding mask, of shape (B, S).
        hint_name: the name of the causal hint.
        batch: B.
        target: T.
        source: S.

    Raises:
        Outside: a mask has another type or shape, or a hint stands alone.

    """
    mask = arguments[mask_name]
    padding = arguments[padding_name]
    hint = arguments[hint_name]
    if hint is True:
        if mask is None:
            raise Outside("causal_hint_without_mask", f"{hint_name}=True", mask_name)
    elif hint is not None and hint is not False:
        raise Outside("argument_type", f"it is a {type(hint).__name__} and not a bool", hint_name)
    if mask is None and padding is None:
        return NO_MASKS
    elements: tuple[int, ...] = ()
    rows = None
    if mask is not None:
        elements = (_mask_elements(mask, mask_name),)
        shape = mask.shape
        if len(shape) == 3:
            rows = shape[0]
        if len(shape) not in (2, 3) or shape[-2] != target or shape[-1] != source:
            raise Outside("mask_shape", f"its shape is {tuple(shape)} with {target} by {source} tokens", mask_name)
    if padding is not None:
        elements = (*elements, _mask_elements(padding, padding_name))
        if padding.shape != (batch, source):
            raise Outside("mask_shape", f"its shape is {tuple(padding.shape)} and not {(batch, source)}", padding_name)
    return Masks(elements, rows, mask_name)


def read_option(arguments: Any, name: str) -> bool:
    """Return a boolean option.

    Raises:
        Outside: it is no `bool`.

    """
    value = arguments[name]
    if value is not True and value is not False:
        raise Outside("argument_type", f"it is a {type(value).__name__} and not a bool", name)
    return bool(value)
