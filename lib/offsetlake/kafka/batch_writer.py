"""Columns to record batches: what the project itself appends to a log, one batch for all that must hold together."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
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


def offset_keys(offsets: pa.Table) -> pa.Array:
    """Encode the OffsetCommitKeys, record type 1, of offsets; ValueError if a name is too long.

    Columns group_id (string), topic (string), partition (int32); the key is null where the topic is.
    """
    partitions = pc.fill_null(offsets["partition"], 0).to_numpy().astype(">i4")
    numbers = pa.Array.from_buffers(pa.binary(4), len(partitions), [None, pa.py_buffer(partitions)])
    record_type = _INT16.pack(OffsetsRecordType.OFFSET_COMMIT)
    names = (_strings(offsets[name].combine_chunks()) for name in ("group_id", "topic"))
    return pc.binary_join_element_wise(pa.scalar(record_type), *names, numbers.cast(pa.binary()), b"")


def group_tombstone_keys(group_id: str, group_type: str) -> list[bytes]:
    """Encode the keys of the tombstones that remove a group without members, in a coordinator's order.

    `group_type` is classic (simple groups too), consumer or streams. Share groups have state in a topic of its own:
    only their coordinator removes them. ValueError if the id is too long.
    """
    name = _string(group_id)
    return [_INT16.pack(record_type) + name for record_type in _OF_AN_EMPTY_GROUP[group_type]]


def _strings(texts: pa.Array) -> pa.Array:
    """Encode strings as `_string` does, each that repeats once."""
    repeating = texts.dictionary_encode()
    encoded = [_string(text) for text in repeating.dictionary.to_pylist()]
    return pa.array(encoded, pa.binary()).take(repeating.indices)


def _string(text: str) -> bytes:
    """Encode a string as keys hold it: keys are never of a flexible version."""
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"a name has {MAX_STRING} bytes at most, not {len(data)}")
    return _INT16.pack(len(data)) + data
