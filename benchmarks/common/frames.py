"""Encoded requests of Kafka's protocol, with their length in front."""

from collections.abc import Sequence

from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, frame, request

FETCH_VERSION, COMMIT_VERSION = 5, 7


def fetch_frame(group: str, topic: str, partitions: Sequence[int]) -> bytes:
    values = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [*partitions]}]}
    return frame(OFFSET_FETCH, FETCH_VERSION, 1, request(OFFSET_FETCH, FETCH_VERSION, values))


def commit_frame(group: str, topic: str, partitions: Sequence[int]) -> bytes:
    offsets = [{"partition_index": p, "committed_offset": 42 + p, "committed_metadata": ""} for p in partitions]
    values = {"group_id": group, "generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}
    values |= {"topics": [{"name": topic, "partitions": offsets}]}
    return frame(OFFSET_COMMIT, COMMIT_VERSION, 1, request(OFFSET_COMMIT, COMMIT_VERSION, values))
