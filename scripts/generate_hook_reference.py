"""Write docs/reference/hooks.md and conformance-kit.md from the docstrings of the hooks and of the checks.

Run it after changing one: `python scripts/generate_hook_reference.py`. With `--check` it only says whether the pages
are current.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchscan.contract import hookspecs
from torchscan.contract.handler import CONTRACT_VERSION
from torchscan.plugins.records import REASONS
from torchscan.testing import CHECKS, check_handler, check_pack_import, conformance
from torchscan.testing.checks import macs_match_the_dispatcher

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"

INTRODUCTION = """\
# Hooks

<!-- Written by scripts/generate_hook_reference.py. Change the docstrings in torchscan/contract/hookspecs.py. -->

This page describes contract version {version} (`torchscan.CONTRACT_VERSION`).
[Write a handler pack](../tutorials/write-a-handler-pack.md) shows the first hook at work.

{text}
"""

FAILURES = """\
## When a plugin is set aside

Every case is a diagnostic of the report, and of `torchscan plugins`. The `reason` is for programs.

| `reason` | code | when |
| --- | --- | --- |
{rows}
"""


KIT = """\
# The conformance kit

<!-- Written by scripts/generate_hook_reference.py. Change the docstrings in torchscan/testing. -->

`torchscan.testing` asks whether a handler keeps the contract. Every check is a plain function
`(handler, sample) -> None` in `torchscan.testing.CHECKS` that raises `ConformanceError`; none knows a handler by name,
and torchscan's native handlers pass the same ones. The names of the checks are public and move with
`torchscan.CONTRACT_VERSION`.

| check | what must hold |
| --- | --- |
{rows}

The last one runs on request: `oracle=True`.

{functions}"""


def hooks() -> list[str]:
    """Return the names of the hooks in the order in which their module defines them."""
    names = [name for name in dir(hookspecs) if name.startswith("torchscan_")]
    return sorted(names, key=lambda name: inspect.getsourcelines(getattr(hookspecs, name))[1])


def page() -> str:
    """Return the whole page."""
    _, _, text = inspect.cleandoc(hookspecs.__doc__ or "").partition("\n\n")
    parts = [INTRODUCTION.format(version=CONTRACT_VERSION, text=text)]
    parts.extend(section(name, getattr(hookspecs, name)) for name in hooks())
    rows = "\n".join(f"| `{reason}` | `{code}` | {meaning} |" for reason, (code, meaning) in REASONS.items())
    parts.append(FAILURES.format(rows=rows))
    return "\n".join(parts)


def section(name: str, function: Any) -> str:
    """Return the part about one function."""
    return "\n".join(
        [f"## {name}\n\n```python\n{signature(name, function)}\n```\n", *body(inspect.getdoc(function) or "")]
    )


def signature(name: str, function: Any) -> str:
    """Return a function's signature, one argument per line where it would be long."""
    found = inspect.signature(function)
    arguments: list[str] = []
    for argument in found.parameters.values():
        if argument.kind is argument.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        default = "" if argument.default is argument.empty else f" = {argument.default!r}"
        arguments.append(f"{argument.name}: {argument.annotation}{default}")
    line = f"def {name}({', '.join(arguments)}) -> {found.return_annotation}"
    if len(line) <= 100:
        return line
    return (
        f"def {name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f") -> {found.return_annotation}"
    )


def body(docstring: str) -> Iterator[str]:
    """Return a docstring's sections as Markdown."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", docstring, flags=re.MULTILINE)
    yield f"{parts[0].strip()}\n"
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        content = textwrap.dedent(text).strip()
        if title in ("Args", "Raises"):
            rows = re.findall(r"^([\w, ]+): (.*(?:\n +.*)*)", content, flags=re.MULTILINE)
            yield f"**{'Arguments' if title == 'Args' else title}**\n"
            yield "\n".join(f"- `{name}`: {' '.join(meaning.split())}" for name, meaning in rows) + "\n"
        elif title == "Returns":
            yield f"**Returns**: {content[0].lower()}{content[1:]}\n"
        else:
            yield f"{content}\n"


def kit_page() -> str:
    """Return the page of the conformance kit."""
    checks = {**CHECKS, macs_match_the_dispatcher.__name__: macs_match_the_dispatcher}
    rows = "\n".join(
        f"| `{name}` | {' '.join((inspect.getdoc(check) or '').split())} |" for name, check in checks.items()
    )
    functions = "\n".join(
        section(function.__name__, function) for function in (check_handler, conformance, check_pack_import)
    )
    return KIT.format(rows=rows, functions=functions)


PAGES = {"hooks.md": page, "conformance-kit.md": kit_page}


def main() -> int:
    """Write the pages, or check them."""
    stale = 0
    for name, make in PAGES.items():
        file = REFERENCE / name
        if file.exists() and file.read_text(encoding="utf-8") == make():
            continue
        stale += 1
        if "--check" in sys.argv[1:]:
            print(f"{file} is out of date; run python scripts/generate_hook_reference.py")
        else:
            REFERENCE.mkdir(parents=True, exist_ok=True)
            file.write_text(make(), encoding="utf-8")
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
