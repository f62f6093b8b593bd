"""Random small models, and an independent count of their product terms."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from torchscan.testing import unfused

WIDTH = 4


class Recipe(nn.Module):
    """A body that follows a list of steps; each step keeps the shape (batch, tokens, WIDTH)."""

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.steps = [name for name, _ in steps]
        self.parts = nn.ModuleList(_part(name, detail) for name, detail in steps)
        self.free = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name, part in zip(self.steps, self.parts, strict=True):
            x = _run(name, part, x, self.free)
        return x


MODULE_STEPS = ("linear", "norm", "attention", "encoder", "convolution", "embedding", "group", "recurrent")
BODY_STEPS = (
    "gram",
    "einsum",
    "outer einsum",
    "functional attention",
    "causal attention",
    "broadcast matmul",
    "functional linear",
    "matrix vector",
    "parameter matmul",
    "functional norm",
)
FREE_STEPS = ("residual", "scale", "softmax", "view", "gelu")
NESTING = ("residual of", "branch of", "repeat of", "sequence of")


def _part(name: str, detail: Any) -> nn.Module:
    if name == "linear":
        return nn.Linear(WIDTH, WIDTH, bias=bool(detail))
    if name == "norm":
        return nn.LayerNorm(WIDTH, elementwise_affine=bool(detail))
    if name == "group":
        return nn.GroupNorm(2, WIDTH, affine=bool(detail))
    if name == "attention":
        return nn.MultiheadAttention(WIDTH, 2, bias=bool(detail), batch_first=True)
    if name == "encoder":
        return nn.TransformerEncoderLayer(WIDTH, 2, 6, batch_first=True, norm_first=bool(detail))
    if name == "convolution":
        return nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=2 if detail else 1)
    if name == "recurrent":
        return nn.GRU(WIDTH, WIDTH, batch_first=True)
    if name == "embedding":
        return nn.Embedding(5, WIDTH)
    if name in NESTING:
        inner = [Recipe(steps) for steps in detail]
        return nn.Sequential(*inner) if name == "sequence of" else nn.ModuleList(inner)
    return nn.Identity()


def _run(name: str, part: Any, x: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
    if name in ("linear", "norm", "encoder", "sequence of"):
        return part(x)
    if name == "attention":
        return part(x, x, x, need_weights=False)[0]
    if name in ("convolution", "group"):
        return part(x.transpose(1, 2)).transpose(1, 2)
    if name == "recurrent":
        return part(x)[0]
    if name == "embedding":
        return x + part(torch.arange(x.shape[1]) % 5)
    if name == "residual of":
        return x + part[0](x)
    if name == "branch of":
        return part[0](x) + part[-1](x)
    if name == "repeat of":
        return part[0](part[0](x))
    if name == "gram":
        return x @ x.transpose(1, 2) @ x
    if name == "einsum":
        return torch.einsum("bte,ef->btf", x, free)
    if name == "outer einsum":
        return torch.einsum("bse,bte,btf->bsf", x, x, x)
    if name in ("functional attention", "causal attention"):
        heads = x.unflatten(-1, (2, WIDTH // 2)).transpose(1, 2)
        out = F.scaled_dot_product_attention(heads, heads, heads, is_causal=name == "causal attention")
        return out.transpose(1, 2).flatten(2)
    if name == "broadcast matmul":
        return torch.matmul(free.expand(3, 1, WIDTH, WIDTH), x.transpose(1, 2))[0].transpose(1, 2)
    if name == "functional linear":
        return F.linear(x, free)
    if name == "matrix vector":
        return x + torch.matmul(x, free[0])[..., None]
    if name == "parameter matmul":
        return x.flatten(0, 1).mm(free).view_as(x)
    if name == "functional norm":
        return F.layer_norm(x, (WIDTH,))
    if name == "residual":
        return x + x
    if name == "scale":
        return x * 0.5
    if name == "softmax":
        return x.softmax(-1)
    if name == "view":
        return x.flip(1).contiguous()
    return F.gelu(x)


def recipes(depth: int = 2) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Generate lists of steps, nested to a depth."""
    plain = st.tuples(st.sampled_from(MODULE_STEPS + BODY_STEPS + FREE_STEPS), st.booleans())
    if depth == 0:
        return st.lists(plain, min_size=1, max_size=3)
    inner = st.lists(recipes(depth - 1), min_size=1, max_size=2)
    return st.lists(plain | st.tuples(st.sampled_from(NESTING), inner), min_size=1, max_size=4)


class Products(TorchDispatchMode):
    """Counts product terms of every contraction that is dispatched, and the terms of norms, from shapes alone."""

    def __init__(self) -> None:
        super().__init__()
        self.macs = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._opname
        if name == "mm":
            self.macs += args[0].shape[0] * args[0].shape[1] * args[1].shape[1]
        elif name == "addmm":
            self.macs += args[1].shape[0] * args[1].shape[1] * args[2].shape[1]
        elif name == "bmm":
            self.macs += args[0].shape[0] * args[0].shape[1] * args[0].shape[2] * args[1].shape[2]
        elif name == "baddbmm":
            self.macs += args[1].shape[0] * args[1].shape[1] * args[1].shape[2] * args[2].shape[2]
        elif name in ("mv", "dot"):
            self.macs += args[0].numel()
        elif name == "convolution":
            self.macs += out.numel() * args[1][0].numel()
        elif name == "native_layer_norm":
            # a square per element, and a product where there is a weight
            self.macs += args[0].numel() * (2 if args[2] is not None else 1)
        elif name == "native_group_norm":
            self.macs += args[0].numel() * (2 if args[1] is not None else 1)
        elif name in ("gru", "lstm", "_scaled_dot_product_flash_attention_for_cpu", "_native_multi_head_attention"):
            raise AssertionError(f"{name} hides its products")
        return out


def product_terms(module: nn.Module, *args: Any) -> int:
    """Count the product terms of one evaluation call on the unfused path."""
    module.eval()
    with torch.no_grad(), unfused(), Products() as counted:
        module(*args)
    return counted.macs
