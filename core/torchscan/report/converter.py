"""The one cattrs converter between the report's classes and its wire form, in both directions.

Reading is strict about what it knows (an integer is no `bool`, no float and no string; a state is possible; a count is
not negative) and tolerant of what it does not: unknown fields are ignored, so that reports of later releases load.
No other module converts; `torchscan.report.explain` says what is wrong with data that cannot be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Literal, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.errors import IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from torchscan.contract.tokens import TokenDependencies
from torchscan.report.schema import (
    Failed,
    MappingItem,
    MappingValue,
    MetricResult,
    NestedTensorValue,
    NoneValue,
    ObjectValue,
    Scalar,
    SequenceValue,
    TensorValue,
    Value,
)

__all__ = ["KINDS", "FieldError", "converter", "make_converter", "named"]

#: The class of each kind of value.
KINDS: Final[dict[str, type]] = {
    "tensor": TensorValue,
    "nested_tensor": NestedTensorValue,
    "tuple": SequenceValue,
    "list": SequenceValue,
    "mapping": MappingValue,
    "dataclass": MappingValue,
    "scalar": Scalar,
    "object": ObjectValue,
    "none": NoneValue,
    "failed": Failed,
    "pending": Failed,
}

_JSON_NAMES: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    tuple: "a list",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    type(None): "null",
}

_KEY: Final = attrs.fields_dict(attrs.resolve_types(MappingItem))["key"].type

Hook = Callable[[Any, Any], Any]


class FieldError(ValueError):
    """What is wrong with one field of the value at hand."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def named(value: object) -> str:
    """Return what JSON calls the type of `value`."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _expect(what: str, value: object) -> TypeError:
    return TypeError(f"expected {what}, got {named(value)}")


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_int(value: Any, _: Any) -> int:
    if type(value) is not int:
        raise _expect("an integer", value)
    if value < 0:
        raise ValueError(f"expected a count, got the negative number {value}")
    return value


def _read_str(value: Any, _: Any) -> str:
    if type(value) is not str:
        raise _expect("a string", value)
    return value


def _read_bool(value: Any, _: Any) -> bool:
    if type(value) is not bool:
        raise _expect("true or false", value)
    return value


def _literal_hook(cls: Any) -> Hook:
    choices = get_args(cls)

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not str or value not in choices:
            raise ValueError(f"expected {' or '.join(choices)}, got {value!r:.60}")
        return value

    return structure


def _read_key(value: Any, _: Any) -> str | int | bool | None:
    if value is not None and type(value) not in (str, int, bool):
        raise _expect("a string, an integer or a boolean", value)
    return value  # type: ignore[no-any-return]


class _MetricReader:
    """Reads metric results; equal ones are one object, because a report holds few distinct ones many times over."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], MetricResult] = {}

    def __call__(self, value: Any, _: Any) -> MetricResult:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _expect("an object", value)
        number, known = value["value"], value["known_value"]
        # 1, 1.0 and True are one key of a dictionary, so their types are part of it.
        key = (
            value["status"],
            number,
            type(number),
            known,
            type(known),
            value["unit"],
            value["scope"],
            value["method"],
        )
        try:
            return self._seen[key]
        except (KeyError, TypeError):
            pass
        for name in ("status", "unit", "scope", "method"):
            if type(value[name]) is not str:
                raise FieldError(name, f"expected a string, got {named(value[name])}")
        for name in ("value", "known_value"):
            if value[name] is not None and type(value[name]) not in (int, float):
                raise FieldError(name, f"expected a number, got {named(value[name])}")
            if value[name] is not None and not 0 <= value[name] < math.inf:
                raise FieldError(name, f"expected a finite, non-negative number, got {value[name]}")
        result = MetricResult(value["status"], number, known, value["unit"], value["scope"], value["method"])
        if len(self._seen) < 100_000:
            self._seen[key] = result
        return result


@contextmanager
def _noting(place: int | str, item: Any, cls: Any) -> Iterator[None]:
    """Note on an error in which element of a `cls` it was raised, as cattrs does."""
    try:
        yield
    except Exception as error:
        error.__notes__ = [IterableValidationNote("", place, item)]
        raise IterableValidationError("", [error], cls) from error


def _tuple_hook(converter: Converter) -> Callable[[Any], Hook]:
    detailed = converter.detailed_validation

    def factory(cls: Any) -> Hook:
        item = get_args(cls)[0]
        read = converter.get_structure_hook(item)

        def structure(value: Any, _: Any) -> tuple[Any, ...]:
            if type(value) is not list and type(value) is not tuple:
                raise _expect("a list", value)
            if not detailed:
                return tuple([read(element, item) for element in value])
            result = []
            for index, element in enumerate(value):
                with _noting(index, item, cls):
                    result.append(read(element, item))
            return tuple(result)

        return structure

    return factory


def _mapping_hook(converter: Converter) -> Callable[[Any], Hook]:
    detailed = converter.detailed_validation

    def factory(cls: Any) -> Hook:
        item = get_args(cls)[1]
        read = converter.get_structure_hook(item)

        def structure(value: Any, _: Any) -> dict[str, Any]:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise _expect("an object", value)
            if not detailed:
                return {_read_str(key, str): read(element, item) for key, element in value.items()}
            result = {}
            for key, element in value.items():
                with _noting(key, item, cls):
                    result[_read_str(key, str)] = read(element, item)
            return result

        return structure

    return factory


def _class_hook(converter: Converter) -> Callable[[Any], Hook]:
    def factory(cls: Any) -> Hook:
        read = make_dict_structure_fn(cls, converter)

        def structure(value: Any, _: Any) -> Any:
            if type(value) is not dict and not isinstance(value, Mapping):
                raise _expect("an object", value)
            return read(value, cls)

        return structure

    return factory


def _value_hook(converter: Converter) -> Hook:
    hooks: dict[str, Hook] = {}

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _expect("an object", value)
        kind = value["kind"]
        read = hooks.get(kind) if type(kind) is str else None
        if read is None:
            if type(kind) is not str or kind not in KINDS:
                raise FieldError("kind", f"expected one of {', '.join(KINDS)}, got {kind!r:.60}")
            read = hooks[kind] = converter.get_structure_hook(KINDS[kind])
        return read(value, KINDS[kind])

    return structure


# -- writing -----------------------------------------------------------------------------------------------------------


def _write_metric(result: MetricResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "value": result.value,
        "known_value": result.known_value,
        "unit": result.unit,
        "scope": result.scope,
        "method": result.method,
    }


def _write_tokens(converter: Converter) -> Callable[[TokenDependencies], dict[str, Any]]:
    def unstructure(tokens: TokenDependencies) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "status": tokens.status,
            "scope": tokens.scope,
            "method": tokens.method,
            "assumptions": list(tokens.assumptions),
        }
        if tokens.status == "complete":
            wire["output"] = converter.unstructure(tokens.output)
            wire["sources"] = [converter.unstructure(source) for source in tokens.sources]
        elif tokens.reason is not None:
            wire["reason"] = tokens.reason
        return wire

    return unstructure


def _write_value(converter: Converter) -> Callable[[Any], Any]:
    hooks: dict[type, Callable[[Any], Any]] = {}

    def unstructure(value: Any) -> Any:
        cls = type(value)
        if (write := hooks.get(cls)) is None:
            write = hooks[cls] = converter.get_unstructure_hook(cls)
        return write(value)

    return unstructure


def _write_sequence(converter: Converter) -> Callable[[Any], Callable[[Any], list[Any]]]:
    def factory(cls: Any) -> Callable[[Any], list[Any]]:
        item = get_args(cls)[0]
        if item in (str, int):
            return list
        write = converter.get_unstructure_hook(item)
        return lambda value: [write(element) for element in value]

    return factory


def _write_mapping(converter: Converter) -> Callable[[Any], Callable[[Any], dict[str, Any]]]:
    def factory(cls: Any) -> Callable[[Any], dict[str, Any]]:
        item = get_args(cls)[1]
        if item in (str, int):
            return dict
        write = converter.get_unstructure_hook(item)
        return lambda value: {key: write(element) for key, element in value.items()}

    return factory


def _write_class(converter: Converter) -> Callable[[Any], Callable[[Any], dict[str, Any]]]:
    def factory(cls: Any) -> Callable[[Any], dict[str, Any]]:
        attrs.resolve_types(cls)
        absent = {
            field.name: override(omit_if_default=True)
            for field in attrs.fields(cls)
            # A diagnostic always says which metric it concerns, if only with null.
            if field.default is None and field.name != "metric"
        }
        return make_dict_unstructure_fn(cls, converter, **absent)  # type: ignore[arg-type]

    return factory


# -- the converter -----------------------------------------------------------------------------------------------------


def _is_literal(cls: Any) -> bool:
    return get_origin(cls) is Literal


def _is_tuple(cls: Any) -> bool:
    return get_origin(cls) is tuple


def _is_mapping(cls: Any) -> bool:
    return get_origin(cls) is Mapping


def configure_converter(converter: Converter) -> None:
    """Teach `converter` the wire form. Simple types first, unions last: a hook is bound when its user is built."""
    converter.register_structure_hook(int, _read_int)
    converter.register_structure_hook(str, _read_str)
    converter.register_structure_hook(bool, _read_bool)
    converter.register_structure_hook_func(lambda cls: cls == _KEY, _read_key)
    converter.register_structure_hook_factory(_is_literal, _literal_hook)
    converter.register_structure_hook_factory(attrs.has, _class_hook(converter))
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook(converter))
    converter.register_structure_hook_factory(_is_mapping, _mapping_hook(converter))
    converter.register_structure_hook(MetricResult, _MetricReader())
    converter.register_structure_hook_func(lambda cls: cls is Value or cls == Value, _value_hook(converter))

    converter.register_unstructure_hook_factory(attrs.has, _write_class(converter))
    converter.register_unstructure_hook_factory(_is_tuple, _write_sequence(converter))
    converter.register_unstructure_hook_factory(_is_mapping, _write_mapping(converter))
    converter.register_unstructure_hook(MetricResult, _write_metric)
    converter.register_unstructure_hook_func(lambda cls: cls is Value or cls == Value, _write_value(converter))
    converter.register_unstructure_hook(TokenDependencies, _write_tokens(converter))


def make_converter(*, detailed: bool = False) -> Converter:
    """Return a converter between `Report` and its wire form.

    Args:
        detailed: find the path of what is wrong; slower, so it runs only once reading has failed.

    """
    converter = Converter(detailed_validation=detailed)
    configure_converter(converter)
    return converter


@cache
def converter() -> Converter:
    """Return the one converter, made on first use."""
    return make_converter()
