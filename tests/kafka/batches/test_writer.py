"""What the project writes: keys as Kafka's own classes make them, and batches that another reader reads."""

import base64
from dataclasses import replace

import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Producer, Record, marker_batch, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.commits.key_columns import offset_keys
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.kafka.uuid import ZERO_UUID
from support.kafka.golden import COMMITTED_AT, TOPIC_ID, golden_keys, golden_values
from support.oracle.encoders import group_metadata_key
from support.oracle.encoders import offset_key as plain_offset_key
from support.oracle.log_reader import LogRecord, read_segment
from support.oracle.log_writer import Batch, batch_bytes
from support.oracle.log_writer import Record as PlainRecord
from support.oracle.log_writer import marker_batch as plain_marker

T = 1_700_000_000_000
GOLDEN = golden_keys()
LONGEST = 2**15 - 1  # bytes of a string

Offset = tuple[str, str | None, int]

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
blobs = st.binary(max_size=200)
headers = st.lists(st.tuples(names, blobs), max_size=5)
records = st.lists(st.tuples(blobs, st.none() | blobs), min_size=1, max_size=20)


def keys_of(*offsets: Offset) -> list[bytes | None]:
    columns = [*zip(*offsets, strict=True)] or [(), (), ()]
    types = (pa.string(), pa.string(), pa.int32())
    arrays = [pa.chunked_array([column], of) for column, of in zip(columns, types, strict=True)]
    keys: list[bytes | None] = offset_keys(pa.table(arrays, ["group_id", "topic", "partition"])).to_pylist()
    return keys


def test_key_equals_golden_key() -> None:
    assert keys_of(("g1", "tp", 7)) == [GOLDEN["OffsetCommitKey"]]


@given(st.lists(st.tuples(names, st.none() | names, st.integers(-(2**31), 2**31 - 1)), max_size=5))
def test_keys_of_all_names_and_none_of_a_group_itself(offsets: list[Offset]) -> None:
    expected = [None if of[1] is None else plain_offset_key(of[0], of[1], of[2]) for of in offsets]
    assert keys_of(*offsets) == expected


@given(names, names, st.integers(-(2**31), 2**31 - 1))
def test_key_prefix_and_partition_equal_key(group_id: str, topic: str, partition: int) -> None:
    head = offset_commit_key(group_id.encode(), topic.encode())
    assert head + partition.to_bytes(4, signed=True) == plain_offset_key(group_id, topic, partition)


def test_values_equal_golden_values() -> None:
    values, topic_id = golden_values(), base64.urlsafe_b64decode(f"{TOPIC_ID}==")
    of_version = {
        1: offset_commit_value(42, 5, b"md", COMMITTED_AT, COMMITTED_AT + 600_000, topic_id),
        3: offset_commit_value(42, 5, b"md", COMMITTED_AT, -1, ZERO_UUID),
        4: offset_commit_value(42, 5, b"md", COMMITTED_AT, -1, topic_id),
    }
    assert of_version == {version: values[f"OffsetCommitValue v{version}"] for version in of_version}


@pytest.mark.parametrize(
    ("group_id", "topic"), [("g" * LONGEST, "t"), ("g", "t" * LONGEST), ("ä" * (LONGEST // 2), "")]
)
def test_longest_names_are_encoded(group_id: str, topic: str) -> None:
    assert keys_of((group_id, topic, 1)) == [plain_offset_key(group_id, topic, 1)]


@pytest.mark.parametrize(("group_id", "topic"), [("g" * (LONGEST + 1), "t"), ("g", "ä" * (LONGEST // 2 + 1))])
def test_too_long_name_is_refused(group_id: str, topic: str) -> None:
    with pytest.raises(ValueError, match="32767"):
        keys_of((group_id, topic, 1))


@pytest.mark.parametrize(
    ("group_type", "keys"),
    [
        ("classic", ["GroupMetadataKey"]),
        (
            "consumer",
            [
                "ConsumerGroupTargetAssignmentMetadataKey",
                "ConsumerGroupPartitionMetadataKey",
                "ConsumerGroupMetadataKey",
            ],
        ),
        (
            "share",
            [
                "ShareGroupTargetAssignmentMetadataKey",
                "ShareGroupStatePartitionMetadataKey",
                "ShareGroupMetadataKey",
            ],
        ),
        ("streams", ["StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupMetadataKey", "StreamsGroupTopologyKey"]),
    ],
)
def test_group_tombstones_equal_coordinator(group_type: str, keys: list[str]) -> None:
    assert group_tombstone_keys("g1", group_type) == [GOLDEN[key] for key in keys]


@given(names)
def test_tombstone_key_for_any_group_id(group_id: str) -> None:
    assert group_tombstone_keys(group_id, "classic") == [group_metadata_key(group_id)]


@given(records, st.integers(0, 2**62), st.integers(0, 2**62))
def test_batch_is_read_by_other_reader(written: list[Record], timestamp: int, base: int) -> None:
    batch = record_batch(timestamp, written)
    assert batch.records == len(written)
    batch.data[:8] = base.to_bytes(8)
    assert [*read_segment(bytes(batch.data), "__consumer_offsets", 3)] == [
        LogRecord("__consumer_offsets", 3, base + at, timestamp, -1, -1, False, None, key, value)
        for at, (key, value) in enumerate(written)
    ]


@given(records, st.integers(0, 2**62))
def test_batch_equals_coordinator_except_leader_epoch(written: list[Record], timestamp: int) -> None:
    """A broker sets the leader epoch when it appends, here nobody does; the checksum leaves it out."""
    plain = tuple(PlainRecord(at, timestamp, *record) for at, record in enumerate(written))
    expected = batch_bytes(Batch(records=plain, partition_leader_epoch=-1))
    data = bytes(record_batch(timestamp, written).data)
    assert data[:12] + b"\xff" * 4 + data[16:] == expected


@given(records, headers)
def test_headers_are_on_first_record(written: list[Record], headers: list[tuple[str, bytes]]) -> None:
    data = bytes(record_batch(T, written, headers).data)
    none = [()] * (len(written) - 1)
    assert [record.headers for record in read_segment(data, "__consumer_offsets", 3)] == [
        tuple((name.encode(), value) for name, value in headers),
        *none,
    ]
    for kind in (AioMemoryRecords, MemoryRecords):
        batch = kind(data).next_batch()
        assert batch.validate_crc()
        assert [tuple(record.headers) for record in batch] == [tuple(headers), *none]


@given(st.binary(max_size=3000), st.text(st.characters(exclude_categories=["Cs"]), max_size=800))
def test_audit_header_values_are_truncated_utf8(client: bytes, principal: str) -> None:
    found = dict(audit_headers("commit", principal, client, ""))
    for name, sent in (("act.client", client), ("act.principal", principal.encode())):
        assert (name in found) == bool(sent)
        text = found.get(name, b"").decode()
        whole = sent.decode(errors="replace")
        assert whole.startswith(text)
        assert text == whole or 1024 - 4 < len(text.encode()) <= 1024


@given(records, st.integers(0, 2**62), st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
def test_transactional_batch_and_marker_equal_coordinator(
    written: list[Record], timestamp: int, id_: int, epoch: int
) -> None:
    producer, of = Producer(id_, epoch), {"producer_id": id_, "producer_epoch": epoch}
    plain = tuple(PlainRecord(at, timestamp, *record) for at, record in enumerate(written))
    expected = batch_bytes(
        Batch(records=plain, partition_leader_epoch=-1, producer_id=id_, producer_epoch=epoch, is_transactional=True)
    )
    data = bytes(record_batch(timestamp, written, producer=producer).data)
    assert data[:12] + b"\xff" * 4 + data[16:] == expected
    for kind, committed in (("COMMIT", True), ("ABORT", False)):
        marker = plain_marker(kind, offset=0, timestamp=timestamp, **of)  # type: ignore[arg-type]
        data = bytes(marker_batch(timestamp, producer, committed=committed).data)
        assert data == batch_bytes(replace(marker, partition_leader_epoch=-1))


def test_batch_with_many_records() -> None:
    numbers = range(100_000)
    written = [(plain_offset_key("g", f"topic-{number % 100}", number), None) for number in numbers]
    data = bytes(record_batch(T, iter(written)).data)
    assert [record.key for record in read_segment(data, "__consumer_offsets", 0)] == [key for key, _ in written]
