"""Expire on whole lakes: the tombstones planned are those a coordinator's pass would write, each planned once."""

import random
import shutil
from pathlib import Path
from typing import Any

import chispa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from offsetlake.lake import current_run, plans
from offsetlake.lake.files import FileChanges, TableFile, commit
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire import job as expire_job
from offsetlake.pipeline.expire.job import expire
from offsetlake.pipeline.expire.what_if import what_if
from offsetlake.queries import questions
from offsetlake.rules.policy import RetentionPolicy
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry, rows
from support.lakes import new_lake
from support.oracle.expiry import Group, Key, Offset, Tombstones, cleanup_pass
from support.oracle.random_logs import RandomLog, logs, random_log

WEEK = 7 * 86_400_000


def held(lake: Lake) -> tuple[dict[str, Group], dict[str, dict[Key, Offset]], set[tuple[str, str, int]]]:
    """The state tables as the oracle wants them."""
    groups = {}
    for row in rows(lake, "groups"):
        topics = row["subscribed_topics"] if row["subscription"] == "known" else None
        known = (row["group_type"], row["state"], row["protocol_type"], row["state_timestamp"])
        any_topic = row["group_type"] != "classic" and row["subscription"] == "everything"
        none = row["group_type"] != "classic" and row["subscription"] in ("none", "unknown")
        groups[row["group_id"]] = Group(*known, () if none else topics, any_topic)
    offsets: dict[str, dict[Key, Offset]] = {}
    for row in rows(lake, "offsets"):
        found = Offset(row["commit_timestamp"], row["expire_timestamp"])
        offsets.setdefault(row["group_id"], {})[row["topic"], row["partition"]] = found
    pending = {(row["group_id"], row["topic"], row["partition"]) for row in rows(lake, "pending_offsets")}
    return groups, offsets, pending


def planned(lake: Lake) -> Tombstones:
    found = rows(lake, "tombstones")
    assert {row["outcome"] for row in found} <= {"planned"}
    offsets = [(row["group_id"], row["topic"], row["partition"]) for row in found if row["topic"] is not None]
    groups = [row["group_id"] for row in found if row["topic"] is None]
    assert len(set(offsets)) == len(offsets), "each is planned once"
    assert len(set(groups)) == len(groups)
    return Tombstones(set(offsets), set(groups))


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(log=logs(max_batches=30), data=st.data())
def test_plan_equals_the_oracle(log: Any, data: st.DataObject, tmp_path_factory: Any) -> None:
    assume(log.plans)
    folder = tmp_path_factory.mktemp("expire")
    log.write(folder / "log")
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, folder / "log")
    groups, offsets, pending = held(lake)
    times = sorted({offset.commit_timestamp for of_group in offsets.values() for offset in of_group.values()})
    now = data.draw(st.sampled_from([LATER, *(time + WEEK for time in times)]))
    row = plan_expiry(InProcess(), lake, now)
    expected = cleanup_pass(groups, offsets, pending, now, [("*", "*", WEEK)])
    assert planned(lake) == expected
    assert row.counts["planned"] == len(expected.offsets) + len(expected.groups)
    _assert_what_if(lake, now, expected)


def _assert_what_if(lake: Lake, now: int, expected: Tombstones) -> None:
    told = what_if(lake, RetentionPolicy(0), RetentionPolicy(WEEK), now).to_pylist()
    other = {row["group_id"]: row["other_now"] for row in told if row["other_now"]}
    counted = {group: sum(1 for of, _, _ in expected.offsets if of == group) for group, _, _ in expected.offsets}
    assert other == counted


@pytest.mark.jvm
@pytest.mark.long
def test_evaluation_in_spark_equals_the_local_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_log(random.Random(5), 1_500, groups=25, log_partitions=4).write(tmp_path / "log")
    here = new_lake(tmp_path / "here")
    cycle(InProcess(), here, tmp_path / "log")
    there = Lake.open(Path(shutil.copytree(here.location.path, tmp_path / "there")))
    plan_expiry(InProcess(), here)
    monkeypatch.setattr(expire_job, "MAX_LOCAL_OFFSETS", 0)
    plan_expiry(spark, there)
    assert rows(here, "tombstones")
    frames = [
        spark.read.format("delta").load(str(lake.table_location("tombstones").path)).drop("run_id")
        for lake in (here, there)
    ]
    chispa.assert_df_equality(*frames, ignore_row_order=True)


@pytest.fixture(scope="module")
def judged_once(broker_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake.open(Path(shutil.copytree(broker_lake.location.path, tmp_path_factory.mktemp("judged") / "lake")))
    plan_expiry(InProcess(), lake)
    return lake


@pytest.fixture
def judged(judged_once: Lake, tmp_path: Path) -> Lake:
    """What retention lets go of the bundled log is planned."""
    return Lake.open(Path(shutil.copytree(judged_once.location.path, tmp_path / "lake")))


@pytest.mark.long
def test_refused_decision_is_planned_again(judged: Lake) -> None:
    before = rows(judged, "tombstones")
    again = plan_expiry(InProcess(), judged)
    assert (again.outcome, again.counts["planned"]) == ("nothing new", 0)
    assert rows(judged, "tombstones") == before
    refused = [row | {"outcome": "refused", "reason": "it moved"} for row in before[:2]]
    emitted = [row | {"outcome": "emitted"} for row in before[2:4]]
    _write(judged, [*refused, *emitted])
    assert plan_expiry(InProcess(), judged).counts["planned"] == 2
    latest = questions.tombstones(judged)
    assert len(latest) == len(before)
    assert sorted(latest["outcome"].to_pylist()) == ["emitted"] * 2 + ["planned"] * (len(before) - 2)


@pytest.mark.long
def test_plan_that_does_not_apply_any_more_is_withdrawn(judged: Lake) -> None:
    count = judged.count("tombstones")
    early = plan_expiry(InProcess(), judged, 1)
    assert (early.outcome, early.counts["withdrawn"]) == ("done", count)
    assert set(questions.tombstones(judged)["outcome"].to_pylist()) == {"withdrawn"}
    assert plan_expiry(InProcess(), judged, 1).outcome == "nothing new"
    assert plan_expiry(InProcess(), judged).counts["planned"] == count
    assert questions.tombstones(judged, outcome="planned").num_rows == count


def test_changed_policy_changes_the_evidence(judged: Lake) -> None:
    expire(InProcess, judged, RetentionPolicy(1_000), LATER, lambda _: None)  # type: ignore[arg-type]
    standing = questions.tombstones(judged)
    assert set(standing["outcome"].to_pylist()) == {"planned"}
    assert set(standing["retention_ms"].to_pylist()) == {1_000, None}
    assert standing["retention_ms"].null_count == standing["topic"].null_count


def _write(lake: Lake, found: list[dict[str, Any]]) -> None:
    plan = current_run.begin(lake, "expire", plans.Plan())
    file = TableFile(lake, "tombstones")
    file.write_rows([row | {"run_id": plan.run_id} for row in found])
    commit(lake, "tombstones", [FileChanges(file.close())], "expire", plan.run_id)
    current_run.finish(lake, "expire", plan, outcome="done", counts={})


@pytest.mark.long
def test_evaluation_that_is_not_repeated_would_decide_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same evaluations in two lakes, of which one never knows the last evaluation."""
    evaluated: list[Lake] = []
    start = expire_job.start_evaluation
    monkeypatch.setattr(
        expire_job, "start_evaluation", lambda lake, *inputs: evaluated.append(lake) or start(lake, *inputs)
    )
    chance = random.Random(0)
    log = random_log(chance, 200, groups=8, log_partitions=2)
    known, forgotten = Lake.create(tmp_path / "known"), Lake.create(tmp_path / "forgotten")
    count = 0
    for part in (2, 1):
        RandomLog(log.world, log.plans[: len(log.plans) // part]).write(tmp_path / f"log-{part}")
        for lake in (known, forgotten):
            cycle(InProcess(), lake, tmp_path / f"log-{part}")
        expiries = [row["commit_timestamp"] + WEEK + late for row in rows(known, "offsets") for late in (-1, 0)]
        for now in [*sorted(chance.sample(expiries, 5)), LATER, LATER, LATER + 1]:
            policy = RetentionPolicy(chance.choice([WEEK, WEEK, 1]))
            missing = {*chance.choice([[], [], [], ["topic-0"]])}
            reports = []
            for lake in (known, forgotten):
                (forgotten.location.path / "evaluated.json").unlink(missing_ok=True)
                arguments = (policy, now, lambda _: None, lambda _, missing=missing: missing)
                reports.append(expire(InProcess, lake, *arguments))  # type: ignore[arg-type]
            count += 1
            assert len({(row.outcome, row.open_run, row.notes, *row.counts.items()) for row in reports}) == 1
            assert rows(known, "tombstones") == rows(forgotten, "tombstones")
    assert evaluated.count(forgotten) == count
    assert 0 < evaluated.count(known) < count


def test_time_before_the_newest_commit_is_noted(judged: Lake) -> None:
    row = expire(InProcess, judged, RetentionPolicy(WEEK), 1, lambda _: None)  # type: ignore[arg-type]
    (note,) = row.notes
    assert note.startswith("evaluated at 1970-01-01T00:00:00.001Z, before the newest commit (")


def test_commits_since_the_time_of_a_schedule_are_not_noted(judged: Lake, tmp_path: Path) -> None:
    lake = Lake.open(Path(shutil.copytree(judged.location.path, tmp_path / "copy")))
    newest = max(row["commit_timestamp"] for row in rows(lake, "offsets"))
    for now, notes in ((newest - expire_job.USUAL_DELAY_MS, 0), (newest - expire_job.USUAL_DELAY_MS - 1, 1)):
        assert len(expire(InProcess, lake, RetentionPolicy(WEEK), now, lambda _: None).notes) == notes  # type: ignore[arg-type]


def test_what_if_of_an_empty_lake_has_no_rows(tmp_path: Path) -> None:
    assert what_if(new_lake(tmp_path / "lake"), RetentionPolicy(1), None, LATER).num_rows == 0


def test_decisions_are_filtered_by_group_and_outcome(judged: Lake) -> None:
    every = questions.tombstones(judged)
    groups = sorted(set(every["group_id"].to_pylist()))
    assert questions.tombstones(judged, pattern=groups[0]).num_rows == every["group_id"].to_pylist().count(groups[0])
    assert questions.tombstones(judged, outcome="refused").num_rows == 0
    assert questions.tombstones(judged, outcome="planned", limit=1).to_pylist() == every.slice(0, 1).to_pylist()
    topics = [row["topic"] for row in every.to_pylist() if row["group_id"] == "billing"]
    assert topics == ["orders"] * 6 + [None], "a group goes behind its offsets"
