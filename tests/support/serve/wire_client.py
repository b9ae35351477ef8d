"""A client over a plain socket with requests by kio's schemas, which can send what a client library would not send."""

import dataclasses
import io
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, get_args, get_origin, get_type_hints

import kio.index
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16

OFFSET_COMMIT, OFFSET_FETCH, METADATA = 8, 9, 3
TIMEOUT_SECONDS = 120
CLIENT = "offsetlake-tests"
_FLEXIBLE_HEADER, _API_VERSIONS = 2, 18


def request(api: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return a request entity from plain values; fields that the version does not have are omitted."""
    return _entity(kio.index.load_request_schema(i16(api), i16(version)), values)


def _entity(schema: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(schema)
    fields = {}
    for field in dataclasses.fields(schema):
        if field.name in values:
            fields[field.name] = _value(hints[field.name], values[field.name])
    return schema(**fields)


def _value(hint: Any, value: Any) -> Any:
    for type_ in (hint, *get_args(hint)):
        if get_origin(type_) is tuple and value is not None:
            return tuple(_value(get_args(type_)[0], element) for element in value)
        if dataclasses.is_dataclass(type_) and value is not None:
            return _entity(type_, value)
    return value


def plain(entity: Any) -> Any:
    """Return an entity as dicts and lists."""
    if dataclasses.is_dataclass(entity):
        return {field.name: plain(getattr(entity, field.name)) for field in dataclasses.fields(entity)}
    return [plain(element) for element in entity] if isinstance(entity, tuple) else entity


def frame(api: int, version: int, correlation: int, entity: Any) -> bytes:
    """Return a request as bytes, with its header and size."""
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    client = CLIENT.encode()
    header = struct.pack(">hhih", api, version, correlation, len(client)) + client
    flexible = type(entity).__header_schema__.__version__ >= _FLEXIBLE_HEADER
    data = header + (b"\0" if flexible else b"") + body.getvalue()
    return struct.pack(">i", len(data)) + data


def read_answer(api: int, version: int, data: bytes) -> tuple[int, Any]:
    """Return correlation id and entity of a response, which is given without its size."""
    schema = kio.index.load_response_schema(i16(api), i16(version))
    (correlation,) = struct.unpack_from(">i", data)
    begin = 4
    if schema.__header_schema__.__version__ == 1:
        assert data[begin] == 0
        begin += 1
    answer, size = entity_reader(schema)(data, begin)
    assert begin + size == len(data), "trailing bytes"
    return correlation, answer


class WireClient:
    """One connection, from a given local address if `source` is set."""

    def __init__(self, bootstrap: str, source: str = "") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()

    def ask(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request with plain values, and return the response as plain values."""
        self._correlation += 1
        self.socket.sendall(frame(api, version, self._correlation, request(api, version, values)))
        correlation, answer = read_answer(api, version, self.receive())
        assert correlation == self._correlation
        return plain(answer)

    def receive(self) -> bytes:
        """Return one response without its size; raise EOFError if the connection is closed."""
        while len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._received += data
        size = 4 + struct.unpack_from(">i", self._received)[0]
        answer, self._received = self._received[4:size], self._received[size:]
        return answer
