"""What the dispatcher sees on the eager path, counted with plain shape arithmetic and nothing of the pack.

Every operator is either in a table here or an error, so that nothing is overlooked in silence.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from unittest import mock

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

#: Operations for each element of the result (F1, F5, and the expansions of the activations).
_ELEMENTWISE = {
    **dict.fromkeys(("add", "add_", "sub", "rsub", "mul", "div", "neg", "exp", "sqrt", "rsqrt", "erf", "relu"), 1),
    **dict.fromkeys(("cos", "sin", "clamp_max", "clamp_min"), 1),
    "clamp": 2,
    "sigmoid": 4,
    "silu": 5,
    "tanh": 6,
}
#: Views, copies, look-ups, allocation, conversion, and integer and boolean work.
_FREE = frozenset(
    (
        *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "squeeze"),
        *("split", "split_with_sizes", "reshape", "alias", "detach", "clone", "_to_copy", "copy_", "cat", "index"),
        *("embedding", "gather", "arange", "empty", "zeros", "ones", "full", "zeros_like", "full_like", "new_zeros"),
        *("new_ones", "index_copy_", "pixel_shuffle", "fill_", "scalar_tensor", "lift_fresh", "_local_scalar_dense"),
        *("unbind", "index_select"),
    )
)


class Oracle(TorchDispatchMode):
    """Count FLOPs and the product terms of contractions.

    Attributes:
        flops: floating-point operations under the conventions, norms included.
        terms: product terms of matrix products, convolutions and resampling.

    """

    def __init__(self):
        super().__init__()
        self.flops = 0
        self.terms = 0
        self.paused = False

    def _contraction(self, outputs, terms, bias=False):
        self.terms += outputs * terms
        self.flops += outputs * (2 * terms - 1) + (outputs if bias else 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self.paused:
            self._count(func.overloadpacket.__name__, args, kwargs, result)
        return result

    def _count(self, name, args, kwargs, result):
        first = result[0] if isinstance(result, tuple | list) else result
        if name in ("mm", "bmm"):
            self._contraction(first.numel(), args[0].shape[-1])
        elif name == "addmm":
            self._contraction(first.numel(), args[1].shape[-1], bias=True)
        elif name == "baddbmm":
            assert kwargs["beta"] == 0
            self._contraction(first.numel(), args[1].shape[-1])
            self.flops += first.numel()  # alpha scales the scores
        elif name == "convolution":
            self._contraction(first.numel(), prod(args[1].shape[1:]), bias=args[2] is not None)
        elif name == "upsample_bicubic2d":
            self._contraction(first.numel(), 16)
        elif name == "native_layer_norm":
            elements, rows = args[0].numel(), args[0].numel() // prod(args[1])
            self.flops += 6 * elements + 2 * rows + elements * ((args[2] is not None) + (args[3] is not None))
        elif name == "_softmax":
            elements, rows = first.numel(), first.numel() // first.shape[args[1]]
            self.flops += 5 * elements - 2 * rows
        elif name in _FREE or not first.is_floating_point():
            return
        elif name == "where":
            # a mask is made of the constants 0 and the smallest number (F7)
            assert all(isinstance(value, float) or value.dim() == 0 for value in args[1:])
        elif name == "mean":
            self.flops += args[0].numel()
        elif name == "gelu":
            self.flops += first.numel() * (14 if kwargs.get("approximate") == "tanh" else 5)
        elif name == "pow":
            self.flops += first.numel() * (int(args[1]) - 1)
        elif name in _ELEMENTWISE:
            self.flops += first.numel() * _ELEMENTWISE[name]
        else:
            raise AssertionError(f"the oracle does not know {name}")


class Norms:
    """Count the terms of norms (M2): one for each square, one for each product with a weight."""

    def __init__(self, model):
        self.terms = 0
        self._hooks = [
            module.register_forward_hook(self._count)
            for module in model.modules()
            if isinstance(module, nn.LayerNorm) or type(module).__name__.endswith(("RMSNorm", "T5LayerNorm"))
        ]

    def _count(self, module, args, output):
        self.terms += output.numel() * (1 + (module.weight is not None))

    def remove(self):
        for hook in self._hooks:
            hook.remove()


@contextmanager
def _index_arithmetic(oracle):
    """Leave out what computes position buckets: index arithmetic costs nothing (F7)."""
    from transformers.models.t5.modeling_t5 import T5Attention

    bucket = T5Attention._relative_position_bucket

    def paused(*args, **kwargs):
        oracle.paused = True
        try:
            return bucket(*args, **kwargs)
        finally:
            oracle.paused = False

    with mock.patch.object(T5Attention, "_relative_position_bucket", staticmethod(paused)):
        yield


def observe(model, **kwargs):
    """Run a model on the eager path; return (FLOPs, product terms of contractions, terms of norms)."""
    norms = Norms(model)
    oracle = Oracle()
    try:
        with torch.no_grad(), _index_arithmetic(oracle), oracle:
            model(**kwargs)
    finally:
        norms.remove()
    return oracle.flops, oracle.terms, norms.terms
