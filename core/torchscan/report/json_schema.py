"""The JSON Schema of a report, generated from its classes.

`python -m torchscan.report.json_schema` prints it; the published copy is docs/reference/report.schema.json.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs

from torchscan.contract.tokens import TokenDependencies
from torchscan.report.converter import KINDS
from torchscan.report.schema import SCHEMA_VERSION, MappingItem, MetricResult, Report, Value

__all__ = ["report_schema"]

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Final = {"type": "number", "minimum": 0}
_INTEGER: Final = {"type": "integer", "minimum": 0}
_NULL: Final = {"type": "null"}

#: Fields of a class that never reach the wire.
_INTERNAL: Final = {(TokenDependencies, "message")}


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of schema version 1.

    It describes what a reader accepts: unknown fields are allowed, since later releases add some, and so is `null`
    where a field is optional, though torchscan leaves it out.
    """
    builder = _Builder()
    root = builder.reference(Report)
    return {
        "$schema": _DRAFT,
        "$id": f"urn:torchscan:report:{SCHEMA_VERSION}",
        "title": "torchscan report",
        "description": f"A report of torchscan, schema version {SCHEMA_VERSION}.",
        **root,
        "$defs": dict(sorted(builder.definitions.items())),
    }


class _Builder:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def reference(self, cls: type) -> dict[str, Any]:
        """Return a reference to the definition of `cls`, which is built on first use."""
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}  # a placeholder, because values hold values
            self.definitions[cls.__name__] = self._definition(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def _definition(self, cls: type) -> dict[str, Any]:
        if cls is MetricResult:
            return _metric(cls)
        if cls is TokenDependencies:
            return self._tokens()
        return self._object(cls)

    def _object(self, cls: type) -> dict[str, Any]:
        attrs.resolve_types(cls)
        fields = [field for field in attrs.fields(cls) if (cls, field.name) not in _INTERNAL]
        required = [field.name for field in fields if field.default is attrs.NOTHING or field.name == "kind"]
        properties = {field.name: self.type(field.type) for field in fields}
        if cls is MappingItem:
            # The key of a mapping is the one integer that is no count.
            properties["key"] = {"type": ["string", "integer", "boolean", "null"]}
        if "schema_version" in properties:
            properties["schema_version"] = {"const": SCHEMA_VERSION}
            required.append("schema_version")
        schema: dict[str, Any] = {"type": "object", "description": _summary(cls), "properties": properties}
        if required:
            schema["required"] = sorted(required)
        return schema

    def _tokens(self) -> dict[str, Any]:
        schema = self._object(TokenDependencies)
        schema["required"] = ["assumptions", "method", "scope", "status"]
        complete = {"properties": {"status": {"const": "complete"}}, "required": ["output", "sources"]}
        nothing: dict[str, Any] = {"properties": {"status": {"const": "unavailable"}}}
        nothing["not"] = {"anyOf": [{"required": ["output"]}, {"required": ["sources"]}]}
        return {**schema, "oneOf": [complete, nothing]}

    def value(self) -> dict[str, Any]:
        """Return a reference to the union of value kinds."""
        if "Value" not in self.definitions:
            self.definitions["Value"] = {}
            members = dict.fromkeys(KINDS.values())
            self.definitions["Value"] = {
                "description": "The structure of a value, never its contents; kind says which.",
                "oneOf": [self.reference(member) for member in members],
            }
        return {"$ref": "#/$defs/Value"}

    def type(self, annotation: Any) -> dict[str, Any]:
        """Return the schema of an annotation."""
        origin, arguments = get_origin(annotation), get_args(annotation)
        if annotation == Value:
            return self.value()
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.type(argument) for argument in arguments]}
        if origin is tuple:
            return {"type": "array", "items": self.type(arguments[0])}
        if origin is Mapping:
            return {"type": "object", "additionalProperties": self.type(arguments[1])}
        if attrs.has(annotation):
            return self.reference(annotation)
        simple: dict[Any, dict[str, Any]] = {
            str: {"type": "string"},
            bool: {"type": "boolean"},
            int: _INTEGER,
            type(None): _NULL,
        }
        return simple[annotation]


def _metric(cls: type) -> dict[str, Any]:
    text = {"type": "string"}
    states: dict[str, dict[str, Any]] = {
        "complete": {"value": _NUMBER, "known_value": _NUMBER},
        "partial": {"value": _NULL, "known_value": _NUMBER},
        "unavailable": {"value": _NULL, "known_value": _NULL},
    }
    return {
        "type": "object",
        "description": _summary(cls),
        "properties": {"unit": text, "scope": text, "method": text},
        "required": ["known_value", "method", "scope", "status", "unit", "value"],
        "oneOf": [{"properties": {"status": {"const": status}, **numbers}} for status, numbers in states.items()],
    }


def _summary(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    print(json.dumps(report_schema(), indent=2))
