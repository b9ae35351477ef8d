"""Lets consumer groups and share groups compare their topics when topics of a cluster have changed."""

import asyncio
from collections.abc import Mapping

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.serve.groups.live_group import LiveGroup


class TopicChanges:
    """Collects changed topics, and looks for their groups once for all that change at the same time."""

    def __init__(self, groups: Mapping[bytes, LiveGroup], loop: asyncio.AbstractEventLoop) -> None:
        self._groups, self._loop = groups, loop
        self._changed: set[str] = set()

    def add(self, names: frozenset[str]) -> None:
        """Record that topics have changed: groups subscribed to them compare them at their next heartbeat."""
        if not self._changed:
            self._loop.call_soon(self._compare)
        self._changed |= names

    def _compare(self) -> None:
        topics, self._changed = self._changed, set()
        for live in self._groups.values():
            group = live.group
            if isinstance(group, ConsumerGroup | ShareGroup) and not topics.isdisjoint(group.subscriptions.topics()):
                group.refresh_metadata()
