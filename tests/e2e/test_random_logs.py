"""Random logs: the tables equal a brute-force replay, however the log is cut into runs."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from e2e.in_process import InProcess
from e2e.lakes import OFFSET, WHERE, cycle, rows, state
from offsetlake.lake.lake import Lake
from oracle.random_logs import RandomLog, logs, random_log
from oracle.replay import Commit, State, replay


def _plain(commit: Commit) -> dict[str, Any]:
    values = {name: getattr(commit, name) for name in (*OFFSET, *WHERE)}
    return values | {"producer_id": None if commit.producer_id == -1 else commit.producer_id}


def _assert_as_replayed(lake: Lake, expected: State) -> None:
    committed = {
        (row["group_id"], row["topic"], row["partition"]): {name: row[name] for name in (*OFFSET, *WHERE)}
        for row in rows(lake, "offsets")
    }
    assert committed == {key: _plain(commit) for key, commit in expected.committed.items()}
    pending = {
        (row["group_id"], row["topic"], row["partition"], row["producer_id"]): {n: row[n] for n in (*OFFSET, *WHERE)}
        for row in rows(lake, "pending_offsets")
    }
    assert pending == {key: _plain(commit) for key, commit in expected.pending.items()}
    history = {(row["log_partition"], row["log_offset"]): row["kind"] for row in rows(lake, "offset_commits")}
    assert history == {(of.record.log_partition, of.record.log_offset): of.kind for of in expected.history}
    assert len(rows(lake, "transaction_markers")) == len(expected.markers)
    assert {row["reason"] for row in rows(lake, "quarantine")} <= {"record type 999 of __consumer_offsets is unknown"}


def _in_runs(spark: SparkSession | InProcess, log: RandomLog, cuts: list[int], folder: Path) -> Lake:
    """Write the log in parts, a cycle behind each, and give the lake."""
    lake = Lake.create(folder / "lake")
    for cut in [*cuts, len(log.plans)]:
        part = RandomLog(log.world, log.plans[:cut])
        if part.plans:
            part.write(folder / "log")
            cycle(spark, lake, folder / "log")
    return lake


@pytest.mark.slow
@given(log=logs(max_batches=30), data=st.data())
@settings(max_examples=10, deadline=None)
def test_small_logs_in_any_number_of_runs(log: RandomLog, data: st.DataObject) -> None:
    assume(log.plans)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(log.plans)), max_size=3)))
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        whole = _in_runs(InProcess(), log, [], Path(one))
        _assert_as_replayed(whole, replay(log.records()))
        assert state(_in_runs(InProcess(), log, cuts, Path(other))) == state(whole)


@pytest.mark.jvm
@pytest.mark.parametrize("seed", range(2))
def test_large_log_in_several_runs(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 5_000, groups=60, log_partitions=7)
    cuts = sorted(rng.sample(range(1, len(log.plans)), 4))
    whole = _in_runs(spark, log, [], tmp_path / "whole")
    _assert_as_replayed(whole, replay(log.records()))
    assert state(_in_runs(spark, log, cuts, tmp_path / "parts")) == state(whole)
