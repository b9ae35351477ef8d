"""Deletions of groups and offsets: their effects, refusals, and the resulting state of the log."""

from typing import Any

import pytest

from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.storage.store import Store
from support.serve.commands import (
    ABSENT,
    CONSUMER,
    EMPTY,
    EMPTY_CONSUMER,
    OPEN,
    SHARE,
    commit,
    delete_groups,
    delete_offsets,
    listed,
    stored,
)
from support.serve.in_process import InProcess, built
from support.serve.kio_requests import answered, request

_DELETED = {"groups_names": ["g"]}


@pytest.mark.slow
def test_deleted_groups_are_tombstoned_in_the_log(served: InProcess) -> None:
    before = listed(served)
    assert stored(served, EMPTY)
    found = delete_groups(served, EMPTY, CONSUMER, ABSENT, SHARE, EMPTY_CONSUMER)
    assert found == {EMPTY: 0, CONSUMER: 68, ABSENT: 69, SHARE: 0, EMPTY_CONSUMER: 0}
    assert delete_groups(served) == {}
    assert listed(served) == before - {EMPTY, SHARE, EMPTY_CONSUMER}
    assert stored(served, EMPTY) == {}
    assert delete_groups(served, EMPTY) == {EMPTY: 69}
    assert commit(served, EMPTY, "t", 0, 5) == 0
    assert stored(served, EMPTY) == {("t", 0): 5}
    _assert_the_log_says_so(served)


@pytest.mark.slow
def test_deleted_offsets_are_tombstoned_in_the_log(served: InProcess) -> None:
    (topic, partition), *others = stored(served, EMPTY)
    assert delete_offsets(served, EMPTY, (topic, partition), (topic, 99), (topic, -1)) == [0, 0, 3]
    assert [*stored(served, EMPTY)] == others
    assert delete_offsets(served, CONSUMER, ("orders", 0), ("elsewhere", 0)) == [86, 0]
    assert delete_offsets(served, SHARE, ("orders", 0)) == [69]
    assert delete_offsets(served, ABSENT, ("orders", 0)) == [69]
    _assert_the_log_says_so(served)


@pytest.mark.slow
def test_deletion_of_an_offset_removes_its_pending_offset(served: InProcess) -> None:
    ((topic, partition),) = served.store.unstable(OPEN.encode())
    assert delete_offsets(served, OPEN, (topic.decode(), partition)) == [0]
    assert served.store.unstable(OPEN.encode()) == set()
    _assert_the_log_says_so(served)


@pytest.mark.slow
def test_deletion_of_a_group_removes_its_pending_offsets(served: InProcess) -> None:
    assert delete_groups(served, OPEN) == {OPEN: 0}
    assert served.store.unstable(OPEN.encode()) == set()
    _assert_the_log_says_so(served)


def _assert_the_log_says_so(served: InProcess) -> None:
    """Load the log as another server would: the same groups and offsets."""
    loaded = Store()
    loaded.load(built(served.lake, served.log).base)
    for group, kind in loaded.groups():
        assert (served.store.group(group), served.store.unstable(group)) == (kind, loaded.unstable(group))
        assert served.store.offsets(group) == loaded.offsets(group)
    assert {group for group, _ in served.store.groups()} == {group for group, _ in loaded.groups()}


def test_deletion_applies_to_earlier_commits_of_the_connection(served: InProcess) -> None:
    frames = [
        request(apis.OFFSET_COMMIT, 7, _committing("g", offset)) if offset else request(apis.DELETE_GROUPS, 2, _DELETED)
        for offset in (1, 0, 2)
    ]
    futures = [served.start(frame) for frame in frames]
    answers = [served.wait(future) for future in futures]
    assert answered(apis.DELETE_GROUPS, 2, answers[1])["results"] == [{"group_id": "g", "error_code": 0}]
    assert stored(served, "g") == {("t", 0): 2}


def _committing(group: str, offset: int) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    return {"group_id": group, "topics": [{"name": "t", "partitions": [row]}]}


def test_failed_append_deletes_nothing(served: InProcess) -> None:
    before = stored(served, EMPTY)
    with served.full_disk():
        assert delete_groups(served, EMPTY, ABSENT) == {EMPTY: 16, ABSENT: 69}
        assert delete_offsets(served, EMPTY, *before) == [16]
    assert stored(served, EMPTY) == before
