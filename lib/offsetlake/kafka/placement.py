"""Which log partition holds a group or a share partition: Java's string hash, as Kafka's coordinators use it."""

import sys
from array import array
from operator import mul

_SMALLEST = -(2**31)
_BLOCK_UNITS = 256
_POWERS = [pow(31, exponent, 2**32) for exponent in range(_BLOCK_UNITS, -1, -1)]
"""31 to the powers from `_BLOCK_UNITS` down to 0, modulo 2^32."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: 31·h + unit over the UTF-16 units, a signed number of 32 bits."""
    units = array("H", text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass"))
    result = 0
    for begin in range(0, len(units), _BLOCK_UNITS):
        block = units[begin : begin + _BLOCK_UNITS]
        powers = _POWERS[-len(block) - 1 :]
        result = (result * powers[0] + sum(map(mul, powers[1:], block))) & 0xFFFFFFFF
    return result - 2**32 if result >= 2**31 else result


def partition_for_group(group_id: str, partitions: int) -> int:
    """Give the partition of `__consumer_offsets` that holds a group, of `partitions` there are."""
    number = java_hash(group_id)
    # The smallest number has no positive twin in 32 bits; Kafka takes 0.
    return 0 if number == _SMALLEST else abs(number) % partitions


def share_partition_key(group_id: str, topic_id: str, partition: int) -> str:
    """Give the coordinator key of a share partition; `topic_id` is the 22-character text."""
    return f"{group_id}:{topic_id}:{partition}"


def partition_for_share_partition(group_id: str, topic_id: str, partition: int, partitions: int) -> int:
    """Give the partition of `__share_group_state` that holds a share partition, of `partitions` there are."""
    return partition_for_group(share_partition_key(group_id, topic_id, partition), partitions)
