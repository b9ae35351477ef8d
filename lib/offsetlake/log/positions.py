"""Log partitions, ranges of log offsets, and the extent of a log."""

from dataclasses import dataclass, field
from typing import NamedTuple

from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

__all__ = [
    "LOG_TOPICS",
    "OFFSETS_TOPIC",
    "SHARE_STATE_TOPIC",
    "TRANSACTIONS_TOPIC",
    "LogExtent",
    "LogPartition",
    "OffsetRange",
]

LOG_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC)

SHARE_STATE_PARTITIONS = 50
"""The number of log partitions of `__share_group_state`: the default of a broker's
`share.coordinator.state.topic.num.partitions`."""

TRANSACTION_LOG_PARTITIONS = 50
"""The number of log partitions of `__transaction_state`: the default of `transaction.state.log.num.partitions`."""


class LogPartition(NamedTuple):
    """A partition of a log topic: a folder `topic-partition/` or a partition of a live topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Log offsets from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The content of a log at one time.

    Attributes:
        identity: The cluster ID, or None if the log does not contain it.
        ranges: The offsets of each partition, up to the last whole batch or the high watermark.
        notes: Messages for the operator, such as about an incomplete last batch.
        empty: The partitions whose folders contain no segment.
        absent: The partitions that the topics have, as far as the log shows it, but the log does not contain.
        missing: Log offsets that a partition had according to other files of its broker, but does not contain.
        creates_partitions: Whether offsetlake writes the log: a partition that is not there has no record.
    """

    identity: str | None
    ranges: dict[LogPartition, OffsetRange]
    notes: list[str] = field(default_factory=list)
    empty: list[LogPartition] = field(default_factory=list)
    absent: list[LogPartition] = field(default_factory=list)
    missing: list[tuple[LogPartition, OffsetRange]] = field(default_factory=list)
    creates_partitions: bool = False
