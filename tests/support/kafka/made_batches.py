"""Batches written by the oracle, and the rows that a reader must return for them."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import google_crc32c

from offsetlake.kafka.batches.reader import Records, read_batches
from support.oracle.log_reader import OFFSETS_TOPIC, LogRecord, read_segment
from support.oracle.log_writer import CODECS_OF_MAGIC, Batch, Record, batch_bytes

TIME = 1_700_000_000_000

# What of a record a batch tells: offset, timestamp, producer id and epoch, whether it is control, key, value.
Row = tuple[int, int, int, int, bool, bytes | None, bytes | None]


def rows(records: Records) -> list[Row]:
    envelope = zip(
        records.log_offset.tolist(),
        records.log_timestamp.tolist(),
        records.producer_id.tolist(),
        records.producer_epoch.tolist(),
        records.control.tolist(),
        strict=True,
    )
    return [(*each, records.key(at), records.value(at)) for at, each in enumerate(envelope)]


def expected_rows(records: Iterable[LogRecord]) -> list[Row]:
    return [
        (r.log_offset, r.log_timestamp, r.producer_id, r.producer_epoch, r.is_control, r.key, r.value) for r in records
    ]


def oracle_rows(data: bytes) -> list[Row]:
    return expected_rows(read_segment(data, OFFSETS_TOPIC, 0))


def read(data: bytes) -> list[Row]:
    """Return the rows of bytes without corrupt regions."""
    records, corrupt = read_batches(data)
    assert not corrupt
    return rows(records)


def resealed(data: bytes, **fields: Any) -> bytes:
    """Return a batch with magic 2 and changed header fields, with a correct checksum and length."""
    layout = struct.Struct(">qiibIhiqqqhii")
    names = "base_offset length epoch magic crc attributes delta base_ts max_ts pid pid_epoch seq count".split()  # noqa: SIM905
    header = dict(zip(names, layout.unpack_from(data), strict=True)) | {"length": len(data) - 12} | fields
    changed = layout.pack(*(header[name] for name in names)) + data[layout.size :]
    return changed[:17] + struct.pack(">I", google_crc32c.value(changed[21:])) + changed[21:]


def with_payload(payload: bytes, count: int, **fields: Any) -> bytes:
    """Return a batch with magic 2 and offsets 0 to 9 whose records are these bytes."""
    empty = batch_bytes(Batch(records=(), base_offset=0, last_offset=9, max_timestamp=TIME))
    return resealed(empty + payload, count=count, **fields)


def record(offset: int, size: int = 10) -> Record:
    return Record(offset, TIME + offset, b"key%03d" % offset, bytes([offset % 251]) * size)


def batches_of(count: int, magic_and_codec: Sequence[tuple[int, str]] = ((2, "none"),)) -> list[bytes]:
    """Return `count` batches of two records each with alternating magic and codec, and gaps of one offset."""
    made = []
    for i in range(count):
        magic, codec = magic_and_codec[i % len(magic_and_codec)]
        batch: Any = Batch(records=(record(3 * i), record(3 * i + 1)), magic=magic, codec=codec)  # type: ignore[arg-type]
        made.append(batch_bytes(batch))
    return made


ALL_FRAMES = [(magic, codec) for magic in (2, 1, 0) for codec in CODECS_OF_MAGIC[magic]]


def rejected(data: bytes, log_offset: int = 0) -> str:
    """Return why a batch between valid ones is corrupt; check that the others are read and that its bytes are kept."""
    before, after = batch_bytes(Batch(records=(record(0),))), batch_bytes(Batch(records=(record(100),)))
    moved = struct.pack(">q", int.from_bytes(data[:8]) + 10) + data[8:]
    records, (region,) = read_batches(before + moved + after)
    assert rows(records) == oracle_rows(before) + oracle_rows(after)
    assert region.data == moved
    assert region.log_offset == log_offset + 10
    return region.reason
