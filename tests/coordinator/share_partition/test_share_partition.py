"""Cases of acquiring and acknowledging, with the results that `SharePartition` of Kafka 4.2 has."""

import gc
import tracemalloc
from collections.abc import Sequence

import pytest

from offsetlake.coordinator.share_partition.batch import RecordState
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquireMode,
    AcquireRequest,
    FetchedBatch,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.coordinator.share_partition.window import InvalidShareState
from offsetlake.kafka.error_codes import INVALID_RECORD_STATE, INVALID_REQUEST, NONE
from offsetlake.rules.share_state import ShareSnapshot, StateBatch
from offsetlake.serve.steps import complete

ACCEPT, RELEASE = 1, 2
MAX_RANGES_PER_STEP, MAX_TYPES_PER_STEP = 600, 40_000
EXACT = AcquireMode.RECORD_LIMIT


def _partition(settings: ShareSettings | None = None, batches: tuple[StateBatch, ...] = ()) -> SharePartition:
    return SharePartition(settings or ShareSettings(), ShareSnapshot(0, 0, 0, 0, batches))


def _acquire(
    partition: SharePartition, batches: Sequence[tuple[int, int]], most: int = 500, size: int = 500,
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED, member: str = "m",
) -> list[tuple[int, int, int]]:  # fmt: skip
    fetched = [FetchedBatch(*batch) for batch in batches]
    request = AcquireRequest(member, most, size, partition.next_fetch_offset(), fetched, mode=mode)
    return [tuple(records) for records in partition.acquire(0, request)]


def _acknowledge(partition: SharePartition, first: int, last: int, kind: int, member: str = "m") -> None:
    write = complete(partition.acknowledge(1, member, [AcknowledgementBatch(first, last, [kind])])).write
    assert write
    partition.persisted(1, write)


@pytest.mark.parametrize(
    ("batches", "error_code"),
    [
        ([(3, 2, [1])], INVALID_REQUEST),
        ([(0, 9, [])], INVALID_REQUEST),
        ([(0, 9, [1, 1])], INVALID_REQUEST),
        ([(0, 9, [5])], INVALID_REQUEST),
        ([(0, 9, [-1])], INVALID_REQUEST),
        ([(5, 9, [1]), (0, 4, [1])], INVALID_REQUEST),
        ([(0, 20, [1])], INVALID_REQUEST),
        ([(20, 20, [1])], INVALID_REQUEST),
        ([(0, 9, [1]), (25, 29, [1])], INVALID_REQUEST),
        ([(0, 19, [1])], INVALID_RECORD_STATE),
        ([(10, 10, [1])], INVALID_RECORD_STATE),
        ([(2, 2, [1]), (2, 2, [1])], INVALID_RECORD_STATE),
        ([(0, 4, [1]), (5, 5, [2]), (10, 19, [3])], INVALID_RECORD_STATE),
        ([], NONE),
        ([(0, 9, [4])], NONE),
    ],
)
def test_refused_acknowledgements_change_nothing(batches: list[tuple[int, int, list[int]]], error_code: int) -> None:
    partition = _partition()
    _acquire(partition, [(0, 9)])
    _acquire(partition, [(10, 19)], member="other")
    before = [(status.state, status.member_id) for *_, status in partition.spans()]
    result = complete(partition.acknowledge(0, "m", [AcknowledgementBatch(*batch) for batch in batches]))
    assert (result.error_code, result.write) == (error_code, None)
    after = dict.fromkeys((status.state, status.member_id) for *_, status in partition.spans())
    assert [*after] == before
    assert partition.delivery_complete_count == 0


def test_renewing_needs_a_request_that_allows_it() -> None:
    partition = _partition()
    _acquire(partition, [(0, 9)])
    batches = [AcknowledgementBatch(0, 9, [4])]
    assert complete(partition.acknowledge(0, "m", batches, allows_renew=False)).error_code == INVALID_REQUEST


def test_acquire_modes() -> None:
    whole = _partition()
    assert _acquire(whole, [(0, 9), (10, 19)], 5) == [(0, 9, 1)]
    assert whole.next_fetch_offset() == 10
    exact = _partition()
    assert _acquire(exact, [(0, 9), (10, 19)], 5, mode=EXACT) == [(0, 4, 1)]
    assert exact.next_fetch_offset() == 5
    assert _acquire(exact, [(0, 9), (10, 19)], 7, mode=EXACT) == [(5, 9, 1), (10, 11, 1)]


def test_records_are_divided_at_record_batches() -> None:
    batches = [(0, 3), (4, 7), (8, 11), (12, 30)]
    assert _acquire(_partition(), batches, size=6) == [(0, 7, 1), (8, 30, 1)]
    assert _acquire(_partition(), batches, size=6, mode=EXACT) == [(0, 30, 1)]


def test_records_that_were_delivered_often_are_delivered_in_fewer_at_a_time() -> None:
    partition = _partition()
    deliveries: list[list[tuple[int, int, int]]] = []
    for _ in range(10):
        deliveries.append(_acquire(partition, [(0, 15)]))
        for first, last, _ in deliveries[-1]:
            _acknowledge(partition, first, last, RELEASE)
    assert deliveries[:7] == [
        [(0, 15, 1)],
        [(0, 15, 2)],
        [(0, 15, 3)],
        [(0, 7, 4)],
        [(0, 0, 5)],
        [(1, 1, 5)],
        [(2, 2, 5)],
    ]
    assert partition.start_offset == 6


def test_a_record_is_archived_after_the_last_delivery() -> None:
    partition = _partition(ShareSettings(max_delivery_count=2))
    for count in (1, 2):
        assert _acquire(partition, [(0, 0)]) == [(0, 0, count)]
        write = partition.time_out(30_000)
        assert write
        state = RecordState.AVAILABLE if count == 1 else RecordState.ARCHIVED
        assert write.batches == (StateBatch(0, 0, count, state),)
        partition.persisted(30_000, write)
    assert (partition.start_offset, partition.records_in_flight) == (1, 0)


def test_no_more_than_the_limit_is_in_flight() -> None:
    partition = _partition(ShareSettings(max_in_flight_records=10))
    assert _acquire(partition, [(0, 4), (5, 14), (15, 19)]) == [(0, 14, 1)]
    assert not partition.can_acquire()
    _acknowledge(partition, 3, 3, RELEASE)
    assert partition.can_acquire()
    assert _acquire(partition, [(0, 4), (5, 14), (15, 19)]) == [(3, 3, 2)]


@pytest.mark.parametrize("settings", [ShareSettings(0), ShareSettings(max_delivery_count=0), ShareSettings(1, 1, 0)])
def test_limits_of_zero_still_deliver_each_record(settings: ShareSettings) -> None:
    partition = _partition(settings)
    for offset in range(3):
        assert _acquire(partition, [(offset, offset)]) == [(offset, offset, 1)]
        _acknowledge(partition, offset, offset, ACCEPT)
    assert partition.start_offset == 3
    assert _acquire(partition, [(3, 3)], most=0) == []


@pytest.mark.parametrize(
    "batches",
    [(StateBatch(5, 4, 1, 0),), (StateBatch(0, 4, 1, 0), StateBatch(4, 5, 1, 0)), (StateBatch(0, 4, 1, 1),)],
)
def test_an_invalid_persisted_state_is_refused(batches: tuple[StateBatch, ...]) -> None:
    with pytest.raises(InvalidShareState):
        _partition(batches=batches)


def test_memory_of_records_in_flight() -> None:
    count = 3_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    partition = _partition(ShareSettings(max_in_flight_records=count))
    for first in range(0, count, 500):
        _acquire(partition, [(first, first + 499)])
    acquired = tracemalloc.get_traced_memory()[0] - before
    for first in range(1, count - 500, 500):
        write = complete(
            partition.acknowledge(1, "m", [AcknowledgementBatch(first, first + 498, [1, 4] * 249 + [1])])
        ).write
        assert write
        partition.persisted(1, write)
    del write
    gc.collect()  # which also frees the tuples that Python keeps for reuse
    divided = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert acquired / count < 2
    assert divided / count < 24


@pytest.mark.parametrize("one_batch", [True, False])
def test_many_acknowledgements_have_short_steps_and_are_refused_if_the_member_leaves_between(one_batch: bool) -> None:
    count = 6000
    partition = _partition(ShareSettings(max_in_flight_records=count))
    _acquire(partition, [(0, count - 1)], most=count, size=count)
    types = [ACCEPT, RELEASE] * (count // 2)
    batches = [AcknowledgementBatch(offset, offset, [types[offset]]) for offset in range(count)]
    if one_batch:
        batches = [AcknowledgementBatch(0, count - 1, types)]
    steps, runs = partition.acknowledge(0, "m", batches), 1
    while runs < count // 2:
        next(steps)
        changed = len([*partition.spans()])
        assert changed - runs <= MAX_RANGES_PER_STEP
        runs = changed
    left = partition.release("m")
    assert left is not None
    assert complete(steps).error_code == INVALID_RECORD_STATE
    partition.persisted(0, left)
    again = partition.release("m")
    assert again is not None
    partition.persisted(0, again)
    assert _acquire(partition, [(0, count - 1)], most=count, size=count, member="other") == [(0, count - 1, 2)]


def test_a_lock_that_expires_between_the_steps_of_refused_acknowledgements_is_released_soon() -> None:
    count = 2000
    partition = _partition()
    _acquire(partition, [(0, count - 1)], most=count, size=count)
    expires_ms = partition.next_timeout_ms
    assert expires_ms is not None
    batches = [AcknowledgementBatch(offset, offset, [ACCEPT]) for offset in range(count)]
    steps = partition.acknowledge(expires_ms - 1, "m", batches)
    while len([*partition.spans()]) == 1:
        next(steps)
    assert partition.time_out(expires_ms)
    assert complete(steps).error_code == INVALID_RECORD_STATE
    assert partition.next_timeout_ms is not None
    assert partition.next_timeout_ms <= expires_ms
    assert partition.time_out(expires_ms)
    assert _acquire(partition, [(0, count - 1)], most=count, size=count, member="other") == [(0, count - 1, 2)]


def test_many_types_of_one_acknowledgement_are_checked_in_steps() -> None:
    count = 1_000_000
    steps = _partition().acknowledge(0, "m", [AcknowledgementBatch(0, count - 1, (ACCEPT,) * (count - 1) + (9,))])
    assert sum(1 for _ in steps) >= count // MAX_TYPES_PER_STEP


def test_acknowledgements_of_too_many_ranges_are_refused() -> None:
    count = 30_000
    partition = _partition(ShareSettings(max_in_flight_records=count))
    _acquire(partition, [(0, count - 1)], most=count, size=count)
    acknowledgement = AcknowledgementBatch(0, count - 1, [ACCEPT, RELEASE] * (count // 2))
    assert complete(partition.acknowledge(0, "m", [acknowledgement])).error_code == INVALID_REQUEST
    _acknowledge(partition, 0, count - 1, ACCEPT)
    assert partition.start_offset == count
