"""Measurements that need a process of their own: import time, peak memory, a first scan.

Each is a small program that prints one JSON object; `measure` runs it in a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def measure(what: str, *arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """Run one of the programs below in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [python, "-m", "benchmarks.isolated", what, *arguments],
        cwd=ROOT,
        # glibc gives a large block back at once when its threshold is fixed; else peaks depend on what it kept.
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "MALLOC_MMAP_THRESHOLD_": "1048576"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def import_time(repeats: int, python: str = sys.executable) -> dict[str, Any]:
    """Return what `import torchscan` takes beyond `import torch`, in seconds; median of fresh interpreters."""
    found = [measure("import", python=python) for _ in range(repeats)]
    if failed := next((one["failed"] for one in found if "failed" in one), None):
        return {"failed": failed}
    return {
        "beyond_torch": median(one["torchscan"] for one in found),
        "beyond_torch_cpu": median(one["torchscan_cpu"] for one in found),
        "torch": median(one["torch"] for one in found),
        "repeats": repeats,
    }


# -- programs ----------------------------------------------------------------------------------------------------------


def program_import() -> dict[str, Any]:
    start = time.perf_counter()
    import torch  # noqa: F401

    middle, processor = time.perf_counter(), time.thread_time()
    import torchscan  # noqa: F401

    return {
        "torch": middle - start,
        "torchscan": time.perf_counter() - middle,
        "torchscan_cpu": time.thread_time() - processor,
    }


def program_reading(file: str) -> dict[str, Any]:
    """Read a stored report and say whether that imported torch."""
    start = time.perf_counter()
    import torchscan

    report = torchscan.Report.load(file)
    return {"seconds": time.perf_counter() - start, "torch": "torch" in sys.modules, "layers": len(report.layers)}


def program_memory(variant: str, smoke: str) -> dict[str, Any]:
    """Return how far the peak of the resident memory rises while the chain runs under `variant`, in bytes."""
    import torch

    from benchmarks.cases import Call, chain

    torch.set_num_threads(1)
    call = chain(smoke == "smoke")
    run = named(variant)
    # Everything that is loaded once is loaded by the same call on a few rows.
    small = Call(call.model, (call.args[0][:64],))
    run(small)
    call.model(call.args[0][:64])
    return {"bytes": peak_during(lambda: run(call))}


def program_fake(smoke: str) -> dict[str, Any]:
    """Scan LLaMA 70B without running it, in a process that has done nothing else."""
    import torch

    from benchmarks.cases import llama

    torch.set_num_threads(1)
    call = llama(smoke == "smoke", device="cpu")
    import torchscan

    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        report = torchscan.scan(call.model, args=call.args, kwargs=call.kwargs, execution="fake")
        seconds.append(time.perf_counter() - start)
    return {
        "first": seconds[0],
        "later": min(seconds[1:]),
        "peak_bytes": peak(),
        "macs": report.totals.macs.known_value,
        "status": report.totals.macs.status,
        "calls": len(report.layers),
    }


def named(variant: str) -> Any:
    """Return what `variant` does with a call."""
    from benchmarks.counters import LEGACY, OURS, PEERS

    if variant == "bare":
        return lambda call: call()
    return PEERS[variant][0] if variant in PEERS else {**OURS, **LEGACY}[variant]


def peak_during(run: Any) -> int:
    """Return by how many bytes the peak of the resident memory rises while `run` runs."""
    if not STATUS.exists():
        before = peak()
        run()
        return peak() - before
    # Writing 5 makes the peak what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = field("VmRSS")
    run()
    return peak() - before


STATUS = Path("/proc/self/status")


def peak() -> int:
    """Return the peak of the resident memory, in bytes."""
    if STATUS.exists():  # `getrusage` would begin with what the parent had when it started this process
        return field("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def field(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    program = {"import": program_import, "reading": program_reading, "memory": program_memory, "fake": program_fake}
    print(json.dumps(program[sys.argv[1]](*sys.argv[2:])))
