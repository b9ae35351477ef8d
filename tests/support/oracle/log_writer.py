"""Writes segment files of a broker's data folder by hand: record batches (magic 2) and old message sets (0, 1).

Only bytes: what the records mean is the callers' business. Nothing is checked that a test may want to get wrong.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import cramjam
import google_crc32c
from aiokafka import codec as aiokafka_codec

from support.oracle.encoders import zigzag_varint
from support.oracle.log_reader import OFFSETS_TOPIC

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
# Magic 0 knew lz4 with a broken frame checksum only, and nothing before magic 2 knew zstd.
CODECS_OF_MAGIC: dict[int, tuple[Codec, ...]] = {0: CODECS[:3], 1: CODECS[:4], 2: CODECS}

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024


class Record(NamedTuple):
    """A record with its absolute offset; `timestamp` is its create time in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch. Gaps between, before and after the offsets of its records are those that compaction leaves.

    `append_timestamp` makes the timestamp type LogAppendTime; `delete_horizon` sets attribute bit 6 and stands in the
    base timestamp's place. A batch without records needs `base_offset`, `last_offset` and `max_timestamp`.
    Messages of magic 0 and 1 have no producer, no gaps behind the last record and no headers.
    """

    records: tuple[Record, ...]
    base_offset: int | None = None  # None: the first record's
    last_offset: int | None = None  # None: the last record's
    max_timestamp: int | None = None  # None: the latest record's
    magic: int = 2
    codec: Codec = "none"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = 0  # what a group coordinator writes for data
    is_transactional: bool = False
    is_control: bool = False
    append_timestamp: int | None = None
    delete_horizon: int | None = None
    partition_leader_epoch: int = 0

    @property
    def first(self) -> int:
        """The base offset."""
        return self.records[0].offset if self.base_offset is None else self.base_offset

    @property
    def last(self) -> int:
        """The last offset, whose record may have been compacted away."""
        return self.records[-1].offset if self.last_offset is None else self.last_offset


def marker_batch(
    kind: Literal["COMMIT", "ABORT"],
    *,
    offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
) -> Batch:
    """Return the control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(kind == "COMMIT")), struct.pack(">hi", 0, coordinator_epoch)
    return Batch(
        records=(Record(offset, timestamp, key, value),),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )


def batch_bytes(batch: Batch) -> bytes:
    """Return the bytes of a batch in a segment."""
    return _record_batch(batch) if batch.magic == 2 else _message_set(batch)


def write_partition(
    folder: Path,
    log_partition: int,
    batches: Iterable[Batch],
    *,
    topic: str = OFFSETS_TOPIC,
    segment_starts: Collection[int] = (0,),
    segment_bytes: int | None = None,
) -> list[Path]:
    """Write `<folder>/<topic>-<log_partition>/<base offset>.log`; return the segments in order.

    A segment opens at the first batch at or behind each of `segment_starts` (and has that name, as after compaction),
    and, named by its first batch, when `segment_bytes` would be exceeded.
    """
    directory = folder / f"{topic}-{log_partition}"
    directory.mkdir(parents=True, exist_ok=True)
    segments: dict[int, bytearray] = {}
    current = -1
    for batch in batches:
        data = batch_bytes(batch)
        start = max((start for start in segment_starts if start <= batch.first), default=batch.first)
        is_full = segment_bytes is not None and current >= 0 and len(segments[current]) + len(data) > segment_bytes
        if is_full:
            current = batch.first
        elif start > current:
            current = start
        segments.setdefault(current, bytearray()).extend(data)
    paths = []
    for start, content in segments.items():
        paths.append(directory / f"{start:020d}.log")
        paths[-1].write_bytes(content)
    return paths


def _record_batch(batch: Batch) -> bytes:
    latest = max((record.timestamp for record in batch.records), default=-1)
    max_timestamp = latest if batch.max_timestamp is None else batch.max_timestamp
    base_timestamp = batch.records[0].timestamp if batch.records else max_timestamp
    if batch.delete_horizon is not None:
        base_timestamp = batch.delete_horizon
    if batch.append_timestamp is not None:
        max_timestamp = batch.append_timestamp
    attributes = (
        CODECS.index(batch.codec)
        | (batch.append_timestamp is not None) << 3
        | batch.is_transactional << 4
        | batch.is_control << 5
        | (batch.delete_horizon is not None) << 6
    )
    records = b"".join(_record(record, batch.first, base_timestamp) for record in batch.records)
    behind_crc = struct.pack(
        ">hiqqqhii",
        attributes,
        batch.last - batch.first,
        base_timestamp,
        max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        len(batch.records),
    ) + (_COMPRESS[batch.codec](records) if records else b"")
    length = 4 + 1 + 4 + len(behind_crc)
    return (
        struct.pack(">qiibI", batch.first, length, batch.partition_leader_epoch, 2, google_crc32c.value(behind_crc))
        + behind_crc
    )


def _record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    body = (
        b"\x00"
        + zigzag_varint(record.timestamp - base_timestamp)
        + zigzag_varint(record.offset - base_offset)
        + _varint_bytes(record.key)
        + _varint_bytes(record.value)
        + zigzag_varint(len(record.headers))
        + b"".join(_varint_bytes(key) + _varint_bytes(value) for key, value in record.headers)
    )
    return zigzag_varint(len(body)) + body


def _varint_bytes(data: bytes | None) -> bytes:
    return zigzag_varint(-1) if data is None else zigzag_varint(len(data)) + data


def _message_set(batch: Batch) -> bytes:
    if batch.codec not in CODECS_OF_MAGIC[batch.magic]:
        raise ValueError(f"magic {batch.magic} has no codec {batch.codec}")
    if batch.codec == "none":
        return b"".join(_message(batch, record, "none") for record in batch.records)
    # Magic 1 counts from 0 inside the wrapper; magic 0 holds the real offsets.
    shift = batch.first if batch.magic == 1 else 0
    inner = b"".join(_message(batch, record._replace(offset=record.offset - shift), "none") for record in batch.records)
    latest = max(record.timestamp for record in batch.records)
    return _message(batch, Record(batch.last, latest, None, _COMPRESS[batch.codec](inner)), batch.codec)


def _message(batch: Batch, record: Record, codec: Codec) -> bytes:
    is_append_time = batch.append_timestamp is not None and batch.magic == 1
    body = struct.pack(">bb", batch.magic, CODECS.index(codec) | is_append_time << 3)
    if batch.magic == 1:
        body += struct.pack(">q", record.timestamp if batch.append_timestamp is None else batch.append_timestamp)
    for data in (record.key, record.value):
        body += struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">qiI", record.offset, len(body) + 4, zlib.crc32(body)) + body


def _xerial_snappy(data: bytes) -> bytes:
    """Return data in the snappy framing of Kafka's Java client: a header, then blocks of 32 KiB after their length."""
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


_COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": partial(gzip.compress, mtime=0),  # the same log has the same bytes
    "snappy": _xerial_snappy,
    "lz4": aiokafka_codec.lz4_encode,
    "zstd": aiokafka_codec.zstd_encode,
}
