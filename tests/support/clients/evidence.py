"""What a run of real consumers has shown: records without a reader, offsets that moved back, and the longest waits."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from support.clients.output import Batch
from support.oracle.log_reader import COMMIT, LogRecord, read_log

OFFSET_COMMIT, GROUP_METADATA, MEMBER_ASSIGNMENT = 1, 2, 8


class Wait(NamedTuple):
    """How long the record at `offset` waited until it was first read, and the time of that."""

    ms: int
    partition: int
    offset: int
    read_ms: int


class MovedBack(NamedTuple):
    """A committed offset that is smaller than the one before it."""

    group: str
    partition: int
    previous: int
    offset: int
    in_generation: bool
    """Whether both were committed in the same generation, or with no new member epoch between them."""


def missing(batches: Iterable[Batch], ends: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return the partition, first and end offset of ranges that were not read."""
    read: dict[int, list[tuple[int, int]]] = {partition: [] for partition in ends}
    for batch in batches:
        read[batch.partition].append((batch.first, batch.last + 1))
    found = []
    for partition, end in ends.items():
        position = 0
        for first, after in sorted(read[partition]):
            if first > position:
                found.append((partition, position, first))
            position = max(position, after)
        if position < end:
            found.append((partition, position, end))
    return found


def repeated(batches: Iterable[Batch], ends: Mapping[int, int]) -> int:
    """Return how many records were read more often than once, if none is missing."""
    return sum(batch.last + 1 - batch.first for batch in batches) - sum(ends.values())


def waits(batches: Iterable[Batch]) -> list[Wait]:
    """Return the wait of the first new record of each batch, of those batches whose time is known."""
    found, positions = [], Counter[int]()
    for batch in sorted((batch for batch in batches if batch.read_ms is not None), key=lambda batch: batch[0] or 0):
        position = positions[batch.partition]
        if batch.last >= position:
            oldest_ms = batch.first_ms if batch.first >= position else batch.last_ms
            found.append(
                Wait((batch.read_ms or 0) - oldest_ms, batch.partition, max(batch.first, position), batch.read_ms or 0)
            )
            positions[batch.partition] = batch.last + 1
    return found


def moved_back(log: Path) -> tuple[int, list[MovedBack]]:
    """Return the number of commits in a log, and those that moved an offset back. Transactions count when committed."""
    commits, found = 0, []
    generations: Counter[str] = Counter()
    latest: dict[tuple[str, str, int], tuple[int, int]] = {}
    for name, parsed in _decided(read_log(log)):
        if parsed is None:
            generations[name] += 1
            continue
        topic, partition, offset = parsed
        commits += 1
        key, generation = (name, topic, partition), generations[name]
        previous, earlier = latest.get(key, (0, generation))
        if offset < previous:
            found.append(MovedBack(name, partition, previous, offset, generation == earlier))
        latest[key] = offset, generation
    return commits, found


def _decided(records: Iterable[LogRecord]) -> Iterator[tuple[str, tuple[str, int, int] | None]]:
    """Yield the group and the topic, partition and offset of each commit; None for the latter in a new generation."""
    pending: dict[int, list[tuple[str, tuple[str, int, int]]]] = {}
    classic: dict[str, int] = {}
    for record in records:
        if record.is_control:
            decided = pending.pop(record.producer_id, [])
            yield from decided if record.control_type == COMMIT else []
        elif record.key is not None and record.value is not None:
            (kind,) = struct.unpack_from(">h", record.key)
            group, position = _text(record.key, 2)
            if kind == OFFSET_COMMIT:
                topic, position = _text(record.key, position)
                (partition,) = struct.unpack_from(">i", record.key, position)
                (offset,) = struct.unpack_from(">q", record.value, 2)
                commit = group, (topic, partition, offset)
                if record.producer_id >= 0:
                    pending.setdefault(record.producer_id, []).append(commit)
                else:
                    yield commit
            elif kind == GROUP_METADATA:
                (generation,) = struct.unpack_from(">i", record.value, _text(record.value, 2)[1])
                if classic.get(group) != generation:
                    yield group, None
                classic[group] = generation
            elif kind == MEMBER_ASSIGNMENT:
                yield group, None


def _text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, position)
    start = position + 2
    return data[start : start + length].decode(), start + length
