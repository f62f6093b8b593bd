"""Write docs/reference/hooks.md from the docstrings of the hooks.

Run it after changing a hook: `python scripts/generate_hook_reference.py`. With `--check` it only says whether the page
is current.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchscan.contract import hookspecs
from torchscan.contract.handler import CONTRACT_VERSION
from torchscan.plugins.records import REASONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "hooks.md"

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


def section(name: str, hook: Any) -> str:
    """Return the part about one hook."""
    signature = inspect.signature(hook)
    arguments = ", ".join(f"{argument.name}: {argument.annotation}" for argument in signature.parameters.values())
    head = f"## {name}\n\n```python\ndef {name}({arguments}) -> {signature.return_annotation}\n```\n"
    return "\n".join([head, *body(inspect.getdoc(hook) or "")])


def body(docstring: str) -> Iterator[str]:
    """Return a docstring's sections as Markdown."""
    parts = re.split(r"^(Args|Returns|Example):\n", docstring, flags=re.MULTILINE)
    yield f"{parts[0].strip()}\n"
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        content = inspect.cleandoc(text)
        if title == "Args":
            rows = re.findall(r"^(\w+): (.*(?:\n +.*)*)", content, flags=re.MULTILINE)
            yield "**Arguments**\n"
            yield "\n".join(f"- `{name}`: {' '.join(meaning.split())}" for name, meaning in rows) + "\n"
        elif title == "Returns":
            yield f"**Returns**: {content[0].lower()}{content[1:]}\n"
        else:
            yield f"{content}\n"


def main() -> int:
    """Write the page, or check it."""
    current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" in sys.argv[1:]:
        if current != page():
            print(f"{PAGE} is out of date; run python scripts/generate_hook_reference.py")
            return 1
        return 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
