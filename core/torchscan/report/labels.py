"""How shapes and foreign names are written, in a drawing as in a table.

Names, types and messages come from the scanned program: they are shown as text, with everything that could reorder or
hide the text around them written out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from torchscan.report.schema import (
    CallInput,
    MappingItem,
    MappingValue,
    NestedTensorValue,
    ObjectValue,
    Scalar,
    SequenceValue,
    TensorValue,
)

if TYPE_CHECKING:
    from torchscan.report.schema import Value

__all__ = ["place", "describe_input", "describe_value", "sentence", "shortened", "visible"]

# Control characters, lone surrogates and non-characters (XML has no way to hold them), line and paragraph separators,
# and everything that changes the direction of text or has no width.
_HIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]"
)
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Return `text` with control, direction and invisible characters written out, as in `\\u202e` and `\\n`."""
    return _HIDDEN.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)


def shortened(text: str, length: int) -> str:
    """Return `text` in at most `length` characters: the beginning and the end, around an ellipsis."""
    if len(text) <= length:
        return text
    end = (length - 1) // 3
    return f"{text[: length - 1 - end]}…{text[len(text) - end :] if end else ''}"


def sentence(text: str) -> str:
    """Return `text` with a capital letter at its beginning, and `≥` as a page can write it."""
    return (text[:1].upper() + text[1:]).replace(">= ", "≥ ")


def place(path: str, call_index: int) -> str:
    """Return a call by its path, with its number where it is not the first of that path."""
    return (path or "(root)") + (f"#{call_index}" if call_index else "")


def describe_value(value: Value) -> str:
    """Return the shape and type of a value in a few words: `1×3×4 float32`."""
    if isinstance(value, TensorValue):
        return f"{'×'.join(map(str, value.shape)) or 'scalar'} {value.dtype.removeprefix('torch.')}"
    if isinstance(value, NestedTensorValue):
        return f"nested tensor {value.dtype.removeprefix('torch.')}"
    if isinstance(value, SequenceValue):
        opening, closing = "[]" if value.kind == "list" else "()"
        return opening + ", ".join(map(describe_value, value.items)) + closing
    if isinstance(value, MappingValue):
        return f"{value.type}({', '.join(map(_describe_item, value.items))})"
    if isinstance(value, Scalar | ObjectValue):
        return value.type
    return "None" if value.kind == "none" else "failed"


def _describe_item(item: MappingItem) -> str:
    name = item.key_type if item.key is None else str(item.key)
    return f"{name}={describe_value(item.value)}"


def describe_input(given: CallInput) -> str:
    """Return the arguments of a call in a few words: `1×3×4 float32, mask=3×3 bool`."""
    named = (f"{name}={describe_value(value)}" for name, value in given.kwargs.items())
    return ", ".join((*map(describe_value, given.args), *named))
