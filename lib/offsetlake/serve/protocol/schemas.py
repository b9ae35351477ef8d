"""Requests and answers by kio's schemas: one plain mapping an answer, of which each version takes the fields it has."""

import struct
from typing import Any

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema

from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.encoding import Values, encoded
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.protocol.request_reader import entity_reader
from offsetlake.serve.steps import Steps

_TAGS = b"\0"


def read(frame: bytes, header: wire.RequestHeader) -> Steps[Any]:
    """Read the body of a request in steps; return it with the fields of its version as attributes.

    Bytes after it are ignored, as by a broker: librdkafka sends Metadata with some. Raise Malformed if the bytes are
    not such a request.
    """
    try:
        schema: Any = load_request_schema(header.api, header.version)
    except (UnknownAPIKey, UnknownEntity) as error:
        raise wire.Malformed(f"api {header.api} of version {header.version}") from error
    limit = REQUEST_LIMITS[header.api].max_elements
    cursor = wire.Cursor(frame, header.body, flexible=schema.__flexible__, max_elements=limit)
    try:
        cursor.tags()
        return (yield from entity_reader(schema)(cursor))
    except (IndexError, struct.error) as error:
        raise wire.Malformed("a request that ends before its last field") from error


def write(api: int, version: int, values: Values) -> bytes:
    """Write a small response, from behind its correlation id on. Fields its version does not have are left out."""
    schema, tags = response_schema(api, version)
    return tags + encoded(schema, values)


def response_schema(api: int, version: int) -> tuple[Any, bytes]:
    """Return the schema of a response, and what comes before it: the tagged fields of its header."""
    schema: Any = load_response_schema(api, version)
    return schema, _TAGS if schema.__header_schema__.__flexible__ else b""
