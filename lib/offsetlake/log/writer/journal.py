"""The journal of a served log: what a round of writes appends to many log partitions, in one file with one fdatasync.

The file `offsetlake.journal` in the folder of the log has a constant size: a header, then PARTS parts of PART_BYTES.
Records fill one part after the other, in laps: lap n is written to part n modulo PARTS, over the records of lap
n - PARTS, whose segments must be on the disk by then. Integers are big-endian; records begin at multiples of BLOCK.

| header of the file | |
|---|---|
| magic, version   | `OLJ1`, int32 |
| journal          | int64, random, so that bytes of another journal or of a client are never taken for a record |
| checksum         | CRC-32C of the fields before it |

| record | |
|---|---|
| checksum         | CRC-32C of the rest of the record |
| magic, journal   | as in the header of the file |
| lap, sequence    | int64, int64; the sequence numbers of successive records are successive |
| size, entries    | int32: bytes and number of the entries |
| each entry       | int16 length and name of the log partition, int64 base offset of the segment, int32 |
|                  | position in it, int32 size, record batches |
"""

import os
import struct
from collections.abc import Iterator, Sequence
from io import FileIO
from itertools import count, pairwise
from pathlib import Path
from secrets import randbits
from typing import NamedTuple

import google_crc32c

from offsetlake.errors import LogUnavailable
from offsetlake.util.atomic_files import to_disk

JOURNAL = "offsetlake.journal"
PARTS, PART_BYTES, BLOCK = 8, 4 << 20, 512
VERSION = 1
_SIZE = BLOCK + PARTS * PART_BYTES
_MAGIC = b"OLJ1"
_FILE_HEADER, _CRC = struct.Struct(">4siQ"), struct.Struct(">I")
_RECORD_HEADER = struct.Struct(">4sQqqii")
_ENTRY, _NAME = struct.Struct(">qii"), struct.Struct(">h")
_HEAD = _CRC.size + _RECORD_HEADER.size


class JournalEntry(NamedTuple):
    """Record batches at a position of a segment, which is given by the name of its folder and its base offset."""

    partition: str
    segment: int
    position: int
    batches: bytes


class _Record(NamedTuple):
    lap: int
    sequence: int
    end: int
    entries: bytes


class Journal:
    """Writes the journal of a log; `lap` is the lap of the last record, from 0 on."""

    def __init__(self, folder: Path) -> None:
        """Create the journal in the folder of a log that this process owns.

        Raises:
            OSError: There is no space for it, or the folder cannot be written.
        """
        self.path = folder / JOURNAL
        self.lap = 0
        self._id, self._sequence, self._position = randbits(64), count(), 0
        header = _FILE_HEADER.pack(_MAGIC, VERSION, self._id)
        new = self.path.with_suffix(".new")
        self.file = FileIO(new, "w")
        try:
            os.posix_fallocate(self.file.fileno(), 0, _SIZE)
            self.file.write(header + _CRC.pack(google_crc32c.value(header)))
            os.fsync(self.file.fileno())
            new.rename(self.path)
        except OSError:
            self.file.close()
            new.unlink(missing_ok=True)
            raise
        to_disk(folder)

    def encode(self, entries: Sequence[JournalEntry]) -> bytes:
        """Return the entries of a record."""
        pieces: list[bytes] = []
        for partition, segment, position, batches in entries:
            name = partition.encode()
            pieces += (_NAME.pack(len(name)), name, _ENTRY.pack(segment, position, len(batches)), batches)
        return b"".join(pieces)

    def fits(self, size: int) -> bool:
        """Return whether entries of this size fit in a part at all."""
        return _HEAD + size <= PART_BYTES

    def begins_lap(self, size: int) -> bool:
        """Return whether the next record, with entries of this size, begins a lap."""
        return self._position + _HEAD + size > PART_BYTES

    def write(self, entries: bytes, number: int) -> None:
        """Write a record with a number of encoded entries, and bring it to the disk.

        Raises:
            OSError: It may be on the disk or not.
        """
        if self.begins_lap(len(entries)):
            self.lap, self._position = self.lap + 1, 0
        header = _RECORD_HEADER.pack(_MAGIC, self._id, self.lap, next(self._sequence), len(entries), number)
        record = header + entries
        start = BLOCK + self.lap % PARTS * PART_BYTES + self._position
        data = memoryview(_CRC.pack(google_crc32c.value(record)) + record)
        self._position += -(-len(data) // BLOCK) * BLOCK
        while data:
            written = os.pwrite(self.file.fileno(), data, start)
            data, start = data[written:], start + written
        os.fdatasync(self.file.fileno())

    def remove(self) -> None:
        """Remove the file; all segments must be on the disk."""
        remove(self.path.parent)


def remove(folder: Path) -> None:
    """Remove the journal of a log, whose segments are on the disk."""
    (folder / JOURNAL).unlink(missing_ok=True)
    to_disk(folder)


def entries(folder: Path) -> list[JournalEntry]:
    """Return the entries of the journal in a folder in the order in which they were written; none without a journal.

    They may be in the segments already. A record that was not completely written when the process ended is ignored,
    as nothing after it was acknowledged.

    Raises:
        LogUnavailable: The journal cannot be read, is damaged, or is of another version.
    """
    path = folder / JOURNAL
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LogUnavailable(f"The journal {path} cannot be read: {error.strerror}.") from error
    magic, version, journal = _FILE_HEADER.unpack_from(data.ljust(BLOCK, b"\0"))
    header = data[: _FILE_HEADER.size]
    if magic != _MAGIC or data[_FILE_HEADER.size :][: _CRC.size] != _CRC.pack(google_crc32c.value(header)):
        raise _damaged(path, 0)
    if version != VERSION:
        raise LogUnavailable(
            f"The journal {path} has version {version}, and this version of offsetlake reads version {VERSION}. "
            "Start the server with the version that wrote it, and stop it: that removes the journal."
        )
    parts = [[*_records(path, data, part, journal)] for part in range(PARTS)]
    records = sorted((record for part in parts for record in part), key=lambda record: record.sequence)
    newest = records[-1].lap if records else -1
    for before, after in pairwise(records):
        if after.sequence != before.sequence + 1:
            raise _damaged(path, before.end)
    if records and records[0].lap > max(0, newest - PARTS + 2):  # one more may be missing: the next one overwrites it
        raise _damaged(path, BLOCK)
    for part in range(PARTS):
        start = BLOCK + part * PART_BYTES
        if not parts[part] and _has_record(data, range(start, start + PART_BYTES, BLOCK), journal, newest + 1):
            raise _damaged(path, start)
    return [entry for record in records for entry in _entries(record)]


def _records(path: Path, data: bytes, part: int, journal: int) -> Iterator[_Record]:
    """Yield the records of the last lap in a part."""
    start = BLOCK + part * PART_BYTES
    stop, position = start + PART_BYTES, start
    last: _Record | None = None
    while (record := _record(data, position, stop, journal)) is not None:
        if last is not None and (record.lap, record.sequence) != (last.lap, last.sequence + 1):
            return  # of an earlier lap
        yield record
        last, position = record, -(-record.end // BLOCK) * BLOCK
    if last is not None and _has_record(data, range(position + BLOCK, stop, BLOCK), journal, last.lap):
        raise _damaged(path, position)


def _has_record(data: bytes, positions: range, journal: int, lap: int) -> bool:
    """Return whether a complete record of a lap, or of a later one, is at one of the positions."""
    found = (_record(data, position, positions.stop, journal) for position in positions)
    return any(record is not None and record.lap >= lap for record in found)


def _record(data: bytes, position: int, stop: int, journal: int) -> _Record | None:
    """Return the record at a position, None if there is no complete one."""
    if position + _HEAD > min(stop, len(data)):
        return None
    magic, of, lap, sequence, size, _ = _RECORD_HEADER.unpack_from(data, position + _CRC.size)
    begin, end = position + _HEAD, position + _HEAD + size
    if magic != _MAGIC or of != journal or not 0 <= size <= min(stop, len(data)) - begin:
        return None
    if _CRC.unpack_from(data, position)[0] != google_crc32c.value(data[position + _CRC.size : end]):
        return None
    return _Record(lap, sequence, end, data[begin:end])


def _entries(record: _Record) -> Iterator[JournalEntry]:
    data, position = record.entries, 0
    while position < len(data):
        begin = position + _NAME.size
        position = begin + _NAME.unpack_from(data, position)[0]
        segment, place, size = _ENTRY.unpack_from(data, position)
        batches = position + _ENTRY.size
        yield JournalEntry(data[begin:position].decode(), segment, place, data[batches : batches + size])
        position = batches + size


def _damaged(path: Path, position: int) -> LogUnavailable:
    return LogUnavailable(
        f"The journal {path} is damaged at byte {position}, so commits that were acknowledged before a crash of the "
        "machine may be missing in the log. Restore the folder from a copy, or remove the journal to go on with what "
        "is in the segments."
    )
