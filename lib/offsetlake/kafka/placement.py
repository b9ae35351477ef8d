"""Which log partition holds a group or a share partition: Java's string hash, as Kafka's coordinators use it."""

_SMALLEST = -(2**31)


def java_hash(text: str) -> int:
    """Give Java's `String.hashCode`: 31·h + unit over the UTF-16 units, a signed number of 32 bits."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        result = (31 * result + (high << 8 | low)) & 0xFFFFFFFF
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
