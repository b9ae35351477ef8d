"""Each cell of the table in `offsetlake.rules.conditions`, and the conditions that turn "write" into "refused"."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from offsetlake.rules.conditions import (
    COMMITTED_BY_ANOTHER,
    GROUP_HAS_OFFSETS,
    GROUP_PENDING,
    KEY_PENDING,
    NO_OFFSET,
    Check,
    CurrentState,
    check_decisions,
)

T = 1_700_000_000_000
EVALUATED, LATER = 10, 20  # log offsets
WRITE, DONE, REFUSED = Check

KEY = {"group_id": pa.string(), "topic": pa.string(), "partition": pa.int32()}
VALUE = {
    "committed_offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "metadata": pa.string(),
    "commit_timestamp": pa.int64(),
}
DECISIONS = pa.schema({**KEY, "kind": pa.string(), "judged_offset": pa.int64(), "stale": pa.string(), **VALUE})
NEWEST = pa.schema({**KEY, "kind": pa.string(), "log_offset": pa.int64(), **VALUE})
PENDING = pa.schema({**KEY, "log_offset": pa.int64()})

Row = dict[str, Any]

OLD = {"committed_offset": 5, "leader_epoch": 1, "metadata": "old", "commit_timestamp": T - 1}
NEW = {"committed_offset": 7, "leader_epoch": 2, "metadata": "new", "commit_timestamp": T}


def table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)


def key(group_id: str = "g", topic: str = "t", partition: int = 0) -> Row:
    return {"group_id": group_id, "topic": topic, "partition": partition}


def tombstone(evaluated: int | None = EVALUATED, **columns: Any) -> Row:
    return {**key(), "kind": "tombstone", "judged_offset": evaluated, **columns}


def commit(evaluated: int | None = EVALUATED, **columns: Any) -> Row:
    return {**key(), "kind": "commit", "judged_offset": evaluated, **NEW, **columns}


def group(group_id: str = "g", **columns: Any) -> Row:
    return {"group_id": group_id, "kind": "tombstone", "judged_offset": EVALUATED, **columns}


def committed(log_offset: int = EVALUATED, value: Row | None = None, **columns: Any) -> Row:
    return {**key(), "kind": "commit", "log_offset": log_offset, **(value or OLD), **columns}


def deleted(log_offset: int = LATER, **columns: Any) -> Row:
    return {**key(), "kind": "tombstone", "log_offset": log_offset, **columns}


def current(
    newest: Sequence[Row] = (),
    pending: Sequence[Row] = (),
    groups: Sequence[str] = ("g",),
    changed: dict[str, int] | None = None,
) -> CurrentState:
    return CurrentState(table(newest, NEWEST), table(pending, PENDING), frozenset(groups), changed or {})


def checked(decisions: Sequence[Row], state: CurrentState) -> list[tuple[int, str | None]]:
    checks, reasons = check_decisions(table(decisions, DECISIONS), state)
    return [(check, reasons.pop(row, None)) for row, check in enumerate(checks.tolist())]


CHANGED = "the group changed after the last compaction: its newest record is at log offset 20"
TOMBSTONED = "the offset was deleted by the tombstone at log offset 20"
AGAIN_OLD = "the committed offset changed: 5 at log offset 20"
AGAIN_NEW = "the committed offset changed: 7 at log offset 20"


@pytest.mark.parametrize(
    ("newest", "for_tombstone", "for_commit"),
    [
        pytest.param([committed()], (WRITE, None), (WRITE, None), id="the evaluated commit"),
        pytest.param(
            [committed(value=NEW)], (WRITE, None), (WRITE, None), id="the evaluated commit with the decided value"
        ),
        pytest.param([deleted()], (DONE, None), (REFUSED, TOMBSTONED), id="a tombstone"),
        pytest.param([], (DONE, None), (REFUSED, NO_OFFSET), id="no record"),
        pytest.param([committed(LATER, NEW)], (REFUSED, AGAIN_NEW), (DONE, None), id="the decided commit"),
        pytest.param(
            [committed(LATER)], (REFUSED, AGAIN_OLD), (REFUSED, AGAIN_OLD), id="a later commit of the evaluated value"
        ),
        pytest.param(
            [committed(5, NEW)],
            (REFUSED, AGAIN_NEW[:-2] + "5"),
            (REFUSED, AGAIN_NEW[:-2] + "5"),
            id="an earlier commit",
        ),
    ],
)
def test_decision_for_a_commit_depends_on_the_newest_record(
    newest: list[Row], for_tombstone: tuple[int, str | None], for_commit: tuple[int, str | None]
) -> None:
    assert checked([tombstone()], current(newest)) == [for_tombstone]
    assert checked([commit()], current(newest)) == [for_commit]


@pytest.mark.parametrize(
    ("newest", "for_tombstone", "for_commit"),
    [
        pytest.param([], WRITE, WRITE, id="no record"),
        pytest.param([deleted()], WRITE, WRITE, id="a tombstone"),
        pytest.param([committed(0, NEW)], REFUSED, DONE, id="the decided commit at log offset 0"),
        pytest.param([committed(LATER)], REFUSED, REFUSED, id="another commit"),
    ],
)
def test_decision_for_no_commit_depends_on_the_newest_record(
    newest: list[Row], for_tombstone: int, for_commit: int
) -> None:
    assert checked([tombstone(None)], current(newest))[0][0] == for_tombstone
    assert checked([commit(None)], current(newest))[0][0] == for_commit


@pytest.mark.parametrize(
    "other",
    [
        {"committed_offset": 8},
        {"leader_epoch": 3},
        {"leader_epoch": None},
        {"metadata": ""},
        {"commit_timestamp": T - 1},
    ],
)
def test_commit_that_differs_in_any_value_is_another_commit(other: Row) -> None:
    assert checked([commit()], current([committed(LATER, NEW | other)]))[0][0] == REFUSED


@pytest.mark.parametrize(
    ("decided", "stored"),
    [
        ({"metadata": None}, {"metadata": ""}),
        ({"leader_epoch": -1}, {"leader_epoch": None}),
        ({}, {"commit_timestamp": T + 1}),
    ],
)
def test_commit_that_is_encoded_identically_is_the_same_commit(decided: Row, stored: Row) -> None:
    assert checked([commit(**decided)], current([committed(LATER, NEW | stored)])) == [(DONE, None)]


@pytest.mark.parametrize(
    ("state", "stale", "reason"),
    [
        pytest.param({"pending": [key() | {"log_offset": 3}]}, None, KEY_PENDING, id="pending"),
        pytest.param({"changed": {"g": LATER}}, None, CHANGED, id="changed"),
        pytest.param({}, "plan it again", "plan it again", id="stale"),
        pytest.param(
            {"pending": [key() | {"log_offset": 3}], "changed": {"g": LATER}}, "plan it again", KEY_PENDING, id="all"
        ),
    ],
)
def test_pending_changed_or_stale_decision_is_refused_unless_it_is_done(
    state: dict[str, Any], stale: str | None, reason: str
) -> None:
    for decision in (tombstone(stale=stale), commit(stale=stale)):
        assert checked([decision], current([committed()], **state)) == [(REFUSED, reason)]
    assert checked([tombstone(stale=stale)], current([deleted()], **state)) == [(DONE, None)]
    assert checked([commit(stale=stale)], current([committed(LATER, NEW)], **state)) == [(DONE, None)]


def test_pending_offset_of_another_key_does_not_refuse_a_decision() -> None:
    other = [key(partition=1) | {"log_offset": 3}, key(topic="other") | {"log_offset": 3}]
    state = current([committed()], pending=other, changed={"other": LATER})
    assert checked([tombstone()], state) == [(WRITE, None)]


def test_decisions_are_matched_by_the_whole_key() -> None:
    keys = [key("g", "t", 1), key("g", "u", 0), key("h", "t", 0), key("", "", 0)]
    newest = [committed(log_offset, **columns) for log_offset, columns in enumerate(keys)]
    decisions = [tombstone(log_offset, **columns) for log_offset, columns in reversed([*enumerate(keys)])]
    assert checked([*decisions, tombstone()], current(newest)) == [(WRITE, None)] * 4 + [(DONE, None)]


def test_empty_decisions_and_empty_state_are_accepted() -> None:
    assert checked([], current()) == []
    assert checked([], current([committed()])) == []
    assert checked([group()], current()) == [(WRITE, None)]


TWO = [committed(), committed(11, partition=1)]
BOTH = [tombstone(), tombstone(11, partition=1)]


@pytest.mark.parametrize(
    ("decisions", "state", "for_group"),
    [
        pytest.param(BOTH, current(TWO), (WRITE, None), id="all offsets are to be deleted"),
        pytest.param(
            BOTH, current([deleted(), deleted(partition=1)]), (WRITE, None), id="all offsets are deleted already"
        ),
        pytest.param(BOTH, current([deleted(), TWO[1]]), (WRITE, None), id="one deleted, one to be deleted"),
        pytest.param([], current(), (WRITE, None), id="no offsets"),
        pytest.param(BOTH[:1], current(TWO), (REFUSED, GROUP_HAS_OFFSETS), id="one without a decision"),
        pytest.param(
            BOTH,
            current([TWO[0], committed(LATER, partition=1)]),
            (REFUSED, GROUP_HAS_OFFSETS),
            id="one committed again",
        ),
        pytest.param([], current([committed(LATER)]), (REFUSED, GROUP_HAS_OFFSETS), id="a first commit"),
        pytest.param(
            BOTH,
            current(TWO, pending=[key(partition=1) | {"log_offset": 3}]),
            (REFUSED, GROUP_HAS_OFFSETS),
            id="one pending",
        ),
        pytest.param(
            [], current(pending=[key() | {"log_offset": 3}]), (REFUSED, GROUP_PENDING), id="an offset is pending"
        ),
        pytest.param([], current(changed={"g": LATER}), (REFUSED, CHANGED), id="the group changed"),
        pytest.param([tombstone(stale="old"), BOTH[1]], current(TWO), (REFUSED, GROUP_HAS_OFFSETS), id="one stale"),
        pytest.param(
            BOTH, current([deleted(), deleted(partition=1)], groups=()), (DONE, None), id="the group no longer exists"
        ),
        pytest.param([], current(groups=("other",)), (DONE, None), id="only another group exists"),
        pytest.param(
            [],
            current([committed(LATER)], groups=()),
            (REFUSED, GROUP_HAS_OFFSETS),
            id="no longer exists, but has a new commit",
        ),
        pytest.param(
            BOTH, current([*TWO, committed(LATER, group_id="h")]), (WRITE, None), id="only another group has offsets"
        ),
    ],
)
def test_group_is_deleted_only_if_all_of_its_offsets_are_deleted(
    decisions: list[Row], state: CurrentState, for_group: tuple[int, str | None]
) -> None:
    assert checked([*decisions, group()], state)[-1] == for_group
    assert checked([group(), *decisions], state)[0] == for_group, "the order of decisions does not matter"


def test_stale_decision_about_a_group_is_refused_unless_it_is_done() -> None:
    assert checked([group(stale="old")], current()) == [(REFUSED, "old")]
    assert checked([group(stale="old")], current(groups=())) == [(DONE, None)]


def test_tombstone_is_refused_if_a_commit_of_its_key_is_written() -> None:
    checks = checked([tombstone(), commit(), *BOTH[1:], group()], current(TWO))
    assert checks == [(REFUSED, COMMITTED_BY_ANOTHER), (WRITE, None), (WRITE, None), (REFUSED, GROUP_HAS_OFFSETS)]


def test_tombstone_is_written_if_the_commit_of_its_key_is_refused() -> None:
    checks = checked([tombstone(), commit(5), group()], current([committed()]))
    assert [check for check, _ in checks] == [WRITE, REFUSED, REFUSED]


@pytest.mark.parametrize(
    ("newest", "for_commit"),
    [([], WRITE), ([committed(LATER, NEW)], DONE)],
    ids=["to be committed", "committed already"],
)
def test_group_is_refused_if_a_decision_commits_an_offset(newest: list[Row], for_commit: int) -> None:
    checks = checked([commit(None), group()], current(newest))
    assert checks == [(for_commit, None), (REFUSED, GROUP_HAS_OFFSETS)]
