"""Where a log begins and ends: the small types every room above the bytes shares."""

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

TRANSACTION_LOG_PARTITIONS = 50
"""Log partitions of `__transaction_state`, the default of `transaction.state.log.num.partitions`."""


class LogPartition(NamedTuple):
    """One partition of the log: a folder `topic-partition/` or a partition of the live topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Log offsets from `start` up to, not including, `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """What a log holds at one moment.

    | field    | is |
    |----------|----|
    | identity | the cluster id, or None where the log does not say |
    | ranges   | the offsets each partition holds now, up to the last whole batch or the high watermark |
    | notes    | what a person should know, such as a torn last batch: one sentence each |
    """

    identity: str | None
    ranges: dict[LogPartition, OffsetRange]
    notes: list[str] = field(default_factory=list)
