"""Replays group records on stored groups: examples, and any log divided into runs."""

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.lake.definitions import definition
from offsetlake.rules.groups.replay import ReplayedGroups, replay_groups
from support.rules.group_records import classic, classic_member, consumer_member

RECORDS, GROUPS = (pa.schema(Schema(definition(name).fields()).to_arrow()) for name in ("group_records", "groups"))
COMMITS = pa.schema([("group_id", pa.string()), ("log_partition", pa.int32()), ("log_offset", pa.int64())])
SIMPLE = {"group_type": "classic", "state": "Empty", "protocol_type": None, "log_offset": None, "replay_state": None}

Row = dict[str, Any]


class Event(NamedTuple):
    """A commit (record type 1) or a group record; `member` is the member ID in its key."""

    record_type: int
    value: Row | None
    group_id: str = "g"
    member: str | None = None


COMMIT, DELETED = Event(1, {}), Event(2, None)
ONE_MEMBER = Event(2, classic(members=[classic_member("m1", ["t"])]))
NO_MEMBER = Event(2, classic(generation=2))
EPOCH, NO_EPOCH = Event(3, {"epoch": 5}), Event(3, None)
MEMBER = Event(5, consumer_member("t"), member="m1")


def _tables(log: dict[int, Event]) -> tuple[pa.Table, pa.Table]:
    """Return the group records, and the newest commit of each group."""
    records, commits = [], {}
    for log_offset, (record_type, value, group_id, member) in log.items():
        position = {"group_id": group_id, "log_partition": len(group_id), "log_offset": log_offset}
        if record_type == 1:
            commits[group_id] = position
            continue
        key = {"group": group_id} if record_type == 2 else {"groupId": group_id}
        records.append(
            position
            | {"ingest_run": 1, "log_timestamp": 1000 + log_offset, "record_type": record_type, "record_name": "any"}
            | {"kind": "value" if value else "tombstone", "member_id": member}
            | {"key": json.dumps(key | ({"memberId": member} if member else {}))}
            | {"value": json.dumps(value) if value else None, "value_version": 0 if value else None}
        )
    newest_first = sorted(records, key=lambda row: -row["log_offset"])  # the order of a table is undefined
    return pa.Table.from_pylist(newest_first, RECORDS), pa.Table.from_pylist([*commits.values()], COMMITS)


def _run(log: dict[int, Event], groups: pa.Table | None = None) -> ReplayedGroups:
    return replay_groups(*_tables(log), GROUPS.empty_table() if groups is None else groups)


def _stored(replayed: ReplayedGroups) -> pa.Table:
    return pa.Table.from_pylist(replayed.groups, GROUPS)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([COMMIT], SIMPLE),
        (
            [ONE_MEMBER],
            {"state": "Stable", "protocol_type": "consumer", "generation": 1, "log_offset": 0, "member_count": 1},
        ),
        ([ONE_MEMBER, NO_MEMBER], {"state": "Empty", "generation": 2, "log_offset": 1, "member_count": 0}),
        ([ONE_MEMBER, DELETED], None),
        ([COMMIT, DELETED], None),
        ([DELETED, COMMIT], SIMPLE),
        ([ONE_MEMBER, COMMIT], {"state": "Stable", "log_offset": 0}),
        ([COMMIT, ONE_MEMBER], {"state": "Stable", "log_offset": 1}),
        ([ONE_MEMBER, DELETED, COMMIT], SIMPLE),
        ([ONE_MEMBER, COMMIT, DELETED], None),
        ([COMMIT, ONE_MEMBER, COMMIT, DELETED, COMMIT], SIMPLE),
        ([COMMIT, EPOCH], {"group_type": "consumer", "epoch": 5, "log_offset": 1}),
        ([EPOCH, COMMIT], {"group_type": "consumer", "epoch": 5, "log_offset": 0}),
        ([EPOCH, COMMIT, NO_EPOCH], None),
        ([EPOCH, NO_EPOCH, COMMIT], SIMPLE),
        ([EPOCH, MEMBER], {"group_type": "consumer", "state": "Assigning", "member_count": 1, "log_offset": 1}),
        ([DELETED], None),
    ],
)
@pytest.mark.parametrize("runs", ["one run", "one run per record"])
def test_row_of_one_group_is_that_of_its_last_record(events: list[Event], expected: Row | None, runs: str) -> None:
    log = dict(enumerate(events))
    if runs == "one run":
        replayed = _run(log)
        assert replayed.group_ids == ["g"]
        rows = replayed.groups
    else:
        rows = _in_runs(log, range(len(events)))[0]
    if expected is None:
        assert rows == []
    else:
        (row,) = rows
        assert {name: row[name] for name in expected} == expected
        assert row["log_partition"] == 1


def test_simple_group_with_another_commit_is_not_changed() -> None:
    groups = _stored(_run({0: COMMIT}))
    assert _run({7: COMMIT}, groups) == ReplayedGroups()


def test_members_have_the_log_partition_of_their_group() -> None:
    replayed = _run({4: ONE_MEMBER, 9: ONE_MEMBER._replace(group_id="two"), 11: COMMIT._replace(group_id="three")})
    assert sorted(replayed.group_ids) == ["g", "three", "two"]
    assert {row["group_id"]: row["log_partition"] for row in replayed.groups} == {"g": 1, "two": 3, "three": 5}
    members = {(row["group_id"], row["member_id"], row["log_partition"]) for row in replayed.members}
    assert members == {("g", "m1", 1), ("two", "m1", 3)}


def test_deleted_group_has_no_members() -> None:
    stored = _run({0: ONE_MEMBER, 1: ONE_MEMBER._replace(group_id="other")})
    replayed = _run({2: DELETED}, _stored(stored))
    assert replayed == ReplayedGroups(group_ids=["g"])


def test_stored_state_of_a_group_is_kept() -> None:
    groups = _stored(_run({0: EPOCH, 1: MEMBER}))
    replayed = _run({5: MEMBER._replace(member="m2")}, groups)
    (row,) = replayed.groups
    assert (row["epoch"], row["member_count"], row["log_offset"], row["log_timestamp"]) == (5, 2, 5, 1005)
    assert [member["member_id"] for member in replayed.members] == ["m1", "m2"]


EVENTS = st.builds(
    lambda event, group_id, member: event._replace(group_id=group_id, member=event.member and member),
    st.sampled_from([COMMIT, COMMIT, DELETED, ONE_MEMBER, NO_MEMBER, EPOCH, NO_EPOCH, MEMBER]),
    st.sampled_from(["a", "b", "cc"]),
    st.sampled_from(["m1", "m2"]),
)


def _in_runs(log: dict[int, Event], cuts: Any) -> tuple[list[Row], list[Row]]:
    """Return the rows of both tables after one run per part of the log; a run replaces the rows of replayed groups."""
    groups: dict[str, Row] = {}
    members: dict[tuple[str, str], Row] = {}
    for start, end in pairwise([0, *sorted(cuts), len(log)]):
        part = {log_offset: event for log_offset, event in log.items() if start <= log_offset < end}
        replayed = _run(part, pa.Table.from_pylist([*groups.values()], GROUPS))
        assert len(set(replayed.group_ids)) == len(replayed.group_ids)
        groups = {group_id: row for group_id, row in groups.items() if group_id not in replayed.group_ids}
        members = {key: row for key, row in members.items() if key[0] not in replayed.group_ids}
        groups |= {row["group_id"]: row for row in replayed.groups}
        members |= {(row["group_id"], row["member_id"]): row for row in replayed.members}
    return [row for _, row in sorted(groups.items())], [row for _, row in sorted(members.items())]


@given(events=st.lists(EVENTS, max_size=25), cuts=st.sets(st.integers(0, 25), max_size=4))
def test_number_of_runs_does_not_change_the_result(events: list[Event], cuts: set[int]) -> None:
    log = dict(enumerate(events))
    assert _in_runs(log, cuts) == _in_runs(log, ())


@given(events=st.lists(EVENTS, max_size=25))
def test_group_exists_from_its_first_record_to_its_tombstone(events: list[Event]) -> None:
    existing: dict[str, str] = {}
    for event in events:
        if event.value is None:
            if event.record_type == 2 or existing.get(event.group_id) != "classic":  # a classic group has no epoch
                existing.pop(event.group_id, None)
        elif event.record_type == 1:
            existing.setdefault(event.group_id, "simple")
        else:
            existing[event.group_id] = "classic" if event.record_type == 2 else "consumer"
    groups = {row["group_id"]: row["group_type"] for row in _run(dict(enumerate(events))).groups}
    assert groups == {group_id: kind.replace("simple", "classic") for group_id, kind in existing.items()}
