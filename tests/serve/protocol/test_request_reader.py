"""The request reader returns what kio's reader returns for valid requests, and refuses invalid lengths and nulls."""

import random
import struct
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader as kio_reader

from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT, OFFSET_FETCH
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.steps import complete
from support.serve.valid_requests import API_VERSIONS, entity
from support.serve.wire_client import frame, plain

FETCH, METADATA, DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS_KEY, DELETE_GROUPS = 1, 3, 15, 16, 18, 42
BY_SCHEMA = [(api, version) for api, version in API_VERSIONS if api not in {OFFSET_COMMIT, OFFSET_FETCH}]
CLIENT = b"\0\0"


def request(api: int, version: int, body: str) -> bytes:
    """Return a request without its size: its body, in hexadecimal digits, follows the header directly."""
    return struct.pack(">hhi", api, version, 1) + CLIENT + bytes.fromhex(body)


def read(data: bytes) -> Any:
    return complete(schemas.read(data, wire.read_header(data)))


def as_plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: as_plain(getattr(value, name)) for name in value._fields}
    return [as_plain(each) for each in value] if isinstance(value, tuple) else plain(value)


@pytest.mark.parametrize(("api", "version"), BY_SCHEMA)
def test_valid_request_is_read_as_by_kio(api: int, version: int) -> None:
    rng = random.Random(f"{api} {version}")
    for _ in range(30):
        expected = entity(api, version, rng)
        data = frame(api, version, 1, expected)[4:]
        assert as_plain(read(data)) == plain(expected)
        with pytest.raises(wire.Malformed):
            read(data[:-1])


def test_generated_requests_are_readable_by_kio() -> None:
    """The expected values of the other tests are those of kio's own reader."""
    rng = random.Random(0)
    for api, version in API_VERSIONS:
        expected = entity(api, version, rng)
        data = frame(api, version, 1, expected)[4:]
        at = wire.read_header(data).body + (expected.__header_schema__.__version__ == 2)
        assert plain(kio_reader(load_request_schema(api, version))(data, at)[0]) == plain(expected)


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (LIST_GROUPS, 4, "00 ffffffff61 00"),  # 26 billion states
        (LIST_GROUPS, 4, "00 ffffffff07 00"),  # 2 ** 31 - 2 states
        (LIST_GROUPS, 4, "00 04 01 01 00"),  # three states in two bytes
        (LIST_GROUPS, 4, "00 00 00"),  # null for states
        (LIST_GROUPS, 4, "00 808080808000 00"),  # a length of six bytes
        (LIST_GROUPS, 4, "00 01 05"),  # five tagged fields in no bytes
        (LIST_GROUPS, 4, "00 01 01 05 7f 61"),  # a tagged field of 127 bytes in one
        (LIST_GROUPS, 4, "ffffffff07 01 00"),  # tagged fields of the header
        (DESCRIBE_GROUPS, 0, "ffffffff"),  # null
        (DESCRIBE_GROUPS, 0, "fffffffe"),  # a count of -2
        (DESCRIBE_GROUPS, 0, "7fffffff"),
        (DESCRIBE_GROUPS, 0, "00000002 0000"),
        (DESCRIBE_GROUPS, 0, "00000001 ffff"),  # null for a group id
        (DESCRIBE_GROUPS, 0, "00000001 fffe"),  # a string length of -2
        (DESCRIBE_GROUPS, 0, "00000001 0005 61"),
        (METADATA, 0, "ffffffff"),  # null is for version 1
        (DELETE_GROUPS, 2, "00 00 00"),
    ],
)
def test_invalid_length_or_null_is_malformed(api: int, version: int, body: str) -> None:
    with pytest.raises(wire.Malformed):
        read(request(api, version, body))


def test_unknown_tagged_fields_are_skipped() -> None:
    """In the header, the request and its structures (KIP-482); known tagged fields are read."""
    tags = "02 05 01 61 7f 00"
    found = read(request(API_VERSIONS_KEY, 3, f"{tags} 02 61 02 62 {tags}"))
    assert (found.client_software_name, found.client_software_version) == ("a", "b")
    metadata = read(request(METADATA, 9, f"{tags} 02 02 74 {tags} 01 00 00 {tags}"))
    assert [topic.name for topic in metadata.topics] == ["t"]
    assert metadata.allow_auto_topic_creation
    fixed = "00000064 00000001 00000400 00 00000000 ffffffff"
    state = "01 0d 00000007 0000000000000009" + "00"
    fetch = read(request(FETCH, 17, f"00 {fixed} 01 01 01 03 00 02 02 63 {state} 09 01 ff"))
    assert (fetch.cluster_id, fetch.replica_state.replica_id, fetch.replica_state.replica_epoch) == ("c", 7, 9)


def test_invalid_utf_8_is_replaced_as_by_a_broker() -> None:
    """Java replaces invalid UTF-8 by U+FFFD."""
    assert read(request(DESCRIBE_GROUPS, 0, "00000001 0003 61ff62")).groups == ("a\ufffdb",)


@pytest.mark.parametrize("size", [32_767, 32_768])
def test_string_above_the_maximum_length_is_malformed(size: int) -> None:
    """Flexible versions can state larger lengths, but no record can contain them."""
    length = bytes((0x80 | (size + 1) & 0x7F, 0x80 | (size + 1) >> 7 & 0x7F, (size + 1) >> 14)).hex()
    data = request(DESCRIBE_GROUPS, 5, f"00 02 {length} {'61' * size} 00 00")
    if size > 32_767:
        with pytest.raises(wire.Malformed, match="32768"):
            read(data)
    else:
        assert read(data).groups == ("a" * size,)


def test_request_with_too_many_elements_is_malformed() -> None:
    """The limit applies to the elements of all arrays together, and to tagged fields."""
    limit = REQUEST_LIMITS[DESCRIBE_GROUPS].max_elements
    assert len(read(request(DESCRIBE_GROUPS, 0, struct.pack(">i", limit).hex() + "0000" * limit)).groups) == limit
    too_many = request(DESCRIBE_GROUPS, 0, struct.pack(">i", limit + 1).hex() + "0000" * (limit + 1))
    with pytest.raises(wire.Malformed, match="more elements"):
        read(too_many)
    tags = REQUEST_LIMITS[LIST_GROUPS].max_elements + 1
    count = bytes((0x80 | tags & 0x7F, tags >> 7)).hex()
    with pytest.raises(wire.Malformed, match="more elements"):
        read(request(LIST_GROUPS, 4, f"00 01 {count}" + "0500" * tags))
