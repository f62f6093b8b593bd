"""Check built distributions: what must be in each wheel and sdist is, and nothing else.

    python scripts/check_dist.py dist/*

Used by `make dist`. It reads names only; whether the contents work is for `tests/e2e`.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

#: What has no place in any distribution.
FORBIDDEN = re.compile(r"(^|/)(__pycache__|\.[a-z]\w*|\.venv\w*|node_modules)(/|$)|\.(pyc|pyo|so|tmp)$")
#: What a wheel installs must not contain.
NOT_INSTALLED = re.compile(r"(^|/)(tests?|conftest\.py|docs|benchmarks|scripts)(/|$)")


def names(archive: Path) -> list[str]:
    """Return the files of a wheel, or those of an sdist below its one folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return sorted(name for name in wheel.namelist() if not name.endswith("/"))
    with tarfile.open(archive) as sdist:
        return sorted(member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile())


def faults(archive: Path) -> list[str]:
    """Return what is wrong with an archive, in words; nothing where it is as it should be.

    Args:
        archive: a `.whl` or `.tar.gz`.

    """
    found = names(archive)
    wrong = [f"contains {name}" for name in found if FORBIDDEN.search(name) and name != ".gitignore"]
    if archive.suffix == ".whl":
        wrong += [f"installs {name}" for name in found if NOT_INSTALLED.search(name)]
        packages = {name.partition("/")[0] for name in found if not name.partition("/")[0].endswith(".dist-info")}
        wrong += [f"lacks {package}/py.typed" for package in sorted(packages) if f"{package}/py.typed" not in found]
        wrong += [f"lacks {file}" for file in ("licenses/LICENSE", "entry_points.txt") if not has(found, file)]
        if not packages:
            wrong.append("installs no package")
    else:
        wrong += [
            f"lacks {file}"
            for file in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "PKG-INFO")
            if file not in found
        ]
        if not any(name.endswith("/py.typed") for name in found):
            wrong.append("lacks a typed marker")
    return wrong


def has(found: list[str], file: str) -> bool:
    """Say whether the wheel's own folder has `file`."""
    return any(name.endswith(f".dist-info/{file}") for name in found)


def main(archives: list[str]) -> int:
    """Check archives; print one line for each."""
    failed = not archives
    for name in archives:
        wrong = faults(Path(name))
        failed |= bool(wrong)
        print(f"{Path(name).name}: {'; '.join(wrong) if wrong else f'{len(names(Path(name)))} files, as it should be'}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
