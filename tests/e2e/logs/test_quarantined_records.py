"""What cannot be decoded protects what it concerns: its state is unknown, and nothing is decided about it."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.log.address import LogAddress
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.pipeline.compact.rebuild import rebuild
from offsetlake.pipeline.compact.snapshot import read_snapshot
from offsetlake.pipeline.emit.job import emit
from offsetlake.queries.history.as_of import groups_as_of
from offsetlake.queries.questions import GROUP_COLUMNS, groups
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, rows
from support.e2e.parts_log import TIME, Log, Made
from support.long_cases import long_cases
from support.oracle.encoders import Member, group_metadata_key, group_metadata_value, offset_key, offset_value, string
from support.oracle.expiry import Group, Offset, cleanup_pass
from support.oracle.log_reader import read_log
from support.oracle.log_writer import batch_bytes, write_partition
from support.oracle.replay import State, replay

NEWER = struct.pack(">h", 9) + bytes(20)
"""A value whose version no reader of today knows."""
MEMBER = Member("m", None, "c", "/h", 1, 1, b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"")


def commit(partition: int, committed_offset: int | None, group: str = "g") -> Made:
    value = None if committed_offset is None else offset_value(3, committed_offset, commit_timestamp=TIME)
    return offset_key(group, "t", partition), value, ()


def metadata(*members: Member, group: str = "g") -> Made:
    protocol = "range" if members else None
    value = group_metadata_value(
        3, protocol_type="consumer", generation=2, protocol=protocol, leader=None, state_timestamp=TIME, members=members
    )
    return group_metadata_key(group), value, ()


def unread(key: bytes, value: bytes | None = NEWER) -> Made:
    return key, value, ()


def member_key(member_id: str = "m", record_type: int = 5) -> bytes:
    return struct.pack(">h", record_type) + string("g") + string(member_id)


class QuarantineLog(Log):
    """A log of one log partition, some of whose batches have a wrong checksum."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.corrupt: list[int] = []

    def corrupt_batch(self, *made: Made) -> "QuarantineLog":
        self.corrupt.append(self.end)
        self.batch(*made)
        return self

    def write(self) -> None:
        (path,) = write_partition(self.folder / "log", 0, self.batches)
        content = bytearray(path.read_bytes())
        position = 0
        for batch in self.batches:
            size = len(batch_bytes(batch))
            if batch.first in self.corrupt:
                content[position + size - 1] ^= 1
            position += size
        path.write_bytes(content)

    def cycle(self) -> None:
        self.write()
        cycle(InProcess(), self.lake, self.folder / "log")

    def planned(self) -> set[int | None]:
        """Return the partitions of group g with planned tombstones, None for the group itself."""
        self.cycle()
        plan_expiry(InProcess(), self.lake)
        return self.standing("planned")

    def standing(self, outcome: str) -> set[int | None]:
        newest: dict[int | None, str] = {}
        for row in sorted(rows(self.lake, "tombstones"), key=lambda row: row["run_id"]):
            if row["group_id"] == "g":
                newest[row["partition"]] = row["outcome"]
        return {partition for partition, found in newest.items() if found == outcome}

    def state(self) -> str | None:
        return next((row["state"] for row in rows(self.lake, "groups") if row["group_id"] == "g"), None)

    def emitted(self) -> dict[str, int]:
        address = LogAddress(folder=self.folder / "log")
        return {name: n for name, n in emit(self.lake, address, lambda _: None).counts.items() if n}


@pytest.fixture
def log(tmp_path: Path) -> QuarantineLog:
    return QuarantineLog(tmp_path)


GROUP_RECORDS = [
    pytest.param(unread(group_metadata_key("g")), id="classic metadata"),
    pytest.param(unread(group_metadata_key("g"), b""), id="empty value"),
    pytest.param(unread(member_key()), id="member of a consumer group"),
    pytest.param(unread(member_key(record_type=10)), id="member of a share group"),
    pytest.param(unread(member_key(record_type=19)), id="member of a streams group"),
    pytest.param(unread(member_key(record_type=16)), id="regular expression"),
    pytest.param(unread(struct.pack(">h", 99) + string("g")), id="unknown record type"),
    pytest.param(unread(struct.pack(">h", 99) + string("g"), None), id="tombstone of an unknown record type"),
    pytest.param(unread(struct.pack(">h", 1) + string("g") + b"\0"), id="truncated key of an offset"),
]


@pytest.mark.parametrize("record", GROUP_RECORDS)
def test_group_with_an_undecodable_record_is_unknown(log: QuarantineLog, record: Made) -> None:
    log.batch(commit(0, 10), commit(1, 11))
    assert log.planned() == {0, 1, None}, "what the next record withdraws"
    log.batch(record)
    assert log.planned() == set()
    assert log.standing("withdrawn") == {0, 1, None}
    assert (log.state(), rows(log.lake, "groups")[0]["member_count"]) == ("Unknown", None)
    (left,) = rows(log.lake, "unresolved_records")
    assert (left["scope"], left["group_id"], left["log_partition"], left["log_offset"]) == ("group", "g", 0, 2)
    now = groups(log.lake, columns=GROUP_COLUMNS)
    assert groups_as_of(log.lake, TIME + 2).select(now.column_names) == now
    assert groups_as_of(log.lake, TIME + 1)["state"].to_pylist() == ["Empty"]
    plan = plan_cleanup(log.lake, "g", None, TIME, live=False)
    assert all("log offset 2 of __consumer_offsets-0" in reason for reason in plan["reason"].to_pylist())


@pytest.mark.parametrize(
    ("later", "state", "planned"),
    [
        (metadata(), "Empty", {0, None}),
        (metadata(MEMBER), "Stable", set()),
        (unread(group_metadata_key("g"), None), None, set()),
        (commit(0, 12), "Unknown", set()),
        (unread(member_key(), None), "Unknown", set()),
    ],
    ids=["empty", "with a member", "tombstone", "commit", "another record"],
)
def test_later_record_of_the_group_supersedes_the_undecodable_one(
    log: QuarantineLog, later: Made, state: str | None, planned: set[int | None]
) -> None:
    log.batch(commit(0, 10), unread(group_metadata_key("g")))
    assert log.planned() == set()
    log.batch(later)
    assert (log.planned(), log.state()) == (planned, state)
    assert bool(rows(log.lake, "unresolved_records")) == (state == "Unknown")


def test_member_record_supersedes_only_its_own(log: QuarantineLog) -> None:
    log.batch(commit(0, 10), unread(member_key("a")), unread(member_key("b")))
    log.planned()
    log.batch(unread(member_key("a"), None))
    assert (log.planned(), log.state()) == (set(), "Unknown")
    log.batch(unread(member_key("b"), None))
    assert (log.planned(), log.state()) == ({0, None}, "Empty")


@pytest.mark.parametrize(
    "value",
    [NEWER, b"", b"\0\3", offset_value(3, 5, commit_timestamp=TIME)[:-1]],
    ids=["newer", "empty", "short", "cut"],
)
def test_offset_with_an_undecodable_record_is_kept(log: QuarantineLog, value: bytes) -> None:
    log.batch(commit(0, 10), commit(1, 11), unread(offset_key("g", "t", 0), value))
    assert log.planned() == {1}, "neither the offset nor its group"
    assert (log.state(), log.offsets()) == ("Empty", {0: 10, 1: 11})
    log.batch(commit(0, 20))
    assert log.planned() == {0, 1, None}
    assert rows(log.lake, "unresolved_records") == []


def test_offset_without_a_decoded_commit_keeps_its_group(log: QuarantineLog) -> None:
    log.batch(commit(0, 10), unread(offset_key("g", "t", 7)))
    assert log.planned() == {0}
    log.batch(unread(offset_key("g", "t", 7), None))
    assert log.planned() == {0, None}


def test_batch_that_cannot_be_read_protects_what_is_before_it(log: QuarantineLog) -> None:
    log.batch(commit(0, 10), commit(1, 11), metadata())
    log.corrupt_batch(commit(1, 20), metadata(MEMBER))
    log.batch(commit(2, 12))
    assert (log.planned(), log.state()) == (set(), "Unknown")
    log.batch(commit(1, 21))
    assert log.planned() == set(), "the state of the group is still unknown"
    log.batch(metadata())
    assert (log.planned(), log.state()) == ({1, 2}, "Empty"), "the offset before the batch, and so the group, are kept"
    log.batch(commit(0, 30))
    assert log.planned() == {0, 1, 2}, "the batch may have other offsets of the group"


def test_group_that_is_new_after_a_batch_that_cannot_be_read(log: QuarantineLog) -> None:
    log.corrupt_batch(metadata(MEMBER)).batch(commit(0, 1))
    assert (log.planned(), log.state()) == (set(), "Unknown"), "the batch may have its members"
    log.batch(metadata())
    assert (log.planned(), log.state()) == ({0}, "Empty")


def test_marker_that_cannot_be_read_leaves_the_transaction_open(log: QuarantineLog) -> None:
    transactional = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log.batch(commit(0, 10), commit(1, 11)).batch(commit(0, 20), **transactional)
    log.batch((struct.pack(">hh", 0, 99), b"", ()), **transactional, is_control=True)
    log.batch(commit(1, 21), **transactional)
    assert log.planned() == set()
    log.transaction_ends("ABORT", 7)
    assert log.planned() == {1}, "only what the known marker has ended"
    assert [row["scope"] for row in rows(log.lake, "unresolved_records")] == ["transaction"]
    pending = {row["partition"]: row["committed_offset"] for row in rows(log.lake, "pending_offsets")}
    assert (pending, log.offsets()) == ({0: 20}, {0: 10, 1: 11})
    log.batch(commit(0, None))
    assert log.planned() == {1, None}
    assert rows(log.lake, "unresolved_records") == []


def test_record_without_a_readable_group_concerns_the_log_partition(log: QuarantineLog) -> None:
    log.batch(commit(0, 10), unread(struct.pack(">hh", 1, 1000)))
    assert (log.planned(), log.state()) == (set(), "Unknown")


def test_record_without_a_key_concerns_nothing(log: QuarantineLog) -> None:
    log.batch(commit(0, 10), (None, NEWER, ()), (b"\0", NEWER, ()))  # type: ignore[arg-type]
    assert log.planned() == {0, None}


APPENDED: list[Callable[[QuarantineLog], Any]] = [
    lambda log: log.batch(unread(group_metadata_key("g"))),
    lambda log: log.batch(unread(offset_key("g", "t", 0)), unread(offset_key("g", "t", 1))),
    lambda log: log.corrupt_batch(metadata(MEMBER)).batch(commit(5, 1, "other")),
]


@pytest.mark.parametrize("append", APPENDED, ids=["group", "offsets", "batch"])
def test_emission_refuses_what_the_end_of_the_log_leaves_unknown(
    log: QuarantineLog, append: Callable[[QuarantineLog], Any]
) -> None:
    log.batch(commit(0, 10), commit(1, 11))
    assert log.planned() == {0, 1, None}
    append(log)
    log.write()
    assert log.emitted() == {"refused": 3}
    reasons = [row["reason"] for row in rows(log.lake, "tombstones") if row["outcome"] == "refused"]
    assert all("could not be decoded" in reason and "of __consumer_offsets-0" in reason for reason in reasons)


@pytest.mark.parametrize("append", APPENDED, ids=["group", "offsets", "batch"])
def test_snapshot_and_rebuild_equal_the_compaction(log: QuarantineLog, append: Callable[[QuarantineLog], Any]) -> None:
    log.batch(commit(0, 10), commit(1, 11), metadata())
    log.cycle()
    append(log)
    log.batch(commit(1, 12), commit(0, 1, "late"))
    log.write()
    snapshot = read_snapshot(log.lake, LogAddress(folder=log.folder / "log"))
    log.cycle()
    tables = ("groups", "unresolved_records", "pending_offsets")
    compacted = {table: rows(log.lake, table) for table in tables}
    for table in tables:
        assert sorted(map(str, snapshot.tables[table].to_pylist())) == sorted(map(str, compacted[table]))
    rebuild(InProcess, log.lake, lambda _: None)  # type: ignore[arg-type]
    assert {table: rows(log.lake, table) for table in tables} == compacted


@pytest.mark.parametrize("seed", [0, *long_cases(range(1, 4))])
def test_random_log_is_evaluated_as_by_the_oracle(log: QuarantineLog, seed: int) -> None:
    pick = random.Random(seed)
    keys = [offset_key(f"g{pick.randrange(6)}", "t", partition) for partition in range(3) for _ in range(6)]
    for _ in range(6):
        for _ in range(pick.randrange(1, 8)):
            key, group = pick.choice(keys), f"g{pick.randrange(6)}"
            made: list[Made] = [
                (key, offset_value(3, pick.randrange(99), commit_timestamp=TIME), ()),
                (key, None, ()),
                unread(key),
                metadata(group=group),
                unread(group_metadata_key(group)),
                unread(group_metadata_key(group), None),
            ]
            in_transaction = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
            if pick.random() < 0.2:
                log.transaction_ends(pick.choice(["COMMIT", "ABORT"]), 7)
            elif pick.random() < 0.3:
                log.batch(*pick.sample(made[:3], 1), **in_transaction)
            else:
                log.batch(pick.choices(made, [6, 2, 3, 2, 2, 1])[0])
        log.planned()
        expected = replay(read_log(log.folder / "log"))
        assert expected.unknown_groups == {
            row["group_id"] for row in rows(log.lake, "groups") if row["state"] == "Unknown"
        }
        stored = {(row["group_id"], row["topic"], row["partition"]) for row in rows(log.lake, "offsets")}
        assert stored == expected.committed.keys()
        assert _standing(log) == _by_the_oracle(log, expected)


def _standing(log: QuarantineLog) -> set[tuple[str, str | None, int | None]]:
    newest = {}
    for row in sorted(rows(log.lake, "tombstones"), key=lambda row: row["run_id"]):
        newest[row["group_id"], row["topic"], row["partition"], row["judged_offset"]] = row["outcome"]
    return {key[:3] for key, outcome in newest.items() if outcome == "planned"}


def _by_the_oracle(log: QuarantineLog, expected: State) -> set[tuple[str, str | None, int | None]]:
    existing = {
        row["group_id"]: Group("classic", row["state"], row["protocol_type"], row["state_timestamp"])
        for row in rows(log.lake, "groups")
    }
    offsets: dict[str, dict[tuple[str, int], Offset]] = {}
    for (group, topic, partition), commit in expected.committed.items():
        offsets.setdefault(group, {})[topic, partition] = Offset(commit.commit_timestamp, commit.expire_timestamp)
    pending = {key[:3] for key in expected.pending}
    written = cleanup_pass(existing, offsets, pending, LATER, [("*", "*", 7 * 86_400_000)], expected.doubted)
    return {*written.offsets, *((group, None, None) for group in written.groups)}
