"""Columns to record batches: what the project itself appends to a log, one batch for all that must hold together."""

import struct
from collections.abc import Generator, Iterable
from typing import NamedTuple

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

MAGIC, NO_CODEC = 2, 0
BASE_SEQUENCE = 0  # what a coordinator writes, of each batch of a transaction too
Headers = list[tuple[str, bytes]]
NO_HEADERS: Headers = []
_MARKER_HEAD, _MARKER_CRC = struct.Struct(">qiib"), struct.Struct(">I")  # of a control batch, up to its checksum
_MARKER = struct.Struct(">hiqqqhiibbbbbhhbhib")  # all behind that: one record
_MARKER_SIZE, _TRANSACTIONAL_CONTROL, _NO_SEQUENCE, _NO_LEADER_EPOCH, _COORDINATOR_EPOCH = 66, 0x30, -1, -1, 0
_RECORD_SIZE, _KEY_SIZE, _VALUE_SIZE = 2 * 16, 2 * 4, 2 * 6  # as zigzag varints

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
    """Lay out the control batch that ends a transaction, COMMIT or ABORT (KIP-98)."""
    body = _MARKER.pack(
        _TRANSACTIONAL_CONTROL, 0, timestamp, timestamp, *producer, _NO_SEQUENCE, 1,
        _RECORD_SIZE, 0, 0, 0, _KEY_SIZE, 0, committed, _VALUE_SIZE, 0, _COORDINATOR_EPOCH, 0,
    )  # fmt: skip
    head = _MARKER_HEAD.pack(0, _MARKER_SIZE, _NO_LEADER_EPOCH, MAGIC)
    return Batch(bytearray(head + _MARKER_CRC.pack(google_crc32c.value(body)) + body), 1)
