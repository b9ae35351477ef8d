"""Columns to record batches: what the project itself appends to a log, one batch for all that must hold together."""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from offsetlake.kafka.readers import MAX_STRING
from offsetlake.kafka.records import OffsetsRecordType

MAGIC, NO_CODEC, NOT_TRANSACTIONAL, NO_PRODUCER = 2, 0, 0, -1
BASE_SEQUENCE = 0  # what a coordinator writes outside transactions
_INT16 = struct.Struct(">h")

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
    append, count = builder.append, 0  # a million a second: benchmarks/results.md, emit
    for key, value in records:
        append(count, timestamp, key, value, [])
        count += 1
    return Batch(builder.build(), count)


def offset_keys(group_id: str, topics: Sequence[str], partitions: Sequence[int]) -> list[bytes]:
    """Encode the OffsetCommitKeys, record type 1, of offsets of one group; ValueError if a name is too long."""
    group = _INT16.pack(OffsetsRecordType.OFFSET_COMMIT) + _string(group_id)
    encoded = {topic: group + _string(topic) for topic in set(topics)}
    numbers = np.array(partitions, ">i4").tobytes()
    return [encoded[topic] + numbers[at * 4 : at * 4 + 4] for at, topic in enumerate(topics)]


def group_tombstone_keys(group_id: str, group_type: str) -> list[bytes]:
    """Encode the keys of the tombstones that remove a group without members, in a coordinator's order.

    `group_type` is classic (simple groups too), consumer or streams. Share groups have state in a topic of its own:
    only their coordinator removes them. ValueError if the id is too long.
    """
    name = _string(group_id)
    return [_INT16.pack(record_type) + name for record_type in _OF_AN_EMPTY_GROUP[group_type]]


@lru_cache(1 << 12)
def _string(text: str) -> bytes:
    """Encode a string as keys hold it: keys are never of a flexible version."""
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"a name has {MAX_STRING} bytes at most, not {len(data)}")
    return _INT16.pack(len(data)) + data
