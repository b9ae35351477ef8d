"""`read_batches` on messages of magic 0 and 1 of true checksum that are wrong inside."""

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import read_batches
from support.kafka.made_batches import TIME, oracle_rows, read, rejected, rows


def message(magic: int, rest: bytes, *, attributes: int = 0, offset: int = 0) -> bytes:
    body = struct.pack(">bb", magic, attributes) + struct.pack(">q", TIME)[: 8 * magic] + rest
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1 if data is None else len(data)) + (data or b"")


def wrapper(magic: int, inside: bytes, *, offset: int = 5) -> bytes:
    return message(magic, sized(None) + sized(gzip.compress(inside)), attributes=1, offset=offset)


def plain(magic: int, offset: int, key: bytes = b"k") -> bytes:
    return message(magic, sized(key) + sized(b"value"), offset=offset)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda magic: message(magic, sized(b"k") + struct.pack(">i", 100) + bytes(9)), "do not end where"),
        (lambda magic: message(magic, struct.pack(">i", 1000) + bytes(12)), "too short"),
        (lambda magic: message(magic, struct.pack(">i", -2) + bytes(12)), "negative size"),
        (lambda magic: message(magic, sized(None) + struct.pack(">i", -(2**31)) + bytes(12)), "negative size"),
        (lambda magic: message(magic, sized(b"k") + sized(b"v") + b"x"), "do not end where"),
        (lambda magic: message(magic, sized(b"k") + sized(b"v"), attributes=2), "cannot be decompressed"),
        (lambda magic: message(magic, sized(b"k") + sized(b"v"), attributes=7), "codec 7"),
        (lambda magic: message(magic, sized(b"key") + sized(None), attributes=1), "is null"),
        (lambda magic: wrapper(magic, b""), "contains no messages"),
        (lambda magic: wrapper(magic, plain(magic, 0) + plain(magic, 5)[:-1]), "truncated"),
        (lambda magic: wrapper(magic, plain(magic, 0) + b"junk"), "truncated"),
        (lambda magic: wrapper(magic, plain(magic, 0)[:8] + struct.pack(">i", -12) + bytes(40)), "truncated"),
        (lambda magic: wrapper(magic, plain(1 - magic, 5)), "another magic"),
        (lambda magic: wrapper(magic, wrapper(magic, plain(magic, 5))), "is compressed"),
        (lambda magic: wrapper(magic, plain(magic, 4) + plain(magic, 3)), "do not increase"),
        (lambda magic: wrapper(magic, plain(magic, 4) + plain(magic, 4)), "do not increase"),
    ],
)
def test_malformed_message_is_corrupt(magic: int, make: Callable[[int], bytes], reason: str) -> None:
    data = make(magic)
    assert reason in rejected(data, int.from_bytes(data[:8]))


def lz4_wrapper(magic: int, inside: bytes, change: Callable[[bytes], bytes]) -> bytes:
    frame = change(bytes(cramjam.lz4.compress(inside)))
    return message(magic, sized(None) + sized(frame), attributes=3, offset=5)


def with_other_header_checksum(frame: bytes) -> bytes:
    """Return an LZ4 frame with the header checksum of brokers before 0.10, or any other."""
    end = 6 + 8 * bool(frame[4] & 8)
    return frame[:end] + bytes([frame[end] ^ 0x5A]) + frame[end + 1 :]


def test_header_checksum_of_lz4_is_ignored_with_magic_0_only() -> None:
    for magic in (0, 1):
        inside = plain(magic, 4) + plain(magic, 5)
        assert [row[0] for row in read(lz4_wrapper(magic, inside, bytes))] == [4, 5]
    inside = plain(0, 4) + plain(0, 5)
    assert [row[0] for row in read(lz4_wrapper(0, inside, with_other_header_checksum))] == [4, 5]
    wrong = lz4_wrapper(1, plain(1, 4) + plain(1, 5), with_other_header_checksum)
    assert "cannot be decompressed" in rejected(wrong, 5)
    assert "cannot be decompressed" in rejected(lz4_wrapper(0, inside, lambda frame: frame[:5]), 5)
    assert "cannot be decompressed" in rejected(lz4_wrapper(0, inside, lambda frame: frame[:-9]), 5)


def test_unchanged_test_messages_are_valid() -> None:
    for magic in (0, 1):
        data = wrapper(magic, plain(magic, 3) + plain(magic, 5)) + plain(magic, 9)
        assert [row[0] for row in read(data)] == [3, 5, 9]
        assert read(data) == oracle_rows(data)


@settings(deadline=None, max_examples=300)
@given(magic=st.integers(0, 1), attributes=st.integers(0, 15), rest=st.binary(max_size=60), inside=st.booleans())
def test_arbitrary_messages_never_raise(magic: int, attributes: int, rest: bytes, inside: bool) -> None:
    made = message(magic, rest + bytes(8), attributes=attributes)
    data = wrapper(magic, made) if inside else made
    records, corrupt = read_batches(data)
    assert [region.data for region in corrupt] == ([] if len(records) else [data])
    assert rows(records) == (oracle_rows(data) if len(records) else [])
