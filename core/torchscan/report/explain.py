"""What is wrong with data that cannot be read, and where: the path of the first wrong field, in one sentence."""

from __future__ import annotations

from cattrs import BaseValidationError
from cattrs.errors import AttributeValidationNote, IterableValidationNote

from torchscan.report.converter import FieldError, make_converter

__all__ = ["explain"]


def explain(data: object, cls: type) -> str:
    """Return the path of the first wrong field of `data`, which cannot be read as `cls`, and what is wrong there."""
    try:
        make_converter(detailed=True).structure(data, cls)
    except Exception as error:
        return _first_cause(error, "")
    return "the report cannot be read"


def _first_cause(error: BaseException, path: str) -> str:
    if isinstance(error, BaseValidationError):
        inner = error.exceptions[0]
        for note in reversed(getattr(inner, "__notes__", ())):
            if isinstance(note, AttributeValidationNote):
                return _first_cause(inner, f"{path}.{note.name}" if path else note.name)
            if isinstance(note, IterableValidationNote):
                return _first_cause(inner, path + _step(note.index))
        return _first_cause(inner, path)
    if isinstance(error, FieldError):
        return f"{path}.{error.field}: {error}"
    if isinstance(error, KeyError):
        # A class reads its missing field under that field's own note; a hook reads it under its own path.
        name = error.args[0]
        return f"{path if path.endswith(name) else f'{path}.{name}'}: the field is missing"
    return f"{path}: {error}" if path else str(error)


def _step(key: int | str) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() and len(key) < 80 else f"[{key!r:.80}]"
