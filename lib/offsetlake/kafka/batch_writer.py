"""Columns to record batches: what the project itself appends to a log, one batch for all that must hold together."""

import struct
from collections.abc import Generator, Iterable
from typing import NamedTuple

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from offsetlake.kafka.audit_headers import Headers
from offsetlake.kafka.readers import MAX_STRING
from offsetlake.kafka.records import OffsetsRecordType

MAGIC, NO_CODEC = 2, 0
BASE_SEQUENCE = 0  # what a coordinator writes, of each batch of a transaction too (facts 4.1)
NO_TOPIC_ID = bytes(16)
NO_HEADERS: Headers = []
_INT16, _INT32, _INT64, _INT64_INT64 = (struct.Struct(f">{layout}") for layout in ("h", "i", "q", "qq"))
_TYPE_AND_LENGTH = struct.Struct(">hh")
_VALUE_1, _VALUE_3, _VALUE_4 = (struct.Struct(f">{layout}") for layout in ("hqh", "hqih", "hqi"))  # up to the metadata
_MARKER_HEAD, _MARKER_CRC = struct.Struct(">qiib"), struct.Struct(">I")  # of a control batch, up to its checksum
_MARKER = struct.Struct(">hiqqqhiibbbbbhhbhib")  # all behind that: one record
_MARKER_SIZE, _TRANSACTIONAL_CONTROL, _NO_SEQUENCE, _NO_LEADER_EPOCH, _COORDINATOR_EPOCH = 66, 0x30, -1, -1, 0
_RECORD_SIZE, _KEY_SIZE, _VALUE_SIZE = 2 * 16, 2 * 4, 2 * 6  # as zigzag varints
_TAG = bytes([1, 0, 16])  # one tagged field: number 0, the topic id, 16 bytes

_OF_AN_EMPTY_GROUP = {
    "classic": (OffsetsRecordType.GROUP_METADATA,),
    "consumer": (
        OffsetsRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        OffsetsRecordType.CONSUMER_GROUP_PARTITION_METADATA,
        OffsetsRecordType.CONSUMER_GROUP_METADATA,
    ),
    "streams": (
        OffsetsRecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        OffsetsRecordType.STREAMS_GROUP_METADATA,
        OffsetsRecordType.STREAMS_GROUP_TOPOLOGY,
    ),
}
"""Record types a coordinator tombstones when it removes a group without members, in its order (facts 3.4)."""


Record = tuple[bytes, bytes | None]
"""Key and value; a null value is a tombstone."""


class Batch(NamedTuple):
    """A record batch whose base offset is still 0, and how many records it holds."""

    data: bytearray
    records: int


class Producer(NamedTuple):
    """A producer, as requests and record batches name it."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


def record_batch(
    timestamp: int, records: Iterable[Record], headers: Headers = NO_HEADERS, producer: Producer = NO_PRODUCER
) -> Batch:
    """Lay records out as one uncompressed batch of magic 2; `timestamp` in ms is that of every record.

    The first record gets the headers. With a producer it is a batch of its transaction.
    """
    builder = _builder(producer)
    append, count = builder.append, 0  # a million a second: benchmarks/results.md, emit
    for key, value in records:
        append(count, timestamp, key, value, headers)
        headers = NO_HEADERS
        count += 1
    return Batch(builder.build(), count)


def record_batch_in_steps(
    timestamp: int, records: Iterable[Record], headers: Headers, step: int, producer: Producer = NO_PRODUCER
) -> Generator[int, None, Batch]:
    """Do what `record_batch` does; yields after every `step` records."""
    builder = _builder(producer)
    count = 0
    for key, value in records:
        builder.append(count, timestamp, key, value, headers)
        headers = NO_HEADERS
        count += 1
        if count % step == 0:
            yield 0
    return Batch(builder.build(), count)


def _builder(producer: Producer) -> DefaultRecordBatchBuilder:
    is_transactional = producer is not NO_PRODUCER
    return DefaultRecordBatchBuilder(
        MAGIC, NO_CODEC, is_transactional, producer.id, producer.epoch, BASE_SEQUENCE, 1 << 31
    )


def marker_batch(timestamp: int, producer: Producer, *, committed: bool) -> Batch:
    """Lay out the control batch that ends a transaction, COMMIT or ABORT (facts 4.1)."""
    body = _MARKER.pack(
        _TRANSACTIONAL_CONTROL, 0, timestamp, timestamp, *producer, _NO_SEQUENCE, 1,
        _RECORD_SIZE, 0, 0, 0, _KEY_SIZE, 0, committed, _VALUE_SIZE, 0, _COORDINATOR_EPOCH, 0,
    )  # fmt: skip
    head = _MARKER_HEAD.pack(0, _MARKER_SIZE, _NO_LEADER_EPOCH, MAGIC)
    return Batch(bytearray(head + _MARKER_CRC.pack(google_crc32c.value(body)) + body), 1)


def offset_commit_key(group: bytes, topic: bytes) -> bytes:
    """Encode the OffsetCommitKeys of one topic but for the partition, an int32 at the end.

    Names are UTF-8 of at most MAX_STRING bytes.
    """
    head = _TYPE_AND_LENGTH.pack(OffsetsRecordType.OFFSET_COMMIT, len(group))
    return b"".join((head, group, _INT16.pack(len(topic)), topic))


def offset_commit_value(
    offset: int, leader_epoch: int, metadata: bytes, commit_timestamp: int, expire_timestamp: int, topic_id: bytes
) -> bytes:
    """Encode an OffsetCommitValue in the oldest version that holds it; times in ms, -1 for no expiry, id 0 for none.

    Version 1 where there is an expiry: it has no room for a leader epoch or a topic id. `metadata` is UTF-8.
    """
    if expire_timestamp >= 0:
        times = _INT64_INT64.pack(commit_timestamp, expire_timestamp)
        return b"".join((_VALUE_1.pack(1, offset, len(metadata)), metadata, times))
    if topic_id == NO_TOPIC_ID:
        return b"".join(
            (_VALUE_3.pack(3, offset, leader_epoch, len(metadata)), metadata, _INT64.pack(commit_timestamp))
        )
    head = _VALUE_4.pack(4, offset, leader_epoch)
    return b"".join((head, unsigned_varint(len(metadata) + 1), metadata, _INT64.pack(commit_timestamp), _TAG, topic_id))


def unsigned_varint(number: int) -> bytes:
    """Encode a length as flexible versions have it."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def group_tombstone_keys(group_id: str, group_type: str) -> list[bytes]:
    """Encode the keys of the tombstones that remove a group without members, in a coordinator's order.

    `group_type` is classic (simple groups too), consumer or streams. Share groups have state in a topic of its own:
    only their coordinator removes them. ValueError if the id is too long.
    """
    name = encoded_string(group_id)
    return [_INT16.pack(record_type) + name for record_type in _OF_AN_EMPTY_GROUP[group_type]]


def encoded_string(text: str) -> bytes:
    """Encode a string as keys hold it, never of a flexible version; ValueError if it is too long."""
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"a name has {MAX_STRING} bytes at most, not {len(data)}")
    return _INT16.pack(len(data)) + data
