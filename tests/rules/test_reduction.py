"""The reduction of history against the coordinator's own algorithm, record by record, in plain Python."""

from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules import reduction
from offsetlake.rules.reduction import PART, Latest, Reduction, incomplete, latest, outcomes

RECORDS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("log_offset", pa.int64()),
        ("kind", pa.string()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("producer_id", pa.int64()),
    ]
)
MARKERS = pa.schema(
    [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("producer_id", pa.int64()), ("marker", pa.string())]
)
NO_PARTS = pa.table({name: pa.array([], pa.int64()) for name in PART})


class Event(NamedTuple):
    """What one log offset holds: a commit, a tombstone, COMMIT or ABORT."""

    kind: str
    log_partition: int
    key: int
    producer_id: int | None


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["commit", "commit", "commit", "tombstone", "COMMIT", "ABORT"]),
        st.integers(0, 1),
        st.integers(0, 2),
        st.sampled_from([None, 7, 8]),
    ),
    max_size=25,
)


def _replayed(events: list[Event]) -> tuple[dict[Any, int], dict[Any, int]]:
    """Committed and pending log offsets, as a coordinator holds them after it has read the log."""
    committed: dict[Any, int] = {}
    pending: dict[Any, int] = {}
    for at, event in enumerate(events):
        key = (event.log_partition, event.key)
        if event.kind == "tombstone":
            committed.pop(key, None)
            pending = {of: offset for of, offset in pending.items() if of[:2] != key}
        elif event.kind == "commit" and event.producer_id is None:
            committed[key] = at
        elif event.kind == "commit":
            pending[*key, event.producer_id] = at
        else:
            ended = {of for of in pending if (of[0], of[2]) == (event.log_partition, event.producer_id)}
            for of in ended:
                offset = pending.pop(of)
                if event.kind == "COMMIT" and offset > committed.get(of[:2], -1):
                    committed[of[:2]] = offset
    return committed, pending


def _tables(events: list[Event]) -> tuple[pa.Table, pa.Table]:
    records = [
        {"log_partition": e.log_partition, "log_offset": at, "kind": e.kind, "group_id": f"g{e.log_partition}",
         "topic": "t", "partition": e.key, "producer_id": e.producer_id}
        for at, e in enumerate(events) if e.kind in {"commit", "tombstone"}
    ]  # fmt: skip
    markers = [
        {"log_partition": e.log_partition, "log_offset": at, "producer_id": e.producer_id, "marker": e.kind}
        for at, e in enumerate(events)
        if e.kind in {"COMMIT", "ABORT"} and e.producer_id is not None
    ]
    return pa.Table.from_pylist(records, schema=RECORDS), pa.Table.from_pylist(markers, schema=MARKERS)


def _offsets(rows: pa.Table | None, *also: str) -> dict[Any, int]:
    found = [] if rows is None else rows.to_pylist()
    return {(row["log_partition"], row["partition"], *(row[n] for n in also)): row["log_offset"] for row in found}


@pytest.fixture(autouse=True, scope="module")
def often() -> Any:
    """Reduce every few rows, so that results come out of many reductions."""
    before, reduction._ROWS_WAITING = reduction._ROWS_WAITING, 3
    yield
    reduction._ROWS_WAITING = before


@given(events=EVENTS, data=st.data())
def test_batches_in_any_order_give_what_a_coordinator_holds(events: list[Event], data: st.DataObject) -> None:
    records, markers = _tables(events)
    order = data.draw(st.permutations(range(records.num_rows)))
    reducing = Reduction(markers, NO_PARTS)
    for at in range(0, len(order), 2):
        reducing.add(records.take(order[at : at + 2]))
    committed, pending = _replayed(events)
    decided = reducing.decided()
    if decided is not None:
        decided = decided.filter(pc.equal(decided["kind"], "commit"))
    assert _offsets(decided) == committed
    tombstones = records.filter(pc.equal(records["kind"], "tombstone"))
    assert _offsets(reducing.pending([tombstones]), "producer_id") == pending


@given(events=EVENTS, cuts=st.sets(st.integers(0, 25), max_size=4))
def test_what_is_open_after_one_run_is_decided_in_a_later_one(events: list[Event], cuts: set[int]) -> None:
    """As compaction does it: pending records of the run before come in beside the new ones."""
    offsets, pending = RECORDS.empty_table(), RECORDS.empty_table()
    records, markers = _tables(events)
    bounds = [0, *sorted(cuts), len(events)]
    for start, end in pairwise(bounds):
        new, ends = (_between(table, start, end) for table in (records, markers))
        reducing = Reduction(ends, NO_PARTS)
        reducing.add(new)
        reducing.add(pending)
        decided = reducing.decided()
        if decided is not None:
            newest = latest(pa.concat_tables([offsets, decided]))
            offsets = newest.filter(pc.equal(newest["kind"], "commit"))
        left = reducing.pending([new.filter(pc.equal(new["kind"], "tombstone"))])
        assert reducing.has_open() or left is None
        pending = RECORDS.empty_table() if left is None else left
    committed, waiting = _replayed(events)
    assert _offsets(offsets) == committed
    assert _offsets(pending, "producer_id") == waiting


def _between(rows: pa.Table, start: int, end: int) -> pa.Table:
    return rows.filter((pc.field("log_offset") >= start) & (pc.field("log_offset") < end))


PLACES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([1, 1, 1, 2]), st.sampled_from([-7, 8]), st.integers(1, 4)),
    max_size=25,
)  # log partition, distance to the part before, id, size


@given(places=PLACES, data=st.data())
def test_parts_of_commits_not_complete_whatever_their_order(
    places: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    of_partition: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}
    for log_partition, distance, commit_id, size in places:
        before = of_partition[log_partition]
        before.append((before[-1][0] + distance if before else 0, commit_id, size))
    expected = {(log_partition, at) for log_partition in (0, 1) for at in _incomplete(of_partition[log_partition])}
    parts = [(log_partition, *place) for log_partition, of in of_partition.items() for place in of]
    shuffled = data.draw(st.permutations(parts))
    columns = zip(*shuffled, strict=True) if shuffled else [()] * 4
    found = incomplete(pa.table({name: pa.array(of, pa.int64()) for name, of in zip(PART, columns, strict=True)}))
    assert {divmod(at, 2**44) for at in found.to_pylist()} == expected


def _incomplete(places: list[tuple[int, int, int]]) -> set[int]:
    """One by one: a part goes on with the commit of the part before, or begins one."""
    left: set[int] = set()
    commit: list[tuple[int, int, int]] = []
    for at, commit_id, size in places:
        commit = commit if commit and commit[-1] == (at - 1, commit_id, size) else []
        commit.append((at, commit_id, size))
        left.add(at)
        if len(commit) == size:
            left -= {each for each, _, _ in commit}
            commit = []
    return left


@given(events=EVENTS, data=st.data())
def test_the_newest_of_each_group_whatever_the_batches(events: list[Event], data: st.DataObject) -> None:
    records, _ = _tables(events)
    order = data.draw(st.permutations(range(records.num_rows)))
    newest = Latest(("group_id",))
    assert newest.result() is None
    for at in order:
        newest.add(records.slice(at, 1))
    found = newest.result()
    held = {row["group_id"]: row["log_offset"] for row in records.to_pylist()}  # later rows replace earlier ones
    assert {row["group_id"]: row["log_offset"] for row in (found.to_pylist() if found else [])} == held


@given(events=EVENTS)
def test_outcomes_are_those_of_the_next_marker(events: list[Event]) -> None:
    records, markers = _tables(events)
    commits = records.filter(pc.is_valid(records["producer_id"]))
    expected = []
    for row in commits.to_pylist():
        mine = (row["log_partition"], row["producer_id"])
        behind = [
            event.kind
            for event in events[row["log_offset"] :]
            if event.kind in {"COMMIT", "ABORT"} and (event.log_partition, event.producer_id) == mine
        ]
        expected.append(behind[0] if behind else "")
    assert outcomes(commits, markers).tolist() == expected


def test_a_transaction_ends_with_the_next_marker_of_its_producer_in_its_log_partition() -> None:
    commits = pa.Table.from_pylist(
        [
            {"log_partition": 0, "log_offset": 1, "producer_id": 7},
            {"log_partition": 0, "log_offset": 4, "producer_id": 7},
            {"log_partition": 0, "log_offset": 6, "producer_id": 7},
            {"log_partition": 1, "log_offset": 1, "producer_id": 7},
            {"log_partition": 0, "log_offset": 2, "producer_id": 8},
        ]
    )
    markers = pa.Table.from_pylist(
        [
            {"log_partition": 0, "log_offset": 5, "producer_id": 7, "marker": "COMMIT"},
            {"log_partition": 0, "log_offset": 3, "producer_id": 7, "marker": "ABORT"},
            {"log_partition": 1, "log_offset": 0, "producer_id": 7, "marker": "COMMIT"},
        ]
    )
    assert outcomes(commits, markers).tolist() == ["ABORT", "COMMIT", "", "", ""]


def test_the_highest_log_offset_wins_whatever_the_timestamps() -> None:
    rows = [
        {"log_partition": 0, "log_offset": 9, "group_id": "g", "topic": "t", "partition": 0, "log_timestamp": 1},
        {"log_partition": 0, "log_offset": 3, "group_id": "g", "topic": "t", "partition": 0, "log_timestamp": 99},
        {"log_partition": 0, "log_offset": 4, "group_id": "g", "topic": "t", "partition": 1, "log_timestamp": 50},
    ]
    assert latest(pa.Table.from_pylist(rows))["log_offset"].to_pylist() == [9, 4]
