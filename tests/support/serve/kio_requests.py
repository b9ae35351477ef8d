"""Requests as kio writes them, of any API and version, to a server or for one; answers as plain values."""

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

SECONDS = 30
CLIENT, CORRELATION = b"asking", 77
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
_FLEXIBLE = 2  # version of a request header
_OFTEN: dict[str, Any] = {
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
"""What a request says where nothing else is given."""


def request(api: int, version: int, values: dict[str, Any]) -> bytes:
    """Write a request, without its size."""
    schema: Any = load_request_schema(api, version)
    out = io.BytesIO()
    out.write(_HEADER.pack(api, version, CORRELATION, len(CLIENT)) + CLIENT)
    if schema.__header_schema__.__version__ == _FLEXIBLE:
        out.write(b"\0")
    entity_writer(schema)(out, filled(schema, _OFTEN | values))
    return out.getvalue()


def answered(api: int, version: int, answer: bytes) -> dict[str, Any]:
    """Read an answer, from behind its correlation id on; all of it must be read."""
    schema: Any = load_response_schema(api, version)
    at = 1 if schema.__header_schema__.__version__ else 0
    assert answer[:at] == bytes(at)
    found, size = entity_reader(schema)(answer, at)
    assert at + size == len(answer)
    plain: dict[str, Any] = _plain(found)
    return plain


def connected(bootstrap: str) -> socket.socket:
    """Connect to a server."""
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def exchange(connection: socket.socket, body: bytes) -> bytes:
    """Send a request, and give the answer from behind its correlation id on; EOFError where it is hung up on."""
    connection.sendall(_SIZE.pack(len(body)) + body)
    (size,) = _SIZE.unpack(_received(connection, _SIZE.size))
    answer = _received(connection, size)
    assert _SIZE.unpack_from(answer) == (CORRELATION,)
    return answer[_SIZE.size :]


def ask(bootstrap: str, api: int, version: int, **values: Any) -> dict[str, Any]:
    """Ask a server."""
    with connected(bootstrap) as connection:
        return answered(api, version, exchange(connection, request(api, version, values)))


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the server hung up")
        data += more
    return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, enum.IntEnum):
        return int(value)
    if isinstance(value, timedelta):
        return value / timedelta(milliseconds=1)
    return value.bytes if isinstance(value, uuid.UUID) else value
