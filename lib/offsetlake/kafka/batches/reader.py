"""Record batches to columns: where the bytes of a log become arrays of records.

Magic 2 is laid out here, by compiled loops over whole buffers (`kernels.py`); checksums and compression are left to
libraries. The message sets of magic 0 and 1 are read in `messages.py`.
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
SMALLEST_RECORD = 7  # length, attributes, two deltas, two lengths, header count: a byte each


@dataclass(frozen=True, slots=True)
class CorruptRegion:
    """Bytes of the log that hold no readable record: `log_offset` is where they stand, `reason` why."""

    log_offset: int
    data: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Records:
    """Records as columns, one row a record, in log order; positions point into `buffer`.

    | column                  | dtype | is |
    |-------------------------|-------|----|
    | log_offset              | int64 | |
    | log_timestamp           | int64 | ms, -1 = none (magic 0) |
    | producer_id             | int64 | -1 = none |
    | producer_epoch          | int64 | -1 = none |
    | control                 | bool  | the record belongs to a control batch |
    | key_at, key_length      | int64 | length -1 = null |
    | value_at, value_length  | int64 | length -1 = null |
    | headers_at              | int64 | where their number stands, the headers behind it; -1 = none |

    `spans` (2, batches) are the first and the last log offset of each batch of magic 2 there was, in log order.
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
        """Keep the rows for which `chosen` is true, or the rows it numbers."""
        return Records(self.buffer, self.spans, *(getattr(self, name)[chosen] for name in self.COLUMNS))

    def key(self, row: int) -> bytes | None:
        """Give the key bytes of one row."""
        return _slice(self.buffer, self.key_at[row], self.key_length[row])

    def value(self, row: int) -> bytes | None:
        """Give the value bytes of one row; None is a tombstone."""
        return _slice(self.buffer, self.value_at[row], self.value_length[row])

    def record_types(self) -> Ints:
        """Give the int16 a coordinator record's key begins with, -1 where the key is shorter or null."""
        types = np.full(len(self), -1, np.int64)
        typed = self.key_length >= 2
        at = self.key_at[typed]
        types[typed] = (self.buffer[at].astype(np.int64) << 8 | self.buffer[at + 1]).astype(np.int16)
        return types


def _slice(buffer: Bytes, at: int, length: int) -> bytes | None:
    return None if length < 0 else buffer[at : at + length].tobytes()


def read_batches(data: bytes) -> tuple[Records, list[CorruptRegion]]:
    """Lay out every record of the whole batches in `data`, a segment's or a Fetch response's bytes.

    What is no batch, or fails its checksum, cannot be decompressed or does not hold just the records it counts, comes
    back as corrupt regions with all its bytes, and none of its records; no other batch is touched by it. A last batch
    that the end of `data` cuts off is left out.
    """
    positions, damage = survey(data)
    corrupt = {each.start: CorruptRegion(each.log_offset, data[each.start : each.stop], each.reason) for each in damage}
    buffer = np.frombuffer(data, np.uint8)
    modern = buffer[positions + kernels.MAGIC_AT] == 2
    records, bad = _read_modern(data, buffer, positions[modern])
    corrupt |= bad
    if not modern.all():
        old, bad = _read_legacy(data, buffer, positions[~modern])
        records, corrupt = _merged(records, old), corrupt | bad
    return records, [corrupt[at] for at in sorted(corrupt)]


def _read_modern(data: bytes, buffer: Bytes, positions: Ints) -> tuple[Records, dict[int, CorruptRegion]]:
    """Lay out the records of batches of magic 2; corrupt ones by their position."""
    header = headers(buffer, positions)
    starts = positions + kernels.BATCH_HEADER
    ends = positions + kernels.BATCH_OVERHEAD + header["length"]
    reasons: dict[int, str] = {}
    unpacked = [buffer]
    unpacked_at = len(buffer)
    codecs = header["attributes"] & CODEC_MASK
    for i in np.flatnonzero((codecs != 0) & (ends > starts)).tolist():
        try:
            block = np.frombuffer(decompress(int(codecs[i]), data[starts[i] : ends[i]]), np.uint8)
        except CorruptBatch as error:
            reasons[i] = str(error)
        else:
            unpacked.append(block)
            starts[i], ends[i] = unpacked_at, unpacked_at + len(block)
            unpacked_at += len(block)
    if len(unpacked) > 1:
        buffer = _joined(unpacked)
    counts, deltas = header["record_count"].astype(np.int64), header["last_offset_delta"].astype(np.int64)
    readable = (counts >= 0) & (counts * SMALLEST_RECORD <= ends - starts)
    readable[list(reasons)] = False
    columns = np.empty((8, int(counts[readable].sum())), np.int64)
    found, rows = kernels.walk_records(buffer, starts, ends, np.where(readable, counts, 0), deltas, columns)
    for i in np.flatnonzero(~readable | (found != counts)).tolist():
        reasons.setdefault(i, _miscounted(int(counts[i]), int(found[i]), bool(readable[i])))
    corrupt = {
        at: CorruptRegion(int(header["base_offset"][i]), data[at : at + int(kernels.batch_size(buffer, at))], reason)
        for i, reason in reasons.items()
        for at in [int(positions[i])]
    }
    return _as_records(buffer, header, columns[:, :rows]), corrupt


def _miscounted(count: int, found: int, possible: bool) -> str:
    if not possible:
        return f"the batch counts {count} records, which cannot be in its bytes"
    if found < 0:
        return f"the batch holds more bytes than the {count} records it counts"
    return f"the batch counts {count} records but record {found + 1} of them cannot be laid out"


def _as_records(buffer: Bytes, header: npt.NDArray[np.void], columns: Ints) -> Records:
    batch, timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at = columns

    def of_batch(name: str) -> Ints:
        column: Ints = header[name].astype(np.int64)[batch]
        return column

    first = header["base_offset"].astype(np.int64)
    append_time = (header["attributes"] & APPEND_TIME)[batch] != 0
    return Records(
        buffer=buffer,
        spans=np.stack((first, first + header["last_offset_delta"])),
        log_offset=of_batch("base_offset") + offset_delta,
        log_timestamp=np.where(append_time, of_batch("max_timestamp"), of_batch("base_timestamp") + timestamp_delta),
        producer_id=of_batch("producer_id"),
        producer_epoch=of_batch("producer_epoch"),
        control=(header["attributes"] & CONTROL)[batch] != 0,
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
        headers_at=headers_at,
    )


def _read_legacy(data: bytes, buffer: Bytes, positions: Ints) -> tuple[Records, dict[int, CorruptRegion]]:
    """Read magic 0 and 1 message by message: only logs from before Kafka 0.11 hold them."""
    messages: list[Message] = []
    corrupt: dict[int, CorruptRegion] = {}
    for at in positions.tolist():
        found = data[at : at + int(kernels.batch_size(buffer, at))]
        try:
            messages += read_message(found)
        except CorruptBatch as error:
            corrupt[at] = CorruptRegion(int(kernels.int64_at(buffer, at)), found, str(error))
    return _pack(messages), corrupt


def _pack(messages: list[Message]) -> Records:
    """Lay keys and values given as objects one behind the other, as if they had been found in a buffer."""
    parts = [part for message in messages for part in (message.key, message.value)]
    lengths = np.array([-1 if part is None else len(part) for part in parts], np.int64)
    at = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    none = np.full(len(messages), -1, np.int64)
    return Records(
        buffer=np.frombuffer(b"".join(part or b"" for part in parts), np.uint8),
        spans=np.empty((2, 0), np.int64),
        log_offset=np.array([message.offset for message in messages], np.int64),
        log_timestamp=np.array([message.timestamp for message in messages], np.int64),
        producer_id=none,
        producer_epoch=none,
        control=np.zeros(len(messages), np.bool_),
        key_at=at[0::2],
        key_length=lengths[0::2],
        value_at=at[1::2],
        value_length=lengths[1::2],
        headers_at=none,
    )


def _merged(first: Records, second: Records) -> Records:
    """Put the records of both in log order; the second are of message sets."""
    shift = len(first.buffer)
    moved = {name: getattr(second, name) + shift for name in ("key_at", "value_at")}
    columns = (np.concatenate([getattr(first, n), moved.get(n, getattr(second, n))]) for n in Records.COLUMNS)
    whole = Records(_joined([first.buffer, second.buffer]), first.spans, *columns)
    return whole.where(np.argsort(whole.log_offset, kind="stable"))


def _joined(parts: list[Bytes]) -> Bytes:
    """Concatenate, read-only as the bytes of a log are: the compiled loops know one kind of buffer."""
    whole = np.concatenate(parts)
    whole.flags.writeable = False
    return whole
