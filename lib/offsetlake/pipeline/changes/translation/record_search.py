"""Finds offsets at the target of a replication by the timestamps and the content of records at both clusters."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from offsetlake.kafka.batches.reader import Records, read_batches
from offsetlake.log.cluster import topic as topics
from offsetlake.log.cluster.admin_client import cluster_admin
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.positions import LogPartition, OffsetRange
from offsetlake.rules.record_match import Copied, first_not_before
from offsetlake.util.amounts import counted

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin, Partition

WINDOW = 20
"""Offsets before and after an offset at the source whose records are compared."""
MAX_SEARCHED = 2_000
"""Offsets of the target in which one position is searched."""
MAX_AT_ONCE = 100
"""Offsets that are searched together, because up to 2,040 records of each are in memory."""
_FETCH_BYTES = 1 << 20


class Wanted(NamedTuple):
    """An offset to find: its partition at both clusters, and the target offset to begin at; None if unknown."""

    source: "Partition"
    offset: int
    target: "Partition"
    begin: int | None


class FoundOffset(NamedTuple):
    """An offset at the target, and a text of what determined it."""

    offset: int
    evidence: str


class _Record(NamedTuple):
    copied: Copied
    timestamp: int


class _Window(NamedTuple):
    """Records of the source before and after an offset."""

    before: list[_Record]
    after: list[_Record]


def search_records(
    source: KafkaConnection, target: KafkaConnection, wanted: Sequence[Wanted]
) -> dict[int, FoundOffset]:
    """Return those offsets, by their numbers in `wanted`, that the content of records determines.

    Records are equal if their timestamps, keys, headers and values are. The search begins where offset syncs say, or
    with the first record at the target that is not older than the records next to the offset. If their contents are
    not unique, the offset is the same as at the source if all records around it have the same offsets at both clusters.
    If these records have different timestamps, no other position can be equal.

    Raises:
        LogUnavailable: A cluster cannot be read.
    """
    found: dict[int, FoundOffset] = {}
    with cluster_admin(source) as at_source, cluster_admin(target) as at_target:
        for first in range(0, len(wanted), MAX_AT_ONCE):
            portion = wanted[first : first + MAX_AT_ONCE]
            offsets = _search(source, target, at_source, at_target, portion)
            found |= {first + number: offset for number, offset in offsets.items()}
    return found


def _search(
    source: KafkaConnection,
    target: KafkaConnection,
    at_source: "ClusterAdmin",
    at_target: "ClusterAdmin",
    wanted: Sequence[Wanted],
) -> dict[int, FoundOffset]:
    windows = _windows(source, at_source, wanted)
    ends = at_target.log_ends({wanted[number].target for number in windows})
    windows = {number: window for number, window in windows.items() if wanted[number].target in ends}
    begins = _begins(at_target, wanted, windows)
    found = {}
    ranges = {
        number: OffsetRange(max(begin, ends[wanted[number].target][0]), ends[wanted[number].target][1])
        for number, begin in begins.items()
    }
    copies = _read(target, {n: (wanted[n].target, _limited(each, MAX_SEARCHED)) for n, each in ranges.items()})
    for number, window in windows.items():
        before, after = ([record.copied.digest for record in part] for part in window)
        offset = first_not_before(before, after, [record.copied for record in copies.get(number, [])])
        if offset is not None:
            found[number] = FoundOffset(offset, f"content of {counted(len(before) + len(after), 'record')}")
    return found | _identical(target, wanted, {n: window for n, window in windows.items() if n not in found}, ends)


def _windows(source: KafkaConnection, admin: "ClusterAdmin", wanted: Sequence[Wanted]) -> dict[int, _Window]:
    """Return the records around offsets, if there are some on both sides of an offset that is within the log."""
    ends = admin.log_ends({each.source for each in wanted})
    ranges = {}
    for number, each in enumerate(wanted):
        start, end = ends.get(each.source, (0, -1))
        if start <= each.offset <= end:
            ranges[number] = (
                each.source, OffsetRange(max(start, each.offset - WINDOW), min(end, each.offset + WINDOW))
            )  # fmt: skip
    windows = {}
    for number, records in _read(source, ranges).items():
        offset, (start, end) = wanted[number].offset, ends[wanted[number].source]
        window = _Window(
            [record for record in records if record.copied.offset < offset],
            [record for record in records if record.copied.offset >= offset],
        )
        # Markers and compaction leave gaps, beyond which there may be other records.
        knows_before = window.before or offset - WINDOW <= start
        knows_after = window.after or offset + WINDOW >= end
        if records and knows_before and knows_after:
            windows[number] = window
    return windows


def _begins(admin: "ClusterAdmin", wanted: Sequence[Wanted], windows: Mapping[int, _Window]) -> dict[int, int]:
    """Return the offset at the target at which each search begins."""
    begins, times = {}, {}
    for number, window in windows.items():
        begin = wanted[number].begin
        if begin is None:
            times[number] = min(record.timestamp for record in (*window.before[-1:], *window.after[:1]))
        else:
            begins[number] = begin
    for timestamp in {*times.values()}:
        numbers = [number for number, each in times.items() if each == timestamp]
        offsets = admin.offsets_at({wanted[number].target for number in numbers}, timestamp)
        begins |= {number: offsets[wanted[number].target] for number in numbers if wanted[number].target in offsets}
    return begins


def _identical(
    target: KafkaConnection,
    wanted: Sequence[Wanted],
    windows: Mapping[int, _Window],
    ends: "Mapping[Partition, tuple[int, int]]",
) -> dict[int, FoundOffset]:
    """Return the offsets around which all records have the same offsets at both clusters."""
    ranges, found = {}, {}
    for number, window in windows.items():
        records, (start, end) = [*window.before, *window.after], ends[wanted[number].target]
        first, last = records[0].copied.offset, records[-1].copied.offset
        if start <= first and last < end and len({record.timestamp for record in records}) > 1:
            ranges[number] = (wanted[number].target, OffsetRange(first, last + 1))
    for number, records in _read(target, ranges).items():
        if records == [*windows[number].before, *windows[number].after]:
            first, last = records[0].copied.offset, records[-1].copied.offset
            found[number] = FoundOffset(wanted[number].offset, f"the same records at offsets {first} to {last}")
    return found


def _limited(offsets: OffsetRange, count: int) -> OffsetRange:
    return OffsetRange(offsets.start, min(offsets.start + count, offsets.end))


def _read(
    connection: KafkaConnection, ranges: "Mapping[int, tuple[Partition, OffsetRange]]"
) -> dict[int, list[_Record]]:
    """Return the records in some ranges of partitions, without markers, by the number of the range."""
    found: dict[int, list[_Record]] = {number: [] for number in ranges}
    numbers = [*ranges]
    requests = [(LogPartition(*where), offsets) for where, offsets in ranges.values()]
    for index, data in topics.fetch(connection, requests, _FETCH_BYTES):
        number, offsets = numbers[index], requests[index][1]
        records = read_batches(data)[0]
        inside = (records.log_offset >= offsets.start) & (records.log_offset < offsets.end) & ~records.control
        found[number] += _digested(records.where(inside))
    return found


def _digested(records: Records) -> list[_Record]:
    digested = []
    for row, (offset, timestamp) in enumerate(
        zip(records.log_offset.tolist(), records.log_timestamp.tolist(), strict=True)
    ):
        digest = blake2b(timestamp.to_bytes(8, "big", signed=True), digest_size=16)
        for part in (records.key(row), records.value(row), records.headers(row)):
            digest.update((-1 if part is None else len(part)).to_bytes(8, "big", signed=True) + (part or b""))
        digested.append(_Record(Copied(offset, digest.digest()), timestamp))
    return digested
