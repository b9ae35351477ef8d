"""Audit headers in the log: on all deletions, on commits that a tool may have sent, and on a sample of the others."""

import struct
from datetime import timedelta
from typing import Any

import pytest

from offsetlake.serve.protocol.api_keys import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    TXN_OFFSET_COMMIT,
)
from offsetlake.serve.writes import offset_commit
from support.oracle.log_reader import read_log
from support.serve.commands import ABSENT, CONSUMER, EMPTY, OPEN, SHARE, commit, delete_groups, delete_offsets, stored
from support.serve.in_process import InProcess
from support.serve.kio_requests import CLIENT, answered, request
from support.serve.mapped_snapshots import mapped_snapshot

EVENT = {b"act.principal": b"User:alice", b"act.client": CLIENT, b"act.address": b"192.0.2.7:40000"}
COMMIT, DELETE_OFFSETS, DELETE_GROUP = (
    {b"act.what": what, **EVENT} for what in (b"commit", b"delete offsets", b"delete group")
)

Headers = list[dict[bytes, bytes | None]]


@pytest.fixture
def alice(served: InProcess) -> InProcess:
    """A connection of the user alice to a server with a few groups."""
    served.client.principal, served.client.address = "User:alice", "192.0.2.7:40000"
    return served


def audit_headers(served: InProcess) -> Headers:
    """Return the headers of each record that was appended, those of a group in the order of the log."""
    ends = served._origin.ends
    return [dict(r.headers) for r in read_log(served.log) if r.log_offset >= ends.get(r.log_partition, 0)]


def commits(served: InProcess, group: str, *offsets: int, **member: Any) -> None:
    """Commit offsets of the partitions from 0 on, without a member or as the given one."""
    rows = [
        {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        for partition, offset in enumerate(offsets)
    ]
    answer = served.ask(OFFSET_COMMIT, 9, group_id=group, topics=[{"name": "t", "partitions": rows}], **member)
    assert {partition["error_code"] for partition in answer["topics"][0]["partitions"]} == {0}


def is_audited(served: InProcess, group: str, *offsets: int) -> bool:
    """Commit offsets and return whether one of the records has audit headers."""
    before = audit_headers(served)
    commits(served, group, *offsets)
    now = audit_headers(served)
    assert len(now) == len(before) + len(offsets)
    return now.count(COMMIT) > before.count(COMMIT)


def test_deletion_of_a_group_has_audit_headers_on_its_first_record(alice: InProcess) -> None:
    offsets = len(stored(alice, EMPTY))
    assert delete_groups(alice, EMPTY, ABSENT, CONSUMER, SHARE) == {EMPTY: 0, ABSENT: 69, CONSUMER: 68, SHARE: 0}
    of_share = [{}, DELETE_GROUP, {}, {}]  # after the record that its states are to be deleted
    assert audit_headers(alice) == [DELETE_GROUP, *[{}] * offsets, *of_share], "refused deletions write nothing"


def test_deletion_of_offsets_has_audit_headers_on_its_first_record(alice: InProcess) -> None:
    first, second, *_ = stored(alice, EMPTY)
    assert delete_offsets(alice, EMPTY, first, second, ("nowhere", 0)) == [0, 0, 0]
    assert delete_offsets(alice, EMPTY, first) == [0]
    assert audit_headers(alice) == [DELETE_OFFSETS, {}], "missing offsets are not deleted"


def test_deletion_of_a_group_with_pending_offsets_has_audit_headers(alice: InProcess) -> None:
    assert delete_groups(alice, OPEN) == {OPEN: 0}
    assert audit_headers(alice)[0] == DELETE_GROUP


def test_first_commit_of_a_connection_to_each_group_is_audited(alice: InProcess) -> None:
    assert [is_audited(alice, group, 5, 6) for group in ("g", "g", "h", "g", "h")] == [True, False, True, False, False]
    alice.reconnect()
    assert is_audited(alice, "g", 5, 6)


def test_first_commit_after_a_failed_one_is_audited(alice: InProcess) -> None:
    alice.store.loading = True
    assert commit(alice, "g", "t", 0, 5) == 14
    alice.store.loading = False
    commits(alice, "g", 5)
    assert audit_headers(alice) == [COMMIT]


@pytest.mark.parametrize("layer", ["memtable", "immutable memtable", "snapshot"])
def test_commit_that_rewinds_an_offset_is_audited(alice: InProcess, layer: str) -> None:
    """In whichever layer the offset is stored, and whether the request is parsed or repeated."""
    for _ in range(5):
        commits(alice, "g", 10, 10)
    if layer != "memtable":
        alice.store.begin_refresh()
    if layer == "snapshot":
        offsets = {("g", "t", partition): {"committed_offset": 10} for partition in (0, 1)}
        alice.store.finish_refresh(mapped_snapshot(offsets))
    steps = {
        (10, 10): False, (11, 9): True, (11, 10): False, (9, 10): True, (9,): False, (8,): True, (0, 0, 3): True,
        (0, 0, 2): True, (0, 0, 4): False,
    }  # fmt: skip
    assert {step: is_audited(alice, "g", *step) for step in steps} == steps


def test_commit_below_a_deleted_offset_is_not_a_rewind(alice: InProcess) -> None:
    commits(alice, "g", 10, 10)
    assert delete_offsets(alice, "g", ("t", 0)) == [0]
    commits(alice, "g", 1)
    assert audit_headers(alice) == [COMMIT, {}, DELETE_OFFSETS, {}]


def fields_of_a_member(served: InProcess) -> dict[str, Any]:
    [group] = served.ask(CONSUMER_GROUP_DESCRIBE, 1, group_ids=[CONSUMER])["groups"]
    (member, *_) = group["members"]
    return {"member_id": member["member_id"], "generation_id_or_member_epoch": member["member_epoch"]}


def test_rewinds_by_members_are_not_audited(alice: InProcess) -> None:
    fields = fields_of_a_member(alice)
    for offset in (9, 3, 2, 1):
        commits(alice, CONSUMER, offset, **fields)
    assert audit_headers(alice) == [{}] * 4


def test_all_commits_are_audited_with_a_share_of_1(alice: InProcess) -> None:
    alice.commits._audited = 1.0
    fields = fields_of_a_member(alice)
    for _ in range(4):
        commits(alice, CONSUMER, 1, 2, **fields)
    assert audit_headers(alice) == [COMMIT, {}] * 4
    assert [is_audited(alice, "g", 5) for _ in range(4)] == [True] * 4


def test_sampled_commits_are_audited(alice: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    alice.commits._audited = 0.25
    drawn = iter((0.9, 0.24, 0.25, 0.0))
    monkeypatch.setattr(offset_commit, "random", lambda: next(drawn))
    for _ in range(4):
        commits(alice, "g", 5)
    assert audit_headers(alice) == [COMMIT, COMMIT, {}, COMMIT]


@pytest.mark.parametrize(
    ("client_id", "header"),
    [(None, None), (b"", None), (b"\xff\xfeid", "��id".encode()), (b"x" * 30_000, b"x" * 1024)],
)
def test_client_id_is_decoded_and_truncated_in_audit_headers(
    alice: InProcess, client_id: bytes | None, header: bytes | None
) -> None:
    frames = [
        request(DELETE_GROUPS, 1, {"groups_names": [EMPTY]}),
        request(OFFSET_COMMIT, 7, {"group_id": "g", "topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]}),
    ]  # fmt: skip
    length = struct.pack(">h", -1 if client_id is None else len(client_id))
    for frame, api, version in zip(frames, (DELETE_GROUPS, OFFSET_COMMIT), (1, 7), strict=True):
        answered(api, version, alice.answer(frame[:8] + length + (client_id or b"") + frame[10 + len(CLIENT) :]))
    events = {(headers[b"act.what"], headers.get(b"act.client")) for headers in audit_headers(alice) if headers}
    assert events == {(b"delete group", header), (b"commit", header)}


def test_deletion_before_the_log_is_loaded_writes_nothing(loading: InProcess) -> None:
    answer = loading.ask(OFFSET_DELETE, 0, group_id="g", topics=[])
    assert answer["error_code"] == 14
    assert audit_headers(loading) == []


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_commits_in_transactions_are_audited_by_the_share(alice: InProcess, share: float) -> None:
    alice.commits._audited = share
    producer = alice.ask(INIT_PRODUCER_ID, 4, transactional_id="t-1", transaction_timeout=timedelta(minutes=1))
    fields = {name: producer[name] for name in ("producer_id", "producer_epoch")} | {"transactional_id": "t-1"}
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    answer = alice.ask(TXN_OFFSET_COMMIT, 5, **fields, group_id="new", topics=[{"name": "t", "partitions": [row]}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert audit_headers(alice) == [COMMIT if share else {}]
