"""Frequent requests to a server without sockets, and the groups in the broker's log."""

from offsetlake.serve.protocol import api_keys as apis
from support.serve.in_process import InProcess

EMPTY, EMPTY_CONSUMER, CONSUMER, SHARE, OPEN, ABSENT = (
    "billing",
    "mailer",
    "fraud-detection",
    "thumbnailer",
    "ledger",
    "nobody",
)
"""Groups of the broker's log; OPEN has an open transaction."""


def listed(served: InProcess, **filters: list[str]) -> set[str]:
    """Return the group ids of ListGroups."""
    return {group["group_id"] for group in served.ask(apis.LIST_GROUPS, 5, **filters)["groups"]}


def stored(served: InProcess, group: str) -> dict[tuple[str, int], int]:
    """Return all offsets of a group, by topic and partition."""
    answer = served.ask(apis.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
    return {
        (topic["name"], row["partition_index"]): row["committed_offset"]
        for topic in answer["topics"]
        for row in topic["partitions"]
    }


def commit(served: InProcess, group: str, topic: str, partition: int, offset: int) -> int:
    """Commit without a member id; return the error code."""
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    answer = served.ask(apis.OFFSET_COMMIT, 9, group_id=group, topics=[{"name": topic, "partitions": [row]}])
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def delete_offsets(served: InProcess, group: str, *keys: tuple[str, int]) -> list[int]:
    """Delete offsets of a group; return the error code of each, or that of the request."""
    topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in keys]
    answer = served.ask(apis.OFFSET_DELETE, 0, group_id=group, topics=topics)
    codes = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
    return codes or [answer["error_code"]]


def delete_groups(served: InProcess, *groups: str) -> dict[str, int]:
    """Delete groups; return the error code of each."""
    results = served.ask(apis.DELETE_GROUPS, 2, groups_names=groups)["results"]
    return {result["group_id"]: result["error_code"] for result in results}
