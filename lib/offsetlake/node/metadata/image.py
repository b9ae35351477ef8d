"""The metadata of a cluster at one moment, in columns: a partition takes some ten bytes and no object of its own."""

import struct
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import DESCRIBE_TOPIC_PARTITIONS, METADATA
from offsetlake.serve.protocol.encoding import Encoded

_PIECE_PARTITIONS = 1000  # partitions that are encoded together, or compared
_HEAD, _HEAD_WITHOUT_EPOCH = struct.Struct(">hiii"), struct.Struct(">hii")
_EPOCH_SINCE, _OFFLINE_SINCE, _FLEXIBLE_SINCE = 7, 5, 9  # versions of Metadata
_NO_REPLICAS = b"\1"  # an empty array in a flexible version


class ClusterBroker(NamedTuple):
    """A broker of the cluster, with its address on the listener that this process connects to."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Placement(NamedTuple):
    """The nodes of a partition."""

    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int]


class TopicColumns:
    """The topics of a cluster, to which `add` adds one after the other.

    | Field      | Description |
    |------------|-------------|
    | numbers    | The number of a topic by its name: its place in the next three columns |
    | ids        | The topic ids, 16 bytes each |
    | starts     | The place of the first partition of each topic in the columns of partitions, and their end |
    | internal   | Whether a topic is internal |
    | errors, leaders, epochs | The error code, the leader and the leader epoch of each partition |
    | placements | Of each partition, the place of its encoded nodes in `nodes` |
    | nodes      | The nodes of partitions, as in a flexible version of Metadata; the same nodes only once |
    """

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.ids, self.internal = bytearray(), bytearray()
        self.starts = array("q", [0])
        self.errors, self.leaders, self.epochs, self.placements = array("h"), array("i"), array("i"), array("i")
        self.nodes: dict[bytes, int] = {}

    def add(self, name: bytes, topic_id: bytes, *, internal: bool) -> None:
        """Add a topic whose partitions have been added before."""
        self.numbers[name] = len(self.numbers)
        self.ids += topic_id
        self.internal.append(internal)
        self.starts.append(len(self.leaders))

    def add_partition(self, error: int, leader: int, epoch: int, nodes: bytes) -> None:
        """Add the next partition of the next topic."""
        self.errors.append(error)
        self.leaders.append(leader)
        self.epochs.append(epoch)
        self.placements.append(self.nodes.setdefault(nodes, len(self.nodes)))


class ClusterImage:
    """The topics and brokers of a cluster at one moment; a `TopicTable` that never changes.

    | Field        | Description |
    |--------------|-------------|
    | cluster_id, controller_id, brokers | As in Metadata |
    | columns      | The topics and partitions |
    | rack_by_node | The racks of the brokers that have one |
    """

    any = False
    leads = False

    def __init__(
        self,
        cluster_id: str | None,
        controller_id: int,
        brokers: Sequence[ClusterBroker],
        columns: TopicColumns,
    ) -> None:
        self.cluster_id, self.controller_id, self.brokers = cluster_id, controller_id, brokers
        self.columns, self._nodes = columns, [*columns.nodes]
        ids = bytes(columns.ids)
        self._names_by_id = {ids[16 * number : 16 * number + 16]: name for name, number in columns.numbers.items()}
        self.rack_by_node = {broker.node_id: broker.rack for broker in brokers if broker.rack is not None}

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self.columns.leaders)

    def known(self) -> Collection[bytes]:
        """Return the names of all topics."""
        return self.columns.numbers.keys()

    configured = known

    def partitions(self, name: bytes) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        number = self.columns.numbers.get(name)
        return 0 if number is None else self.columns.starts[number + 1] - self.columns.starts[number]

    configured_partitions = partitions

    def has_partition(self, name: bytes, partition: int) -> bool:
        """Check whether a partition exists."""
        return 0 <= partition < self.partitions(name)

    def id_of(self, name: bytes) -> bytes:
        """Return the id of a topic, zeros if it does not exist."""
        number = self.columns.numbers.get(name)
        return ZERO_UUID if number is None else bytes(self.columns.ids[16 * number : 16 * number + 16])

    def name_of(self, id_: bytes) -> bytes | None:
        """Return the name of the topic with an id, or None if the id is unknown."""
        return self._names_by_id.get(id_)

    def is_internal(self, name: bytes) -> bool:
        """Check whether a topic is internal."""
        return bool(self.columns.internal[self.columns.numbers[name]])

    def leader(self, name: bytes, partition: int) -> tuple[int, int]:
        """Return the leader of a partition, which must exist, and the leader epoch."""
        place = self.columns.starts[self.columns.numbers[name]] + partition
        return self.columns.leaders[place], self.columns.epochs[place]

    def nodes_of(self, name: bytes) -> list[bytes]:
        """Return the encoded nodes of each partition of a topic, which must exist."""
        number = self.columns.numbers[name]
        begin, end = self.columns.starts[number : number + 2]
        return [self._nodes[place] for place in self.columns.placements[begin:end]]

    def encodings_with(self, node: int) -> set[bytes]:
        """Return the encoded nodes that contain a node as a replica."""
        return {nodes for nodes in self._nodes if node in _placement(nodes).replicas}

    def placement(self, name: bytes, partition: int) -> Placement:
        """Return the nodes of a partition, which must exist."""
        first = self.columns.starts[self.columns.numbers[name]]
        return _placement(self._nodes[self.columns.placements[first + partition]])

    def racks(self, name: bytes) -> Sequence[tuple[str, ...]]:
        """Return for each partition of a topic the racks of its replicas whose brokers have one, with duplicates.

        The result is empty if no broker has a rack.
        """
        if not self.rack_by_node or name not in self.columns.numbers:
            return ()
        nodes = self.nodes_of(name)
        racks = {
            placed: tuple(self.rack_by_node[node] for node in _placement(placed).replicas if node in self.rack_by_node)
            for placed in {*nodes}
        }
        return [racks[placed] for placed in nodes]

    def encoded_partitions(self, name: bytes, numbers: range, api: int, version: int) -> Encoded:
        """Return partitions of a topic, encoded for Metadata or DescribeTopicPartitions."""
        columns = self.columns
        first = columns.starts[columns.numbers[name]] if numbers else 0
        tail = cache(_tail_encoder(api, version))
        with_epoch = api == DESCRIBE_TOPIC_PARTITIONS or version >= _EPOCH_SINCE

        def piece(part: range) -> Iterator[bytes]:
            for number in part:
                place = first + number
                head = columns.errors[place], number, columns.leaders[place]
                yield _HEAD.pack(*head, columns.epochs[place]) if with_epoch else _HEAD_WITHOUT_EPOCH.pack(*head)
                yield tail(self._nodes[columns.placements[place]])

        parts = (numbers[begin : begin + _PIECE_PARTITIONS] for begin in range(0, len(numbers), _PIECE_PARTITIONS))
        return Encoded(len(numbers), (b"".join(piece(part)) for part in parts))


@cache
def no_cluster() -> ClusterImage:
    """Return the image before the first metadata: no topics and no brokers."""
    return ClusterImage(None, -1, (), TopicColumns())


def _placement(nodes: bytes) -> Placement:
    cursor = wire.Cursor(nodes, 0, flexible=True)
    return Placement(cursor.int32s(), cursor.int32s(), cursor.int32s())


def _tail_encoder(api: int, version: int) -> Callable[[bytes], bytes]:
    """Return the function that encodes the fields of a partition after its leader epoch, from its encoded nodes."""
    if api == METADATA and version >= _FLEXIBLE_SINCE:
        return lambda nodes: nodes + b"\0"

    def described(nodes: bytes) -> bytes:
        placement = _placement(nodes)
        known = b"".join(_node_array(ids, flexible=True) for ids in (placement.replicas, placement.in_sync))
        # Metadata does not contain the eligible leader replicas, and the last known ones.
        return known + 2 * _NO_REPLICAS + _node_array(placement.offline, flexible=True) + b"\0"

    def older(nodes: bytes) -> bytes:
        arrays = _placement(nodes)[: 3 if version >= _OFFLINE_SINCE else 2]
        return b"".join(_node_array(ids, flexible=False) for ids in arrays)

    return described if api == DESCRIBE_TOPIC_PARTITIONS else older


def _node_array(ids: Sequence[int], *, flexible: bool) -> bytes:
    return wire.count(len(ids), flexible=flexible) + struct.pack(f">{len(ids)}i", *ids)
