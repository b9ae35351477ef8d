"""What a lake has not read of a log that exists: whole log partitions, and records that are missing in them.

Their groups are unknown, or have offsets that may be older than those in the log.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

from offsetlake.errors import NotRead
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import LogRange, last_run

_MAX_NAMED = 3
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class Unread:
    """What a lake has not read.

    | field      | description |
    |------------|-------------|
    | partitions | topic and partition of each log partition that was not read |
    | count      | the number of partitions of `__consumer_offsets`; None if it is not known |
    | missing    | log offsets that are missing in log partitions that were read |
    """

    partitions: frozenset[tuple[str, int]]
    count: int | None
    missing: tuple[LogRange, ...] = ()

    def contains(self, group_id: str) -> bool:
        """Return whether the records of a group are in a log partition that was not read."""
        return bool(self.count) and (OFFSETS_TOPIC, partition_for_group(group_id, self.count or 1)) in self.partitions

    def missing_of(self, group_id: str) -> tuple[LogRange, ...]:
        """Return the log offsets that are missing in the log partition of a group."""
        number = partition_for_group(group_id, self.count) if self.count else None
        return tuple(part for part in self.missing if (part.topic, part.partition) == (OFFSETS_TOPIC, number))

    def of_topic(self, topic: str) -> str:
        """Return a text with the log partitions and the log offsets of one topic; empty if all of it was read."""
        absent = {where for where in self.partitions if where[0] == topic}
        parts = [part for part in self.missing if part.topic == topic]
        return " and ".join([*([listed(absent)] if absent else []), *([missing_listed(parts)] if parts else [])])

    def notes(self) -> list[str]:
        """Return sentences for answers about several groups; none if everything was read."""
        found = []
        if self.partitions:
            found.append(
                f"NOT READ: {listed(self.partitions)} were not in the log that this lake was read from: groups in "
                "these log partitions are not in the answer. Run `offsetlake run` with a log that contains them."
            )
        if self.missing:
            found.append(
                f"INCOMPLETE: {missing_listed(self.missing)} were missing in the log that this lake was read from: "
                f"groups and offsets in these log partitions may be missing, or older than those in the log. {_REMEDY}"
            )
        return found


EVERYTHING_READ = Unread(frozenset(), None)
_REMEDY = (
    "Run `offsetlake run` with a complete copy of the log: on this lake if records at the end of a log partition are "
    "missing, otherwise on a new one."
)


def unread(lake: Lake) -> Unread:
    """Return what a lake has not read, according to its last ingest."""
    last = last_run(lake, "ingest")
    if last is None:
        return EVERYTHING_READ
    return Unread(frozenset(last.absent or ()), last.log_partitions, last.missing or ())


def check_read(lake: Lake, group_id: str | None) -> None:
    """Raise NotRead if records of a group, of which none are known, are among those that were not read.

    The groups that a pattern could match may be in any log partition.
    """
    if group_id is None:
        return
    missing = unread(lake)
    if _WILDCARDS.intersection(group_id):
        _check_all_read(lake, missing, group_id)
    elif missing.contains(group_id):
        number = partition_for_group(group_id, missing.count or 1)
        raise NotRead(
            f"Nothing is known about group {group_id!r}: its records are in {OFFSETS_TOPIC}-{number}, which was not in "
            f"the log that the lake {lake.location} was read from. Run `offsetlake run` with a log that contains this "
            "partition."
        )
    elif parts := missing.missing_of(group_id):
        raise NotRead(
            f"Nothing is known about group {group_id!r}: its records may be among {missing_listed(parts)}, which were "
            f"missing in the log that the lake {lake.location} was read from. {_REMEDY}"
        )


def _check_all_read(lake: Lake, missing: Unread, pattern: str) -> None:
    """Raise NotRead if groups that match a pattern, of which none are known, may be among those that were not read."""
    if what := missing.of_topic(OFFSETS_TOPIC):
        raise NotRead(
            f"No group like {pattern!r} was read, but such groups may be in {what}, which the log that the lake "
            f"{lake.location} was read from did not contain. Run `offsetlake run` with a complete copy of the log."
        )


def check_share_state_read(lake: Lake, group_id: str | None) -> None:
    """Raise NotRead if share partitions of a share group, of which none are known, may be in what was not read."""
    check_read(lake, group_id)
    if what := unread(lake).of_topic(SHARE_STATE_TOPIC):
        raise NotRead(
            f"Nothing is known about these share partitions: their records may be in {what}, which the log that the "
            f"lake {lake.location} was read from did not contain. Run `offsetlake run` with a complete copy of the log."
        )


def missing_listed(parts: Collection[LogRange]) -> str:
    """Return a text with ranges of log offsets, of which the first are named: `log offsets 3 to 8 of topic-0`."""
    named = [f"log offset{_bounds(part)} of {part.topic}-{part.partition}" for part in sorted(parts)]
    more = [f"{len(named) - _MAX_NAMED} more ranges"] if len(named) > _MAX_NAMED else []
    *others, last = [*named[:_MAX_NAMED], *more]
    return f"{', '.join(others)} and {last}" if others else last


def _bounds(part: LogRange) -> str:
    return f" {part.start}" if part.end - part.start == 1 else f"s {part.start} to {part.end - 1}"


def listed(partitions: Iterable[tuple[str, int]]) -> str:
    """Return the names of log partitions, with ranges of numbers: `__consumer_offsets-0, 3 to 8`."""
    numbers = defaultdict[str, list[int]](list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return " and ".join(f"{topic}-{', '.join(_ranges(found))}" for topic, found in numbers.items())


def _ranges(numbers: list[int]) -> Iterable[str]:
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        first, *_, last = [*(number for _, number in run)] * 2
        yield f"{first} to {last}" if last > first else str(first)
