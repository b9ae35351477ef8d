"""Writes record batches: the records of one batch are appended to a log together or not at all."""

import struct
from collections.abc import Generator, Iterable
from typing import NamedTuple

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

MAGIC, NO_CODEC = 2, 0
BASE_SEQUENCE = 0  # what a group coordinator writes, also in each batch of a transaction

Headers = list[tuple[str, bytes]]
NO_HEADERS: Headers = []
_MARKER_HEAD, _MARKER_CRC = struct.Struct(">qiib"), struct.Struct(">I")  # a control batch up to its checksum
_MARKER = struct.Struct(">hiqqqhiibbbbbhhbhib")  # the rest of the batch, which contains one record
_MARKER_SIZE, _TRANSACTIONAL_CONTROL, _NO_SEQUENCE, _NO_LEADER_EPOCH = 66, 0x30, -1, -1
_RECORD_SIZE, _KEY_SIZE, _VALUE_SIZE = 2 * 16, 2 * 4, 2 * 6  # as zigzag varints

Record = tuple[bytes, bytes | None]
"""Key and value; a null value is a tombstone."""


class Batch(NamedTuple):
    """A record batch, whose base offset is 0 until it is appended, and the number of its records."""

    data: bytearray
    records: int


class Producer(NamedTuple):
    """The ID and the epoch of a producer."""

    id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


def record_batch(
    timestamp: int, records: Iterable[Record], headers: Headers = NO_HEADERS, producer: Producer = NO_PRODUCER
) -> Batch:
    """Return an uncompressed batch with magic 2.

    Args:
        timestamp: The timestamp of every record, in milliseconds since the epoch.
        records: Keys and values.
        headers: The headers of the first record.
        producer: The producer to whose transaction the batch belongs.
    """
    builder = _builder(producer)
    append, count = builder.append, 0  # a million records a second: benchmarks/results/run.md, emit
    for key, value in records:
        append(count, timestamp, key, value, headers)
        headers = NO_HEADERS
        count += 1
    return Batch(builder.build(), count)


def record_batch_in_steps(
    timestamp: int, records: Iterable[Record], headers: Headers, step: int, producer: Producer = NO_PRODUCER
) -> Generator[int, None, Batch]:
    """Return the same batch as `record_batch`, and yield after every `step` records."""
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


def marker_batch(timestamp: int, producer: Producer, coordinator_epoch: int = 0, *, committed: bool) -> Batch:
    """Return the control batch that commits or aborts a transaction (KIP-98)."""
    body = _MARKER.pack(
        _TRANSACTIONAL_CONTROL, 0, timestamp, timestamp, *producer, _NO_SEQUENCE, 1,
        _RECORD_SIZE, 0, 0, 0, _KEY_SIZE, 0, committed, _VALUE_SIZE, 0, coordinator_epoch, 0,
    )  # fmt: skip
    head = _MARKER_HEAD.pack(0, _MARKER_SIZE, _NO_LEADER_EPOCH, MAGIC)
    return Batch(bytearray(head + _MARKER_CRC.pack(google_crc32c.value(body)) + body), 1)
