"""Entities of kio's schemas, made of plain values."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any, get_args

from kio.schema.errors import ErrorCode

_ZERO: dict[str, Any] = {"timedelta_i32": timedelta(0), "error_code": ErrorCode.none}
"""By Kafka type, the value of a field without a default that is not given."""


def filled(schema: Any, values: Mapping[str, Any]) -> Any:
    """Make an entity of the values it has fields for; others keep their defaults."""
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
    """Give of each field its name, what makes its value, and what it is where nothing is said."""
    found = []
    for field in dataclasses.fields(schema):
        kind = field.metadata.get("kafka_type", "")
        default = field.default if field.default is not dataclasses.MISSING else _ZERO.get(kind, field.default)
        found.append((field.name, _conversion(field.type, kind), default))
    return found


def _conversion(annotated: Any, kind: str) -> Convert:
    if kind == "error_code":
        return ErrorCode
    nested = next((of for of in _named_in(annotated) if dataclasses.is_dataclass(of)), None)
    if nested is None:
        return tuple if kind != "bytes" and tuple in _origins(annotated) else _as_it_is
    if tuple in _origins(annotated):
        return lambda values: None if values is None else tuple(filled(nested, of) for of in values)
    return lambda values: None if values is None else filled(nested, values)


def _as_it_is(value: Any) -> Any:
    return value


def _named_in(annotated: Any) -> list[Any]:
    """Give the types an annotation is made of."""
    parts = get_args(annotated)
    return [of for part in parts for of in _named_in(part)] if parts else [annotated]


def _origins(annotated: Any) -> set[Any]:
    return {getattr(part, "__origin__", part) for part in (annotated, *get_args(annotated))}
