"""Rename the template in place: `python rename.py mylib`.

Afterwards this folder is the project `torchscan-mylib` with the package `torchscan_mylib` and the entry point `mylib`,
and this script is gone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def rename(name: str) -> None:
    """Rename files and contents to the pack called `name`."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise SystemExit(f"a pack's name is lower-case words joined by hyphens, such as my-lib; got {name!r}")
    package = f"torchscan_{name.replace('-', '_')}"
    (FOLDER / "src" / "torchscan_template").rename(FOLDER / "src" / package)
    readme = FOLDER / "README.md"
    text = readme.read_text(encoding="utf-8")
    title, end = text.partition("\n\n")[0], text.index("## What is counted")
    opening = "torchscan handlers for the layers of examplelib."
    readme.write_text(f"{title}\n\n{opening}\n\n{text[end:]}", encoding="utf-8")
    for file in (*FOLDER.glob("*.toml"), *FOLDER.glob("*.md"), *FOLDER.rglob("*.py")):
        if file != Path(__file__).resolve():
            source = file.read_text(encoding="utf-8")
            renamed = source.replace("torchscan_template", package).replace("torchscan-template", f"torchscan-{name}")
            renamed = renamed.replace("\ntemplate = ", f"\n{name} = ").replace('== "template"', f'== "{name}"')
            file.write_text(renamed, encoding="utf-8")
    Path(__file__).unlink()
    print(f"This is torchscan-{name} now. Next: pip install -e '.[test]' && torchscan plugins && pytest")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python rename.py NAME")
    rename(sys.argv[1])
