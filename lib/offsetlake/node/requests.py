"""Sends requests by kio's schemas over a connection of aiokafka, in the newest version that both sides support."""

import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.conn import AIOKafkaConnection
from kio.index import load_request_schema

from offsetlake.serve.protocol.encoding import Values, encoded
from offsetlake.serve.protocol.request_reader import entity_reader
from offsetlake.serve.protocol.schemas import response_schema
from offsetlake.serve.protocol.wire import Cursor
from offsetlake.serve.steps import complete

_HEADER, _CORRELATION_ID = struct.Struct(">hhih"), struct.Struct(">i")
_CORRELATION_POSITION = 4
_CLIENT_ID = "offsetlake"


class NodeResponse(NamedTuple):
    """The API and version of a response, and its body without the header."""

    api: int
    version: int
    body: bytes

    def entity(self) -> Any:
        """Return the fields of a small response as attributes."""
        schema, tags = response_schema(self.api, self.version)
        cursor = Cursor(self.body, 0, flexible=bool(tags) or schema.__flexible__)
        return complete(entity_reader(schema)(cursor))


async def send(broker: AIOKafkaConnection, api: int, versions: range, values: Values) -> NodeResponse:
    """Send a request, in the newest of `versions` that the broker supports, and return its response.

    Raises:
        NotImplementedError: The broker supports none of the versions.
        OSError, KafkaError: The connection failed, or there was no response in time.
    """
    return await broker.send(_Unversioned(api, versions, values))  # type: ignore[no-any-return]


class _Unversioned(NamedTuple):
    """A request whose version is chosen when it is sent; aiokafka calls `prepare`."""

    api: int
    versions: range
    values: Values

    def prepare(self, supported: Mapping[int, tuple[int, int]]) -> "_Request":
        first, last = supported.get(self.api, (0, -1))
        common = [version for version in self.versions if first <= version <= last]
        if not common:
            raise NotImplementedError(
                f"version {self.versions[0]} of API {self.api}, which brokers of Kafka 3.0 and later have"
            )
        return _Request(self.api, common[-1], self.values)


class _Request:
    """A request in one version, with the methods that aiokafka calls."""

    def __init__(self, api: int, version: int, values: Values) -> None:
        self._api, self._version, self._values = api, version, values
        self._schema: Any = load_request_schema(api, version)
        self.RESPONSE_TYPE = self

    def build_request_header(self, correlation_id: int, client_id: str) -> "_Bytes":
        name = client_id.encode()
        tags = b"\0" if self._schema.__header_schema__.__flexible__ else b""
        return _Bytes(_HEADER.pack(self._api, self._version, correlation_id, len(name)) + name + tags)

    def encode(self) -> bytes:
        return encoded(self._schema, self._values)

    def parse_response_header(self, response: BytesIO) -> "_ResponseHeader":
        (correlation_id,) = _CORRELATION_ID.unpack(response.read(_CORRELATION_ID.size))
        response.read(len(response_schema(self._api, self._version)[1]))
        return _ResponseHeader(correlation_id)

    def decode(self, response: BytesIO) -> NodeResponse:
        return NodeResponse(self._api, self._version, response.read())


class _ResponseHeader(NamedTuple):
    correlation_id: int


def request_frame(api: int, version: int, values: Values) -> bytes:
    """Return a request with its header, as a client sends it."""
    request = _Request(api, version, values)
    return request.build_request_header(0, _CLIENT_ID).encode() + request.encode()


async def send_frame(broker: AIOKafkaConnection, frame: bytes) -> bytes:
    """Send the frame of a client, with another correlation id, and return the response without its correlation id.

    Raises:
        OSError, KafkaError: The connection failed, or there was no response in time.
    """
    return await broker.send(_Frame(frame))  # type: ignore[no-any-return]


class _Frame(NamedTuple):
    """A request that is already encoded, with the methods that aiokafka calls."""

    frame: bytes

    @property
    def RESPONSE_TYPE(self) -> "_Frame":  # noqa: N802 - aiokafka's name
        return self

    def prepare(self, _supported: Mapping[int, tuple[int, int]]) -> "_Frame":
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> "_Bytes":
        return _Bytes(self.frame[:_CORRELATION_POSITION] + _CORRELATION_ID.pack(correlation_id))

    def encode(self) -> bytes:
        return self.frame[_CORRELATION_POSITION + _CORRELATION_ID.size :]

    def parse_response_header(self, response: BytesIO) -> "_ResponseHeader":
        (correlation_id,) = _CORRELATION_ID.unpack(response.read(_CORRELATION_ID.size))
        return _ResponseHeader(correlation_id)

    def decode(self, response: BytesIO) -> bytes:
        return response.read()


class _Bytes(NamedTuple):
    data: bytes

    def encode(self) -> bytes:
        return self.data
