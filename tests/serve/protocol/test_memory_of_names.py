"""Long or many names from clients do not accumulate in memory."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.auth.acl import Access
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.protocol.api_keys import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from offsetlake.serve.protocol.wire import read_header
from offsetlake.serve.writes import commit_request
from offsetlake.serve.writes.quota import Quota
from support.serve.in_process import InProcess, Origin
from support.serve.kio_requests import request

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


def test_cached_commits_of_all_connections_have_a_common_limit(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group name is part of the key of each partition, so a cached commit can be much larger than its request."""
    served = InProcess(tmp_path, origin)
    served.load()
    monkeypatch.setattr(commit_request, "MAX_CACHED_BYTES", 1 << 20)
    served.commits.cache_budget.available_bytes = 1 << 20
    frame = request(OFFSET_COMMIT, 9, commit("g" * 200, 100))
    services = [Service(served.commits, served.parts.fetches, served.admin, Client()) for _ in range(20)]
    answers: list[Any] = []
    for _ in range(3):
        for service in services:
            answers.append(served.loop.create_future())
            service.take(frame, read_header(frame), answers[-1].set_result)
    assert len({served.wait(answer) for answer in answers}) == 1
    keeping = sum(service._last_commit.request is not None for service in services)
    assert 5 < keeping < 15
    assert served.commits.cache_budget.available_bytes < (1 << 20) / keeping
    del service, services
    gc.collect()
    assert served.commits.cache_budget.available_bytes == 1 << 20
    served.close()
