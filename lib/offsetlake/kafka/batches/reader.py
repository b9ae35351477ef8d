"""Reads record batches into columns: one row for each record.

Compiled loops over whole buffers (`kernels.py`) parse magic 2; libraries compute checksums and decompress. The message
sets of magic 0 and 1 are read by `message_sets.py`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offsetlake.errors import CorruptBatch
from offsetlake.kafka.batches import kernels
from offsetlake.kafka.batches.compression import decompress
from offsetlake.kafka.batches.framing import headers, survey
from offsetlake.kafka.batches.kernels import Bytes, Ints
from offsetlake.kafka.batches.message_sets import Message, read_message

CODEC_MASK, APPEND_TIME, CONTROL = 0x07, 0x08, 0x20
MIN_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths and the header count: a byte each


@dataclass(frozen=True, slots=True)
class CorruptRegion:
    """Bytes of the log that contain no readable record.

    Attributes:
        log_offset: The log offset at which the bytes are reported.
        data: The bytes.
        reason: Why they cannot be read.
    """

    log_offset: int
    data: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of records in log order, one row for each record; positions refer to `buffer`.

    | Column                  | Type  | Description |
    |-------------------------|-------|-------------|
    | log_offset              | int64 | |
    | log_timestamp           | int64 | Milliseconds since the epoch; -1 = none (magic 0) |
    | producer_id             | int64 | -1 = none |
    | producer_epoch          | int64 | -1 = none |
    | control                 | bool  | Whether the record belongs to a control batch |
    | key_at, key_length      | int64 | Position and length of the key; length -1 = null |
    | value_at, value_length  | int64 | Position and length of the value; length -1 = null |
    | headers_at              | int64 | Position of the header count, which the headers follow; -1 = no headers |

    `spans`, shape (2, batches), contains the first and the last log offset of each batch with magic 2, in log order.
    """

    buffer: Bytes
    spans: Ints
    log_offset: Ints
    log_timestamp: Ints
    producer_id: Ints
    producer_epoch: Ints
    control: npt.NDArray[np.bool_]
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    headers_at: Ints

    COLUMNS = (
        "log_offset",
        "log_timestamp",
        "producer_id",
        "producer_epoch",
        "control",
        "key_at",
        "key_length",
        "value_at",
        "value_length",
        "headers_at",
    )

    def __len__(self) -> int:
        return len(self.log_offset)

    def where(self, chosen: npt.NDArray[np.bool_] | Ints) -> "Records":
        """Return the selected rows; `chosen` is a mask or an array of row numbers."""
        return Records(self.buffer, self.spans, *(getattr(self, name)[chosen] for name in self.COLUMNS))

    def key(self, row: int) -> bytes | None:
        """Return the key of a row."""
        return _slice(self.buffer, self.key_at[row], self.key_length[row])

    def value(self, row: int) -> bytes | None:
        """Return the value of a row; None for a tombstone."""
        return _slice(self.buffer, self.value_at[row], self.value_length[row])

    def headers(self, row: int) -> bytes | None:
        """Return the headers of a row as they are in the log, with their count; None without headers."""
        start = end = int(self.headers_at[row])
        if start < 0:
            return None
        count, end = kernels.varint(self.buffer, end, len(self.buffer))
        for _ in range(2 * count):  # a name and a value each
            _, _, end = kernels.sized(self.buffer, end, len(self.buffer))
        return self.buffer[start:end].tobytes()

    def record_types(self) -> Ints:
        """Return the record types, which are the int16 at the start of each key; -1 if the key is shorter or null."""
        types = np.full(len(self), -1, np.int64)
        typed = self.key_length >= 2
        positions = self.key_at[typed]
        types[typed] = (self.buffer[positions].astype(np.int64) << 8 | self.buffer[positions + 1]).astype(np.int16)
        return types


def _slice(buffer: Bytes, position: int, length: int) -> bytes | None:
    return None if length < 0 else buffer[position : position + length].tobytes()


def read_batches(data: bytes) -> tuple[Records, list[CorruptRegion]]:
    """Return the records of all whole batches in `data`, and the corrupt regions in log order.

    A batch is corrupt if its checksum is wrong, it cannot be decompressed, or it does not contain exactly the records
    that its header states. None of its records are returned; other batches are not affected. Bytes that are not a batch
    are corrupt too. A last batch that is incomplete is ignored.

    Args:
        data: The bytes of a segment or of a Fetch response.
    """
    positions, damage = survey(data)
    corrupt = {
        region.start: CorruptRegion(region.log_offset, data[region.start : region.stop], region.reason)
        for region in damage
    }
    buffer = np.frombuffer(data, np.uint8)
    modern = buffer[positions + kernels.MAGIC_AT] == 2
    records, corrupt_modern = _read_modern(data, buffer, positions[modern])
    corrupt |= corrupt_modern
    if not modern.all():
        legacy_records, corrupt_legacy = _read_legacy(data, buffer, positions[~modern])
        records, corrupt = _merged(records, legacy_records), corrupt | corrupt_legacy
    return records, [corrupt[position] for position in sorted(corrupt)]


def _read_modern(data: bytes, buffer: Bytes, positions: Ints) -> tuple[Records, dict[int, CorruptRegion]]:
    """Return the records of batches with magic 2, and the corrupt batches by position."""
    header = headers(buffer, positions)
    starts = positions + kernels.BATCH_HEADER
    ends = positions + kernels.BATCH_OVERHEAD + header["length"]
    reasons: dict[int, str] = {}
    blocks = [buffer]
    total_size = len(buffer)
    codecs = header["attributes"] & CODEC_MASK
    for i in np.flatnonzero((codecs != 0) & (ends > starts)).tolist():
        try:
            block = np.frombuffer(decompress(int(codecs[i]), data[starts[i] : ends[i]]), np.uint8)
        except CorruptBatch as error:
            reasons[i] = str(error)
        else:
            blocks.append(block)
            starts[i], ends[i] = total_size, total_size + len(block)
            total_size += len(block)
    if len(blocks) > 1:
        buffer = _joined(blocks)
    counts, deltas = header["record_count"].astype(np.int64), header["last_offset_delta"].astype(np.int64)
    plausible = (counts >= 0) & (counts * MIN_RECORD_BYTES <= ends - starts)
    plausible[list(reasons)] = False
    columns = np.empty((8, int(counts[plausible].sum())), np.int64)
    parsed, rows = kernels.walk_records(buffer, starts, ends, np.where(plausible, counts, 0), deltas, columns)
    for i in np.flatnonzero(~plausible | (parsed != counts)).tolist():
        reasons.setdefault(i, _wrong_count(int(counts[i]), int(parsed[i]), bool(plausible[i])))
    corrupt = {}
    for i, reason in reasons.items():
        position = int(positions[i])
        batch = data[position : position + int(kernels.batch_size(buffer, position))]
        corrupt[position] = CorruptRegion(int(header["base_offset"][i]), batch, reason)
    return _as_records(buffer, header, columns[:, :rows]), corrupt


def _wrong_count(count: int, parsed: int, plausible: bool) -> str:
    if not plausible:
        return f"the batch header states {count} records, which do not fit into the batch"
    if parsed < 0:
        return f"bytes follow the {count} records that the batch header states"
    return f"the batch header states {count} records, but record {parsed + 1} is malformed"


def _as_records(buffer: Bytes, header: npt.NDArray[np.void], columns: Ints) -> Records:
    batch, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at = columns

    def per_record(name: str) -> Ints:
        column: Ints = header[name].astype(np.int64)[batch]
        return column

    first = header["base_offset"].astype(np.int64)
    append_time = (header["attributes"] & APPEND_TIME)[batch] != 0
    return Records(
        buffer=buffer,
        spans=np.stack((first, first + header["last_offset_delta"])),
        log_offset=per_record("base_offset") + offset_delta,
        log_timestamp=np.where(
            append_time, per_record("max_timestamp"), per_record("base_timestamp") + timestamp_delta
        ),
        producer_id=per_record("producer_id"),
        producer_epoch=per_record("producer_epoch"),
        control=(header["attributes"] & CONTROL)[batch] != 0,
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
        headers_at=headers_at,
    )


def _read_legacy(data: bytes, buffer: Bytes, positions: Ints) -> tuple[Records, dict[int, CorruptRegion]]:
    """Read magic 0 and 1 message by message: only logs from before Kafka 0.11 contain them."""
    messages: list[Message] = []
    corrupt: dict[int, CorruptRegion] = {}
    for position in positions.tolist():
        message = data[position : position + int(kernels.batch_size(buffer, position))]
        try:
            messages += read_message(message)
        except CorruptBatch as error:
            corrupt[position] = CorruptRegion(int(kernels.int64_at(buffer, position)), message, str(error))
    return _pack(messages), corrupt


def _pack(messages: list[Message]) -> Records:
    """Return messages as columns, with their keys and values concatenated in a new buffer."""
    parts = [part for message in messages for part in (message.key, message.value)]
    lengths = np.array([-1 if part is None else len(part) for part in parts], np.int64)
    positions = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    none = np.full(len(messages), -1, np.int64)
    return Records(
        buffer=np.frombuffer(b"".join(part or b"" for part in parts), np.uint8),
        spans=np.empty((2, 0), np.int64),
        log_offset=np.array([message.offset for message in messages], np.int64),
        log_timestamp=np.array([message.timestamp for message in messages], np.int64),
        producer_id=none,
        producer_epoch=none,
        control=np.zeros(len(messages), np.bool_),
        key_at=positions[0::2],
        key_length=lengths[0::2],
        value_at=positions[1::2],
        value_length=lengths[1::2],
        headers_at=none,
    )


def _merged(modern: Records, legacy: Records) -> Records:
    """Return the records of both in log order; `legacy` are those of message sets."""
    shift = len(modern.buffer)
    moved = {name: getattr(legacy, name) + shift for name in ("key_at", "value_at")}
    columns = (np.concatenate([getattr(modern, n), moved.get(n, getattr(legacy, n))]) for n in Records.COLUMNS)
    merged = Records(_joined([modern.buffer, legacy.buffer]), modern.spans, *columns)
    return merged.where(np.argsort(merged.log_offset, kind="stable"))


def _joined(parts: list[Bytes]) -> Bytes:
    """Return the concatenated buffers, read-only like the bytes of a log: the kernels are compiled for that type."""
    joined = np.concatenate(parts)
    joined.flags.writeable = False
    return joined
