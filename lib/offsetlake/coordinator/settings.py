"""The settings of the coordinator, with the names and default values of a broker (`GroupCoordinatorConfig`)."""

from dataclasses import dataclass
from enum import StrEnum

MAX_INT = 2**31 - 1
BROKER_NAMES = {
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "max_size": "group.max.size",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "consumer_max_size": "group.consumer.max.size",
    "consumer_assignors": "group.consumer.assignors",
    "regex_refresh_interval_ms": "group.consumer.regex.refresh.interval.ms",
    "share_delivery_count_limit": "group.share.delivery.count.limit",
    "share_max_record_locks": "group.share.partition.max.record.locks",
    "share_record_lock_duration_ms": "group.share.record.lock.duration.ms",
    "share_max_sessions": "group.share.max.share.sessions",
    "share_auto_offset_reset": "share.auto.offset.reset",
    "share_isolation_level": "share.isolation.level",
    "share_session_timeout_ms": "group.share.session.timeout.ms",
    "share_heartbeat_interval_ms": "group.share.heartbeat.interval.ms",
    "share_max_size": "group.share.max.size",
}
"""The setting of a broker by field."""


class ShareOffsetReset(StrEnum):
    """Where share groups begin to read a partition, if not at a time (BY_DURATION)."""

    LATEST = "latest"
    EARLIEST = "earliest"


BY_DURATION = "by_duration:"
"""What precedes a duration of ISO 8601: share groups begin with the records of this time."""


class ShareIsolation(StrEnum):
    """Whether share groups read records of open and of aborted transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Limits and intervals in milliseconds, with the meaning of the settings in `BROKER_NAMES`."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = MAX_INT
    new_member_join_timeout_ms: int = 300_000
    """How long a new member may wait in a join (`CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS`)."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = MAX_INT
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    regex_refresh_interval_ms: int = 600_000
    share_delivery_count_limit: int = 5
    share_max_record_locks: int = 2_000
    share_record_lock_duration_ms: int = 30_000
    share_max_sessions: int = 2_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    share_updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`."""
    share_cold_snapshot_interval_ms: int = 300_000
    """`share.coordinator.cold.partition.snapshot.interval.ms`."""
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    """After how long share partitions that have begun to initialize are initialized again (an internal setting)."""
