"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

__all__ = ["write_text"]


def write_text(file: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 to `file`, which holds all of it or what it held before.

    The text goes to a temporary neighbour that then takes the file's name. A link is followed; a device or pipe, which
    cannot be replaced, is written to directly.

    Args:
        file: where to; its folder must exist.
        text: the whole content; a lone surrogate, which UTF-8 lacks, is written as an escape.

    Raises:
        OSError: the file cannot be written.

    """
    try:
        _replace(file, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        # Name the file that was asked for, not its neighbour.
        raise type(error)(error.errno, error.strerror, os.fspath(file)) from None


def _replace(file: str | os.PathLike[str], content: bytes) -> None:
    target = Path(os.path.realpath(file))
    try:
        mode: int | None = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        target.write_bytes(content)
        return
    if mode is not None and not os.access(target, os.W_OK):
        # Replacing needs only the folder's permission: a file made read-only on purpose stays as it is.
        raise PermissionError(13, "Permission denied", os.fspath(file))
    neighbour = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(neighbour, "xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            os.chmod(neighbour, stat.S_IMODE(mode))
        os.replace(neighbour, target)
    except BaseException:
        neighbour.unlink(missing_ok=True)
        raise
