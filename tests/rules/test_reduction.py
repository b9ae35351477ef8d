"""Compares the reduction of history with the algorithm of the group coordinator, record by record, in plain Python."""

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
    """The record at one log offset: a commit, a tombstone, or a transaction marker (COMMIT or ABORT)."""

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
    """Return the log offsets of committed and pending offsets of a coordinator that has loaded the log."""
    committed: dict[Any, int] = {}
    pending: dict[Any, int] = {}
    for log_offset, event in enumerate(events):
        key = (event.log_partition, event.key)
        if event.kind == "tombstone":
            committed.pop(key, None)
            pending = {other: offset for other, offset in pending.items() if other[:2] != key}
        elif event.kind == "commit" and event.producer_id is None:
            committed[key] = log_offset
        elif event.kind == "commit":
            pending[*key, event.producer_id] = log_offset
        else:
            ended = {key for key in pending if (key[0], key[2]) == (event.log_partition, event.producer_id)}
            for ended_key in ended:
                offset = pending.pop(ended_key)
                if event.kind == "COMMIT" and offset > committed.get(ended_key[:2], -1):
                    committed[ended_key[:2]] = offset
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


def _offsets(rows: pa.Table | None, *more: str) -> dict[Any, int]:
    names = ("log_partition", "partition", *more)
    return {tuple(row[name] for name in names): row["log_offset"] for row in (rows.to_pylist() if rows else [])}


@pytest.fixture(autouse=True, scope="module")
def frequent_reductions() -> Any:
    """Reduce after every few rows, so that results depend on many reductions."""
    before, reduction._BUFFERED_ROWS = reduction._BUFFERED_ROWS, 3
    yield
    reduction._BUFFERED_ROWS = before


@given(events=EVENTS, data=st.data())
def test_batches_in_any_order_reduce_to_the_state_of_a_coordinator(events: list[Event], data: st.DataObject) -> None:
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
def test_commit_that_is_open_after_one_run_is_decided_in_a_later_run(events: list[Event], cuts: set[int]) -> None:
    """Pending records of the previous run are added to the new records, as in compaction."""
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
        still_pending = reducing.pending([new.filter(pc.equal(new["kind"], "tombstone"))])
        assert reducing.has_open() or still_pending is None
        pending = RECORDS.empty_table() if still_pending is None else still_pending
    committed, expected = _replayed(events)
    assert _offsets(offsets) == committed
    assert _offsets(pending, "producer_id") == expected


def _between(rows: pa.Table, start: int, end: int) -> pa.Table:
    return rows.filter((pc.field("log_offset") >= start) & (pc.field("log_offset") < end))


PARTS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([1, 1, 1, 2]), st.sampled_from([-7, 8]), st.integers(1, 4)),
    max_size=25,
)  # log partition, distance to the previous part, ID, size


@given(drawn=PARTS, data=st.data())
def test_parts_of_incomplete_commits_are_found_in_any_order(
    drawn: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    by_partition: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}
    for log_partition, distance, commit_id, size in drawn:
        previous = by_partition[log_partition]
        previous.append((previous[-1][0] + distance if previous else 0, commit_id, size))
    expected = {(partition, offset) for partition in (0, 1) for offset in _incomplete(by_partition[partition])}
    parts = [(log_partition, *part) for log_partition, parts in by_partition.items() for part in parts]
    shuffled = data.draw(st.permutations(parts))
    columns = zip(*shuffled, strict=True) if shuffled else [()] * 4
    found = incomplete(
        pa.table({name: pa.array(column, pa.int64()) for name, column in zip(PART, columns, strict=True)})
    )
    assert {divmod(position, 2**44) for position in found.to_pylist()} == expected


def _incomplete(parts: list[tuple[int, int, int]]) -> set[int]:
    """Return the log offsets of incomplete parts: each part continues the commit of the previous part or starts one."""
    offsets: set[int] = set()
    commit: list[tuple[int, int, int]] = []
    for log_offset, commit_id, size in parts:
        commit = commit if commit and commit[-1] == (log_offset - 1, commit_id, size) else []
        commit.append((log_offset, commit_id, size))
        offsets.add(log_offset)
        if len(commit) == size:
            offsets -= {part[0] for part in commit}
            commit = []
    return offsets


@given(events=EVENTS, data=st.data())
def test_newest_record_of_each_group_does_not_depend_on_batches(events: list[Event], data: st.DataObject) -> None:
    records, _ = _tables(events)
    order = data.draw(st.permutations(range(records.num_rows)))
    newest = Latest(("group_id",))
    assert newest.result() is None
    for row_number in order:
        newest.add(records.slice(row_number, 1))
    found = newest.result()
    expected = {row["group_id"]: row["log_offset"] for row in records.to_pylist()}  # later rows replace earlier ones
    assert {row["group_id"]: row["log_offset"] for row in (found.to_pylist() if found else [])} == expected


@given(events=EVENTS)
def test_outcome_is_that_of_the_next_marker_of_the_producer(events: list[Event]) -> None:
    records, markers = _tables(events)
    commits = records.filter(pc.is_valid(records["producer_id"]))
    expected = []
    for row in commits.to_pylist():
        producer = (row["log_partition"], row["producer_id"])
        later = [
            event.kind
            for event in events[row["log_offset"] :]
            if event.kind in {"COMMIT", "ABORT"} and (event.log_partition, event.producer_id) == producer
        ]
        expected.append(later[0] if later else "")
    assert outcomes(commits, markers).tolist() == expected


def test_transaction_ends_with_the_next_marker_of_its_producer_in_its_log_partition() -> None:
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


def test_highest_log_offset_wins_regardless_of_timestamps() -> None:
    rows = [
        {"log_partition": 0, "log_offset": 9, "group_id": "g", "topic": "t", "partition": 0, "log_timestamp": 1},
        {"log_partition": 0, "log_offset": 3, "group_id": "g", "topic": "t", "partition": 0, "log_timestamp": 99},
        {"log_partition": 0, "log_offset": 4, "group_id": "g", "topic": "t", "partition": 1, "log_timestamp": 50},
    ]
    assert latest(pa.Table.from_pylist(rows))["log_offset"].to_pylist() == [9, 4]
