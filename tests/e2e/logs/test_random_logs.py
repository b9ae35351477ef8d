"""Random logs: the tables equal a brute-force replay, however the log is cut into runs."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from offsetlake.lake.lake import Lake
from support.e2e.divided import divided
from support.e2e.in_process import InProcess
from support.e2e.lakes import OFFSET, WHERE, cycle, rows, state
from support.lakes import new_lake
from support.long_cases import long_cases
from support.oracle.random_logs import RandomLog, logs, random_log, worlds
from support.oracle.replay import Commit, OffsetRecord, State, replay

PART = (
    "group_id", "topic", "partition", "value_version", "committed_offset", "commit_id", "commit_size", "producer_id",
)  # fmt: skip


def _plain(commit: Commit) -> dict[str, Any]:
    values = {name: getattr(commit, name) for name in (*OFFSET, *WHERE)}
    return values | {"producer_id": None if commit.producer_id == -1 else commit.producer_id}


def _part(of: OffsetRecord) -> tuple[Any, ...]:
    committed_offset = None if of.commit is None else of.commit.committed_offset
    return (*of.key, of.value_version, committed_offset, of.commit_id, of.commit_size, None)


def _assert_as_replayed(lake: Lake, expected: State) -> None:
    committed = {
        (row["group_id"], row["topic"], row["partition"]): {name: row[name] for name in (*OFFSET, *WHERE)}
        for row in rows(lake, "offsets")
    }
    assert committed == {key: _plain(commit) for key, commit in expected.committed.items()}
    pending = {
        (row["group_id"], row["topic"], row["partition"], row["producer_id"]): {n: row[n] for n in (*OFFSET, *WHERE)}
        for row in rows(lake, "pending_offsets")
        if row["commit_id"] is None
    }
    assert pending == {key: _plain(commit) for key, commit in expected.pending.items()}
    parts = {
        (row["log_partition"], row["log_offset"]): tuple(row[name] for name in PART)
        for row in rows(lake, "pending_offsets")
        if row["commit_id"] is not None
    }
    assert parts == {(of.record.log_partition, of.record.log_offset): _part(of) for of in expected.partial}
    history = {(row["log_partition"], row["log_offset"]): row["kind"] for row in rows(lake, "offset_commits")}
    assert history == {(of.record.log_partition, of.record.log_offset): of.kind for of in expected.history}
    assert len(rows(lake, "transaction_markers")) == len(expected.markers)
    undecodable = {(of.log_partition, of.log_offset) for of in expected.undecodable}
    for row in rows(lake, "quarantine"):
        malformed = row["reason"].startswith("the headers of a commit in parts are malformed: ")
        assert malformed == ((row["log_partition"], row["log_offset"]) in undecodable)
        assert malformed or row["reason"] == "the record type 999 is unknown in __consumer_offsets"


def _assert_audit_events(lake: Lake, log: RandomLog) -> None:
    named = ("log_partition", "log_offset", "last_log_offset", "principal")
    found = [tuple(row[name] for name in named) for row in rows(lake, "audit_events")]
    assert sorted(found) == log.audit_events()


def _in_runs(spark: SparkSession | InProcess, log: RandomLog, cuts: list[int], folder: Path) -> Lake:
    """Write the log in parts, a cycle behind each, and give the lake."""
    lake = new_lake(folder / "lake")
    for cut in [*cuts, len(log.plans)]:
        part = RandomLog(log.world, log.plans[:cut])
        if part.plans:
            part.write(folder / "log")
            cycle(spark, lake, folder / "log")
    return lake


@pytest.mark.long
@pytest.mark.slow
@given(log=logs(max_batches=30), data=st.data())
@settings(max_examples=10, deadline=None)
def test_small_log_gives_the_same_tables_in_any_number_of_runs(log: RandomLog, data: st.DataObject) -> None:
    _assert_cuts_change_nothing(log, data)


@pytest.mark.long
@pytest.mark.slow
@given(log=worlds(commit_ids=(7, 8)).flatmap(lambda world: logs(max_batches=30, world=world)), data=st.data())
@settings(max_examples=10, deadline=None)
def test_commits_in_parts_give_the_same_tables_in_any_number_of_runs(log: RandomLog, data: st.DataObject) -> None:
    _assert_cuts_change_nothing(log, data)


def _assert_cuts_change_nothing(log: RandomLog, data: st.DataObject) -> None:
    assume(log.plans)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(log.plans)), max_size=3)))
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        whole = _in_runs(InProcess(), log, [], Path(one))
        _assert_as_replayed(whole, replay(log.records()))
        _assert_audit_events(whole, log)
        assert state(_in_runs(InProcess(), log, cuts, Path(other))) == state(whole)


def _cuts_within_commits(log: RandomLog) -> list[int]:
    """Where a cut leaves parts of a commit before it that the batches behind it complete."""
    complete = {
        (of.record.log_partition, of.record.log_offset) for of in replay(log.records()).history if of.outcome is None
    }
    before = ((cut, replay(RandomLog(log.world, log.plans[:cut]).records())) for cut in range(1, len(log.plans)))
    return [
        cut
        for cut, state in before
        if complete & {(part.record.log_partition, part.record.log_offset) for part in state.partial}
    ]


@pytest.mark.parametrize("seed", [0, *long_cases(range(1, 4))])
def test_commits_in_parts_equal_the_oracle_after_every_run(seed: int, tmp_path: Path) -> None:
    """Parts are completed in the batch, the run and the log they began in, or later, or never."""
    rng = random.Random(seed)
    log = random_log(rng, 250, groups=2, topics=2, log_partitions=1 + seed % 2, records_per_batch=3, commit_ids=(7,))
    within = _cuts_within_commits(log)
    cuts = sorted({*rng.sample(within, min(len(within), 3)), *rng.sample(range(1, len(log.plans)), 2)})
    assert within
    for cut in [*cuts, len(log.plans)]:
        read = RandomLog(log.world, log.plans[:cut])
        read.write(tmp_path / "log")
        lake = new_lake(tmp_path / "lake")
        cycle(InProcess(), lake, tmp_path / "log")
        expected = replay(read.records())
        _assert_as_replayed(lake, expected)
        _assert_audit_events(lake, read)
    assert {entry.outcome for entry in expected.history if entry.commit_id is not None} == {None, "partial"}
    assert state(lake) == state(_in_runs(InProcess(), log, [], tmp_path / "whole"))


@pytest.mark.parametrize("seed", [0, *long_cases(range(1, 4))])
def test_log_partitions_divided_by_groups_equal_the_oracle_after_every_run(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 600, groups=16, topics=2, log_partitions=1 + seed % 2, commit_ids=(7,))
    ranges: list[int] = []
    for cut in [*sorted(rng.sample(range(len(log.plans) // 3, len(log.plans)), 2)), len(log.plans)]:
        read = RandomLog(log.world, log.plans[:cut])
        read.write(tmp_path / "log")
        lake = new_lake(tmp_path / "lake")
        with divided() as counts:
            cycle(InProcess(), lake, tmp_path / "log")
        ranges += counts
        _assert_as_replayed(lake, replay(read.records()))
    assert len(ranges) >= 2
    assert max(ranges) > 2
    assert state(lake) == state(_in_runs(InProcess(), log, [], tmp_path / "whole"))


@pytest.mark.long
@pytest.mark.jvm
def test_large_log_gives_the_same_tables_in_several_runs(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(0)
    log = random_log(rng, 5_000, groups=60, log_partitions=7)
    cuts = sorted(rng.sample(range(1, len(log.plans)), 4))
    whole = _in_runs(spark, log, [], tmp_path / "whole")
    _assert_as_replayed(whole, replay(log.records()))
    assert state(_in_runs(spark, log, cuts, tmp_path / "parts")) == state(whole)
