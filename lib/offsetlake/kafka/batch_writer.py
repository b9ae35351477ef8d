"""Columns to record batches: what the project itself appends to a log, one batch for all that must hold together."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from offsetlake.kafka.records import OFFSETS_TOPIC, OffsetsRecordType, encode_key, encode_offset_commit_key

MAGIC, NO_CODEC, NOT_TRANSACTIONAL, NO_PRODUCER = 2, 0, 0, -1
BASE_SEQUENCE = 0  # what a coordinator writes outside transactions
_PARTITION_BYTES = 4

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


def record_batch(timestamp: int, records: Iterable[Record]) -> Batch:
    """Lay records out as one uncompressed batch of magic 2; `timestamp` in ms is that of every record."""
    builder = DefaultRecordBatchBuilder(
        MAGIC, NO_CODEC, NOT_TRANSACTIONAL, NO_PRODUCER, NO_PRODUCER, BASE_SEQUENCE, 1 << 31
    )
    count = 0
    for key, value in records:
        builder.append(count, timestamp, key, value, [])
        count += 1
    return Batch(builder.build(), count)


@cache
def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Encode all of an OffsetCommitKey but its last four bytes, the partition; ValueError if a name is too long."""
    return encode_offset_commit_key(group_id, topic, 0)[:-_PARTITION_BYTES]


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encode an OffsetCommitKey, record type 1, fast for the many partitions of a topic."""
    return offset_key_prefix(group_id, topic) + partition.to_bytes(_PARTITION_BYTES, signed=True)


def group_tombstones(group_id: str, group_type: str) -> list[Record]:
    """Give the tombstones that remove a group without members, in a coordinator's order.

    `group_type` is classic (simple groups too), consumer or streams. Share groups have state in a topic of its own:
    only their coordinator removes them.
    """
    types = _OF_AN_EMPTY_GROUP[group_type]
    field = "group" if group_type == "classic" else "groupId"
    return [(encode_key(OFFSETS_TOPIC, record_type, {field: group_id}), None) for record_type in types]
