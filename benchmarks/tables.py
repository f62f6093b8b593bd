"""The measured figures as Markdown, and the pages they belong on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.counters import PEERS

DOCS = Path(__file__).resolve().parents[1] / "docs" / "explanation"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

#: Two conventions differ by a few percent (norms, biases); a tool that is further away has missed something.
COMPLETE = 0.03

NAMES = {
    "transformer": "`nn.Transformer` base, batch 2, 64 + 64 tokens",
    "encoder 8": "encoder stack, width 64, 8 layers",
    "encoder 32": "encoder stack, width 64, 32 layers",
    "encoder 128": "encoder stack, width 64, 128 layers",
    "bert": "BERT-base, 64 tokens",
    "cnn": "residual network of the shape of ResNet-50, 224 × 224",
    "llama 70B on meta": "LLaMA 70B on the meta device, 64 tokens",
}


def replace(page: str, text: str) -> None:
    """Write `text` between the markers of a page."""
    file = DOCS / page
    content = file.read_text(encoding="utf-8")
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{file} has no {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}", encoding="utf-8")


def table(header: Iterable[str], rows: Iterable[Iterable[str]], *, left: int = 1) -> str:
    """Return a Markdown table whose first `left` columns are text and whose others are numbers."""
    names = list(header)
    rule = ["---"] * left + ["---:"] * (len(names) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (names, rule, *rows))


def ratio(found: Mapping[str, Any] | None, *, both: bool = False) -> str:
    """Return the median of the paired ratios, with that of the processor times behind it."""
    if found is None:
        return ""
    if "ratio" not in found:
        return "fails"
    wall, cpu = (found["ratio"][clock]["median"] for clock in ("wall", "cpu"))
    return f"{wall:.2f}× ({cpu:.2f}×)" if both else f"{wall:.2f}×"


def share(found: Mapping[str, Any], ours: int | None) -> float | None:
    """Return what part of our count a tool counted."""
    return found["macs"] / ours if ours and "macs" in found else None


def complete(found: Mapping[str, Any], ours: int | None) -> bool:
    counted = share(found, ours)
    return counted is not None and abs(counted - 1) <= COMPLETE


def fastest(case: Mapping[str, Any], part: str = "ratio") -> str:
    """Return the fastest peer that counted about everything."""
    ours = case["torchscan"].get("macs")
    candidates = [name for name in PEERS if name in case and part in case[name] and complete(case[name], ours)]
    if not candidates:
        return "none" if any(name in case for name in PEERS) else ""
    best = min(candidates, key=lambda name: case[name]["ratio"]["wall"]["median"])
    return f"{ratio(case[best])} ({best})"


def performance(results: Mapping[str, Any]) -> str:
    """Return the tables of one run."""
    parts = [context(results)]
    if timed := results.get("timed"):
        parts += ["### Time over the bare forward", over_bare(timed), peers(timed)]
    if calls := results.get("calls"):
        parts += ["### Extra time per module call", per_call(calls)]
    parts += ["### Memory, import, and a model that fits no machine", others(results)]
    return "\n\n".join(part for part in parts if part)


def context(results: Mapping[str, Any]) -> str:
    machine, versions = results["machine"], results["versions"]
    tools = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    return (
        f"Measured on {machine['date']} on {machine['processor']}, {machine['cores']} cores, {machine['system']}, one "
        f"torch thread, load {machine['load']:.1f}. Versions: {tools}. A ratio is the median of paired ratios by wall "
        "time; behind it, in brackets, the same by processor time of the thread."
    )


def over_bare(timed: Mapping[str, Any]) -> str:
    header = [
        "call", "bare", "full scan", "MACs alone", "`observe`, MACs", "hooks that do nothing", "fastest complete peer",
        "0.2.0", "`execution=\"fake\"`",
    ]  # fmt: skip
    rows = []
    for name, case in timed.items():
        if not case.get("bare"):
            continue
        old = case.get("torchscan 0.2.0")
        rows.append(
            [
                NAMES.get(name, name),
                milliseconds(case["bare"]["wall"]["median"]),
                ratio(case.get("torchscan"), both=True),
                ratio(case.get("torchscan macs"), both=True),
                ratio(case.get("torchscan observe")),
                ratio(case.get("hooks that do nothing")),
                fastest(case),
                ratio(old) + partial(old, case["torchscan"].get("macs")),
                ratio(case.get("torchscan fake"), both=True),
            ]
        )
    return table(header, rows)


def partial(found: Mapping[str, Any] | None, ours: int | None) -> str:
    if not found or "ratio" not in found:
        return ""
    counted = share(found, ours)
    return "" if complete(found, ours) else f", counts {counted or 0:.0%}"


def peers(timed: Mapping[str, Any]) -> str:
    present = [name for name in PEERS if any(name in case for case in timed.values())]
    if not present:
        return ""
    rows = []
    for name, case in timed.items():
        if case.get("bare"):
            ours = case["torchscan"].get("macs")
            rows.append(
                [NAMES.get(name, name), *(ratio(case.get(peer)) + partial(case.get(peer), ours) for peer in present)]
            )
    text = (
        f"Each peer by itself. Where its count of multiply-accumulates is more than {COMPLETE:.0%} away from ours, the "
        "part that it counts is behind its time."
    )
    return f"{text}\n\n{table(['call', *present], rows)}"


def per_call(calls: Mapping[str, Any]) -> str:
    shown = ["torchscan", "torchscan macs", "torchscan observe", "hooks that do nothing", "ptflops", "ultralytics-thop"]
    shown += ["torchscan 0.2.0"]
    present = [name for name in shown if any(name in case for case in calls.values())]
    rows = [
        [name.replace(" ", " × "), *(microseconds(case.get(variant)) for variant in present)]
        for name, case in calls.items()
    ]
    text = (
        "Microseconds by processor time, over the calls that each tool sees: hooks on the modules themselves switch "
        "the fast path of an encoder layer off, and many modules are called where there was one. `Linear` is a chain "
        "of `nn.Linear(16, 16)`, `encoder` the stack from above."
    )
    return f"{text}\n\n{table(['stack', *present], rows)}"


def others(results: Mapping[str, Any]) -> str:
    rows = []
    memory = results.get("memory", {})
    for name, found in memory.items():
        if name != "bare":
            rows.append([f"extra peak memory, 1 GiB of activations, {name}", mebibytes(found)])
    for name, found in (("torchscan", results.get("import")), ("0.2.0", results.get("legacy", {}).get("import"))):
        if found and "beyond_torch" in found:
            rows.append([f"`import torchscan` beyond `import torch`, {name}", milliseconds(found["beyond_torch"])])
    fake = results.get("fake")
    if fake and "later" in fake:
        rows += [
            ['LLaMA 70B, `execution="fake"`, in a process that has scanned before', f"{fake['later']:.2f} s"],
            ["the same in a new process, loading what PyTorch needs for it", f"{fake['first']:.2f} s"],
            ["the same, peak memory of the whole process", f"{fake['peak_bytes'] / 2**30:.2f} GiB"],
        ]
    return table(["", "measured"], rows) if rows else ""


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def microseconds(found: Mapping[str, Any] | None) -> str:
    return "" if not found or "per_call" not in found else f"{found['per_call']['cpu']['median'] * 1e6:.0f}"


def mebibytes(found: Mapping[str, Any]) -> str:
    # A page more or less is the weather.
    return f"{max(found['extra_bytes'] / 2**20, 0):.1f} MiB" if "extra_bytes" in found else "fails"
