"""Group records over stored groups: small tables worked out by hand, and any log cut into runs."""

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.lake.definitions import definition
from offsetlake.rules.group_replay import ReplayedGroups, replay_groups
from support.rules.group_records import classic, classic_member, consumer_member

RECORDS, GROUPS = (pa.schema(Schema(definition(name).fields()).to_arrow()) for name in ("group_records", "groups"))
COMMITS = pa.schema([("group_id", pa.string()), ("log_partition", pa.int32()), ("log_offset", pa.int64())])
SIMPLE = {"group_type": "classic", "state": "Empty", "protocol_type": None, "log_offset": None, "replay_state": None}

Row = dict[str, Any]


class Event(NamedTuple):
    """A commit (record type 1) or a group record; `member` where its key names one."""

    record_type: int
    value: Row | None
    group_id: str = "g"
    member: str | None = None


COMMIT, GONE = Event(1, {}), Event(2, None)
ONE = Event(2, classic(members=[classic_member("m1", ["t"])]))
NONE = Event(2, classic(generation=2))
EPOCH, NO_EPOCH = Event(3, {"epoch": 5}), Event(3, None)
MEMBER = Event(5, consumer_member("t"), member="m1")


def _tables(log: dict[int, Event]) -> tuple[pa.Table, pa.Table]:
    """Group records, and the newest commit of each group."""
    records, commits = [], {}
    for at, (record_type, value, group_id, member) in log.items():
        where = {"group_id": group_id, "log_partition": len(group_id), "log_offset": at}
        if record_type == 1:
            commits[group_id] = where
            continue
        key = {"group": group_id} if record_type == 2 else {"groupId": group_id}
        records.append(
            where
            | {"ingest_run": 1, "log_timestamp": 1000 + at, "record_type": record_type, "record_name": "any"}
            | {"kind": "value" if value else "tombstone", "member_id": member}
            | {"key": json.dumps(key | ({"memberId": member} if member else {}))}
            | {"value": json.dumps(value) if value else None, "value_version": 0 if value else None}
        )
    newest_first = sorted(records, key=lambda row: -row["log_offset"])  # a table has no order
    return pa.Table.from_pylist(newest_first, RECORDS), pa.Table.from_pylist([*commits.values()], COMMITS)


def _run(log: dict[int, Event], before: pa.Table | None = None) -> ReplayedGroups:
    return replay_groups(*_tables(log), GROUPS.empty_table() if before is None else before)


def _stored(replayed: ReplayedGroups) -> pa.Table:
    return pa.Table.from_pylist(replayed.groups, GROUPS)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([COMMIT], SIMPLE),
        ([ONE], {"state": "Stable", "protocol_type": "consumer", "generation": 1, "log_offset": 0, "member_count": 1}),
        ([ONE, NONE], {"state": "Empty", "generation": 2, "log_offset": 1, "member_count": 0}),
        ([ONE, GONE], None),
        ([COMMIT, GONE], None),
        ([GONE, COMMIT], SIMPLE),
        ([ONE, COMMIT], {"state": "Stable", "log_offset": 0}),
        ([COMMIT, ONE], {"state": "Stable", "log_offset": 1}),
        ([ONE, GONE, COMMIT], SIMPLE),
        ([ONE, COMMIT, GONE], None),
        ([COMMIT, ONE, COMMIT, GONE, COMMIT], SIMPLE),
        ([COMMIT, EPOCH], {"group_type": "consumer", "epoch": 5, "log_offset": 1}),
        ([EPOCH, COMMIT], {"group_type": "consumer", "epoch": 5, "log_offset": 0}),
        ([EPOCH, COMMIT, NO_EPOCH], None),
        ([EPOCH, NO_EPOCH, COMMIT], SIMPLE),
        ([EPOCH, MEMBER], {"group_type": "consumer", "state": "Assigning", "member_count": 1, "log_offset": 1}),
        ([GONE], None),
    ],
)
@pytest.mark.parametrize("runs", ["one run", "a run each"])
def test_one_group(events: list[Event], expected: Row | None, runs: str) -> None:
    log = dict(enumerate(events))
    if runs == "one run":
        found = _run(log)
        assert found.group_ids == ["g"]
        rows = found.groups
    else:
        rows = _in_runs(log, range(len(events)))[0]
    if expected is None:
        assert rows == []
    else:
        (row,) = rows
        assert {name: row[name] for name in expected} == expected
        assert row["log_partition"] == 1


def test_a_simple_group_that_only_commits_again_is_left_as_it_is() -> None:
    before = _stored(_run({0: COMMIT}))
    assert _run({7: COMMIT}, before) == ReplayedGroups()


def test_members_are_in_the_log_partition_of_their_group() -> None:
    found = _run({4: ONE, 9: ONE._replace(group_id="two"), 11: COMMIT._replace(group_id="three")})
    assert sorted(found.group_ids) == ["g", "three", "two"]
    assert {row["group_id"]: row["log_partition"] for row in found.groups} == {"g": 1, "two": 3, "three": 5}
    members = {(row["group_id"], row["member_id"], row["log_partition"]) for row in found.members}
    assert members == {("g", "m1", 1), ("two", "m1", 3)}


def test_a_group_goes_with_its_members() -> None:
    before = _run({0: ONE, 1: ONE._replace(group_id="other")})
    found = _run({2: GONE}, _stored(before))
    assert found == ReplayedGroups(group_ids=["g"])


def test_what_a_group_was_before_is_kept() -> None:
    before = _stored(_run({0: EPOCH, 1: MEMBER}))
    found = _run({5: MEMBER._replace(member="m2")}, before)
    (row,) = found.groups
    assert (row["epoch"], row["member_count"], row["log_offset"], row["log_timestamp"]) == (5, 2, 5, 1005)
    assert [member["member_id"] for member in found.members] == ["m1", "m2"]


EVENTS = st.builds(
    lambda event, group_id, member: event._replace(group_id=group_id, member=event.member and member),
    st.sampled_from([COMMIT, COMMIT, GONE, ONE, NONE, EPOCH, NO_EPOCH, MEMBER]),
    st.sampled_from(["a", "b", "cc"]),
    st.sampled_from(["m1", "m2"]),
)


def _in_runs(log: dict[int, Event], cuts: Any) -> tuple[list[Row], list[Row]]:
    """Rows of both tables after a run behind each cut; a compaction replaces the rows of the groups it has replayed."""
    groups: dict[str, Row] = {}
    members: dict[tuple[str, str], Row] = {}
    for start, end in pairwise([0, *sorted(cuts), len(log)]):
        part = {at: event for at, event in log.items() if start <= at < end}
        found = _run(part, pa.Table.from_pylist([*groups.values()], GROUPS))
        assert len(set(found.group_ids)) == len(found.group_ids)
        groups = {of: row for of, row in groups.items() if of not in found.group_ids}
        members = {of: row for of, row in members.items() if of[0] not in found.group_ids}
        groups |= {row["group_id"]: row for row in found.groups}
        members |= {(row["group_id"], row["member_id"]): row for row in found.members}
    return [row for _, row in sorted(groups.items())], [row for _, row in sorted(members.items())]


@given(events=st.lists(EVENTS, max_size=25), cuts=st.sets(st.integers(0, 25), max_size=4))
def test_a_log_in_any_number_of_runs_gives_the_same(events: list[Event], cuts: set[int]) -> None:
    log = dict(enumerate(events))
    assert _in_runs(log, cuts) == _in_runs(log, ())


@given(events=st.lists(EVENTS, max_size=25))
def test_a_group_is_there_from_its_first_record_to_its_tombstone(events: list[Event]) -> None:
    there: dict[str, str] = {}
    for event in events:
        if event.value is None:
            if event.record_type == 2 or there.get(event.group_id) != "classic":  # a classic group has no epoch to lose
                there.pop(event.group_id, None)
        elif event.record_type == 1:
            there.setdefault(event.group_id, "simple")
        else:
            there[event.group_id] = "classic" if event.record_type == 2 else "consumer"
    found = {row["group_id"]: row["group_type"] for row in _run(dict(enumerate(events))).groups}
    assert found == {group_id: kind.replace("simple", "classic") for group_id, kind in there.items()}
