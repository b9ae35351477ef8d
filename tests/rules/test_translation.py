"""Translated offsets against a model of a replicator, which knows where each record is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.translation import NONE, Bounds, PairSearch, by_checkpoints, by_syncs
from support.oracle.replicator import Event, Replica

EVENTS: st.SearchStrategy[list[tuple[Event, bool]]] = st.lists(
    st.tuples(st.sampled_from(["copy", "copy", "copy", "sync", "omit", "crash", "recreate"]), st.booleans()),
    max_size=40,
)


def search(replicas: list[Replica], offsets: list[tuple[int, int]], sizes: list[int]) -> Bounds:
    """Search the syncs of all replicas, alternating between them, in portions of these sizes in turn."""
    partitions = np.array([partition for partition, _ in offsets], np.int64)
    pairs = PairSearch(partitions, np.array([offset for _, offset in offsets], np.int64))
    longest = max(len(replica.syncs) for replica in replicas)
    rows = [(p, *r.syncs[i]) for i in range(longest) for p, r in enumerate(replicas) if i < len(r.syncs)]
    turn = 0
    while rows:
        size = sizes[turn % len(sizes)]
        pairs.add(*np.array(rows[:size], np.int64).reshape(-1, 3).T)
        rows, turn = rows[size:], turn + 1
    return pairs.result(np.array([len(replicas[p].records) for p, _ in offsets]))


def replica_of(events: list[tuple[Event, bool]]) -> Replica:
    replica = Replica()
    for event, stores in events:
        replica.apply(event)
        if stores:
            replica.store()
    return replica


@given(st.lists(EVENTS, min_size=1, max_size=3), st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_no_record_is_skipped_and_no_more_are_read_twice_than_stated(
    histories: list[list[tuple[Event, bool]]], sizes: list[int]
) -> None:
    replicas = [replica_of(events) for events in histories]
    offsets = [(p, offset) for p, replica in enumerate(replicas) for offset in range(replica.position + 1)]
    ends = np.array([len(replicas[p].records) for p, _ in offsets])
    found = by_syncs(
        np.array([offset for _, offset in offsets]), search(replicas, offsets, [*sizes, 1]), np.zeros_like(ends), ends
    )
    for (p, offset), at_target, exact, limit, latest in zip(offsets, *(c.tolist() for c in found), strict=True):
        if at_target == NONE:
            continue
        replica = replicas[p]
        assert not replica.loses(offset, at_target)
        actual = replica.read_twice(offset, at_target)
        assert actual <= limit
        assert replica.read_twice(offset, latest) == 0
        assert latest >= at_target
        if exact:
            assert (actual, limit, latest) == (0, 0, at_target)


@given(EVENTS, st.integers(1, 9))
def test_every_offset_from_the_first_sync_on_is_known_and_those_of_syncs_are_exact(
    events: list[tuple[Event, bool]], size: int
) -> None:
    replica = replica_of([(event, stores) for event, stores in events if event not in ("crash", "recreate")])
    if not replica.syncs:
        return
    offsets = np.arange(replica.syncs[0][0], replica.position + 1)
    ends = np.full(len(offsets), len(replica.records))
    bounds = search([replica], [(0, offset) for offset in offsets.tolist()], [size])
    found = by_syncs(offsets, bounds, np.zeros_like(ends), ends)
    assert (found.offset != NONE).all()
    exact = dict(zip(offsets.tolist(), zip(found.offset.tolist(), found.exact.tolist(), strict=True), strict=True))
    assert all(exact[up] == (down, True) for up, down in replica.syncs)


def test_a_lagging_offset_between_two_syncs_follows_the_earlier_one() -> None:
    replica = Replica(records=[*range(100)], syncs=[(0, 0), (40, 40), (90, 90)])
    found = by_syncs(np.array([60]), search([replica], [(0, 60)], [1]), np.array([0]), np.array([100]))
    assert [column.tolist() for column in found] == [[41], [False], [19], [90]]


def test_an_offset_that_the_target_does_not_have_is_unknown() -> None:
    bounds = search([Replica(records=[*range(20)], syncs=[(0, 0), (500, 500)])], [(0, 510), (0, 3)], [5])
    starts, ends = np.array([0, 5]), np.array([20, 20])
    assert by_syncs(np.array([510, 3]), bounds, starts, ends).offset.tolist() == [NONE, NONE]


def test_a_checkpoint_is_safe_and_never_exact() -> None:
    bounds = search([Replica(records=[*range(30)], syncs=[(10, 8), (20, 18)])], [(0, 25), (0, 9)], [5])
    found = by_checkpoints(bounds, np.array([0, 0]), np.array([30, 30]))
    assert [column.tolist() for column in found] == [[18, NONE], [False, False], [12, NONE], [30, NONE]]
