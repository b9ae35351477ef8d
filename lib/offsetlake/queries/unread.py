"""Log partitions that exist, but were not in the folder that a lake was read from: their groups are unknown."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from offsetlake.errors import NotRead
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import last_run


@dataclass(frozen=True)
class Unread:
    """The log partitions that a lake has not read.

    | field      | description |
    |------------|-------------|
    | partitions | topic and partition of each |
    | count      | the number of partitions of `__consumer_offsets`; None if it is not known |
    """

    partitions: frozenset[tuple[str, int]]
    count: int | None

    def contains(self, group_id: str) -> bool:
        """Return whether the records of a group are in a log partition that was not read."""
        return bool(self.count) and (OFFSETS_TOPIC, partition_for_group(group_id, self.count or 1)) in self.partitions

    def note(self) -> str:
        """Return a sentence for answers about several groups; empty if everything was read."""
        if not self.partitions:
            return ""
        return (
            f"{listed(self.partitions)} were not in the log that this lake was read from: groups in these log "
            "partitions are not in the answer. Run `offsetlake run` with a log that contains them."
        )


def unread(lake: Lake) -> Unread:
    """Return the log partitions that a lake has not read, according to its last ingest."""
    last = last_run(lake, "ingest")
    return Unread(frozenset(last.absent or ()) if last else frozenset(), last.log_partitions if last else None)


def check_read(lake: Lake, group_id: str | None) -> None:
    """Raise NotRead if the records of a group are in a log partition that was not read."""
    if group_id is not None and (missing := unread(lake)).contains(group_id):
        number = partition_for_group(group_id, missing.count or 1)
        raise NotRead(
            f"Nothing is known about group {group_id!r}: its records are in {OFFSETS_TOPIC}-{number}, which was not in "
            f"the log that the lake {lake.location} was read from. Run `offsetlake run` with a log that contains this "
            "partition."
        )


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
