"""Requests of any API and version, written by kio, and responses as plain values; with or without a socket."""

import dataclasses
import enum
import io
import socket
import struct
import uuid
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from support.serve.entities import filled

SECONDS = 120
CLIENT, CORRELATION = b"asking", 77
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_FLEXIBLE = 2  # version of a request header
_DEFAULTS: dict[str, Any] = {
    "member_id": "",
    "include_authorized_operations": False,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "include_fenced_brokers": False,
    "client_software_name": "asking",
    "client_software_version": "1",
    "replica_id": -1,
    "isolation_level": 0,
    "timeout": timedelta(minutes=1),
}
"""The values of fields that a test does not set."""


def request(api: int, version: int, values: dict[str, Any]) -> bytes:
    """Return a request, without its size."""
    schema: Any = load_request_schema(api, version)
    out = io.BytesIO()
    out.write(_HEADER.pack(api, version, CORRELATION, len(CLIENT)) + CLIENT)
    if schema.__header_schema__.__version__ == _FLEXIBLE:
        out.write(b"\0")
    entity_writer(schema)(out, filled(schema, _DEFAULTS | values))
    return out.getvalue()


def answered(api: int, version: int, answer: bytes) -> dict[str, Any]:
    """Return a response, which is given without its correlation id, as plain values; it must have no trailing bytes."""
    schema: Any = load_response_schema(api, version)
    begin = 1 if schema.__header_schema__.__version__ else 0
    assert answer[:begin] == bytes(begin)
    entity, size = entity_reader(schema)(answer, begin)
    assert begin + size == len(answer)
    plain: dict[str, Any] = _plain(entity)
    return plain


def connected(bootstrap: str) -> socket.socket:
    """Connect to a server."""
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def exchange(connection: socket.socket, body: bytes) -> bytes:
    """Send a request; return the response without its correlation id, or raise EOFError if the connection is closed."""
    connection.sendall(_SIZE.pack(len(body)) + body)
    (size,) = _SIZE.unpack(_received(connection, _SIZE.size))
    answer = _received(connection, size)
    assert _SIZE.unpack_from(answer) == (CORRELATION,)
    return answer[_SIZE.size :]


def ask(bootstrap: str, api: int, version: int, **values: Any) -> dict[str, Any]:
    """Send a request to a server, and return the response."""
    with connected(bootstrap) as connection:
        return answered(api, version, exchange(connection, request(api, version, values)))


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the server closed the connection")
        data += more
    return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    if isinstance(value, enum.IntEnum):
        return int(value)
    if isinstance(value, timedelta):
        return value / timedelta(milliseconds=1)
    return value.bytes if isinstance(value, uuid.UUID) else value
