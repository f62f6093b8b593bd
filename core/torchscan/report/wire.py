"""The report on the wire: the one cattrs converter, in both directions.

Reading is strict about what it knows (an integer is no `bool`, no float and no string; a state is possible; a count is
not negative) and tolerant of what it does not: unknown fields are ignored, so that reports of later releases load.
An unknown `schema_version` is refused, not guessed. No other module calls cattrs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

import attrs
from cattrs import BaseValidationError, Converter
from cattrs.errors import (
    AttributeValidationNote,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from torchscan.contract.errors import ReportError
from torchscan.contract.tokens import TokenDependencies
from torchscan.report.schema import (
    SCHEMA_VERSION,
    Failed,
    MappingItem,
    MappingValue,
    MetricResult,
    NestedTensorValue,
    NoneValue,
    ObjectValue,
    Report,
    Scalar,
    SequenceValue,
    TensorValue,
    Value,
)

if TYPE_CHECKING:
    from torchscan.report.formats import RenderOptions

__all__ = [
    "MAX_BYTES",
    "load_report",
    "make_converter",
    "parse_report",
    "render",
    "report_from_dict",
    "report_to_dict",
    "report_to_json",
]

#: Larger files are refused before they are read: no model's report comes near it (5,000 calls are about 10 MB).
MAX_BYTES: Final = 512 * 2**20

_KINDS: Final[dict[str, type]] = {
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


class _FieldError(ValueError):
    """What is wrong with one field of the value at hand."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _named(value: object) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _expect(what: str, value: object) -> TypeError:
    return TypeError(f"expected {what}, got {_named(value)}")


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
                raise _FieldError(name, f"expected a string, got {_named(value[name])}")
        for name in ("value", "known_value"):
            if value[name] is not None and type(value[name]) not in (int, float):
                raise _FieldError(name, f"expected a number, got {_named(value[name])}")
            if value[name] is not None and not 0 <= value[name] < math.inf:
                raise _FieldError(name, f"expected a finite, non-negative number, got {value[name]}")
        result = MetricResult(value["status"], number, known, value["unit"], value["scope"], value["method"])
        if len(self._seen) < 100_000:
            self._seen[key] = result
        return result


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
                try:
                    result.append(read(element, item))
                except Exception as error:
                    error.__notes__ = [IterableValidationNote("", index, item)]
                    raise IterableValidationError("", [error], cls) from error
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
                try:
                    result[_read_str(key, str)] = read(element, item)
                except Exception as error:
                    error.__notes__ = [IterableValidationNote("", key, item)]
                    raise IterableValidationError("", [error], cls) from error
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
            if type(kind) is not str or kind not in _KINDS:
                raise _FieldError("kind", f"expected one of {', '.join(_KINDS)}, got {kind!r:.60}")
            read = hooks[kind] = converter.get_structure_hook(_KINDS[kind])
        return read(value, _KINDS[kind])

    return structure


def _read_tokens(converter: Converter) -> Hook:
    read = _class_hook(converter)(TokenDependencies)

    def structure(value: Any, _: Any) -> TokenDependencies:
        tokens: TokenDependencies = read(value, TokenDependencies)
        if tokens.status == "complete" and tokens.output is None:
            raise ValueError("a complete relation has an output and sources")
        if tokens.status == "unavailable" and (tokens.sources or tokens.output is not None):
            raise ValueError("an unavailable relation has neither output nor sources")
        return tokens

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
    converter.register_structure_hook_factory(attrs.has, _class_hook(converter))
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook(converter))
    converter.register_structure_hook_factory(_is_mapping, _mapping_hook(converter))
    converter.register_structure_hook(MetricResult, _MetricReader())
    converter.register_structure_hook_func(lambda cls: cls is Value or cls == Value, _value_hook(converter))
    converter.register_structure_hook(TokenDependencies, _read_tokens(converter))

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


_converter: Converter | None = None


def _shared_converter() -> Converter:
    global _converter
    if _converter is None:
        _converter = make_converter()
    return _converter


# -- the public functions ----------------------------------------------------------------------------------------------


def report_to_dict(report: Report) -> dict[str, Any]:
    """Return the wire form of `report`: dictionaries, lists, strings, numbers, booleans and `None`.

    The result is the caller's own: nothing in it is shared with the report or with another result.
    """
    wire: dict[str, Any] = _shared_converter().unstructure(report, Report)
    return wire


def report_to_json(report: Report, *, indent: int | None = None) -> str:
    """Return the wire form of `report` as JSON text, in ASCII.

    Args:
        report: the report.
        indent: spaces per level, or `None` for one line.

    """
    return json.dumps(report_to_dict(report), indent=indent, allow_nan=False)


def render(report: Report, options: RenderOptions) -> str:
    """Return `report` as JSON; with `before`, the comparison as JSON."""
    if options.before is None:
        return report_to_json(report, indent=1) + "\n"
    from torchscan.report.compare import compare_reports

    return json.dumps(compare_reports(options.before, report), indent=1, allow_nan=False) + "\n"


def report_from_dict(data: Mapping[str, Any]) -> Report:
    """Read a report from its wire form, also one stored by TorchScan 0.2.0.

    Args:
        data: what `report_to_dict` returned, or what `json.load` read; unknown fields are ignored.

    Raises:
        ReportError: it is no report, or of an unknown `schema_version`, or a field is missing or wrong; the message
            names the path of the field.

    """
    _check_kind(data)
    try:
        report: Report = _shared_converter().structure(data, Report)
    except RecursionError:
        raise ReportError("the report is nested too deeply") from None
    except Exception:
        raise ReportError(_explain(data)) from None
    return report


def parse_report(text: str | bytes) -> Report:
    """Read a report from JSON text.

    Raises:
        ReportError: it is no JSON, or no report that `report_from_dict` reads.

    """
    return report_from_dict(_parse(text))


def load_report(file: str | os.PathLike[str]) -> Report:
    """Read a stored report from a JSON file.

    Raises:
        ReportError: the file is no report of a known schema version, or larger than `MAX_BYTES`; the message begins
            with the file's name.
        OSError: the file cannot be read.

    """
    with Path(file).open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    try:
        if len(content) > MAX_BYTES:
            raise ReportError(f"the file is larger than {MAX_BYTES // 2**20} MiB, which no report is")
        return parse_report(content)
    except ReportError as error:
        raise ReportError(f"{os.fspath(file)}: {error}") from None


def _parse(text: str | bytes) -> Any:
    if not text.strip():
        raise ReportError("not JSON: the text is empty")
    try:
        return json.loads(text)
    except RecursionError:
        raise ReportError("not a report: the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        raise ReportError(
            f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}" + (" (truncated?)" if cut else "")
        ) from None
    except UnicodeDecodeError as error:
        raise ReportError(f"not JSON: the text is not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise ReportError(f"not JSON that can be read: {error}") from None


def _check_kind(data: Any) -> None:
    if not isinstance(data, Mapping):
        raise ReportError(f"not a report: expected an object, got {_named(data)}")
    if "schema_version" not in data:
        raise ReportError("not a report: schema_version is missing")
    version = data["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportError(
            f"schema_version: {version!r:.40} is unknown; this torchscan reads schema version {SCHEMA_VERSION}"
        )
    if "layers" in data and "context" in data:
        return
    if "by_operator" in data:
        raise ReportError("not a report of a scan: this is an operator report, as measure_flops returns it")
    if "layers" in data and "totals" in data:
        raise ReportError("not a report of a scan: this is a comparison, as compare_reports returns it")
    missing = "context" if "layers" in data else "layers"
    raise ReportError(f"not a report: {missing} is missing")


def _explain(data: Mapping[str, Any]) -> str:
    """Return the path of the first wrong field of `data` and what is wrong with it."""
    try:
        make_converter(detailed=True).structure(data, Report)
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
    if isinstance(error, _FieldError):
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
