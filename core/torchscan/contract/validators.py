"""Validators of the contract's classes. What they say is read by people who write packs, and kept in reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import attrs

__all__ = ["instance", "integer", "matching", "one_of"]

Validator: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def integer(minimum: int) -> Validator:
    """Return a validator of a field that holds an `int` of at least `minimum`, and no `bool`."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        where = f"{type(instance).__name__}.{attribute.name}"
        if type(value) is not int:  # a bool is an int to isinstance
            raise TypeError(f"{where} must be an int, got {type(value).__name__}")
        if value < minimum:
            raise ValueError(f"{where} must be at least {minimum}, got {value}")

    return check


def instance(kind: type, *, optional: bool = False) -> Validator:
    """Return a validator of a field that holds a `kind`, or `None` where that is allowed."""

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not (isinstance(value, kind) or (optional and value is None)):
            where = f"{type(instance).__name__}.{attribute.name}"
            raise TypeError(f"{where} must be of type {kind.__name__}, got {type(value).__name__}")

    return check


def one_of(values: Iterable[str], *, optional: bool = False) -> Validator:
    """Return a validator of a field that holds one of these words, or `None` where that is allowed."""
    words = tuple(values)

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if optional and value is None:
            return
        if not isinstance(value, str) or value not in words:
            got = repr(value) if isinstance(value, str) else type(value).__name__
            where = f"{type(instance).__name__}.{attribute.name}"
            raise ValueError(f"{where} must be one of {', '.join(words)}, got {got}")

    return check


def matching(pattern: str, example: str) -> Validator:
    """Return a validator of a field that holds text of a form, or a tuple of such texts."""
    form = re.compile(pattern)

    def check(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        for text in value if isinstance(value, tuple) else (value,):
            if not isinstance(text, str) or form.fullmatch(text) is None:
                where = f"{type(instance).__name__}.{attribute.name}"
                got = repr(text) if isinstance(text, str) else type(text).__name__
                raise ValueError(f"{where} must look like {example}, got {got}")

    return check
