"""Tell the documentation generator what `attrs` does: a decorated class has the `__init__` of its fields.

Used by mkdocs.yml. Griffe reads sources without running them and knows dataclasses, but not attrs.
"""

from __future__ import annotations

from typing import Any

import griffe

DECORATORS = {"attrs.frozen", "attrs.define"}


class Attrs(griffe.Extension):
    """Adds the `__init__` that `attrs.frozen` and `attrs.define` write."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Look at one class, once its members are known."""
        decorators = [str(decorator.value) for decorator in cls.decorators]
        ours = [text for text in decorators if text.partition("(")[0] in DECORATORS]
        if not ours or "__init__" in cls.members:
            return
        keyword_only = any("kw_only=True" in text for text in ours)
        found = [
            field(member, keyword_only)
            for member in cls.members.values()
            if isinstance(member, griffe.Attribute) and member.annotation is not None and not has(member, "init=False")
        ]
        found.sort(key=lambda parameter: parameter.kind is griffe.ParameterKind.keyword_only)
        this = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
        cls.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(this, *found)))


def field(member: griffe.Attribute, keyword_only: bool) -> griffe.Parameter:
    """Return the parameter of a field; attrs takes the underscore off a private one."""
    kind = griffe.ParameterKind
    by_name = keyword_only or has(member, "kw_only=True")
    return griffe.Parameter(
        member.name.lstrip("_"),
        annotation=member.annotation,
        kind=kind.keyword_only if by_name else kind.positional_or_keyword,
        default=default(member),
    )


def has(member: griffe.Attribute, option: str) -> bool:
    """Say whether the field is given this option."""
    return str(member.value or "").startswith("attrs.field(") and option in str(member.value)


def default(member: griffe.Attribute) -> Any:
    """Return the default of a field, or `None` where it is required."""
    value = member.value
    if not str(value or "").startswith("attrs.field("):
        return value
    for argument in getattr(value, "arguments", ()):
        if getattr(argument, "name", None) == "default":
            return argument.value
        if getattr(argument, "name", None) == "factory":
            return f"{argument.value}()"
    return None
