"""Valid requests of every API and version, generated at random from kio's schemas."""

import dataclasses
import random
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args, get_origin

from kio.index import load_request_schema
from kio.static.primitive import i16

from offsetlake.serve.protocol.api_keys import VERSIONS
from support.serve.wire_client import frame

API_VERSIONS = [(api, version) for api, versions in VERSIONS.items() for version in versions]
_NAMES = ("", "g", "orders", "payments", "__consumer_offsets", "zürich", "consumer", "Stable", "PLAIN", "x" * 200)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def entity(api: int, version: int, rng: random.Random) -> Any:
    """Return a request body as kio's entity."""
    return _entity(load_request_schema(i16(api), i16(version)), rng)


def requests(rng: random.Random) -> Iterator[tuple[int, int, bytes]]:
    """Yield API, version and frame (with its size) of valid requests, of every API and version in turn."""
    while True:
        for correlation, (api, version) in enumerate(API_VERSIONS):
            yield api, version, frame(api, version, correlation, entity(api, version, rng))


def _entity(schema: Any, rng: random.Random) -> Any:
    return schema(**{field.name: _field(field, rng) for field in dataclasses.fields(schema)})


def _field(field: "dataclasses.Field[Any]", rng: random.Random) -> Any:
    annotation: Any = field.type
    choices = [row for row in get_args(annotation) if row is not type(None)]
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


_PLAIN: dict[str, Any] = {
    "name": "as-a-broker-1", "topic": "as-a-broker-1", "topic_name": "as-a-broker-1", "mechanism": "PLAIN",
    "acks": -1, "timestamp": -1, "partition_max_bytes": 1 << 10, "max_bytes": 1 << 10, "session_epoch": -1,
    "generation_id": -1, "generation_id_or_member_epoch": -1, "member_epoch": -1, "group_instance_id": None,
    "member_id": "", "producer_id": -1, "producer_epoch": -1, "endpoint_type": 1, "replica_id": -1,
    "max_wait": timedelta(0), "min_bytes": 0, "response_partition_limit": 10, "partition_index": 0, "partition": 0,
    "transaction_timeout": timedelta(minutes=1), "cursor": None, "retention_time": timedelta(milliseconds=-1),
    "states_filter": ("Empty",), "types_filter": ("classic",),
    "transactional_ids": ("unused",),  # kio does not read the start time -1 of one that was initialized
}  # fmt: skip


def plain_entity(api: int, version: int) -> Any:
    """Return the body of an ordinary request: one element in each array, no tagged fields."""
    return _plain_entity(load_request_schema(i16(api), i16(version)))


def _plain_entity(schema: Any) -> Any:
    fields = [field for field in dataclasses.fields(schema) if "tag" not in field.metadata]
    return schema(**{field.name: _plain_field(field) for field in fields})


def _plain_field(field: "dataclasses.Field[Any]") -> Any:
    if field.name in _PLAIN:
        return _PLAIN[field.name]
    annotation: Any = field.type
    choices = [row for row in get_args(annotation) if row is not type(None)]
    if get_origin(annotation) is not tuple and len(choices) < len(get_args(annotation)):
        annotation = choices[0]
    if get_origin(annotation) is tuple:
        return (_plain_value(get_args(annotation)[0], field),)
    return _plain_value(annotation, field)


def _plain_value(annotation: Any, field: "dataclasses.Field[Any]") -> Any:
    kind = field.metadata.get("kafka_type")
    if kind is None:
        return _plain_entity(annotation)
    defaults = {"bool": False, "string": "malformed", "bytes": b"", "records": b"", "uuid": None}
    return timedelta(0) if kind.startswith("timedelta") else defaults.get(kind, 0)
