"""The partitions of a topic in responses of Metadata and DescribeTopicPartitions, encoded many at a time."""

import struct
from collections.abc import Sequence
from functools import cache

from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol.encoding import Encoded, Values, element_schema, encoded
from offsetlake.serve.protocol.schemas import response_schema

NODE = 0
"""The id of this broker, the leader of all partitions."""

_PIECE = 1000  # partitions that are encoded together
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


def described(topic: Values, most: int | None, api: int, version: int) -> Encoded:
    """Describe the partitions of a topic, the first ones where they are too many."""
    numbers = topic["partitions"]
    return encoded_partitions(numbers if topic.get("is_internal") else numbers[:most], api, version)


def encoded_partitions(numbers: Sequence[int], api: int, version: int) -> Encoded:
    """Encode partitions, which differ in nothing but their numbers."""
    head, tail = _around_number(api, version)
    pack, between = _INT32.pack, tail + head
    pieces = (
        head + between.join(map(pack, numbers[begin : begin + _PIECE])) + tail
        for begin in range(0, len(numbers), _PIECE)
    )
    return Encoded(len(numbers), pieces)


@cache
def _around_number(api: int, version: int) -> tuple[bytes, bytes]:
    """Return how a partition is encoded before and after its number, which an error code precedes."""
    schema = element_schema(response_schema(api, version)[0], "topics", "partitions")
    whole = encoded(
        schema,
        {
            "error_code": NONE,
            "partition_index": 0,
            "leader_id": NODE,
            "replica_nodes": [NODE],
            "isr_nodes": [NODE],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
        },
    )
    return whole[: _INT16.size], whole[_INT16.size + _INT32.size :]
