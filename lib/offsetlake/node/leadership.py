"""Which partitions of `__consumer_offsets` this process leads, according to the newest metadata."""

from offsetlake.errors import LogMismatch
from offsetlake.node.metadata.cluster import NO_NODE, Cluster
from offsetlake.serve.protocol.topics import INTERNAL


class Leadership:
    """The newest leader epoch in which this process led each partition.

    A broker whose metadata is not up to date may describe an older epoch, which is ignored.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._epochs: dict[int, int] = {}
        self._topic_id: bytes | None = None

    def epoch(self, partition: int) -> int:
        """Return the newest known leader epoch of a partition."""
        return self._epochs.get(partition, 0)

    def leads_all(self) -> bool:
        """Check whether this process leads all partitions; raise LogMismatch as `check`."""
        self.check()
        image = self.cluster.image
        leaders = {image.leader(INTERNAL, number)[0] for number in range(image.partitions(INTERNAL))}
        return leaders == {self.cluster.node}

    def check(self) -> None:
        """Raise LogMismatch if another node leads a partition that this process has led, in a newer epoch.

        Also if the topic was created again: its leader epochs begin at 0.
        """
        image, node = self.cluster.image, self.cluster.node
        if image.partitions(INTERNAL):
            self._topic_id = self._topic_id or image.id_of(INTERNAL)
            if image.id_of(INTERNAL) != self._topic_id:
                raise LogMismatch(
                    "__consumer_offsets of the cluster was deleted and created again: this process ends, so that no "
                    "offset is committed in two logs."
                )
        for partition in range(image.partitions(INTERNAL)):
            leader, epoch = image.leader(INTERNAL, partition)
            if leader == node:
                self._epochs[partition] = max(epoch, self.epoch(partition))
            elif leader != NO_NODE and epoch > self._epochs.get(partition, epoch):
                raise LogMismatch(
                    f"__consumer_offsets-{partition} is led by node {leader}, not by this one ({node}): this process "
                    "ends, so that no offset is committed in two logs."
                )
