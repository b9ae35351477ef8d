"""Requests and responses by kio's schemas. A response is one mapping, from which each version takes its fields."""

import struct
from functools import cache
from typing import Any

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema

from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.encoding import Values, encoded
from offsetlake.serve.protocol.later_schemas import REQUESTS, RESPONSES
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.protocol.request_reader import entity_reader
from offsetlake.serve.steps import Steps

_TAGS = b"\0"


def read(frame: bytes, header: wire.RequestHeader) -> Steps[Any]:
    """Read the body of a request in steps; return it with the fields of its version as attributes.

    Trailing bytes are ignored, as on a broker: librdkafka appends some to Metadata. Raise Malformed if the API or its
    version is not supported, or if the body is malformed.
    """
    try:
        schema = _request_schema(header.api, header.version)
    except (UnknownAPIKey, UnknownEntity) as error:
        raise wire.Malformed(f"unsupported API {header.api}, version {header.version}") from error
    limit = REQUEST_LIMITS[header.api].max_elements
    cursor = wire.Cursor(frame, header.body, flexible=schema.__flexible__, max_elements=limit)
    try:
        cursor.tags()
        return (yield from entity_reader(schema)(cursor))
    except (IndexError, struct.error) as error:
        raise wire.Malformed("the request ends before its last field") from error


def write(api: int, version: int, values: Values) -> bytes:
    """Return a small response as bytes, without its correlation id; omit the fields that its version does not have."""
    schema, tags = response_schema(api, version)
    return tags + encoded(schema, values)


@cache
def _request_schema(api: int, version: int) -> Any:
    """Return the schema of a request, which kio looks up in 15 us each time."""
    return REQUESTS.get((api, version)) or load_request_schema(api, version)


@cache
def response_schema(api: int, version: int) -> tuple[Any, bytes]:
    """Return the schema of a response, and the tagged fields of its header, which precede it."""
    schema: Any = RESPONSES.get((api, version)) or load_response_schema(api, version)
    return schema, _TAGS if schema.__header_schema__.__flexible__ else b""
