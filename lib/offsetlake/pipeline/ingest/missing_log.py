"""Finds the partitions and the records that a log has had, but that the log which an ingest reads does not contain."""

from collections.abc import Collection
from dataclasses import dataclass

from offsetlake.kafka.placement import partition_for_group
from offsetlake.lake.runs import LogRange, Run
from offsetlake.lake.unread import listed
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.absent_partitions import DEFAULT_PARTITIONS, partition_count
from offsetlake.log.positions import OFFSETS_TOPIC, LogExtent, LogPartition


@dataclass(frozen=True)
class Partitions:
    """What an ingest knows about the partitions of a log.

    | field  | description |
    |--------|-------------|
    | count  | the number of partitions of `__consumer_offsets` |
    | grown  | whether partitions were added, so that groups can have records in partitions of former numbers |
    | absent | partitions that exist, but are not in the log |
    """

    count: int
    grown: bool
    absent: list[LogPartition]


def partitions_of_log(log: LogAddress, extent: LogExtent, last: Run | None) -> Partitions:
    """Return what is known about the partitions of a log; `last` is the last run of an ingest.

    Groups at the beginning of the partitions are compared with the number of partitions only if that is not known from
    the last ingest and, in a folder, if partitions are absent, or if there are fewer than the default of brokers.
    """
    numbers = {where.partition for where in (*extent.ranges, *extent.empty) if where.topic == OFFSETS_TOPIC}
    absent = (where.partition for where in extent.absent if where.topic == OFFSETS_TOPIC)
    named = max((*numbers, *absent), default=-1) + 1
    before = (last.log_partitions if last else None) or 0
    is_settled = named == before and (log.connection is not None or (named >= DEFAULT_PARTITIONS and not extent.absent))
    groups = set[tuple[str, int]]() if is_settled else log.first_groups(extent)
    count = named if log.connection else max(partition_count(groups, numbers, named), before)
    misplaced = any(partition_for_group(group, count) != number for group, number in groups)
    grown = bool(last and last.grown) or 0 < before < count or misplaced
    if extent.creates_partitions:  # what an ingest has missed is still absent after the first write
        missed = {LogPartition(*where) for where in (last.absent or ())} if last else set[LogPartition]()
        return Partitions(count, grown, sorted({*extent.absent, *missed}.difference(extent.ranges, extent.empty)))
    added = (LogPartition(OFFSETS_TOPIC, number) for number in range(named, count))
    return Partitions(count, grown, [*extent.absent, *added])


def missing_in(extent: LogExtent, last: Run | None) -> list[LogRange]:
    """Return the log offsets that are missing within partitions, and those that were when the lake read past them.

    The latter are forgotten when the log does not begin before them any more: its broker does not know them either. In
    a log that offsetlake writes, new records take the log offsets of those that are missing.
    """
    found = {LogRange(*where, *offsets) for where, offsets in extent.missing}
    positions = {(at.topic, at.partition): at.position for at in (last.positions or ())} if last else {}
    for part in (last.missing or ()) if last else ():
        where = (part.topic, part.partition)
        log = extent.ranges.get(LogPartition(*where))
        is_known_to_broker = part.start < positions.get(where, 0) and (log is None or log.start < part.end)
        if extent.creates_partitions or is_known_to_broker:
            found.add(part)
    return sorted(found)


def absent_notes(absent: Collection[LogPartition]) -> list[str]:
    """Return the note that partitions are absent, if there are any."""
    if not absent:
        return []
    note = (
        f"NOT READ: {listed(absent)} exist, but are not in this folder, so their groups are not in the lake. They are "
        "in another folder of the broker's log.dirs, on another broker, or were not copied: link or copy their folders "
        "into this folder, or read the cluster with --bootstrap"
    )
    return [note]
