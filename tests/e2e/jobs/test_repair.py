"""Commits in parts, worked by hand: what counts is written once more behind them, and only once."""

import random
from pathlib import Path
from typing import Any

import pytest

from offsetlake.log.address import LogAddress
from offsetlake.pipeline.changes.repair import repair, truncate_torn_ends
from offsetlake.queries import questions
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows, state
from support.e2e.parts_log import TIME, Log, part, plain
from support.lakes import new_lake
from support.long_cases import long_cases
from support.oracle.log_reader import LogRecord, read_log
from support.oracle.random_logs import random_log
from support.oracle.replay import replay

NOW = TIME + 1_000_000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def mend(log: Log) -> list[tuple[int, int | None, str, int | None]]:
    """Repair, and bring the tables up to date: partition, value, outcome and log offset of each offset it was about."""
    folder = log.folder / "log"
    truncate_torn_ends(folder)
    came = repair(log.lake, LogAddress(folder=folder), NOW, lambda _: None, [])
    cycle(InProcess(), log.lake, folder)
    columns = ("partition", "committed_offset", "outcome", "log_offset")
    return sorted(tuple(row[name] for name in columns) for row in came.to_pylist())


def kept_by_cleaning(log: Log) -> list[LogRecord]:
    """What cleaning by key leaves: the newest record of each key."""
    newest = {record.key: record for record in read_log(log.folder / "log")}
    return sorted(newest.values(), key=lambda record: record.log_offset)


def test_incomplete_commit_is_repaired(log: Log) -> None:
    """The case the seed tells: a request of five offsets, of which four reached the log before its leader was lost."""
    log.batch(*(plain(partition, 10 + partition) for partition in range(4)))
    log.batch(*(part(partition, 20 + partition, size=5) for partition in range(4)))
    before = {0: 10, 1: 11, 2: 12, 3: 13}
    assert log.read() == before
    assert mend(log) == [(partition, 10 + partition, "done", 8 + partition) for partition in range(4)]
    assert log.offsets() == before
    assert log.pending() == []
    [at] = {row["commit_timestamp"] for row in rows(log.lake, "offsets")}
    assert at == TIME, "what was committed then is as old as it was"
    evidence = {row["evidence"] for row in rows(log.lake, "alterations")}
    assert evidence == {"commit 1 is incomplete: 4 of 5 parts exist, at log offsets 4 to 7"}
    after_cleaning = {record.key: record.value for record in kept_by_cleaning(log)}
    assert len(after_cleaning) == 4
    assert {record.log_offset for record in kept_by_cleaning(log)} == {8, 9, 10, 11}
    assert mend(log) == [], "once is enough"


def test_key_without_a_previous_value_gets_a_tombstone(log: Log) -> None:
    log.batch(plain(0, 10)).batch(part(0, 20, size=3), part(1, 21, size=3))
    assert log.read() == {0: 10}
    assert mend(log) == [(0, 10, "done", 3), (1, None, "done", 4)]
    assert log.offsets() == {0: 10}
    assert [record.value is None for record in kept_by_cleaning(log)] == [False, True]
    assert mend(log) == []


def test_offset_committed_again_needs_no_repair(log: Log) -> None:
    log.batch(plain(0, 10), plain(1, 11)).batch(part(0, 20, size=3), part(1, 21, size=3)).batch(plain(0, 30))
    assert log.read() == {0: 30, 1: 11}
    assert mend(log) == [(1, 11, "done", 5)]
    assert log.offsets() == {0: 30, 1: 11}


def test_complete_commit_needs_no_repair(log: Log) -> None:
    log.batch(plain(0, 10)).batch(part(0, 20, size=2), part(1, 21, size=2))
    assert log.read() == {0: 20, 1: 21}
    assert mend(log) == []
    assert log.offsets() == {0: 20, 1: 21}


def test_two_successive_incomplete_commits_are_repaired(log: Log) -> None:
    log.batch(plain(0, 10)).batch(part(0, 20, size=2)).batch(part(0, 30, size=2, commit_id=2))
    assert log.read() == {0: 10}
    assert mend(log) == [(0, 10, "done", 3)]
    assert log.pending() == []


@pytest.mark.long
def test_repair_of_an_offset_in_an_open_transaction_is_refused(log: Log) -> None:
    log.batch(plain(0, 10)).batch(part(0, 20, size=2))
    log.batch(plain(0, 30), producer_id=7, producer_epoch=0, is_transactional=True)
    assert log.read() == {0: 10}
    [(partition, value, outcome, _)] = mend(log)
    assert (partition, value, outcome) == (0, 10, "refused")
    [hanging] = questions.transactions(log.lake, NOW).to_pylist()
    assert (hanging["producer_id"], hanging["first_log_offset"], hanging["offsets"]) == (7, 2, 1)
    assert hanging["groups"] == ["g"]
    assert not questions.transactions(log.lake, NOW, NOW).num_rows
    log.transaction_ends("ABORT", 7)
    log.read()
    assert mend(log) == [(0, 10, "done", 4)]


def test_torn_end_is_truncated_and_kept(log: Log) -> None:
    log.batch(plain(0, 10)).batch(plain(0, 20))
    log.read()
    [segment] = (log.folder / "log").glob("*/*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:40])
    [note] = truncate_torn_ends(log.folder / "log")
    assert "truncated the last 40 bytes, which were not a complete batch" in note
    assert segment.read_bytes() == whole
    [kept] = segment.parent.glob("*.torn")
    assert kept.read_bytes() == whole[:40]
    assert truncate_torn_ends(log.folder / "log") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *long_cases((1, 2))])
def test_random_logs_with_incomplete_commits_are_repaired(seed: int, tmp_path: Path) -> None:
    made: Any = random_log(random.Random(seed), 600, groups=6, log_partitions=2, commit_ids=(1, 2))
    made.write(tmp_path / "log")
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, tmp_path / "log")
    before = replay(read_log(tmp_path / "log"))
    exposed = [row for row in rows(lake, "pending_offsets") if row["commit_id"] is not None]
    came = repair(lake, LogAddress(folder=tmp_path / "log"), NOW, lambda _: None, [])
    assert bool(exposed) == bool(came.num_rows)
    after = replay(read_log(tmp_path / "log"))
    values = [{key: commit.committed_offset for key, commit in of.committed.items()} for of in (before, after)]
    assert values[0] == values[1], "what counts is as it was"
    cycle(InProcess(), lake, tmp_path / "log")
    refused = {(row["group_id"], row["topic"], row["partition"]) for row in came.to_pylist() if row["reason"]}
    left = {
        (row["group_id"], row["topic"], row["partition"])
        for row in rows(lake, "pending_offsets")
        if row["commit_id"] is not None
    }
    assert left == refused
    unchanged = state(lake)
    repair(lake, LogAddress(folder=tmp_path / "log"), NOW, lambda _: None, [])
    cycle(InProcess(), lake, tmp_path / "log")
    assert state(lake)["offsets"] == unchanged["offsets"]
