"""The replay case by case, as worked out by hand, and against a second way to the same answer."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.oracle import encoders, random_logs, recipes, replay
from support.oracle.log_reader import ABORT, COMMIT, LogRecord

TIME = 1_700_000_000_000
UUID_1 = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
KEY = ("g", "t", 0)


def offset(at: int, value: int | None, producer_id: int = -1, epoch: int = 0, *, legacy: bool = False) -> LogRecord:
    key = encoders.offset_key(*KEY, legacy=legacy)
    content = None if value is None else encoders.offset_value(0, value, commit_timestamp=TIME)
    return LogRecord("t", 0, at, TIME + at, producer_id, epoch, False, None, key, content)


def marker(at: int, kind: int, producer_id: int, epoch: int = 0) -> LogRecord:
    return LogRecord("t", 0, at, TIME + at, producer_id, epoch, True, kind, bytes(3) + bytes([kind]), bytes(6))


def part(at: int, value: int | None, size: int, commit_id: int = 1, *, producer_id: int = -1) -> LogRecord:
    headers = ((b"commit.id", commit_id.to_bytes(8)), (b"other", None), (b"commit.size", size.to_bytes(4)))
    return offset(at, value, producer_id)._replace(headers=headers)


@pytest.mark.parametrize(
    ("records", "committed", "partial"),
    [
        pytest.param([offset(1, 5), part(2, 6, 2), part(3, 7, 2)], 7, [], id="all there"),
        pytest.param([offset(1, 5), part(2, 6, 3), part(3, 7, 3)], 5, [2, 3], id="one missing"),
        pytest.param([offset(1, 5), part(2, 6, 2), part(4, 7, 2)], 5, [2, 4], id="a log offset between"),
        pytest.param([offset(1, 5), part(2, 6, 2), part(3, 7, 2, 9)], 5, [2, 3], id="another id"),
        pytest.param([offset(1, 5), part(2, 6, 2), part(3, 7, 3)], 5, [2, 3], id="another size"),
        pytest.param([part(1, 6, 2), marker(2, COMMIT, 9), part(3, 7, 2)], None, [1, 3], id="a marker between"),
        pytest.param([part(1, 6, 2), offset(2, 8), part(3, 7, 2)], 8, [3], id="decided behind a part"),
        pytest.param([offset(1, 5), part(2, None, 2)], 5, [2], id="a tombstone alone"),
        pytest.param([offset(1, 5), part(2, 6, 2), part(3, None, 2)], None, [], id="a tombstone at last"),
        pytest.param([part(1, 6, 2), part(2, 7, 2), part(3, 8, 2)], 7, [3], id="the next one has begun"),
        pytest.param([part(1, 6, 1)], 6, [], id="of one part"),
        pytest.param([part(1, 6, 2, producer_id=9), marker(2, COMMIT, 9)], 6, [], id="in a transaction"),
        pytest.param([part(1, 6, 2), offset(2, 5, 9), marker(3, COMMIT, 9)], 5, [], id="a transaction behind a part"),
    ],
)
def test_commits_in_parts_take_effect_when_complete(
    records: list[LogRecord], committed: int | None, partial: list[int]
) -> None:
    state = replay.replay(records)
    assert {key: commit.committed_offset for key, commit in state.committed.items()} == (
        {} if committed is None else {KEY: committed}
    )
    assert [entry.record.log_offset for entry in state.partial] == partial


@pytest.mark.parametrize(
    "headers",
    [
        ((b"commit.id", bytes(8)),),
        ((b"commit.size", bytes(3) + b"\1"),),
        ((b"commit.id", bytes(8)), (b"commit.size", bytes(4))),
        ((b"commit.id", bytes(7)), (b"commit.size", bytes(3) + b"\1")),
        ((b"commit.id", bytes(8)), (b"commit.size", None)),
        ((b"commit.id", bytes(8)), (b"commit.id", bytes(8)), (b"commit.size", bytes(3) + b"\1")),
    ],
)
def test_part_with_malformed_headers_is_undecodable(headers: tuple[tuple[bytes, bytes | None], ...]) -> None:
    broken = offset(2, 6)._replace(headers=headers)
    state = replay.replay([offset(1, 5), broken])
    assert (state.undecodable, state.partial) == ([broken], [])
    assert state.committed[KEY].committed_offset == 5


@pytest.mark.parametrize(
    ("records", "committed", "pending"),
    [
        pytest.param([offset(1, 5), offset(2, 4)], 4, {}, id="later wins, though smaller"),
        pytest.param([offset(1, 5), offset(2, None)], None, {}, id="tombstone"),
        pytest.param([offset(1, 5), offset(2, None, legacy=True)], None, {}, id="legacy tombstone of the same key"),
        pytest.param([offset(1, 5, legacy=True), offset(2, None)], None, {}, id="tombstone of a legacy commit"),
        pytest.param([offset(1, 5), offset(2, 6, 9)], 5, {9: 6}, id="open transaction"),
        pytest.param([offset(1, 5), offset(2, 6, 9), marker(3, ABORT, 9)], 5, {}, id="aborted"),
        pytest.param([offset(1, 6, 9, epoch=0), marker(2, COMMIT, 9, epoch=1)], 6, {}, id="marker of a later epoch"),
        pytest.param([offset(10, 6, 9), offset(12, 5), marker(14, COMMIT, 9)], 5, {}, id="plain commit in between"),
        pytest.param([offset(1, 6, 9), marker(2, COMMIT, 8)], None, {9: 6}, id="another producer's marker"),
        pytest.param([marker(1, COMMIT, 9), offset(2, 6, 9)], None, {9: 6}, id="marker without pending"),
        pytest.param([offset(1, 6, 9), offset(2, 7, 9), marker(3, COMMIT, 9)], 7, {}, id="twice in a transaction"),
        pytest.param(
            [offset(1, 6, 9), offset(2, 7, 8), marker(3, COMMIT, 8), marker(4, COMMIT, 9)], 7, {}, id="crossed"
        ),
        pytest.param([offset(1, 6, 9), offset(2, 7, 8), offset(3, None, 9)], None, {}, id="tombstone clears all"),
        pytest.param([offset(1, 5), offset(2, None, 9), marker(3, ABORT, 9)], None, {}, id="aborted tombstone counts"),
        pytest.param(
            [offset(1, 6, 9), offset(2, None), offset(3, 7, 9), marker(4, COMMIT, 9)],
            7,
            {},
            id="commit after tombstone",
        ),
        pytest.param([offset(1, 6, 9), marker(2, 2, 9)], None, {9: 6}, id="another control type"),
    ],
)
def test_replay_returns_committed_and_pending_offsets(
    records: list[LogRecord], committed: int | None, pending: dict[int, int]
) -> None:
    state = replay.replay(records)
    expected = {} if committed is None else {KEY: committed}
    assert {key: commit.committed_offset for key, commit in state.committed.items()} == expected
    found = {key[3]: commit.committed_offset for key, commit in state.pending.items()}
    assert found == pending


def test_replay_keeps_history_with_outcomes_and_markers() -> None:
    records = [offset(1, 5), offset(2, 6, 9), offset(3, None, 9), marker(4, ABORT, 9, epoch=3), offset(5, 7, 9)]
    state = replay.replay([*records, offset(6, 8, 8), marker(7, COMMIT, 8)])
    assert [(entry.record.log_offset, entry.kind, entry.outcome) for entry in state.history] == [
        (1, "commit", None),
        (2, "commit", "aborted"),
        (3, "tombstone", "aborted"),
        (5, "commit", "open"),
        (6, "commit", "committed"),
    ]
    assert state.markers == [
        replay.Marker(0, 4, TIME + 4, 9, 3, "ABORT", 0),
        replay.Marker(0, 7, TIME + 7, 8, 0, "COMMIT", 0),
    ]


def test_replay_until_a_time_ignores_later_records() -> None:
    records = [offset(10, 6, 9), offset(12, 5), marker(14, COMMIT, 9)]
    before = replay.replay(records, until=TIME + 11)
    assert (before.committed, list(before.pending)) == ({}, [(*KEY, 9)])
    assert [entry.outcome for entry in before.history] == ["open"]
    assert replay.replay(records, until=TIME + 14) == replay.replay(records)


def test_transactions_of_one_producer_in_two_log_partitions_are_independent() -> None:
    other = encoders.offset_key("h", "t", 0)
    records = [offset(1, 6, 9), marker(2, COMMIT, 9), offset(1, 7, 9)._replace(log_partition=1, key=other)]
    state = replay.replay(records)
    assert (list(state.committed), list(state.pending)) == ([KEY], [("h", "t", 0, 9)])
    with pytest.raises(ValueError, match="two log partitions"):
        replay.replay([offset(1, 6), offset(1, 7)._replace(log_partition=1)])


def test_replay_decodes_every_field() -> None:
    key = encoders.offset_key("ж", "é", 3)
    values = [
        encoders.offset_value(1, 9, metadata="é", commit_timestamp=7, expire_timestamp=8),
        encoders.offset_value(1, 9, commit_timestamp=7),
        encoders.offset_value(4, 9, leader_epoch=-2, metadata="é", commit_timestamp=7, topic_id=UUID_1),
        encoders.offset_value(4, 9, commit_timestamp=7, topic_id=UUID(int=0)) + b"left over",
        encoders.offset_value(4, 9, commit_timestamp=7)[:-1] + b"\x01\x05\x02xy",  # an unknown tag
    ]
    records = [LogRecord("t", 2, at, TIME, -1, -1, False, None, key, value) for at, value in enumerate(values)]
    none_known = (9, None, "", 7, None, None, 2)
    assert [entry.commit for entry in replay.replay(records).history] == [
        (9, None, "é", 7, 8, None, 2, 0, -1),
        (*none_known, 1, -1),
        (9, -2, "é", 7, None, "AQIDBAUGBwgJCgsMDQ4PEA", 2, 2, -1),
        (*none_known, 3, -1),
        (*none_known, 4, -1),
    ]


def test_records_that_kafka_cannot_load_are_undecodable_but_unknown_types_are_not() -> None:
    whole = offset(0, 5)
    key, value = whole.key or b"", whole.value or b""
    bad = [(None, value), (b"\x00", value), (key[:-1], value), (key, value[:-1]), (key, b"")]
    bad += [(key, b"\x00\x05" + value[2:]), (b"\x00\x00" + key[2:], b"\x00\x01" + value[2:] + bytes(8))]
    bad += [(key, b"\x00\x04" + bytes(8) + bytes(4) + b"\x00" + bytes(9))]  # null metadata
    records = [whole._replace(log_offset=at, key=key, value=value) for at, (key, value) in enumerate(bad)]
    unknown = whole._replace(key=b"\x03\xe7")
    state = replay.replay([*records, unknown])
    assert state.undecodable == records
    assert not state.history


@pytest.mark.long
@given(log=random_logs.logs(), until=st.none() | st.integers(-3000, 100_000))
def test_replay_agrees_with_the_highest_decided_log_offset(log: random_logs.RandomLog, until: int | None) -> None:
    """Another way to the same answer: of what is decided, and tombstones always are, the last in the log counts."""
    state = replay.replay(log.records(), None if until is None else recipes.START_TIME + until)
    last: dict[replay.OffsetKey, replay.OffsetRecord] = {}
    for entry in state.history:
        if entry.kind == "tombstone" or entry.outcome in (None, "committed"):
            last[entry.key] = entry
    assert state.committed == {key: entry.commit for key, entry in last.items() if entry.commit is not None}
