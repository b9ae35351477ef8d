"""Requests by kio's schemas, over a plain socket: what a client library would not send can be sent too."""

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
CLIENT = "offsetlake-tests"
_FLEXIBLE_HEADER, _API_VERSIONS = 2, 18


def request(api: int, version: int, values: Mapping[str, Any]) -> Any:
    """Make a request of plain dicts, lists and values; what a version does not have is left out."""
    return _made(kio.index.load_request_schema(i16(api), i16(version)), values)


def _made(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        if field.name in values:
            given[field.name] = _value(hints[field.name], values[field.name])
    return kind(**given)


def _value(hint: Any, value: Any) -> Any:
    for of in (hint, *get_args(hint)):
        if get_origin(of) is tuple and value is not None:
            return tuple(_value(get_args(of)[0], each) for each in value)
        if dataclasses.is_dataclass(of) and value is not None:
            return _made(of, value)
    return value


def plain(entity: Any) -> Any:
    """Give an answer as dicts and lists."""
    if dataclasses.is_dataclass(entity):
        return {field.name: plain(getattr(entity, field.name)) for field in dataclasses.fields(entity)}
    return [plain(each) for each in entity] if isinstance(entity, tuple) else entity


def frame(api: int, version: int, correlation: int, entity: Any) -> bytes:
    """Lay a request out with its header and size."""
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    client = CLIENT.encode()
    header = struct.pack(">hhih", api, version, correlation, len(client)) + client
    flexible = type(entity).__header_schema__.__version__ >= _FLEXIBLE_HEADER
    data = header + (b"\0" if flexible else b"") + body.getvalue()
    return struct.pack(">i", len(data)) + data


def read_answer(api: int, version: int, data: bytes) -> tuple[int, Any]:
    """Read an answer without its size; gives the correlation id and the answer, which must reach to the end."""
    schema = kio.index.load_response_schema(i16(api), i16(version))
    (correlation,) = struct.unpack_from(">i", data)
    at = 4
    if schema.__header_schema__.__version__ == 1:
        assert data[at] == 0
        at += 1
    answer, size = entity_reader(schema)(data, at)
    assert at + size == len(data), "bytes behind the answer"
    return correlation, answer


class WireClient:
    """One connection, from an address of this machine where that is named."""

    def __init__(self, bootstrap: str, source: str = "") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()

    def ask(self, api: int, version: int, values: Mapping[str, Any]) -> Any:
        """Send a request, as `request` makes it, and give its answer as `plain` does."""
        self._correlation += 1
        self.socket.sendall(frame(api, version, self._correlation, request(api, version, values)))
        correlation, answer = read_answer(api, version, self.receive())
        assert correlation == self._correlation
        return plain(answer)

    def receive(self) -> bytes:
        """Read one answer, without its size; EOFError where the connection ends."""
        while len(self._received) < 4 or len(self._received) < 4 + struct.unpack_from(">i", self._received)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self._received += data
        size = 4 + struct.unpack_from(">i", self._received)[0]
        answer, self._received = self._received[4:size], self._received[size:]
        return answer
