"""Partitions that this process leads, encoded many at a time for Metadata and DescribeTopicPartitions."""

import struct
from collections.abc import Sequence
from functools import cache

from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol.encoding import Encoded, element_schema, encoded
from offsetlake.serve.protocol.schemas import response_schema

NODE = 0
"""The id of this process as a broker, which is the leader of all partitions unless it is a broker of a cluster."""

NO_LEADER = -1

_PIECE_PARTITIONS = 1000  # partitions that are encoded together
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def encoded_partitions(numbers: Sequence[int], api: int, version: int, leader: int = NODE) -> Encoded:
    """Return encoded partitions, which differ only in their numbers; without a leader, their replica is offline."""
    head, tail = _around_number(api, version, leader)
    pack, between = _INT32.pack, tail + head
    pieces = (
        head + between.join(map(pack, numbers[begin : begin + _PIECE_PARTITIONS])) + tail
        for begin in range(0, len(numbers), _PIECE_PARTITIONS)
    )
    return Encoded(len(numbers), pieces)


@cache
def _around_number(api: int, version: int, leader: int) -> tuple[bytes, bytes]:
    """Return the encoding of a partition before its number, which is the error code, and after its number."""
    schema = element_schema(response_schema(api, version)[0], "topics", "partitions")
    whole = encoded(
        schema,
        {
            "error_code": NONE,
            "partition_index": 0,
            "leader_id": leader,
            "replica_nodes": [NODE],
            "isr_nodes": [NODE] if leader == NODE else [],
            "offline_replicas": [] if leader == NODE else [NODE],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        },
    )
    return whole[: _INT16.size], whole[_INT16.size + _INT32.size :]
