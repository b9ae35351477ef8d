"""Replays share-partition state: beside Kafka's own class, and beside a model that knows single records only.

The states in the fixture were recorded from the ShareCoordinatorShard of Kafka 4.2.0 by
`tests/support/coordinator/java/KafkaShareState.java`.
"""

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.share_state import (
    UNKNOWN,
    SharePartitionState,
    ShareSnapshot,
    ShareUpdate,
    StateBatch,
    combine,
    replay,
)

FIXTURE = Path(__file__).parents[1] / "fixtures" / "share-state-4.2.0.jsonl.gz"
FREE, DONE, ARCHIVED = 0, 2, 4
SNAPSHOT = ShareSnapshot(1, 2, 3, 100, (StateBatch(100, 109, 1, DONE),), 10, 5_000, 6_000)
STATE = replay(None, SNAPSHOT)

BATCHES = st.lists(
    st.builds(
        lambda first, size, count, state: StateBatch(first, first + size, count, state),
        st.integers(0, 30), st.integers(0, 12), st.integers(1, 3), st.sampled_from([FREE, DONE, ARCHIVED]),
    ),
    max_size=8,
)  # fmt: skip


def _record(recorded: dict[str, Any]) -> ShareSnapshot | ShareUpdate | None:
    fields = dict(recorded)
    kind = fields.pop("kind")
    if kind == "tombstone":
        return None
    batches = tuple(StateBatch(*batch) for batch in fields.pop("batches"))
    return (ShareSnapshot if kind == "snapshot" else ShareUpdate)(**fields, batches=batches)


def _as_recorded(state: SharePartitionState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    fields = {name: getattr(state.snapshot, name) for name in ShareSnapshot._fields}
    return fields | {
        "batches": [[*batch] for batch in state.snapshot.batches],
        "highest_state_epoch": state.highest_state_epoch,
        "highest_leader_epoch": state.highest_leader_epoch,
    }


def test_states_are_those_of_kafka() -> None:
    walks = [json.loads(line) for line in gzip.decompress(FIXTURE.read_bytes()).splitlines()]
    for walk in walks:
        state = None
        for step in walk:
            state, expected = replay(state, _record(step["record"])), step["state"]
            if expected and expected["highest_state_epoch"] is None:  # only updates so far, which have no state epoch
                expected["highest_state_epoch"] = 0
            assert _as_recorded(state) == expected
    assert sum(len(walk) for walk in walks) > 3_000


@given(BATCHES, st.integers(UNKNOWN, 40))
def test_the_highest_count_and_then_the_highest_state_of_each_record_apply(
    batches: list[StateBatch], start: int
) -> None:
    of_records: dict[int, tuple[int, int]] = {}
    for first, last, count, state in batches:
        for offset in range(max(first, start), last + 1):
            of_records[offset] = max(of_records.get(offset, (0, 0)), (count, state))
    combined = combine(batches, start)
    found = [(offset, each[2:]) for each in combined for offset in range(each.first_offset, each.last_offset + 1)]
    assert found == sorted(of_records.items())


@pytest.mark.parametrize(
    ("batches", "start", "combined"),
    [
        ([(0, 9, 1, FREE), (10, 19, 1, FREE)], UNKNOWN, [(0, 19, 1, FREE)]),
        ([(0, 19, 1, FREE), (5, 9, 1, DONE)], UNKNOWN, [(0, 4, 1, FREE), (5, 9, 1, DONE), (10, 19, 1, FREE)]),
        ([(0, 19, 1, FREE), (5, 9, 2, DONE)], 7, [(7, 9, 2, DONE), (10, 19, 1, FREE)]),
        ([(0, 9, 1, DONE), (5, 14, 2, FREE)], UNKNOWN, [(0, 4, 1, DONE), (5, 14, 2, FREE)]),
        ([(0, 9, 3, ARCHIVED), (0, 9, 2, FREE)], UNKNOWN, [(0, 9, 3, ARCHIVED)]),
        ([(0, 9, 1, DONE), (20, 29, 1, FREE)], 25, [(25, 29, 1, FREE)]),
        ([(0, 9, 1, DONE)], 10, []),
        # The first two batches are known not to be mergeable when the third one replaces the second.
        (
            [(0, 9, 2, FREE), (10, 12, 1, DONE), (10, 19, 2, FREE)],
            UNKNOWN,
            [(0, 9, 2, FREE), (10, 19, 2, FREE)],
        ),
    ],
)
def test_batches_are_divided_as_in_kafka(
    batches: list[tuple[int, ...]], start: int, combined: list[tuple[int, ...]]
) -> None:
    assert [*combine([StateBatch(*batch) for batch in batches], start)] == combined


@pytest.mark.parametrize(
    ("update", "changes"),
    [
        (ShareUpdate(9, UNKNOWN, UNKNOWN), {"delivery_complete_count": UNKNOWN}),
        (ShareUpdate(1, 7, 105, (), 5), {
            "leader_epoch": 7, "start_offset": 105, "batches": (StateBatch(105, 109, 1, DONE),),
            "delivery_complete_count": 5,
        }),
        (ShareUpdate(1, 0, UNKNOWN, (), 10), {"leader_epoch": 0}),
    ],
    ids=["nothing but the count", "everything", "a lower leader epoch"],
)  # fmt: skip
def test_update_changes_only_what_it_contains(update: ShareUpdate, changes: dict[str, Any]) -> None:
    state = replay(STATE, update)
    assert state is not None
    before = {name: getattr(SNAPSHOT, name) for name in ShareSnapshot._fields}
    assert {name: getattr(state.snapshot, name) for name in ShareSnapshot._fields} == before | changes
    assert state.highest_leader_epoch == max(3, update.leader_epoch)


def test_update_without_a_state_has_no_state_epoch_and_no_timestamps() -> None:
    state = replay(None, ShareUpdate(4, 6, 20, (StateBatch(20, 24, 1, FREE),), 0))
    assert state == SharePartitionState(ShareSnapshot(4, 0, 6, 20, (StateBatch(20, 24, 1, FREE),), 0, 0, 0), 0, 6)


def test_a_tombstone_removes_the_state_with_its_highest_epochs() -> None:
    assert replay(STATE, None) is None
    assert replay(None, None) is None


@given(BATCHES, st.lists(st.integers(0, 20), max_size=3))
def test_batches_without_records_are_ignored(batches: list[StateBatch], firsts: list[int]) -> None:
    empty = [StateBatch(first, first - 1 - first % 3, 1, FREE) for first in firsts]
    update = ShareUpdate(1, 3, UNKNOWN, tuple(batches))
    assert replay(STATE, ShareUpdate(1, 3, UNKNOWN, (*empty, *batches))) == replay(STATE, update)


@given(BATCHES)
def test_end_offset_follows_all_batches_and_is_the_start_offset_without(batches: list[StateBatch]) -> None:
    state = replay(STATE, ShareUpdate(1, 3, 0, tuple(batches)))
    assert state is not None
    assert state.end_offset == max(batch.last_offset for batch in (*batches, *SNAPSHOT.batches)) + 1
    empty = replay(state, ShareSnapshot(2, 2, 3, 700))
    assert empty is not None
    assert empty.end_offset == 700
    assert all(one.last_offset < next_one.first_offset for one, next_one in pairwise(state.snapshot.batches))
