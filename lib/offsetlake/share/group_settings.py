"""The settings of single share groups, which `kafka-configs --entity-type groups` sets in the cluster (KIP-848).

They are read by DescribeConfigs for the groups that are in use. The settings of this process are those of all groups
for which the cluster has none: it may not know settings of groups, or not show them to the principal of this process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offsetlake.coordinator.settings import BY_DURATION, CoordinatorSettings, ShareIsolation, ShareOffsetReset
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.util.times import duration_ms

LOG = logging.getLogger(__name__)
EARLIEST, LATEST = -2, -1
"""The timestamps of ListOffsets for the start and the end of a partition."""

READ_INTERVAL_SECONDS = 10.0
"""After how long the settings of the groups in use are read again."""

RETRY_SECONDS = 0.5
"""The pause after a read that failed."""

_KEPT_SECONDS = 600.0  # since the last use of a group: longer than any session
_GROUPS_PER_REQUEST = 100
_DESCRIBE_CONFIGS, _VERSIONS = 32, range(1, 5)
_RESET_TIMESTAMPS = {ShareOffsetReset.EARLIEST: EARLIEST, ShareOffsetReset.LATEST: LATEST}
_GROUP_RESOURCE, _GROUP_CONFIG = 32, 8  # ConfigResource.Type.GROUP, ConfigSource.GROUP_CONFIG


def reset_timestamp(reset: str, now: int) -> int:
    """Return the timestamp of ListOffsets for a value of `share.auto.offset.reset`; `now` is in ms since the epoch.

    Raises:
        ValueError, BadRequest: The value is invalid.
    """
    if reset.startswith(BY_DURATION):
        return max(0, now - duration_ms(reset.removeprefix(BY_DURATION)))
    return _RESET_TIMESTAMPS[ShareOffsetReset(reset)]


def _offset_reset(text: str) -> str:
    """Return a value of `share.auto.offset.reset` if `reset_timestamp` accepts it."""
    reset_timestamp(text, 0)
    return text


_FIELDS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "share.auto.offset.reset": ("share_auto_offset_reset", _offset_reset),
    "share.isolation.level": ("share_isolation_level", ShareIsolation),
    "share.record.lock.duration.ms": ("share_record_lock_duration_ms", int),
    "share.session.timeout.ms": ("share_session_timeout_ms", int),
    "share.heartbeat.interval.ms": ("share_heartbeat_interval_ms", int),
}


class GroupSettings:
    """Reads the settings of the share groups that are in use; `changed` is called with each group that has new ones."""

    def __init__(self, cluster: Cluster, defaults: CoordinatorSettings) -> None:
        self._cluster, self._defaults = cluster, defaults
        self.changed: list[Callable[[str], None]] = []
        self._known: dict[str, CoordinatorSettings] = {}
        self._used_at: dict[str, float] = {}
        self._read_at = time.monotonic()
        self._reading: asyncio.Task[None] | None = None
        self._logged: set[int] = set()

    def of(self, group: str) -> CoordinatorSettings:
        """Return the settings of a group, which are those of this process until they have been read."""
        self._used_at[group] = time.monotonic()
        if group not in self._known or self._is_due():
            self._start()
        return self._known.get(group, self._defaults)

    async def read(self, group: str) -> CoordinatorSettings:
        """Return the settings of a group, which are read if they are not known yet.

        Raises:
            LogUnavailable: The cluster does not answer.
        """
        self._used_at[group] = time.monotonic()
        while group not in self._known:
            await asyncio.shield(self._start())
        return self.of(group)

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()

    def _is_due(self) -> bool:
        return time.monotonic() - self._read_at >= READ_INTERVAL_SECONDS

    def _start(self) -> "asyncio.Task[None]":
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._ended)
        return self._reading

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._reading = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            LOG.warning("The settings of share groups cannot be read: %s", failure)

    async def _read(self) -> None:
        """Read the settings of new groups, or those of all groups if that is due; forget unused groups."""
        is_due, now = self._is_due(), time.monotonic()
        if is_due:
            self._used_at = {group: at for group, at in self._used_at.items() if now - at < _KEPT_SECONDS}
            self._known = {group: known for group, known in self._known.items() if group in self._used_at}
        groups = [group for group in self._used_at if is_due or group not in self._known]
        try:
            for first in range(0, len(groups), _GROUPS_PER_REQUEST):
                self._learn(await self._describe(groups[first : first + _GROUPS_PER_REQUEST]))
        except LogUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
            raise
        if is_due:
            self._read_at = now

    async def _describe(self, groups: Sequence[str]) -> dict[str, CoordinatorSettings]:
        resources = [
            {"resource_type": _GROUP_RESOURCE, "resource_name": group, "configuration_keys": [*_FIELDS]}
            for group in groups
        ]
        answer = (await self._cluster.send(_DESCRIBE_CONFIGS, _VERSIONS, {"resources": resources})).entity()
        described = dict.fromkeys(groups, self._defaults)
        for result in answer.results:
            if int(result.error_code) and int(result.error_code) not in self._logged:
                self._logged.add(int(result.error_code))
                LOG.warning(
                    "The cluster does not return the settings of single share groups, such as %s: error code %d. "
                    "The settings of this process apply.",
                    result.resource_name,
                    int(result.error_code),
                )
            if not int(result.error_code):
                described[result.resource_name] = _settings(self._defaults, result.resource_name, result.configs)
        return described

    def _learn(self, described: Mapping[str, CoordinatorSettings]) -> None:
        changed = [group for group, settings in described.items() if self._known.get(group) != settings]
        self._known |= described
        for callback in self.changed:
            for group in changed:
                callback(group)


def limits_of(settings: CoordinatorSettings) -> ShareSettings:
    """Return the limits of the share partitions of a group with these settings."""
    return ShareSettings(
        settings.share_max_record_locks, settings.share_delivery_count_limit, settings.share_record_lock_duration_ms
    )


def _settings(defaults: CoordinatorSettings, group: str, configs: Iterable[Any]) -> CoordinatorSettings:
    """Return the settings of a group from those of this process and those that are set for the group."""
    changes: dict[str, Any] = {}
    for config in configs:
        if int(config.config_source) == _GROUP_CONFIG and config.name in _FIELDS:
            field, read = _FIELDS[config.name]
            try:
                changes[field] = read(config.value or "")
            except (ValueError, BadRequest):
                LOG.warning("Share group %s has an invalid %s: %r", group, config.name, config.value)
    settings = replace(defaults, **changes)
    if settings.share_heartbeat_interval_ms >= settings.share_session_timeout_ms:
        LOG.warning("Share group %s would have a heartbeat interval that is not less than its session timeout", group)
        changes |= {"share_heartbeat_interval_ms": defaults.share_heartbeat_interval_ms}
        changes |= {"share_session_timeout_ms": defaults.share_session_timeout_ms}
    return replace(defaults, **changes)
