"""What a terminal can show: the characters its encoding has, and foreign text that cannot disturb it."""

from __future__ import annotations

from typing import Final

import attrs

from torchscan.report.labels import shortened, visible

__all__ = ["LONGEST", "Glyphs", "safe"]

#: The longest name, type or shape in a cell, in characters.
LONGEST: Final = 80


@attrs.frozen
class Glyphs:
    """The characters of a table that an encoding may lack."""

    branch: str = "├─ "
    last: str = "└─ "
    pass_by: str = "│  "
    blank: str = "   "
    ellipsis: str = "…"
    rule: str = "─"

    @classmethod
    def of(cls, encoding: str) -> Glyphs:
        """Return what can be written in `encoding`."""
        try:
            "├─└│…─".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return cls("|- ", "`- ", "|  ", "   ", "~", "-")
        return cls()


def safe(text: str, encoding: str, longest: int | None = LONGEST) -> str:
    """Return foreign text as it can be shown: no control or direction characters, and only what `encoding` has."""
    if text.isascii() and text.isprintable():
        return text if longest is None or len(text) <= longest else shortened(text, longest).replace("…", "~")
    text = visible(text)
    if longest is not None:
        text = shortened(text, longest)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("×", "x").replace("…", "~")
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return safe(text, "ascii", longest)
    return text
