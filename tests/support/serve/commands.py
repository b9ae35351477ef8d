"""What tests ask a service to do, and the groups it finds in the broker's log."""

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
"""Groups of the broker's log; of OPEN a transaction is open."""


def listed(served: InProcess, **filters: list[str]) -> set[str]:
    """List groups."""
    return {group["group_id"] for group in served.ask(apis.LIST_GROUPS, 5, **filters)["groups"]}


def stored(served: InProcess, group: str) -> dict[tuple[str, int], int]:
    """Give all offsets of a group."""
    found = served.ask(apis.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=False)
    return {
        (topic["name"], of["partition_index"]): of["committed_offset"]
        for topic in found["topics"]
        for of in topic["partitions"]
    }


def commit(served: InProcess, group: str, topic: str, partition: int, offset: int) -> int:
    """Commit as nobody's member; gives the error code."""
    of = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    answer = served.ask(apis.OFFSET_COMMIT, 9, group_id=group, topics=[{"name": topic, "partitions": [of]}])
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


def delete_offsets(served: InProcess, group: str, *keys: tuple[str, int]) -> list[int]:
    """Delete offsets of a group; gives an error code each, or that of the request."""
    topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in keys]
    answer = served.ask(apis.OFFSET_DELETE, 0, group_id=group, topics=topics)
    codes = [of["error_code"] for topic in answer["topics"] for of in topic["partitions"]]
    return codes or [answer["error_code"]]


def delete_groups(served: InProcess, *groups: str) -> dict[str, int]:
    """Delete groups; gives an error code each."""
    results = served.ask(apis.DELETE_GROUPS, 2, groups_names=groups)["results"]
    return {result["group_id"]: result["error_code"] for result in results}
