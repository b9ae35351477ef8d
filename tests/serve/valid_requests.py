"""Valid requests of every API and version, made at random from kio's schemas."""

import dataclasses
import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args, get_origin

from kio.index import load_request_schema
from kio.static.primitive import i16

from offsetlake.serve.admin import VERSIONS
from serve.wire_client import frame

API_VERSIONS = [(api, version) for api, versions in VERSIONS.items() for version in versions]
_NAMES = ("", "g", "orders", "payments", "__consumer_offsets", "zürich", "consumer", "Stable", "PLAIN", "x" * 200)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def entity(api: int, version: int, rng: random.Random) -> Any:
    """Return a request body as kio's entity."""
    return _entity(load_request_schema(i16(api), i16(version)), rng)


def requests(rng: random.Random) -> Iterator[tuple[int, int, bytes]]:
    """Return API, version and frame (with its size) of valid requests without end: every API and version in turn."""
    while True:
        for correlation, (api, version) in enumerate(API_VERSIONS):
            yield api, version, frame(api, version, correlation, entity(api, version, rng))


def _entity(schema: Any, rng: random.Random) -> Any:
    return schema(**{field.name: _field(field, rng) for field in dataclasses.fields(schema)})


def _field(field: "dataclasses.Field[Any]", rng: random.Random) -> Any:
    annotation: Any = field.type
    choices = [of for of in get_args(annotation) if of is not type(None)]
    if get_origin(annotation) is not tuple and len(choices) < len(get_args(annotation)):
        if rng.random() < 0.3:
            return None
        annotation = choices[0]
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return tuple(_value(element, field, rng) for _ in range(rng.choice((0, 1, 1, 2, 5))))
    return _value(annotation, field, rng)


def _value(annotation: Any, field: "dataclasses.Field[Any]", rng: random.Random) -> Any:
    kind = field.metadata.get("kafka_type")
    if kind is None:
        return _entity(annotation, rng)
    if kind in _BITS:
        edge = 1 << (_BITS[kind] - 1)
        return rng.choice((-1, 0, 1, 2, 3, 100, rng.randrange(-edge, edge)))
    return {
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: rng.choice(_NAMES),
        "bytes": lambda: rng.randbytes(rng.randrange(20)),
        "records": lambda: rng.randbytes(rng.randrange(80)),
        "uuid": lambda: rng.choice((None, uuid.UUID(bytes=rng.randbytes(16)))),
        "timedelta_i32": lambda: timedelta(milliseconds=rng.choice((0, 1, 20, 60_000, 2**31 - 1))),
        "timedelta_i64": lambda: timedelta(milliseconds=rng.choice((-1, 0, 60_000))),
    }[kind]()
