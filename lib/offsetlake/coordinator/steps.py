"""One step of the coordinator: what it is given besides the state of a group and a request, and what it produces."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Any, NamedTuple

from offsetlake.coordinator.epoch_groups.metadata_hash import MetadataHashes
from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.coordinator.topics import TopicDescriptions
from offsetlake.kafka.records.coordinator_records import OffsetsRecordType

Token = int
"""Identifies a request that waits for its reply."""


class Record(NamedTuple):
    """A record for the log, with the key and value in Kafka's JSON form; a null value is a tombstone.

    In values of type GROUP_METADATA, the subscription and the assignment of members are bytes.
    """

    type: OffsetsRecordType
    key: Mapping[str, Any]
    value: Mapping[str, Any] | None


class TimerKind(IntEnum):
    """What is due at a timer; an integer, because each heartbeat looks timers up, and other enums are hashed slowly."""

    SESSION = auto()
    """A member that has not sent a heartbeat is removed."""
    JOIN = auto()
    """The join phase of a classic group ends, or the initial delay of an empty one."""
    SYNC = auto()
    """Members of a classic group that have not sent SyncGroup are removed."""
    REVOCATION = auto()
    """A member of a consumer group that has not revoked partitions is fenced."""
    MEMBER_JOIN = auto()
    """A member of a consumer group that uses the classic protocol is fenced: it has not joined again."""
    MEMBER_SYNC = auto()
    """A member of a consumer group that uses the classic protocol is fenced: it has not sent SyncGroup."""
    REGEX = auto()
    """The host evaluates the regular expressions of a consumer group, outside of a step."""


class Timer(NamedTuple):
    """The name of a timer; the member id is empty for a timer of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(slots=True)
class Step:
    """One step.

    | Field    | Description |
    |----------|-------------|
    | now_ms   | The time, in ms since the epoch |
    | settings, topics | The settings; the topics at that time |
    | new_id   | Returns a random UUID in base64 |
    | hashes   | The hashes of the topics, which a host keeps for its next steps |
    | records  | Records to append to the log in this order, all or none |
    | replies  | Responses by token, to send when the records and all earlier ones of the group are durable |
    | timers   | When each timer that was set is due, in ms since the epoch; None if it was cancelled |
    | undo     | Functions that restore the state before the step, to be called in reverse order if the append fails |
    | successor | The group of another type that replaces the given one, which is unchanged; None if none does |
    """

    now_ms: int
    settings: CoordinatorSettings
    topics: TopicDescriptions
    new_id: Callable[[], str]
    hashes: MetadataHashes = field(default_factory=MetadataHashes)
    records: list[Record] = field(default_factory=list)
    replies: list[tuple[Token, object]] = field(default_factory=list)
    timers: dict[Timer, int | None] = field(default_factory=dict)
    undo: "list[Callable[[Step, int], None]]" = field(default_factory=list)
    """Each is called with a new step and the error code of the failed write."""
    successor: Any = None

    def reply(self, token: Token, reply: object) -> None:
        """Add a response."""
        self.replies.append((token, reply))

    def set_timer(self, kind: TimerKind, group_id: str, delay_ms: int, member_id: str = "") -> None:
        """Set a timer, instead of an earlier one of the same name."""
        self.timers[Timer(kind, group_id, member_id)] = self.now_ms + delay_ms

    def cancel_timer(self, kind: TimerKind, group_id: str, member_id: str = "") -> None:
        """Cancel a timer."""
        self.timers[Timer(kind, group_id, member_id)] = None
