"""One call of a module, as a handler sees it, and counters that know nothing of the handlers."""

from __future__ import annotations

import itertools
from math import prod

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torchscan_einops.plugin import torchscan_register_handlers

import torchscan

HANDLERS = {offer.target.rpartition(".")[2]: offer.handler for offer in torchscan_register_handlers()}
COUNTS = ("module_flops", "macs", "dmas")


def observe(module, *args, requested=None, **kwargs):
    """Run a module and return its call."""
    with torch.no_grad():
        output = module(*args, **kwargs)
    extra = {} if requested is None else {"requested": frozenset(requested)}
    return torchscan.ModuleCall(module, args, kwargs, output, **extra)


def estimate(module, *args, **options):
    """Return the estimates of one call."""
    return HANDLERS[type(module).__mro__[0].__name__](observe(module, *args, **options))


def counts(module, *args):
    """Return (FLOPs, MACs, DMAs) of one call."""
    found = estimate(module, *args)
    return tuple(found[name] for name in COUNTS)


class Contractions(TorchDispatchMode):
    """Count the product terms of every matrix product that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.terms = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm"):
            left, right = args[0].shape, args[1].shape
            self.terms += prod(left) * right[-1]
        elif name in ("addmm", "baddbmm"):
            left, right = args[1].shape, args[2].shape
            self.terms += prod(left) * right[-1]
        elif "conv" in name or "dot" in name or name == "mv":
            raise AssertionError(f"an unexpected contraction: {name}")
        return func(*args, **(kwargs or {}))


def einsum_by_hand(axes_left, axes_weight, axes_out, sizes):
    """Walk an einsum one scalar at a time: (additions, products), lone input axes summed first."""
    gone = [axis for axis in axes_left if axis not in axes_out]
    lone = [axis for axis in gone if axis not in axes_weight]
    shared = [axis for axis in gone if axis in axes_weight]
    summed = [axis for axis in axes_left if axis not in lone]
    additions = products = 0
    for _ in itertools.product(*(range(sizes[axis]) for axis in summed)):
        for index, _ in enumerate(itertools.product(*(range(sizes[axis]) for axis in lone))):
            additions += index > 0
    for _ in itertools.product(*(range(sizes[axis]) for axis in axes_out)):
        for index, _ in enumerate(itertools.product(*(range(sizes[axis]) for axis in shared))):
            products += 1
            additions += index > 0
    return additions, products
