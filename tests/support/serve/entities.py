"""Entities of kio's schemas, created from plain values."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, get_args

from kio.schema.errors import ErrorCode

_ZERO: dict[str, Any] = {"timedelta_i32": timedelta(0), "error_code": ErrorCode.none}
"""The value by Kafka type of a field that has no default and is not given."""


def filled(schema: Any, values: Mapping[str, Any]) -> Any:
    """Return an entity with those of the values for which it has fields; other fields have their defaults."""
    arguments = {}
    for name, convert, default in _fields(schema):
        if name in values:
            arguments[name] = convert(values[name])
        elif default is not dataclasses.MISSING:
            arguments[name] = default
    return schema(**arguments)


Convert = Callable[[Any], Any]


@cache
def _fields(schema: Any) -> list[tuple[str, Convert, Any]]:
    """Return the name of each field, the function that converts its value, and its default."""
    fields = []
    for field in dataclasses.fields(schema):
        kind = field.metadata.get("kafka_type", "")
        default = field.default if field.default is not dataclasses.MISSING else _ZERO.get(kind, field.default)
        fields.append((field.name, _conversion(field.type, kind), default))
    return fields


def _conversion(annotated: Any, kind: str) -> Convert:
    if kind == "error_code":
        return ErrorCode
    nested = next((type_ for type_ in _component_types(annotated) if dataclasses.is_dataclass(type_)), None)
    if nested is None:
        return _nullable_tuple if kind != "bytes" and tuple in _origins(annotated) else _unchanged
    if tuple in _origins(annotated):
        return lambda values: None if values is None else tuple(filled(nested, element) for element in values)
    return lambda values: None if values is None else filled(nested, values)


def _nullable_tuple(values: Any) -> Any:
    return None if values is None else tuple(values)


def _unchanged(value: Any) -> Any:
    return value


def _component_types(annotated: Any) -> list[Any]:
    """Return the types of which an annotation is composed."""
    parts = get_args(annotated)
    return [type_ for part in parts for type_ in _component_types(part)] if parts else [annotated]


def _origins(annotated: Any) -> set[Any]:
    return {getattr(part, "__origin__", part) for part in (annotated, *get_args(annotated))}
