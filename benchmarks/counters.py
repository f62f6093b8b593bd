"""Ours and the peers, each as a function of one call that returns what it counted, in multiply-accumulates."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import inspect
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.cases import Call

Count = Callable[[Call], float | None]


# -- ours --------------------------------------------------------------------------------------------------------------


def ours(**options: Any) -> Count:
    """Return a scan; what a total is not known of counts as nothing."""

    def count(call: Call) -> float | None:
        import torchscan

        report = torchscan.scan(call.model, args=call.args, kwargs=call.kwargs, **options)
        return report.totals.macs.known_value

    return count


@functools.cache
def scanner() -> Any:
    """Return the scanner of a larger tool, which makes one and keeps it."""
    import torchscan

    return torchscan.Scanner()


def observed(call: Call) -> float | None:
    with scanner().observe(call.model, metrics={"macs"}, functional="skip") as observation:
        call()
    return observation.report().totals.macs.known_value


def hooks_that_do_nothing(call: Call) -> None:
    """The floor of everything that puts hooks on modules."""
    handles = [module.register_forward_hook(lambda *_: None) for module in call.model.modules()]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()


OURS: dict[str, Count] = {
    "torchscan": ours(),
    "torchscan macs": ours(metrics={"macs"}, functional="skip"),
    "torchscan observe": observed,
    "torchscan fake": ours(execution="fake"),
    "hooks that do nothing": hooks_that_do_nothing,
}


def legacy(call: Call) -> float | None:
    """TorchScan 0.2.0, in an environment of its own: it has the same import name."""
    import torchscan

    report = torchscan.crawl_module(call.model, args=call.args, kwargs=call.kwargs)
    found: float | None = report["totals"]["macs"]["known_value"]
    return found


LEGACY: dict[str, Count] = {"torchscan 0.2.0": legacy}


# -- peers -------------------------------------------------------------------------------------------------------------


def quiet(count: Count) -> Count:
    """Let a peer print nothing, warn of nothing (which costs time on a terminal) and build no graph."""

    @functools.wraps(count)
    def quietly(call: Call) -> float | None:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            with torch.no_grad():
                return count(call)

    return quietly


def bound(call: Call) -> dict[str, Any]:
    """Return the arguments of the call by name."""
    return inspect.signature(call.model.forward).bind(*call.args, **call.kwargs).arguments


def in_order(call: Call) -> tuple[Any, ...]:
    """Return the arguments of the call by position, as far as they go; a tracer takes no other."""
    if not call.kwargs:
        return call.args
    names = list(inspect.signature(call.model.forward).parameters)
    given = bound(call)
    last = max(names.index(name) for name in given)
    return tuple(given.get(name) for name in names[: last + 1])


class Tensors(nn.Module):
    """A model whose output is tensors alone, as tracing needs it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Any:
        out = self.model(*args)
        return out if isinstance(out, torch.Tensor) else next(iter(out.values())) if hasattr(out, "values") else out[0]


@quiet
def ptflops(call: Call) -> float:
    from ptflops import get_model_complexity_info

    alone = call.args[0] if len(call.args) == 1 and not call.kwargs else None
    macs, _ = get_model_complexity_info(
        call.model,
        (1,),
        input_constructor=lambda _: bound(call) if alone is None else alone,
        print_per_layer_stat=False,
        as_strings=False,
        verbose=False,
        backend="pytorch",
    )
    # What it sees by position it counts per entry of the batch.
    return float(macs) * (1 if alone is None else alone.shape[0])


@quiet
def thop(call: Call) -> float:
    from thop import profile

    return float(profile(call.model, inputs=in_order(call), verbose=False)[0])


@quiet
def torchprofile(call: Call) -> float:
    from torchprofile import profile_macs

    return float(profile_macs(Tensors(call.model), in_order(call)))


@quiet
def fvcore(call: Call) -> float:
    from fvcore.nn import FlopCountAnalysis

    logging.getLogger("fvcore.nn.jit_analysis").setLevel(logging.ERROR)
    # Its "flops" are multiply-accumulates.
    return float(FlopCountAnalysis(Tensors(call.model), in_order(call)).unsupported_ops_warnings(False).total())


@quiet
def torchinfo(call: Call) -> float:
    from torchinfo import summary

    return float(summary(call.model, input_data=bound(call), verbose=0).total_mult_adds)


@quiet
def flop_counter_mode(call: Call) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops() / 2


#: Name -> (how to call it, its distribution).
PEERS: dict[str, tuple[Count, str]] = {
    "ptflops": (ptflops, "ptflops"),
    "ultralytics-thop": (thop, "ultralytics-thop"),
    "torchprofile": (torchprofile, "torchprofile"),
    "fvcore": (fvcore, "fvcore"),
    "torchinfo": (torchinfo, "torchinfo"),
    "FlopCounterMode": (flop_counter_mode, "torch"),
}


def installed() -> dict[str, Count]:
    """Return the peers that are here."""
    return {
        name: count
        for name, (count, distribution) in PEERS.items()
        if importlib.util.find_spec({"ultralytics-thop": "thop"}.get(distribution, distribution)) is not None
    }


def version(distribution: str) -> str | None:
    """Return the installed version of a distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
