"""Emit on whole lakes: what is planned goes into the log, unless what it judged has moved; the tables follow."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from offsetlake.errors import LakeUnusable, LogBusy, LogMismatch
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.ownership import owned
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire.job import expire
from offsetlake.rules.policy import RetentionPolicy
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, rows
from support.lakes import new_lake
from support.oracle.log_reader import read_log
from support.oracle.random_logs import RandomLog, logs, random_log
from support.oracle.replay import replay

Key = tuple[str, str, int]


def send(lake: Lake, log: Path) -> dict[str, int]:
    """Emit; how many decisions came to which outcome."""
    return {name: n for name, n in emit(lake, LogAddress(folder=log), lambda _: None).counts.items() if n}


def stored(lake: Lake) -> dict[Key, int]:
    """Log offset of every offset of the lake."""
    return {(row["group_id"], row["topic"], row["partition"]): row["log_offset"] for row in rows(lake, "offsets")}


def outcomes(lake: Lake, outcome: str) -> list[dict[str, Any]]:
    return [row for row in rows(lake, "tombstones") if row["outcome"] == outcome]


def offsets_among(decisions: list[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    return {(row["group_id"], row["topic"], row["partition"]): row for row in decisions if row["topic"] is not None}


def groups_among(decisions: list[dict[str, Any]]) -> set[str]:
    return {row["group_id"] for row in decisions if row["topic"] is None}


def assert_in_log(log: Path, emitted: list[dict[str, Any]]) -> None:
    """Each outcome names the place of its tombstone, and a group's last batch is one."""
    found = {(r.log_partition, r.log_offset): r for r in read_log(log)}
    for row in emitted:
        record = found[row["log_partition"], row["log_offset"]]
        assert record.value is None
        assert row["group_id"].encode() in (record.key or b"")


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(log=logs(max_batches=30))
def test_emit_writes_only_planned_tombstones(log: RandomLog, tmp_path_factory: Any) -> None:
    assume(log.plans)
    folder = tmp_path_factory.mktemp("emit")
    log.write(folder / "log")
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, folder / "log")
    plan_expiry(InProcess(), lake)
    planned, before = outcomes(lake, "planned"), stored(lake)
    groups = {row["group_id"] for row in rows(lake, "groups")}
    counts = send(lake, folder / "log")
    assert counts == ({"emitted": len(planned)} if planned else {})
    assert_in_log(folder / "log", outcomes(lake, "emitted"))
    assert stored(lake) == before, "only the log changes state"
    cycle(InProcess(), lake, folder / "log")
    assert stored(lake) == {key: at for key, at in before.items() if key not in offsets_among(planned)}
    assert {row["group_id"] for row in rows(lake, "groups")} == groups - groups_among(planned)
    assert plan_expiry(InProcess(), lake).counts["gone"] == 0
    assert send(lake, folder / "log") == {}


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(log=logs(max_batches=40), part=st.floats(0.1, 0.9))
def test_tombstone_of_an_offset_committed_again_is_refused(log: RandomLog, part: float, tmp_path_factory: Any) -> None:
    judged_plans = log.plans[: int(len(log.plans) * part)]
    assume(judged_plans)
    folder = tmp_path_factory.mktemp("emit")
    RandomLog(log.world, judged_plans).write(folder / "log")
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, folder / "log")
    plan_expiry(InProcess(), lake)
    log.write(folder / "log")
    before = replay(read_log(folder / "log"))
    send(lake, folder / "log")
    emitted, refused = offsets_among(outcomes(lake, "emitted")), offsets_among(outcomes(lake, "refused"))
    after = replay(read_log(folder / "log"))
    assert after.committed == {key: commit for key, commit in before.committed.items() if key not in emitted}
    for key, row in emitted.items():
        assert before.committed[key].log_offset == row["judged_offset"]
    assert all(row["reason"] for row in refused.values())
    cycle(InProcess(), lake, folder / "log")
    assert stored(lake) == {key: commit.log_offset for key, commit in after.committed.items()}


@pytest.fixture
def judged(tmp_path: Path, place: str) -> tuple[Lake, Path]:
    """A lake with plans, and its log."""
    random_log(random.Random(11), 400, groups=6, log_partitions=3).write(tmp_path / "log")
    lake = new_lake(place)
    cycle(InProcess(), lake, tmp_path / "log")
    plan_expiry(InProcess(), lake)
    assert outcomes(lake, "planned")
    return lake, tmp_path / "log"


def test_plan_older_than_the_last_compaction_is_refused(judged: tuple[Lake, Path]) -> None:
    lake, log = judged
    random_log(random.Random(11), 500, groups=6, log_partitions=3).write(log)
    cycle(InProcess(), lake, log)
    with pytest.raises(LakeUnusable, match="run `offsetlake expire` again before `offsetlake emit`"):
        send(lake, log)
    assert not outcomes(lake, "emitted")
    assert lake.files.read("plan-emit.json") is None
    plan_expiry(InProcess(), lake)
    assert send(lake, log)["emitted"]


def test_other_log_and_log_in_use_are_refused(judged: tuple[Lake, Path], tmp_path: Path) -> None:
    lake, log = judged
    random_log(random.Random(12), 400, groups=6, log_partitions=3).write(tmp_path / "other")
    with pytest.raises(LogMismatch):
        send(lake, tmp_path / "other")
    with owned(log, "serve"), pytest.raises(LogBusy, match="serve"):
        send(lake, log)
    assert not outcomes(lake, "emitted")


def test_offsets_of_deleted_topics_are_emitted(tmp_path: Path, place: str) -> None:
    random_log(random.Random(11), 400, groups=6, log_partitions=3).write(tmp_path / "log")
    lake = new_lake(place)
    cycle(InProcess(), lake, tmp_path / "log")
    stored_topics = {row["topic"] for row in rows(lake, "offsets")}
    gone = min(stored_topics)
    asked: list[set[str]] = []

    def missing(topics: Any) -> set[str]:
        asked.append({*topics})
        return {gone}

    expire(InProcess, lake, RetentionPolicy(10**12), 0, lambda _: None, missing)  # type: ignore[arg-type]
    assert asked == [stored_topics]
    planned = offsets_among(outcomes(lake, "planned"))
    assert {(row["topic"], row["rule"]) for row in planned.values()} == {(gone, "topic_deleted")}
    pending = {(row["group_id"], row["topic"], row["partition"]) for row in rows(lake, "pending_offsets")}
    send(lake, tmp_path / "log")
    cycle(InProcess(), lake, tmp_path / "log")
    assert {key for key in stored(lake) if key[1] == gone} <= pending, "only what a transaction holds is left"
