"""Maps groups and share partitions to log partitions by Java's string hash, as Kafka's coordinators do."""

import re
import sys
from array import array
from operator import mul

_JAVA_WHITESPACE = "".join(map(chr, range(33)))  # that `String.trim` removes
_JAVA_INTEGER = re.compile(r"[+-]?[0-9]+")
_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(?:==)?")
_MIN_INT32 = -(2**31)
_BLOCK_UNITS = 256
_POWERS = [pow(31, exponent, 2**32) for exponent in range(_BLOCK_UNITS, -1, -1)]
"""Powers of 31 modulo 2^32, with exponents from `_BLOCK_UNITS` down to 0."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: 31·h + unit over the UTF-16 code units, as a signed 32-bit integer."""
    units = array("H", text.encode("utf-16-le" if sys.byteorder == "little" else "utf-16-be", "surrogatepass"))
    result = 0
    for begin in range(0, len(units), _BLOCK_UNITS):
        block = units[begin : begin + _BLOCK_UNITS]
        powers = _POWERS[-len(block) - 1 :]
        result = (result * powers[0] + sum(map(mul, powers[1:], block))) & 0xFFFFFFFF
    return result - 2**32 if result >= 2**31 else result


def partition_for_group(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets`, of `partitions`, that contains a group."""
    number = java_hash(group_id)
    # The absolute value of the smallest int32 overflows; Kafka's `Utils.abs` returns 0 for it.
    return 0 if number == _MIN_INT32 else abs(number) % partitions


def share_partition_key(group_id: str, topic_id: str, partition: int) -> str:
    """Return the coordinator key of a share partition (KIP-932); `topic_id` is the text form."""
    return f"{group_id}:{topic_id}:{partition}"


def is_share_partition_key(key: str) -> bool:
    """Check whether a text is the coordinator key of a share partition, as `SharePartitionKey.validate` of Kafka."""
    group_id, *rest = key.rstrip(":").split(":")
    if len(rest) != 2 or not group_id.strip(_JAVA_WHITESPACE):
        return False
    topic_id, partition = rest
    is_number = _JAVA_INTEGER.fullmatch(partition) is not None and -(2**31) <= int(partition) < 2**31
    return is_number and _UUID_TEXT.fullmatch(topic_id) is not None


def partition_for_share_partition(group_id: str, topic_id: str, partition: int, partitions: int) -> int:
    """Return the partition of `__share_group_state`, of `partitions`, that contains a share partition (KIP-932)."""
    return partition_for_group(share_partition_key(group_id, topic_id, partition), partitions)
