"""What is served says in the log who did it: deletions always, commits where a tool may have sent them, or a share."""

import struct
from datetime import timedelta
from typing import Any

import pytest

from offsetlake.serve.protocol.api_keys import (
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

ACT = {b"act.principal": b"User:alice", b"act.client": CLIENT, b"act.address": b"192.0.2.7:40000"}
COMMIT, DELETE_OFFSETS, DELETE_GROUP = (
    {b"act.what": what, **ACT} for what in (b"commit", b"delete offsets", b"delete group")
)

Said = list[dict[bytes, bytes | None]]


@pytest.fixture
def alice(served: InProcess) -> InProcess:
    """Alice's connection to a server of a few groups."""
    served.client.principal, served.client.address = "User:alice", "192.0.2.7:40000"
    return served


def said(served: InProcess) -> Said:
    """What the records that were appended say of who wrote them, one a record; those of a group in their order."""
    ends = served._origin.ends
    return [dict(r.headers) for r in read_log(served.log) if r.log_offset >= ends.get(r.log_partition, 0)]


def commits(served: InProcess, group: str, *offsets: int, **of: Any) -> None:
    """Commit one partition after the other, from 0 on, as nobody's member or as `of` says."""
    rows = [
        {"partition_index": at, "committed_offset": offset, "committed_metadata": ""}
        for at, offset in enumerate(offsets)
    ]
    answer = served.ask(OFFSET_COMMIT, 9, group_id=group, topics=[{"name": "t", "partitions": rows}], **of)
    assert {each["error_code"] for each in answer["topics"][0]["partitions"]} == {0}


def tells(served: InProcess, group: str, *offsets: int) -> bool:
    """Whether a commit says who sent it, on one of its records."""
    before = said(served)
    commits(served, group, *offsets)
    now = said(served)
    assert len(now) == len(before) + len(offsets)
    return now.count(COMMIT) > before.count(COMMIT)


def test_who_deletes_a_group(alice: InProcess) -> None:
    offsets = len(stored(alice, EMPTY))
    assert delete_groups(alice, EMPTY, ABSENT, CONSUMER, SHARE) == {EMPTY: 0, ABSENT: 69, CONSUMER: 68, SHARE: 42}
    assert said(alice) == [DELETE_GROUP, *[{}] * offsets], "once, on the first record; nothing of what was refused"


def test_who_deletes_offsets(alice: InProcess) -> None:
    first, second, *_ = stored(alice, EMPTY)
    assert delete_offsets(alice, EMPTY, first, second, ("nowhere", 0)) == [0, 0, 0]
    assert delete_offsets(alice, EMPTY, first) == [0]
    assert said(alice) == [DELETE_OFFSETS, {}], "what is not there is not deleted"


def test_a_deletion_of_what_a_transaction_holds(alice: InProcess) -> None:
    assert delete_groups(alice, OPEN) == {OPEN: 0}
    assert said(alice)[0] == DELETE_GROUP


def test_the_first_commit_of_a_tool_to_each_group(alice: InProcess) -> None:
    assert [tells(alice, group, 5, 6) for group in ("g", "g", "h", "g", "g")] == [True, False, True, True, False]
    alice.reconnect()
    assert tells(alice, "g", 5, 6)


def test_one_that_failed_is_not_the_first(alice: InProcess) -> None:
    alice.store.loading = True
    assert commit(alice, "g", "t", 0, 5) == 14
    alice.store.loading = False
    commits(alice, "g", 5)
    assert said(alice) == [COMMIT]


@pytest.mark.parametrize("known", ["fresh", "frozen", "base"])
def test_a_tool_that_goes_back(alice: InProcess, known: str) -> None:
    """However the server knows what is stored, and however it reads the request."""
    for _ in range(5):
        commits(alice, "g", 10, 10)
    if known != "fresh":
        alice.store.freeze()
    if known == "base":
        alice.store.fold(mapped_snapshot({("g", "t", partition): {"committed_offset": 10} for partition in (0, 1)}))
    steps = {
        (10, 10): False, (11, 9): True, (11, 10): False, (9, 10): True, (9,): False, (8,): True, (0, 0, 3): True,
        (0, 0, 2): True, (0, 0, 4): False,
    }  # fmt: skip
    assert {step: tells(alice, "g", *step) for step in steps} == steps


def test_what_was_deleted_is_no_value_to_go_back_from(alice: InProcess) -> None:
    commits(alice, "g", 10, 10)
    assert delete_offsets(alice, "g", ("t", 0)) == [0]
    commits(alice, "g", 1)
    assert said(alice) == [COMMIT, {}, DELETE_OFFSETS, {}]


def test_members_are_not_asked(alice: InProcess) -> None:
    (member, *_) = alice.store.members(CONSUMER.encode())["members"]
    of = {"member_id": member["member_id"], "generation_id_or_member_epoch": member["member_epoch"]}
    for offset in (9, 3, 2, 1):
        commits(alice, CONSUMER, offset, **of)
    assert said(alice) == [{}] * 4


def test_all_commits_by_setting(alice: InProcess) -> None:
    alice.commits._recorded = 1.0
    (member, *_) = alice.store.members(CONSUMER.encode())["members"]
    of = {"member_id": member["member_id"], "generation_id_or_member_epoch": member["member_epoch"]}
    for _ in range(4):
        commits(alice, CONSUMER, 1, 2, **of)
    assert said(alice) == [COMMIT, {}] * 4
    assert [tells(alice, "g", 5) for _ in range(4)] == [True] * 4


def test_a_share_by_setting(alice: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    alice.commits._recorded = 0.25
    drawn = iter((0.9, 0.24, 0.25, 0.0))
    monkeypatch.setattr(offset_commit, "random", lambda: next(drawn))
    for _ in range(4):
        commits(alice, "g", 5)
    assert said(alice) == [COMMIT, COMMIT, {}, COMMIT]


@pytest.mark.parametrize(
    ("sent", "told"),
    [(None, None), (b"", None), (b"\xff\xfeid", "��id".encode()), (b"x" * 30_000, b"x" * 1024)],
)
def test_client_ids_of_all_kinds(alice: InProcess, sent: bytes | None, told: bytes | None) -> None:
    frames = [
        request(DELETE_GROUPS, 1, {"groups_names": [EMPTY]}),
        request(OFFSET_COMMIT, 7, {"group_id": "g", "topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]}),
    ]  # fmt: skip
    length = struct.pack(">h", -1 if sent is None else len(sent))
    for frame, api, version in zip(frames, (DELETE_GROUPS, OFFSET_COMMIT), (1, 7), strict=True):
        answered(api, version, alice.answer(frame[:8] + length + (sent or b"") + frame[10 + len(CLIENT) :]))
    heads = {(each[b"act.what"], each.get(b"act.client")) for each in said(alice) if each}
    assert heads == {(b"delete group", told), (b"commit", told)}


def test_a_deletion_before_the_log_is_loaded_says_nothing(loading: InProcess) -> None:
    answer = loading.ask(OFFSET_DELETE, 0, group_id="g", topics=[])
    assert answer["error_code"] == 14
    assert said(loading) == []


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_commit_of_a_transaction_tells_by_the_share(alice: InProcess, share: float) -> None:
    alice.commits._recorded = share
    begun = alice.ask(INIT_PRODUCER_ID, 4, transactional_id="t-1", transaction_timeout=timedelta(minutes=1))
    of = {"transactional_id": "t-1", "producer_id": begun["producer_id"], "producer_epoch": begun["producer_epoch"]}
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    answer = alice.ask(TXN_OFFSET_COMMIT, 5, **of, group_id="new", topics=[{"name": "t", "partitions": [row]}])
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert said(alice) == [COMMIT if share else {}]
