"""Who did it, as the headers of a batch's first record tell: what is an act, of what, and that it is found once."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.audit.events import read_audit_events
from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.chunk import decode_chunk
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.folder import FolderSlice
from offsetlake.log.positions import LogPartition, OffsetRange
from offsetlake.log.reading import decode
from support.kafka.made_commits import KEY, TIME, VALUE
from support.oracle.encoders import group_metadata_key, offset_key
from support.oracle.log_reader import OFFSETS_TOPIC
from support.oracle.log_writer import CODECS, Batch, Record, batch_bytes, marker_batch, write_partition

Headers = tuple[tuple[bytes, bytes | None], ...]

WHAT, PRINCIPAL, CLIENT, ADDRESS = b"act.what", b"act.principal", b"act.client", b"act.address"
RESET: Headers = ((WHAT, b"reset"), (PRINCIPAL, b"os:alice"), (CLIENT, b"offsetlake reset"), (ADDRESS, b"host"))
DELETION: Headers = ((WHAT, b"delete group"), (PRINCIPAL, b"User:bob"))
TOLD = {"what": "reset", "principal": "os:alice", "client_id": "offsetlake reset", "address": "host"}


def acts_of(*batches: Batch) -> list[dict[str, Any]]:
    records, corrupt = read_batches(b"".join(map(batch_bytes, batches)))
    assert not corrupt
    found = read_audit_events(records)
    found.validate(full=True)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def batch(first: int, *headers: Headers, key: bytes = KEY, **of: Any) -> Batch:
    return Batch(records=tuple(Record(first + at, TIME, key, VALUE, each) for at, each in enumerate(headers)), **of)


@pytest.mark.parametrize("codec", CODECS)
def test_audit_event_spans_its_batch(codec: Any) -> None:
    batches = [
        batch(3, (), (), codec=codec),
        batch(5, RESET, (), (), codec=codec),
        batch(8, DELETION, key=group_metadata_key("of bob"), codec=codec),
        batch(9, (), codec=codec),
    ]
    assert acts_of(*batches) == [
        {"log_offset": 5, "last_log_offset": 7, "log_timestamp": TIME, "group_id": "g", **TOLD},
        {"log_offset": 8, "last_log_offset": 8, "log_timestamp": TIME, "group_id": "of bob", "what": "delete group",
         "principal": "User:bob", "client_id": None, "address": None},
    ]  # fmt: skip


def test_audit_event_next_to_message_sets_is_read() -> None:
    old = [Batch(records=(Record(at, TIME, KEY, VALUE),), magic=magic) for at, magic in ((0, 0), (3, 1))]
    (row,) = acts_of(old[0], batch(1, RESET, ()), old[1])
    assert (row["log_offset"], row["last_log_offset"]) == (1, 2)


def test_audit_event_after_compaction() -> None:
    """It keeps where a batch begins and ends; with the first record goes who did it."""
    whole = Batch(records=(Record(1, TIME, KEY, VALUE, RESET),), base_offset=1, last_offset=4)
    headless = Batch(records=(Record(6, TIME, KEY, VALUE),), base_offset=5, last_offset=7)
    assert [(row["log_offset"], row["last_log_offset"]) for row in acts_of(whole, headless)] == [(1, 4)]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((WHAT, b"commit"),),
        ((PRINCIPAL, b"User:bob"),),
        ((WHAT, None), (PRINCIPAL, b"User:bob")),
        ((WHAT, b"commit"), (PRINCIPAL, None)),
        ((b"Act.what", b"commit"), (b"act.principals", b"User:bob"), (b"", None)),
    ],
)
def test_incomplete_headers_are_not_an_audit_event(headers: Headers) -> None:
    assert acts_of(batch(0, headers)) == []


@pytest.mark.parametrize("key", [None, b"", b"\0\1", b"\0\1\0", b"\0\1\0\2g", b"\0\1\xff\xff"])
def test_key_without_group_has_no_audit_event(key: Any) -> None:
    assert acts_of(batch(0, RESET, key=key)) == []


def test_headers_on_other_records_are_ignored() -> None:
    assert acts_of(batch(0, (), RESET)) == []
    assert acts_of(batch(0, DELETION, RESET))[0]["what"] == "delete group"
    behind = Batch(records=(Record(4, TIME, KEY, VALUE, RESET),), base_offset=3)
    assert acts_of(behind) == []


def test_marker_has_no_audit_event() -> None:
    marker = marker_batch("COMMIT", offset=0, timestamp=TIME, producer_id=1, producer_epoch=0)
    (record,) = marker.records
    told = Batch(records=(record._replace(headers=RESET),), producer_id=1, is_control=True, is_transactional=True)
    assert acts_of(told) == []
    assert acts_of(batch(0, RESET, producer_id=1, producer_epoch=0, is_transactional=True))[0]["what"] == "reset"


def test_audit_headers_do_not_change_decoded_records() -> None:
    part = ((b"commit.id", struct.pack(">q", 7)), (b"commit.size", struct.pack(">i", 1)))
    plain, told = (
        decode_chunk(OFFSETS_TOPIC, *read_batches(batch_bytes(batch(0, *headers))))
        for headers in (((), part, ()), ((*RESET,), (*RESET, *part), (*DELETION,)))
    )
    assert told.commits.equals(plain.commits)
    assert told.others.num_rows == 0
    assert told.audit_events.num_rows == 1


def test_long_values_are_truncated_and_invalid_utf8_replaced() -> None:
    (row,) = acts_of(batch(0, ((WHAT, b"w" * 2000), (PRINCIPAL, b"\xff!"), (CLIENT, "ä".encode() * 600))))
    assert (row["what"], row["principal"]) == ("w" * 1024, "�!")
    assert row["client_id"] == "ä" * 512


names = st.sampled_from([WHAT, PRINCIPAL, CLIENT, ADDRESS, b"act.other", b"commit.id"])
texts = st.text(max_size=8).map(lambda text: text.encode(errors="replace"))
some = st.lists(st.tuples(names, st.none() | texts | st.binary(max_size=4)), max_size=7).map(tuple)
batches = st.lists(
    st.tuples(st.lists(some, min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 2), st.sampled_from(CODECS)),
    max_size=5,
)


def expected(made: Batch, group: str) -> list[dict[str, Any]]:
    """By the letter of `audit_headers`, for one batch."""
    first = made.records[0]
    act = dict(first.headers)
    if first.offset != made.first or act.get(WHAT) is None or act.get(PRINCIPAL) is None:
        return []
    columns = {"what": WHAT, "principal": PRINCIPAL, "client_id": CLIENT, "address": ADDRESS}
    told = {column: act.get(name) for column, name in columns.items()}
    return [
        {"log_offset": first.offset, "last_log_offset": made.last, "log_timestamp": TIME, "group_id": group}
        | {column: None if value is None else value.decode(errors="replace") for column, value in told.items()}
    ]


@given(batches)
def test_random_headers_are_read_like_the_oracle(plans: list[Any]) -> None:
    made, rows, end = [], [], 0
    for number, (headers, before, behind, codec) in enumerate(plans):
        group = f"gröup {number}"
        records = tuple(
            Record(end + before + at, TIME, offset_key(group, "t", at), None, each) for at, each in enumerate(headers)
        )
        last = records[-1].offset + behind
        made.append(Batch(records=records, base_offset=end, last_offset=last, codec=codec))
        rows += expected(made[-1], group)
        end = last + 1
    assert acts_of(*made) == rows


def test_audit_event_is_found_once_for_any_slices(tmp_path: Any) -> None:
    batches = [batch(first, RESET, (), ()) for first in range(0, 12, 3)]
    write_partition(tmp_path, 4, batches)
    where, log = LogPartition(OFFSETS_TOPIC, 4), LogAddress(folder=tmp_path)
    for cut in range(13):
        ranges = (OffsetRange(0, cut), OffsetRange(cut, 12))
        slices = [piece for each in ranges if each.start < each.end for piece in log.slices(where, each)]
        assert all(isinstance(piece, FolderSlice) for piece in slices)
        rows = [row for piece, found in log.fetch(slices) for row in decode(piece, found).audit_events.to_pylist()]
        assert [(row["log_partition"], row["log_offset"], row["last_log_offset"]) for row in rows] == [
            (4, first, first + 2) for first in range(0, 12, 3)
        ]
