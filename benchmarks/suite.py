"""Run the measurements and return them as plain data."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks import isolated
from benchmarks.cases import TIMED, Call, encoder, linears
from benchmarks.counters import LEGACY, OURS, PEERS, Count, installed, version
from benchmarks.timing import paired

#: Calls of a stack whose extra time per module call is measured.
DEPTHS = (8, 32, 128, 512, 1024)
STACKS: dict[str, Callable[[int], Call]] = {"Linear": linears, "encoder": encoder}
MEMORY = ("bare", "torchscan", "torchscan macs", "torchscan fake")

Say = Callable[[str], None]


def machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": load,
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def versions() -> dict[str, str | None]:
    """Return the versions of everything that takes part."""
    names = {"torchscan", "torch", "transformers", *(distribution for _, distribution in PEERS.values())}
    return {"python": platform.python_version(), **{name: version(name) for name in sorted(names)}}


def counts_for(who: str) -> dict[str, Count]:
    """Return what is measured: `ours`, `peers` (and ours beside them) or `legacy`."""
    if who == "legacy":
        return dict(LEGACY)
    found = dict(OURS)
    return {**found, **installed()} if who == "peers" else found


def run(who: str, *, smoke: bool, rounds: int, budget: float, only: set[str] | None, say: Say) -> dict[str, Any]:
    """Measure.

    Args:
        who: `ours`, `peers` or `legacy`.
        smoke: the smallest sizes, to see that everything works.
        rounds: pairs per variant.
        budget: seconds per case.
        only: names of parts: `timed`, `calls`, `memory`, `import`, `fake`; by default all.
        say: told what is being measured.

    Returns:
        JSON-ready data.

    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    counts = counts_for(who)
    parts: dict[str, Callable[[], Any]] = {
        "timed": lambda: timed(counts, smoke, rounds, budget, say),
        "calls": lambda: per_call(counts, smoke, rounds, budget, say),
        "memory": lambda: memory(counts, smoke, say),
        "import": lambda: isolated.import_time(1 if smoke else 15),
        "fake": lambda: {} if who == "legacy" else isolated.measure("fake", "smoke" if smoke else "full"),
    }
    found: dict[str, Any] = {"who": who, "smoke": smoke, "rounds": rounds, "machine": machine(), "versions": versions()}
    for name, part in parts.items():
        if only is None or name in only:
            say(name)
            found[name] = part()
    return found


def variants(counts: Mapping[str, Count], call: Call) -> dict[str, Callable[[], Any]]:
    return {name: functools.partial(count, call) for name, count in counts.items()}


def timed(counts: Mapping[str, Count], smoke: bool, rounds: int, budget: float, say: Say) -> dict[str, Any]:
    """Time every case over its own bare forward, and note what each tool counted."""
    found: dict[str, Any] = {}
    for name, make in TIMED.items():
        say(f"  {name}")
        try:
            call = make(smoke)
        except ImportError as error:
            found[name] = {"bare": {}, "failed": str(error)}
            continue
        runs = variants(counts, call)
        results = paired(call, runs, rounds=rounds, warm_up=1 if smoke else 2, budget=budget)
        for variant, run in runs.items():
            if "failed" not in results[variant] and (counted := run()) is not None:
                results[variant]["macs"] = int(counted)
        results["modules"] = {"count": sum(1 for _ in call.model.modules())}
        found[name] = results
    return found


def per_call(counts: Mapping[str, Count], smoke: bool, rounds: int, budget: float, say: Say) -> dict[str, Any]:
    """Return the extra time per module call, in seconds, for stacks of growing depth."""
    found: dict[str, Any] = {}
    for kind, make in STACKS.items():
        for depth in (2, 4) if smoke else DEPTHS:
            say(f"  {kind} x {depth}")
            call = make(depth)
            kept = {name: count for name, count in counts.items() if name != "torchscan fake"}
            results = paired(call, variants(kept, call), rounds=rounds, warm_up=1, budget=budget)
            alone, hooked = calls(call, hooked=False), calls(call, hooked=True)
            for variant, result in results.items():
                if "extra" not in result:
                    continue
                # Hooks on the modules switch the fast path of encoder layers off, and more modules are called.
                seen = alone if variant.startswith("torchscan") and variant not in LEGACY else hooked
                result["calls"] = seen
                result["per_call"] = {
                    clock: {name: value / seen for name, value in spread.items()}
                    for clock, spread in result["extra"].items()
                }
            found[f"{kind} {depth}"] = results
    return found


def calls(call: Call, *, hooked: bool) -> int:
    """Return how many module calls one call makes, with hooks on every module or with process-wide ones."""
    seen = 0

    def count(*_: Any) -> None:
        nonlocal seen
        seen += 1

    if hooked:
        handles = [module.register_forward_hook(count) for module in call.model.modules()]
    else:
        handles = [torch.nn.modules.module.register_module_forward_hook(count)]
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return seen


def memory(counts: Mapping[str, Count], smoke: bool, say: Say) -> dict[str, Any]:
    """Return the peak above the bare run's on a chain of activations, in bytes."""
    wanted = ["bare", *(name for name in counts if name in MEMORY or name in PEERS or name in LEGACY)]
    found: dict[str, Any] = {}
    for name in wanted:
        say(f"  {name}")
        found[name] = isolated.measure("memory", name, "smoke" if smoke else "full")
    bare = found["bare"].get("bytes", 0)
    for result in found.values():
        if "bytes" in result:
            result["extra_bytes"] = result["bytes"] - bare
    return found
