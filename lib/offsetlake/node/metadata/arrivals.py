"""Topics that clients name and the newest metadata does not contain, because they are new.

A broker knows a topic as soon as it is created, so a client that gets UNKNOWN_TOPIC_OR_PARTITION may not ask again for
minutes. Before such an answer, the brokers are therefore asked for these topics only; if they exist, the answer waits
for the refresh of the metadata.
"""

import asyncio
import uuid
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import NONE
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.api_keys import METADATA
from offsetlake.serve.protocol.topics import NamedPartition, is_valid_name

MAX_WAIT_SECONDS = 3.0
MAX_TOPICS = 1_000
"""Maximum number of topics of one request for which the brokers are asked."""

_VERSIONS = range(12, 14)  # by name or by id


class Arrivals:
    """Waits until the metadata contains new topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def unknown(self, named: Collection[NamedPartition]) -> list[NamedPartition]:
        """Return what the metadata does not contain, once for each topic; nothing while there is no metadata."""
        image = self._cluster.image
        if not self._cluster.available:
            return []
        found = {
            (topic.name, topic.id): topic
            for topic in named
            if (topic.id != ZERO_UUID if topic.name is None else is_valid_name(topic.name))
            and not image.has_partition(topic.name or image.name_of(topic.id) or b"", topic.partition)
        }
        return [*found.values()][:MAX_TOPICS]

    async def wait(self, topics: Collection[NamedPartition]) -> None:
        """Return when the metadata contains those of the topics that exist, or after MAX_WAIT_SECONDS."""
        with suppress(TimeoutError, LogUnavailable):
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                while self.unknown(topics) and await self._are_new(topics):
                    await self._cluster.refreshed()

    async def _are_new(self, topics: Collection[NamedPartition]) -> bool:
        """Ask a broker whether it knows topics, or partitions of them, that the metadata does not contain."""
        wanted: list[dict[str, Any]] = [
            {"topic_id": uuid.UUID(bytes=topic.id) if topic.name is None else None, "name": _text(topic.name)}
            for topic in topics
        ]
        response = await self._cluster.send(METADATA, _VERSIONS, {"topics": wanted, "allow_auto_topic_creation": False})
        image = self._cluster.image
        return any(
            topic.error_code == NONE
            and topic.name is not None
            and (
                image.partitions(topic.name.encode()) < len(topic.partitions)
                or image.id_of(topic.name.encode()) != topic.topic_id.bytes
            )
            for topic in response.entity().topics
        )


def _text(name: bytes | None) -> str | None:
    return None if name is None else name.decode()
