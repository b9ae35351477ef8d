"""Helpers for tests of the job socket: commits and fetches by the Kafka protocol, and batches as jobs write them."""

from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers, Record, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.kafka.uuid import ZERO_UUID
from support.oracle.encoders import group_log_partition
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient

T = 1_700_000_000_000
LOG_PARTITIONS = 3
TOPIC = "orders"


def place(group: str) -> int:
    return group_log_partition(group, LOG_PARTITIONS)


def commit(client: WireClient, group: str, offsets: dict[int, int], topic: str = TOPIC) -> None:
    """Commit by the Kafka protocol, and wait until the commit is acknowledged."""
    fields = {"committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [
        {"partition_index": partition, "committed_offset": offset} | fields for partition, offset in offsets.items()
    ]
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": "",
              "group_instance_id": None, "retention_time_ms": -1,
              "topics": [{"name": topic, "partitions": partitions}]}  # fmt: skip
    answer = client.ask(OFFSET_COMMIT, 7, values)
    assert {row["error_code"] for answered in answer["topics"] for row in answered["partitions"]} == {0}


def fetched(client: WireClient, group: str, *partitions: int, topic: str = TOPIC) -> list[int]:
    """Return the served offsets, -1 for none."""
    values = {"group_id": group, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}
    [answer] = client.ask(OFFSET_FETCH, 5, values)["topics"]
    assert {row["error_code"] for row in answer["partitions"]} == {0}
    return [row["committed_offset"] for row in answer["partitions"]]


def key(group: str, partition: int) -> bytes:
    return offset_commit_key(group.encode(), TOPIC.encode()) + partition.to_bytes(4)


def value(offset: int, epoch: int = -1, metadata: str = "", expiry: int = -1, topic_id: bytes = ZERO_UUID) -> bytes:
    return offset_commit_value(offset, epoch, metadata.encode(), T, expiry, topic_id)


def batch(*records: Record, headers: Headers = NO_HEADERS) -> Batch:
    return record_batch(T, records, headers)


def tombstones(group: str, *partitions: int, of_group: str | None = None) -> Batch:
    """Return a batch of tombstones of offsets, and of the group itself if its type is given."""
    keys = [key(group, partition) for partition in partitions]
    keys += group_tombstone_keys(group, of_group) if of_group else []
    return batch(*((tombstone_key, None) for tombstone_key in keys))
