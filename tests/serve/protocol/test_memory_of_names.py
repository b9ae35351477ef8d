"""Long or many names from clients do not accumulate in memory."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from offsetlake.auth.acl import Access
from offsetlake.serve.protocol.api_keys import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from offsetlake.serve.writes.quota import Quota
from support.serve.in_process import InProcess

NUMBER, LENGTH = 40, 32_000
MAX_GROWTH_BYTES = 400_000  # the names have 1.3 MB

Sent = tuple[int, int, Callable[[str], dict[str, Any]]]


def commit(group: str, partitions: int = 1) -> dict[str, Any]:
    rows = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""} for number in range(partitions)
    ]
    return {"group_id": group, "topics": [{"name": "t", "partitions": rows}]}


SENT: dict[str, Sent] = {
    "described": (DESCRIBE_GROUPS, 5, lambda name: {"groups": [name]}),
    "deleted": (DELETE_GROUPS, 2, lambda name: {"groups_names": [name]}),
    "fetched": (OFFSET_FETCH, 7, lambda name: {"group_id": name, "topics": None, "require_stable": False}),
    "coordinator": (FIND_COORDINATOR, 4, lambda name: {"key_type": 0, "coordinator_keys": [name]}),
    "topic": (METADATA, 12, lambda name: {"topics": [{"topic_id": None, "name": name}]}),
    "denied": (OFFSET_COMMIT, 9, commit),
}


@pytest.mark.long
@pytest.mark.parametrize("what", SENT)
def test_long_names_in_requests_are_not_kept_in_memory(served: InProcess, what: str) -> None:
    api, version, values = SENT[what]
    if what == "denied":
        served.client.access = Access([])
    served.commits._quota = Quota(1.0)
    growth = memory_growth(lambda number: served.ask(api, version, **values(f"{number:x>{LENGTH}}")))
    assert growth < MAX_GROWTH_BYTES


def test_long_names_in_the_quota_are_not_kept_in_memory() -> None:
    quota = Quota(1.0)

    def throttle(number: int) -> None:
        for _ in range(12):
            quota.take(b"%x" % number * (LENGTH // 2))

    assert memory_growth(throttle) < MAX_GROWTH_BYTES


def memory_growth(do: Callable[[int], object]) -> int:
    """Return by how many bytes the memory in use has grown after NUMBER calls."""
    do(0)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1, NUMBER):
        do(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before
