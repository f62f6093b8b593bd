"""Paired measurements: each variant runs directly after a bare run, over and over, and the ratios are compared."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any

Run = Callable[[], Any]


def once(run: Run) -> tuple[float, float]:
    """Return wall and processor time of one run, in seconds."""
    processor = time.thread_time_ns()
    wall = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - wall) / 1e9, (time.thread_time_ns() - processor) / 1e9


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the quartiles."""
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return {"median": median(values), "q1": low, "q3": high}


def paired(
    bare: Run, variants: Mapping[str, Run], *, rounds: int, warm_up: int = 2, budget: float = 60.0
) -> dict[str, dict[str, Any]]:
    """Run every variant next to the bare run, round after round, in an order that turns.

    Args:
        bare: what the variants are compared with.
        variants: name to run.
        rounds: how many pairs per variant.
        warm_up: runs of each before anything is measured.
        budget: seconds after which no new round begins; at least three are made.

    Returns:
        Per variant: the ratio to the bare run and the difference from it (in seconds), each by wall time and by
        processor time of the thread, with quartiles; the ratio of the fastest runs of each; and the number of pairs.
        A variant that raises has `failed`.
        `bare` has the times themselves.

    """
    failed: dict[str, str] = {}
    for name, run in variants.items():
        try:
            for _ in range(warm_up):
                run()
        except Exception as error:  # a peer that cannot do this model
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    for _ in range(warm_up):
        bare()
    running = [name for name in variants if name not in failed]
    pairs: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in running}
    alone: list[tuple[float, float]] = []
    gc.collect()
    gc.freeze()
    begun = time.perf_counter()
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() - begun > budget:
            break
        order = running[turn % len(running) :] + running[: turn % len(running)] if running else []
        for name in order:
            # Every other pair the other way round, so that neither always has the warmer caches.
            first, second = (bare, variants[name]) if turn % 2 == 0 else (variants[name], bare)
            one, two = once(first), once(second)
            base, with_it = (one, two) if turn % 2 == 0 else (two, one)
            alone.append(base)
            pairs[name].append((*base, *with_it))
    gc.unfreeze()
    found: dict[str, dict[str, Any]] = {
        "bare": {"wall": spread([wall for wall, _ in alone]), "cpu": spread([cpu for _, cpu in alone])} if alone else {}
    }
    for name, measured in pairs.items():
        found[name] = {
            "pairs": len(measured),
            "ratio": {
                "wall": spread([variant / base for base, _, variant, _ in measured]),
                "cpu": spread([variant / max(base, 1e-9) for _, base, _, variant in measured]),
                # On a busy machine the least disturbed runs are a second opinion.
                "least": min(variant for _, _, _, variant in measured)
                / max(min(base for _, base, _, _ in measured), 1e-9),
            },
            "extra": {
                "wall": spread([variant - base for base, _, variant, _ in measured]),
                "cpu": spread([variant - base for _, base, _, variant in measured]),
            },
        }
    for name, why in failed.items():
        found[name] = {"failed": why}
    return found
