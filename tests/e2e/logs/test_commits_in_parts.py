"""Commits spread over several records: all of one counts or nothing, wherever batches, segments and runs end."""

import struct
from pathlib import Path

import pytest

from offsetlake.queries import questions
from offsetlake.queries.history.as_of import offsets_as_of
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, rows, state
from support.e2e.parts_log import TIME, Log, Made, part, plain
from support.oracle.encoders import group_metadata_key, offset_key, offset_value
from support.oracle.log_writer import write_partition


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_commit_with_four_of_five_parts_is_incomplete(log: Log) -> None:
    log.batch(plain(0, 10), plain(1, 11), plain(2, None))
    log.batch(*(part(partition, 20 + partition, 5) for partition in range(4)))
    assert log.read() == {0: 10, 1: 11}, "what was before is kept, what was not there is absent"
    assert log.pending() == [(3, 0, 20), (4, 1, 21), (5, 2, 22), (6, 3, 23)]
    log.batch(plain(9, 1))
    assert log.read() == {0: 10, 1: 11, 9: 1}, "now the rest can never come"
    assert [partition for _, partition, _ in log.pending()] == [0, 1, 2, 3], "what a repair has to look at"
    log.batch(plain(0, 30), plain(3, None))
    assert log.read() == {0: 30, 1: 11, 9: 1}
    assert [partition for _, partition, _ in log.pending()] == [1, 2], "of decided keys they cannot matter any more"


def test_parts_in_two_batches_and_segments_are_complete(log: Log) -> None:
    log.batch(*(part(partition, 20 + partition, 5) for partition in range(3)), codec="zstd")
    log.batch(*(part(partition, 20 + partition, 5) for partition in range(3, 5)))
    write_partition(log.folder / "log", 0, log.batches, segment_starts=[0, 3])
    cycle(InProcess(), log.lake, log.folder / "log")
    assert log.offsets() == {partition: 20 + partition for partition in range(5)}
    assert log.pending() == []


@pytest.mark.parametrize(
    "between",
    [plain(9, 9), plain(9, None), part(9, 9, 3, commit_id=2), part(9, 9, 4), (b"\0\1", None, ())],
    ids=["commit", "tombstone", "another commit", "another size", "undecodable"],
)
def test_record_between_parts_ends_their_commit(log: Log, between: Made) -> None:
    log.batch(part(0, 20, 3), part(1, 21, 3), between, part(2, 22, 3))
    log.batch(plain(5, 5))
    assert {partition: at for partition, at in log.read().items() if partition < 3} == {}
    assert [partition for _, partition, _ in log.pending() if partition < 3] == [0, 1, 2]


def test_lost_log_offset_between_parts_ends_their_commit(log: Log) -> None:
    log.batch(part(0, 20, 2), last_offset=1)
    log.batch(part(1, 21, 2))
    assert log.read() == {}


def test_parts_are_pending_until_the_rest_is_ingested(log: Log) -> None:
    log.batch(plain(0, 10), plain(2, 12))
    log.batch(part(0, 20, 4), part(1, 21, 4))
    assert log.read() == {0: 10, 2: 12}
    assert log.pending() == [(2, 0, 20), (3, 1, 21)]
    log.batch(part(2, None, 4))
    assert log.read() == {0: 10, 2: 12}
    assert log.pending() == [(2, 0, 20), (3, 1, 21), (4, 2, None)], "a part may be a tombstone"
    log.batch(part(1, 31, 4), plain(0, 40))
    assert log.read() == {0: 40, 1: 31}, "at last all of it, in the order of the log"
    assert log.pending() == []


def test_reused_commit_id_is_a_new_commit(log: Log) -> None:
    log.batch(part(0, 20, 2), part(1, 21, 2), part(0, 30, 3, 2), part(1, 31, 3, 2))
    assert log.read() == {0: 20, 1: 21}
    log.batch(part(2, 32, 3, 2), part(0, 40, 2), part(3, 43, 2))
    assert log.read() == {0: 40, 1: 31, 2: 32, 3: 43}


def test_surplus_parts_begin_another_commit(log: Log) -> None:
    log.batch(part(0, 20, 2), part(1, 21, 2), part(0, 30, 2))
    assert log.read() == {0: 20, 1: 21}
    assert log.pending() == [(2, 0, 30)]
    log.batch(part(1, 31, 2), part(0, 40, 2))
    assert log.read() == {0: 30, 1: 31}
    log.batch(plain(9, 9))
    assert log.read() == {0: 30, 1: 31, 9: 9}
    assert log.pending() == [(4, 0, 40)]


def test_commit_of_one_part_takes_effect_at_once(log: Log) -> None:
    assert log.batch(part(0, 20, 1), part(0, 21, 1), part(1, 22, 1)).read() == {0: 21, 1: 22}


def test_tombstone_part_takes_effect_with_its_commit(log: Log) -> None:
    log.batch(plain(0, 10), plain(1, 11))
    log.batch(part(0, None, 2), plain(3, 13), part(1, None, 2), part(2, 22, 2))
    assert log.read() == {0: 10, 2: 22, 3: 13}
    assert log.pending() == [(2, 0, None)]


def test_tombstone_of_a_complete_commit_removes_pending_offsets(log: Log) -> None:
    log.batch(plain(0, 50), producer_id=7, producer_epoch=0, is_transactional=True)
    log.batch(part(0, None, 2))
    assert log.read() == {}
    assert len(rows(log.lake, "pending_offsets")) == 2
    log.batch(part(1, 21, 2))
    assert log.read() == {1: 21}
    assert rows(log.lake, "pending_offsets") == []
    assert log.transaction_ends("COMMIT", 7).read() == {1: 21}


def test_transaction_committed_after_a_part_replaces_it(log: Log) -> None:
    log.batch(part(0, 20, 2)).batch(plain(0, 50), producer_id=7, producer_epoch=0, is_transactional=True)
    assert log.read() == {}
    assert log.pending() == [(0, 0, 20)]
    assert log.transaction_ends("COMMIT", 7).read() == {0: 50}
    assert log.pending() == []


def test_transactional_part_is_pending_until_the_marker(log: Log) -> None:
    log.batch(part(0, 20, 1), part(1, 21, 5), producer_id=7, producer_epoch=0, is_transactional=True)
    assert log.read() == {}
    assert log.pending() == []
    assert log.transaction_ends("COMMIT", 7).read() == {0: 20, 1: 21}


def test_malformed_headers_quarantine_the_record(log: Log) -> None:
    log.batch(plain(0, 10))
    log.batch(part(0, 20, 3), plain(1, 21, ((b"commit.id", struct.pack(">q", 1)),)), part(2, 22, 3))
    assert log.read() == {0: 10}
    (row,) = rows(log.lake, "quarantine")
    assert (row["log_offset"], row["reason"]) == (
        2, "the headers of a commit in parts are malformed: commit.id or commit.size is missing",
    )  # fmt: skip


def test_other_headers_change_nothing(log: Log) -> None:
    assert log.batch(plain(0, 10, ((b"trace", b"1"), (b"commit", None)))).read() == {0: 10}


# --- groups, questions, retention ---


@pytest.mark.parametrize("rest", [21, None])
def test_incomplete_commit_creates_no_group(log: Log, rest: int | None) -> None:
    log.batch(part(0, 20, 2)).read()
    assert log.groups() == []
    log.batch(part(1, rest, 2)).read()
    assert log.groups() == ["g"]


def test_parts_do_not_recreate_a_deleted_group(log: Log) -> None:
    log.batch(part(0, 20, 3), plain(1, 11), (group_metadata_key("g"), None, ())).read()
    assert log.groups() == []
    log.batch((offset_key("other", "t", 0), offset_value(3, 1, commit_timestamp=TIME), ())).read()
    assert log.groups() == ["other"]


def test_offsets_as_of_see_a_commit_from_its_last_part_on(log: Log) -> None:
    log.batch(plain(0, 10)).batch(part(0, 20, 3), part(1, 21, 3), part(2, None, 3), plain(0, 30)).read()

    def at(instant: int, **wanted: str) -> list[int]:
        return offsets_as_of(log.lake, TIME + instant, **wanted)["committed_offset"].to_pylist()  # type: ignore[arg-type]

    assert [at(0), at(1), at(2), at(3), at(4)] == [[10], [10], [10], [20, 21], [30, 21]]
    assert at(3, group_id="g", topic="t") == [20, 21]


def test_offsets_as_of_one_topic_know_the_parts_of_others(log: Log) -> None:
    other = offset_key("g", "u", 0), *part(0, 9, 2)[1:]
    log.batch(part(0, 20, 2), other).read()
    assert offsets_as_of(log.lake, TIME + 9, topic="t")["committed_offset"].to_pylist() == [20]
    assert offsets_as_of(log.lake, TIME, topic="t")["committed_offset"].to_pylist() == []


def test_history_marks_parts_of_incomplete_commits(log: Log) -> None:
    log.batch(plain(0, 10), part(0, 20, 3), part(0, 21, 3), plain(0, 15))
    log.batch(part(1, 1, 3), part(0, 12, 3), part(0, 13, 3), plain(0, 14))
    log.batch(part(0, None, 2), part(1, None, 2), part(0, None, 2), plain(1, 1), plain(0, 16)).read()
    found = questions.history(log.lake, "g", "t", 0).to_pylist()
    told = [(row["event"], row["committed_offset"], row["previous_offset"], row["outcome"]) for row in found]
    assert told[::-1] == [
        ("commit", 10, None, None),
        ("commit", 20, 10, "partial"),
        ("commit", 21, 10, "partial"),
        ("commit", 15, 10, None),
        ("reset_back", 12, 15, None),
        ("reset_back", 13, 15, None),
        ("commit", 14, 13, None),
        ("tombstone", None, 14, None),
        ("tombstone", None, None, "partial"),
        ("commit", 16, None, None),
    ]


def test_key_with_a_part_of_an_incomplete_commit_is_kept(log: Log) -> None:
    log.batch(plain(0, 10), plain(1, 11), part(0, 20, 2)).read()
    plan_expiry(InProcess(), log.lake)
    assert [row["partition"] for row in rows(log.lake, "tombstones")] == [1]


@pytest.mark.long
def test_ingest_in_two_runs_gives_the_tables_of_one_run(tmp_path: Path) -> None:
    made = [
        plain(0, 10), part(0, 20, 3), part(1, None, 3), part(2, 22, 3), part(0, 30, 2), plain(1, 11), part(2, 40, 2),
        part(2, 41, 2), part(2, 42, 2),
    ]  # fmt: skip
    whole = Log(tmp_path / "whole").batch(*made)
    assert whole.read() == {0: 20, 1: 11, 2: 41}
    for cut in range(1, len(made)):
        log = Log(tmp_path / str(cut)).batch(*made[:cut])
        log.read()
        log.batch(*made[cut:]).read()
        assert state(log.lake) == state(whole.lake), cut
