"""The table of `lifecycle.conditions`, cell by cell, and what turns its "go" into refused."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from offsetlake.rules.conditions import DONE, GO, REFUSED, Current, conditions

T = 1_700_000_000_000
JUDGED, LATER = 10, 20  # log offsets

KEY = {"group_id": pa.string(), "topic": pa.string(), "partition": pa.int32()}
VALUE = {
    "committed_offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "metadata": pa.string(),
    "commit_timestamp": pa.int64(),
}
DECISIONS = pa.schema({**KEY, "kind": pa.string(), "judged_offset": pa.int64(), "stale": pa.string(), **VALUE})
NEWEST = pa.schema({**KEY, "kind": pa.string(), "log_offset": pa.int64(), **VALUE})
HELD = pa.schema({**KEY, "log_offset": pa.int64()})

Row = dict[str, Any]

OLD = {"committed_offset": 5, "leader_epoch": 1, "metadata": "old", "commit_timestamp": T - 1}
NEW = {"committed_offset": 7, "leader_epoch": 2, "metadata": "new", "commit_timestamp": T}


def table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)


def key(group_id: str = "g", topic: str = "t", partition: int = 0) -> Row:
    return {"group_id": group_id, "topic": topic, "partition": partition}


def tombstone(judged: int | None = JUDGED, **of: Any) -> Row:
    return {**key(), "kind": "tombstone", "judged_offset": judged, **of}


def commit(judged: int | None = JUDGED, **of: Any) -> Row:
    return {**key(), "kind": "commit", "judged_offset": judged, **NEW, **of}


def group(group_id: str = "g", **of: Any) -> Row:
    return {"group_id": group_id, "kind": "tombstone", "judged_offset": JUDGED, **of}


def stands(at: int = JUDGED, value: Row | None = None, **of: Any) -> Row:
    return {**key(), "kind": "commit", "log_offset": at, **(value or OLD), **of}


def gone(at: int = LATER, **of: Any) -> Row:
    return {**key(), "kind": "tombstone", "log_offset": at, **of}


def current(
    newest: Sequence[Row] = (),
    held: Sequence[Row] = (),
    groups: Sequence[str] = ("g",),
    changed: dict[str, int] | None = None,
) -> Current:
    return Current(table(newest, NEWEST), table(held, HELD), frozenset(groups), changed or {})


def decided(decisions: Sequence[Row], now: Current) -> list[tuple[int, str | None]]:
    found, reasons = conditions(table(decisions, DECISIONS), now)
    return [(code, reasons.pop(row, None)) for row, code in enumerate(found.tolist())]


HELD_BACK = "a transaction, or a commit in parts, holds an offset of it"
CHANGED = "the group has changed since: its newest record is at log offset 20"
STAYS = "it has offsets that stay"
NO_COMMIT = "it is gone: there is no commit of it any more"
TOMBSTONED = "it is gone: a tombstone stands at log offset 20"
AGAIN_OLD = "it was committed again: 5 at log offset 20"
AGAIN_NEW = "it was committed again: 7 at log offset 20"
BESIDE = "it is to be committed, by another decision"


@pytest.mark.parametrize(
    ("newest", "of_tombstone", "of_commit"),
    [
        pytest.param([stands()], (GO, None), (GO, None), id="the commit judged"),
        pytest.param([stands(value=NEW)], (GO, None), (GO, None), id="the commit judged, which says the same"),
        pytest.param([gone()], (DONE, None), (REFUSED, TOMBSTONED), id="a tombstone"),
        pytest.param([], (DONE, None), (REFUSED, NO_COMMIT), id="nothing"),
        pytest.param([stands(LATER, NEW)], (REFUSED, AGAIN_NEW), (DONE, None), id="the very commit decided"),
        pytest.param([stands(LATER)], (REFUSED, AGAIN_OLD), (REFUSED, AGAIN_OLD), id="the value judged, again"),
        pytest.param([stands(5, NEW)], (REFUSED, AGAIN_NEW[:-2] + "5"), (REFUSED, AGAIN_NEW[:-2] + "5"), id="before"),
    ],
)
def test_where_a_commit_was_judged(
    newest: list[Row], of_tombstone: tuple[int, str | None], of_commit: tuple[int, str | None]
) -> None:
    assert decided([tombstone()], current(newest)) == [of_tombstone]
    assert decided([commit()], current(newest)) == [of_commit]


@pytest.mark.parametrize(
    ("newest", "of_tombstone", "of_commit"),
    [
        pytest.param([], GO, GO, id="none still"),
        pytest.param([gone()], GO, GO, id="a tombstone"),
        pytest.param([stands(0, NEW)], REFUSED, DONE, id="the very commit decided, at the log's first offset"),
        pytest.param([stands(LATER)], REFUSED, REFUSED, id="another commit"),
    ],
)
def test_where_none_was_judged(newest: list[Row], of_tombstone: int, of_commit: int) -> None:
    assert decided([tombstone(None)], current(newest))[0][0] == of_tombstone
    assert decided([commit(None)], current(newest))[0][0] == of_commit


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
def test_what_differs_in_anything_is_another_commit(other: Row) -> None:
    assert decided([commit()], current([stands(LATER, NEW | other)]))[0][0] == REFUSED


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"metadata": None}, {"metadata": ""}),
        ({"leader_epoch": -1}, {"leader_epoch": None}),
        ({}, {"commit_timestamp": T + 1}),
    ],
)
def test_what_is_written_alike_is_the_same_commit(mine: Row, theirs: Row) -> None:
    assert decided([commit(**mine)], current([stands(LATER, NEW | theirs)])) == [(DONE, None)]


@pytest.mark.parametrize(
    ("now", "stale", "reason"),
    [
        pytest.param({"held": [key() | {"log_offset": 3}]}, None, HELD_BACK, id="held"),
        pytest.param({"changed": {"g": LATER}}, None, CHANGED, id="changed"),
        pytest.param({}, "plan it again", "plan it again", id="stale"),
        pytest.param(
            {"held": [key() | {"log_offset": 3}], "changed": {"g": LATER}}, "plan it again", HELD_BACK, id="all"
        ),
    ],
)
def test_go_becomes_refused_and_done_stays_done(now: dict[str, Any], stale: str | None, reason: str) -> None:
    for decision in (tombstone(stale=stale), commit(stale=stale)):
        assert decided([decision], current([stands()], **now)) == [(REFUSED, reason)]
    assert decided([tombstone(stale=stale)], current([gone()], **now)) == [(DONE, None)]
    assert decided([commit(stale=stale)], current([stands(LATER, NEW)], **now)) == [(DONE, None)]


def test_what_holds_one_key_holds_no_other() -> None:
    other = [key(partition=1) | {"log_offset": 3}, key(topic="other") | {"log_offset": 3}]
    now = current([stands()], held=other, changed={"other": LATER})
    assert decided([tombstone()], now) == [(GO, None)]


def test_keys_are_told_apart() -> None:
    keys = [key("g", "t", 1), key("g", "u", 0), key("h", "t", 0), key("", "", 0)]
    newest = [stands(at, **each) for at, each in enumerate(keys)]
    decisions = [tombstone(at, **each) for at, each in reversed([*enumerate(keys)])]
    assert decided([*decisions, tombstone()], current(newest)) == [(GO, None)] * 4 + [(DONE, None)]


def test_nothing_decided_and_nothing_there() -> None:
    assert decided([], current()) == []
    assert decided([], current([stands()])) == []
    assert decided([group()], current()) == [(GO, None)]


TWO = [stands(), stands(11, partition=1)]
BOTH = [tombstone(), tombstone(11, partition=1)]


@pytest.mark.parametrize(
    ("decisions", "now", "of_group"),
    [
        pytest.param(BOTH, current(TWO), (GO, None), id="all of its offsets go"),
        pytest.param(BOTH, current([gone(), gone(partition=1)]), (GO, None), id="all are gone"),
        pytest.param(BOTH, current([gone(), TWO[1]]), (GO, None), id="one is gone, one goes"),
        pytest.param([], current(), (GO, None), id="it has none"),
        pytest.param(BOTH[:1], current(TWO), (REFUSED, STAYS), id="one is not decided on"),
        pytest.param(BOTH, current([TWO[0], stands(LATER, partition=1)]), (REFUSED, STAYS), id="one has moved"),
        pytest.param([], current([stands(LATER)]), (REFUSED, STAYS), id="it has committed for the first time"),
        pytest.param(
            BOTH, current(TWO, held=[key(partition=1) | {"log_offset": 3}]), (REFUSED, STAYS), id="one is held"
        ),
        pytest.param([], current(held=[key() | {"log_offset": 3}]), (REFUSED, HELD_BACK), id="a first one is held"),
        pytest.param([], current(changed={"g": LATER}), (REFUSED, CHANGED), id="it has changed"),
        pytest.param([tombstone(stale="old"), BOTH[1]], current(TWO), (REFUSED, STAYS), id="one is stale"),
        pytest.param(BOTH, current([gone(), gone(partition=1)], groups=()), (DONE, None), id="it is gone"),
        pytest.param([], current(groups=("other",)), (DONE, None), id="it is gone, another is not"),
        pytest.param(
            [], current([stands(LATER)], groups=()), (REFUSED, STAYS), id="it is gone and has committed again"
        ),
        pytest.param(BOTH, current([*TWO, stands(LATER, group_id="h")]), (GO, None), id="offsets of another stay"),
    ],
)
def test_a_group_goes_when_all_of_its_offsets_do(
    decisions: list[Row], now: Current, of_group: tuple[int, str | None]
) -> None:
    assert decided([*decisions, group()], now)[-1] == of_group
    assert decided([group(), *decisions], now)[0] == of_group, "wherever the row of the group stands"


def test_a_stale_decision_about_a_group() -> None:
    assert decided([group(stale="old")], current()) == [(REFUSED, "old")]
    assert decided([group(stale="old")], current(groups=())) == [(DONE, None)]


def test_a_tombstone_does_not_go_beside_a_commit_of_its_key() -> None:
    found = decided([tombstone(), commit(), *BOTH[1:], group()], current(TWO))
    assert found == [(REFUSED, BESIDE), (GO, None), (GO, None), (REFUSED, STAYS)]


def test_a_tombstone_goes_beside_a_commit_of_its_key_that_is_refused() -> None:
    found = decided([tombstone(), commit(5), group()], current([stands()]))
    assert [code for code, _ in found] == [GO, REFUSED, REFUSED]


@pytest.mark.parametrize(
    ("newest", "of_commit"), [([], GO), ([stands(LATER, NEW)], DONE)], ids=["to be committed", "committed"]
)
def test_a_group_stays_that_is_given_an_offset(newest: list[Row], of_commit: int) -> None:
    found = decided([commit(None), group()], current(newest))
    assert found == [(of_commit, None), (REFUSED, STAYS)]
