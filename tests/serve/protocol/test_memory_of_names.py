"""However long the names are that clients make up, and however many, little memory is kept for them."""

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
KEPT_BYTES = 400_000  # of the 1.3 MB that the names have

Sent = tuple[int, int, Callable[[str], dict[str, Any]]]


def commit(group: str, partitions: int = 1) -> dict[str, Any]:
    rows = [{"partition_index": of, "committed_offset": 1, "committed_metadata": ""} for of in range(partitions)]
    return {"group_id": group, "topics": [{"name": "t", "partitions": rows}]}


SENT: dict[str, Sent] = {
    "described": (DESCRIBE_GROUPS, 5, lambda name: {"groups": [name]}),
    "deleted": (DELETE_GROUPS, 2, lambda name: {"groups_names": [name]}),
    "fetched": (OFFSET_FETCH, 7, lambda name: {"group_id": name, "topics": None, "require_stable": False}),
    "looked for": (FIND_COORDINATOR, 4, lambda name: {"key_type": 0, "coordinator_keys": [name]}),
    "a topic": (METADATA, 12, lambda name: {"topics": [{"topic_id": None, "name": name}]}),
    "not allowed": (OFFSET_COMMIT, 9, commit),
}


@pytest.mark.parametrize("what", SENT)
def test_long_names_are_not_kept(served: InProcess, what: str) -> None:
    api, version, values = SENT[what]
    if what == "not allowed":
        served.client.access = Access([])
    served.commits._quota = Quota(1.0)
    grown = kept_by(lambda number: served.ask(api, version, **values(f"{number:x>{LENGTH}}")))
    assert grown < KEPT_BYTES


def test_long_names_of_the_quota_are_not_kept() -> None:
    quota = Quota(1.0)

    def throttle(number: int) -> None:
        for _ in range(12):
            quota.take(b"%x" % number * (LENGTH // 2))

    assert kept_by(throttle) < KEPT_BYTES


def kept_by(do: Callable[[int], object]) -> int:
    """Return how much more memory is in use once something was done NUMBER times."""
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


def test_all_connections_together_keep_so_much_of_their_last_commits(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with a long name is in the key of each partition: what is kept may be many times the request."""
    served = InProcess(tmp_path, origin)
    served.load()
    monkeypatch.setattr(commit_request, "MAX_KEPT_BYTES", 1 << 20)
    served.commits.kept.left = 1 << 20
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
    assert served.commits.kept.left < (1 << 20) / keeping
    del service, services
    gc.collect()
    assert served.commits.kept.left == 1 << 20
    served.close()
