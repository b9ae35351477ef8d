"""What the topics of this process and those of a cluster have in common, and how the group coordinator sees both.

Without a cluster it sees the configured topics only. The partitions of any other topic are unknown. Those that have
stored offsets are no substitute: a single commit of any client could make all groups that are subscribed to a topic
assign 100,000 partitions.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from offsetlake.kafka.uuid import uuid_bytes, uuid_text
from offsetlake.serve.protocol.encoding import Encoded


class TopicTable(Protocol):
    """The topics of this process, or those of a cluster at one moment, with names and ids as bytes.

    | Property | Description |
    |----------|-------------|
    | any      | Whether any topic exists |
    | leads    | Whether this process leads all partitions; otherwise the brokers of a cluster do |
    | controller_id | The id of the controller |
    | brokers  | The nodes of the cluster (`offsetlake.node.metadata.image.ClusterBroker`) |
    """

    @property
    def any(self) -> bool: ...  # noqa: D102 - see above

    @property
    def leads(self) -> bool: ...  # noqa: D102

    @property
    def controller_id(self) -> int: ...  # noqa: D102

    @property
    def brokers(self) -> Sequence[Any]: ...  # noqa: D102

    def known(self) -> Collection[bytes]:
        """Return the names of all topics."""

    def configured(self) -> Collection[bytes]:
        """Return the names of the topics whose partitions are known."""

    def partitions(self, name: bytes) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""

    def configured_partitions(self, name: bytes) -> int:
        """Return the number of partitions of a topic, 0 if they are not known."""

    def id_of(self, name: bytes) -> bytes:
        """Return the id of a topic."""

    def name_of(self, id_: bytes) -> bytes | None:
        """Return the name of the topic with an id, or None if the id is unknown."""

    def racks(self, name: bytes) -> Sequence[tuple[str, ...]]:
        """Return for each partition of a topic the racks of its replicas whose brokers have one, with duplicates.

        The result is empty if no broker has a rack.
        """

    def is_internal(self, name: bytes) -> bool:
        """Check whether a topic is internal."""

    def encoded_partitions(self, name: bytes, numbers: range, api: int, version: int) -> Encoded:
        """Return partitions of a topic, encoded for Metadata or DescribeTopicPartitions."""


class DescribedTopics:
    """Implements `offsetlake.coordinator.topics.TopicDescriptions`."""

    def __init__(self, table: TopicTable, changed_ms: int, created_ms: int) -> None:
        self._table, self._changed_ms, self._created_ms = table, changed_ms, created_ms

    def version(self) -> int:
        """Return when the topics were last changed, in ms since the epoch."""
        return self._changed_ms

    def creation_version(self) -> int:
        """Return when topics were last created, in ms since the epoch."""
        return self._created_ms

    def names(self) -> Iterator[str]:
        """Return the names of all topics."""
        return map(bytes.decode, self._table.configured())

    def id_of(self, name: str) -> str | None:
        """Return the id of a topic, None if it does not exist."""
        encoded = name.encode()
        return uuid_text(self._table.id_of(encoded)) if self._table.configured_partitions(encoded) else None

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic with an id, None if it does not exist."""
        name = self._table.name_of(uuid_bytes(topic_id))
        return None if name is None else name.decode()

    def partitions(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        return self._table.configured_partitions(name.encode())

    def racks(self, name: str) -> Sequence[tuple[str, ...]]:
        """Return for each partition of a topic the racks of its replicas whose brokers have one, with duplicates.

        The result is empty if no broker has a rack.
        """
        return self._table.racks(name.encode())
