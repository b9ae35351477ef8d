"""The topics of a cluster, with the interface of `Topics`."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from offsetlake.node.metadata.arrivals import Arrivals
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.metadata.image import ClusterImage
from offsetlake.serve.protocol.described_partitions import NODE, encoded_partitions
from offsetlake.serve.protocol.encoding import Encoded
from offsetlake.serve.protocol.topic_descriptions import TopicTable
from offsetlake.serve.protocol.topics import NamedPartition, Topics


class ClusterTopics(Topics):
    """The topics in the newest metadata of a cluster; a request for another topic refreshes the metadata soon."""

    any = False
    leads = False

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self.node = cluster, cluster.node
        self._arrivals = Arrivals(cluster)
        self._waiting = set[asyncio.Task[None]]()

    @property
    def revision(self) -> int:  # type: ignore[override]
        """The number of the image."""
        return self._cluster.revision

    @property
    def awaited(self) -> bool:  # type: ignore[override]
        """Whether there is no metadata yet."""
        return self._cluster.revision == 0

    @property
    def changed_ms(self) -> int:  # type: ignore[override]
        """When the metadata last changed."""
        return self._cluster.changed_ms

    @property
    def created_ms(self) -> int:  # type: ignore[override]
        """When the metadata last contained a new topic."""
        return self._cluster.created_ms

    def now(self) -> TopicTable:
        """Return the newest image."""
        return self._cluster.image

    def when_changed(self, notify: Callable[[frozenset[str]], None]) -> None:
        """Call `notify` with the names of topics that new metadata shows to have changed."""
        self._cluster.changed.append(notify)

    def request(self, topic: bytes) -> None:
        """Refresh the metadata soon."""
        self._cluster.request_refresh(topic)

    def deferred(self, named: Callable[[], Collection[NamedPartition]], proceed: Callable[[], object]) -> bool:
        """Wait for topics that the metadata does not contain, and then call `proceed`; return False if there are none.

        They are known then, do not exist, or did not arrive within `MAX_WAIT_SECONDS` of `Arrivals`.
        """
        unknown = self._arrivals.unknown(named())
        if not unknown:
            return False

        def ended(task: "asyncio.Task[None]") -> None:
            self._waiting.discard(task)
            if not task.cancelled():
                task.result()
                proceed()

        task = asyncio.get_running_loop().create_task(self._arrivals.wait(unknown))
        self._waiting.add(task)
        task.add_done_callback(ended)
        return True

    def learn(self, topics: Mapping[bytes, tuple[int, bytes]]) -> None:
        """Ignore what offsets say about topics."""

    def grow(self, name: bytes, partition: int) -> None:
        """Ignore what offsets say about topics."""

    def known(self) -> set[bytes]:
        """Return the names of all topics."""
        return {*self._cluster.image.known()}

    configured = known

    def partitions(self, name: bytes) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        return self._cluster.image.partitions(name)

    configured_partitions = partitions

    def has_partition(self, name: bytes, partition: int) -> bool:
        """Check whether a partition exists."""
        exists = self._cluster.image.has_partition(name, partition)
        if not exists:
            self.request(name)
        return exists

    def id_of(self, name: bytes) -> bytes:
        """Return the id of a topic, zeros if it does not exist."""
        return self._cluster.image.id_of(name)

    def name_of(self, id_: bytes) -> bytes | None:
        """Return the name of the topic with an id, or None if the id is unknown."""
        name = self._cluster.image.name_of(id_)
        if name is None:
            self.request(id_)
        return name

    def racks(self, name: bytes) -> Sequence[tuple[str, ...]]:
        """Return for each partition of a topic the racks of its replicas whose brokers have one, with duplicates.

        The result is empty if no broker has a rack.
        """
        return self._cluster.image.racks(name)


class LedTopics(ClusterTopics):
    """The topics of a cluster for clients that see this process as their only broker, which leads all partitions."""

    leads = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.node = NODE

    def now(self) -> TopicTable:
        """Return the newest image, with this process as the leader."""
        return _LedImage(self._cluster.image)


class _LedImage:
    """The topics of an image, with this process as the only broker."""

    any = False
    leads = True
    controller_id = NODE
    brokers = ()

    def __init__(self, image: ClusterImage) -> None:
        self.known = self.configured = image.known
        self.partitions = self.configured_partitions = image.partitions
        self.id_of, self.name_of, self.racks = image.id_of, image.name_of, image.racks
        self.is_internal = image.is_internal

    def encoded_partitions(self, _name: bytes, numbers: range, api: int, version: int) -> Encoded:
        """Return partitions of a topic, encoded for Metadata or DescribeTopicPartitions."""
        return encoded_partitions(numbers, api, version)
