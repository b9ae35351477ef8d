"""Commits in parts, as their headers tell: what is a part, what is malformed, and what a chunk must not decide."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.chunk import Chunk, decode_chunk
from support.kafka.made_commits import KEY, TIME, VALUE
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_reader import OFFSETS_TOPIC
from support.oracle.log_writer import CODECS, Batch, Record, batch_bytes

Headers = tuple[tuple[bytes, bytes | None], ...]

ID, SIZE = b"commit.id", b"commit.size"
SEVEN, TWO = (ID, struct.pack(">q", 7)), (SIZE, struct.pack(">i", 2))
PART = (SEVEN, TWO)
MALFORMED = "the headers of a commit in parts are malformed: "


def chunk_of(*records: tuple[bytes, bytes | None, Headers], **batch: Any) -> Chunk:
    made = tuple(Record(at, TIME, *each) for at, each in enumerate(records))
    return decode_chunk(OFFSETS_TOPIC, *read_batches(batch_bytes(Batch(records=made, **batch))))


def part_of(headers: Headers, value: bytes | None = VALUE, **batch: Any) -> tuple[int | None, int | None]:
    (row,) = chunk_of((KEY, value, headers), **batch).commits.to_pylist()
    return row["commit_id"], row["commit_size"]


def reason(headers: Headers, value: bytes | None = VALUE) -> str:
    """Why a record between two good ones is in quarantine, with all its bytes."""
    chunk = chunk_of((KEY, VALUE, PART), (KEY, value, headers), (KEY, None, ()))
    assert chunk.commits["log_offset"].to_pylist() == [0, 2]
    assert chunk.commits["commit_id"].to_pylist() == [7, None]
    (row,) = chunk.others.to_pylist()
    assert (row["kind"], row["log_offset"]) == ("quarantine", 1)
    assert (row["key_bytes"], row["value_bytes"]) == (KEY, value)
    return str(row["reason"])


@pytest.mark.parametrize("value", [VALUE, None])
@pytest.mark.parametrize("codec", CODECS)
def test_record_with_both_headers_is_a_part(codec: str, value: bytes | None) -> None:
    assert part_of(PART, value, codec=codec) == (7, 2)
    assert part_of((TWO, SEVEN), value, codec=codec) == (7, 2)


@given(commit_id=st.integers(-(2**63), 2**63 - 1), size=st.integers(1, 2**31 - 1))
def test_any_id_and_any_size_above_0(commit_id: int, size: int) -> None:
    assert part_of(((ID, struct.pack(">q", commit_id)), (SIZE, struct.pack(">i", size)))) == (commit_id, size)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"", b""),),
        ((b"commit.ids", b"12345678"), (b"commit.i", None), (b"Commit.Id", b""), (b"commit_size", b"1234")),
        ((b"x" * 300, b"y" * 3000),) * 3,
    ],
)
def test_other_headers_are_ignored(headers: Headers) -> None:
    assert part_of(headers) == (None, None)
    assert part_of((*headers, SEVEN, *headers, TWO, *headers)) == (7, 2)


def test_headers_in_transaction_are_ignored() -> None:
    for value in (VALUE, None):
        assert part_of(PART, value, producer_id=9, producer_epoch=0, is_transactional=True) == (None, None)
        assert part_of((SEVEN,), value, producer_id=9, producer_epoch=0, is_transactional=True) == (None, None)
    assert part_of(PART, producer_id=-1, is_transactional=True) == (7, 2), "the producer id tells a transaction"


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ((SEVEN,), "commit.id or commit.size is missing"),
        ((TWO, (b"other", b"")), "commit.id or commit.size is missing"),
        (((ID, None),), "commit.id or commit.size is missing"),
        ((SEVEN, TWO, SEVEN), "commit.id or commit.size appears more than once"),
        ((SEVEN, TWO, TWO), "commit.id or commit.size appears more than once"),
        (((ID, b"1234567"), TWO), "commit.id must have 8 bytes and commit.size 4"),
        (((ID, b"123456789"), TWO), "commit.id must have 8 bytes and commit.size 4"),
        (((ID, None), TWO), "commit.id must have 8 bytes and commit.size 4"),
        ((SEVEN, (SIZE, b"")), "commit.id must have 8 bytes and commit.size 4"),
        ((SEVEN, (SIZE, bytes(8))), "commit.id must have 8 bytes and commit.size 4"),
        ((SEVEN, (SIZE, struct.pack(">i", 0))), "commit.size is 0, but must be greater than 0"),
        ((SEVEN, (SIZE, struct.pack(">i", -2))), "commit.size is -2, but must be greater than 0"),
    ],
)
def test_malformed_headers_are_undecodable(headers: Headers, why: str) -> None:
    assert reason(headers) == reason(headers, None) == MALFORMED + why


def test_undecodable_value_takes_precedence_over_malformed_headers() -> None:
    assert reason((SEVEN,), b"") == "the offset commit value is empty; the value of a tombstone is null"
    assert reason(PART, b"\0") == "the offset commit value is truncated or malformed"


def test_a_part_supersedes_nothing_and_nothing_supersedes_a_part() -> None:
    other = offset_value(3, 8, commit_timestamp=TIME)
    chunk = chunk_of(
        (KEY, VALUE, ()),
        (KEY, VALUE, PART),
        (KEY, None, PART),
        (offset_key("g", "t", 1), None, ()),
        (offset_key("g", "t", 1), other, PART),
    )
    assert chunk.commits["superseded"].to_pylist() == [False] * 5
    chunk = chunk_of((KEY, VALUE, ()), (KEY, None, PART), (KEY, VALUE, PART), (KEY, other, ()))
    assert chunk.commits["superseded"].to_pylist() == [True, False, False, False]
