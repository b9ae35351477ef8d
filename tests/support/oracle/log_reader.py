"""Reads a broker's data folder record by record in plain Python: the reader of the oracle.

Layout and checks are Kafka's record batch (magic 2) and its older message sets (magic 0 and 1).
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
from aiokafka import codec

OFFSETS_TOPIC = "__consumer_offsets"
ABORT, COMMIT = 0, 1

_SEGMENT_NAME = re.compile(r"\d{20}\.log")
_DECOMPRESS = {
    0: bytes,
    1: codec.gzip_decode,
    2: codec.snappy_decode,
    3: codec.lz4_decode,
    4: codec.zstd_decode,
}


class LogRecord(NamedTuple):
    """A record of a log; `control_type` is 0 for ABORT and 1 for COMMIT, None for data."""

    topic: str
    log_partition: int
    log_offset: int
    log_timestamp: int  # ms; -1 for magic 0, which has none
    producer_id: int
    producer_epoch: int
    is_control: bool
    control_type: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def read_log(folder: Path, topic: str = OFFSETS_TOPIC) -> list[LogRecord]:
    """Yield all records of a topic in a broker's data folder, by log partition and log offset."""
    partitions = {}
    for path in folder.iterdir():
        match = re.fullmatch(re.escape(topic) + r"-(\d+)", path.name)
        if match:
            partitions[int(match[1])] = path
    return [
        record
        for log_partition, path in sorted(partitions.items())
        for segment in sorted(path.iterdir())
        if _SEGMENT_NAME.fullmatch(segment.name)
        for record in read_segment(segment.read_bytes(), topic, log_partition)
    ]


def read_segment(data: bytes, topic: str, log_partition: int) -> Iterator[LogRecord]:
    """The records of one segment's bytes; a last batch that is not whole is left out, as Kafka does.

    Raises ValueError on a wrong checksum, magic or length.
    """
    position = 0
    while position + 17 <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + length
        if end > len(data):
            return
        whole, magic = data[position:end], data[position + 16]
        if magic == 2:
            yield from _record_batch(whole, topic, log_partition)
        elif magic in (0, 1):
            for offset, timestamp, key, value in _message(whole):
                yield LogRecord(topic, log_partition, offset, timestamp, -1, -1, False, None, key, value)
        else:
            raise ValueError(f"magic {magic} at byte {position} of {topic}-{log_partition}")
        position = end


def _record_batch(data: bytes, topic: str, log_partition: int) -> Iterator[LogRecord]:
    (base_offset, _, _, _, crc, attributes, _, base_timestamp, max_timestamp, producer_id, producer_epoch, _, count) = (
        struct.unpack_from(">qiibIhiqqqhii", data)
    )
    if google_crc32c.value(data[21:]) != crc:
        raise ValueError(f"wrong CRC in the batch at offset {base_offset} of {topic}-{log_partition}")
    is_append_time, is_control = bool(attributes & 8), bool(attributes & 32)
    payload = _DECOMPRESS[attributes & 7](data[61:]) if count else b""
    position = 0
    for _ in range(count):
        size, position = _varint(payload, position)
        end = position + size
        timestamp_delta, position = _varint(payload, position + 1)  # 1: the record's unused attributes
        offset_delta, position = _varint(payload, position)
        key, position = _varint_bytes(payload, position)
        value, position = _varint_bytes(payload, position)
        headers = []
        count, position = _varint(payload, position)
        for _ in range(count):
            name, position = _varint_bytes(payload, position)
            content, position = _varint_bytes(payload, position)
            headers.append((name or b"", content))
        if position != end:
            raise ValueError(f"a record at offset {base_offset + offset_delta} ends at {position}, not {end}")
        yield LogRecord(
            topic,
            log_partition,
            base_offset + offset_delta,
            max_timestamp if is_append_time else base_timestamp + timestamp_delta,
            producer_id,
            producer_epoch,
            is_control,
            struct.unpack_from(">hh", key or b"")[1] if is_control else None,
            key,
            value,
            tuple(headers),
        )
    if position != len(payload):
        raise ValueError(f"{len(payload) - position} bytes left in the batch at offset {base_offset}")


def _message(data: bytes) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    """Yield offset, timestamp, key and value of a message with magic 0 or 1, or of the messages in it."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIbb", data)
    if zlib.crc32(data[16:]) != crc:
        raise ValueError(f"wrong CRC in the message at offset {offset}")
    timestamp, position = (-1, 18) if magic == 0 else (struct.unpack_from(">q", data, 18)[0], 26)
    key, position = _int32_bytes(data, position)
    value, position = _int32_bytes(data, position)
    if not attributes & 7:
        yield offset, timestamp, key, value
        return
    if value is None:
        raise ValueError(f"the compressed message at offset {offset} is empty")
    inner = list(_message_set(_DECOMPRESS[attributes & 7](value)))
    # Magic 1 counts inside from 0 and gives the wrapper the last offset; magic 0 holds real offsets inside.
    shift = offset - inner[-1][0] if magic == 1 else 0
    for inner_offset, inner_timestamp, inner_key, inner_value in inner:
        yield inner_offset + shift, timestamp if attributes & 8 else inner_timestamp, inner_key, inner_value


def _message_set(data: bytes) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        yield from _message(data[position : position + 12 + size])
        position += 12 + size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it."""
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _varint_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _int32_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, position)
    position += 4
    return (None, position) if size < 0 else (data[position : position + size], position + size)
