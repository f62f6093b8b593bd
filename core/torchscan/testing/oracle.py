"""An independent witness: the contractions that the dispatcher executes, one MAC per product term.

It knows the shapes of a handful of operators and nothing of any formula.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Contractions", "OracleError", "count_contractions", "unfused"]


class OracleError(RuntimeError):
    """The dispatcher executed something whose product terms cannot be seen from its shapes."""


@attrs.frozen
class Contractions:
    """MACs that the dispatcher executed.

    Attributes:
        own: those in the module's own body, outside every child call.
        total: those of the whole call.
        operators: the number of calls of every operator.

    """

    own: int
    total: int
    operators: dict[str, int]


def _product(left: torch.Tensor, right: torch.Tensor) -> int:
    # (..., m, k) @ (..., k, n): every element of the left meets n columns.
    return left.numel() * (right.shape[-1] if right.dim() > 1 else 1)


def _convolution(source: torch.Tensor, weight: torch.Tensor, transposed: bool, out: torch.Tensor) -> int:
    per_element = weight[0].numel()  # channels of one group times the window
    return (source.numel() if transposed else out.numel()) * per_element


_CONTRACTIONS: Final[dict[str, Callable[[Any, Any], int]]] = {
    "aten.mm": lambda args, out: _product(args[0], args[1]),
    "aten.bmm": lambda args, out: _product(args[0], args[1]),
    "aten.mv": lambda args, out: _product(args[0], args[1]),
    "aten.dot": lambda args, out: args[0].numel(),
    "aten.vdot": lambda args, out: args[0].numel(),
    "aten.addmm": lambda args, out: _product(args[1], args[2]),
    "aten.addbmm": lambda args, out: _product(args[1], args[2]),
    "aten.baddbmm": lambda args, out: _product(args[1], args[2]),
    "aten.addmv": lambda args, out: _product(args[1], args[2]),
    "aten.linear": lambda args, out: args[0].numel() * args[1].shape[0],
    "aten.convolution": lambda args, out: _convolution(args[0], args[1], args[6], out),
}

#: Parts of the names of operators that contract inside, out of sight.
_OPAQUE: Final = (
    "attention", "transformer", "lstm", "gru", "rnn", "mkldnn", "_trilinear", "_int_mm", "_scaled_mm", "einsum",
    "cdist", "fft", "cholesky", "linalg_", "grid_sampler", "upsample_", "quantized", "_fused", "embedding_bag",
    "sparse", "nested", "conv",
)  # fmt: skip


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depth = 0
        self.macs: Counter[bool] = Counter()
        self.operators: Counter[str] = Counter()
        self.opaque: str | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket)
        self.operators[name] += 1
        if (count := _CONTRACTIONS.get(name)) is not None:
            self.macs[self.depth == 0] += count(args, out)
        elif any(part in name for part in _OPAQUE):
            self.opaque = self.opaque or name
        return out


def _math_attention() -> contextlib.AbstractContextManager[Any]:
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:  # PyTorch before 2.3
        return torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False)
    return sdpa_kernel(SDPBackend.MATH)


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Switch PyTorch's fused attention and its Transformer fast path off."""
    mha: Any = getattr(torch.backends, "mha", None)
    before = mha.get_fastpath_enabled() if hasattr(mha, "get_fastpath_enabled") else None
    try:
        if before is not None:
            mha.set_fastpath_enabled(False)
        with _math_attention():
            yield
    finally:
        if before is not None:
            mha.set_fastpath_enabled(before)


def count_contractions(module: nn.Module, *args: Any, **kwargs: Any) -> Contractions:
    """Run one call without gradients on the unfused path and count the contractions it dispatches.

    Args:
        module: the module, in the mode it should run in.
        args: the positional arguments.
        kwargs: the keyword arguments.

    Returns:
        The product terms, those of the module's own body apart.

    Raises:
        OracleError: an operator may contract in a way its shapes do not show.

    """
    counter = _Counter()
    handles = []

    def enter(child: nn.Module, inputs: Any) -> None:
        counter.depth += 1

    def leave(child: nn.Module, inputs: Any, output: Any) -> None:
        counter.depth -= 1

    # `modules` yields each instance once, the module itself first.
    for child in list(module.modules())[1:]:
        handles.append(child.register_forward_pre_hook(enter))
        handles.append(child.register_forward_hook(leave))
    try:
        with torch.no_grad(), unfused(), counter:
            module(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    if counter.opaque is not None:
        raise OracleError(f"the call dispatched {counter.opaque}, whose product terms are out of sight")
    return Contractions(counter.macs[True], counter.macs[True] + counter.macs[False], dict(counter.operators))
