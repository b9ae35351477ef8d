"""Builds the image of a cluster from a response to Metadata, in steps."""

import struct
from itertools import count

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.node.metadata.image import ClusterBroker, ClusterImage, TopicColumns
from offsetlake.serve.protocol import wire
from offsetlake.serve.steps import Steps

MIN_VERSION, MAX_VERSION = 10, 13
"""The versions of Metadata that this reads: version 10 is the first with topic ids, of Kafka 2.8."""

_AUTHORIZED_OPERATIONS_UNTIL = 10  # version with those of the cluster
_ERROR_SINCE = 13
_STEP_PARTITIONS = 100
_MAX_NODES, _NODE_ID_BYTES = 0x80, 4  # the length of a longer array takes more than one byte
_PARTITION = struct.Struct(">hiii")  # error code, number, leader, leader epoch
_MIN_PARTITION_BYTES = 18


def read_image(body: bytes, version: int) -> Steps[ClusterImage]:
    """Return the image in the body of a response to a request for all topics.

    Topics with an error of their own are omitted. The nodes of a partition are kept as bytes, as they are in the
    response, because a cluster has far fewer combinations of nodes than partitions.

    Raises:
        Malformed, IndexError, struct.error: The response is malformed.
    """
    cursor = wire.Cursor(body, 0, flexible=True)
    cursor.int32()  # the throttle time
    brokers = []
    for _ in range(cursor.length()):
        node, host, port, rack = cursor.int32(), cursor.name(), cursor.int32(), cursor.string()
        cursor.tags()
        brokers.append(ClusterBroker(node, host.decode(), port, None if rack is None else rack.decode()))
    cluster_id, controller_id = cursor.string(), cursor.int32()
    columns = TopicColumns()
    for _ in range(cursor.length()):
        yield from _read_topic(cursor, body, columns)
    if version <= _AUTHORIZED_OPERATIONS_UNTIL:
        cursor.int32()
    if version >= _ERROR_SINCE and (error := cursor.int16()):
        raise wire.Malformed(f"Metadata failed with the error code {error}")
    cursor.tags()
    return ClusterImage(None if cluster_id is None else cluster_id.decode(), controller_id, brokers, columns)


def _after_nodes(body: bytes, position: int) -> int:
    """Return the position after the three arrays of node ids of a partition; faster than reading them."""
    for _ in range(3):
        size = body[position]
        if not 0 < size < _MAX_NODES:
            raise wire.Malformed(f"a partition has {size - 1} nodes")
        position += 1 + _NODE_ID_BYTES * (size - 1)
    return position


def _read_topic(cursor: wire.Cursor, body: bytes, columns: TopicColumns) -> Steps[None]:
    error, name, topic_id, internal = cursor.int16(), cursor.string(), cursor.raw(16), cursor.bool_()
    partitions = []
    for number in range(cursor.length(_MIN_PARTITION_BYTES)):
        fields = cursor.unpack(_PARTITION)
        begin = cursor.position
        cursor.position = _after_nodes(body, begin)
        partitions.append((fields, body[begin : cursor.position]))
        cursor.tags()
        if number % _STEP_PARTITIONS == 0:
            yield 0
    cursor.int32()  # the authorized operations
    cursor.tags()
    if error or name is None or topic_id == ZERO_UUID:
        return
    partitions.sort(key=lambda partition: partition[0][1])
    for expected, ((partition_error, number, leader, epoch), nodes) in zip(count(), partitions, strict=False):
        if number != expected:
            raise wire.Malformed(f"Metadata of topic {name.decode()} does not contain partition {expected}")
        columns.add_partition(partition_error, leader, epoch, nodes)
    columns.add(name, topic_id, internal=internal)
