"""`airflow dags test offset_lifecycle` on the log of a live broker: killed, waited for, and run to its end."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.broker import workload
from support.broker.broker import Broker
from support.broker.data_folder import copy_log
from support.command_line import Run
from support.dags.airflow_runs import SECONDS, Airflow, kill_tree
from support.e2e.in_process import NoSpark
from support.e2e.lakes import rows, state

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.broker]

INSTANT = "2100-01-01T00:00:00+00:00"
TOPIC = "dag-orders"
OFFSETS = {(TOPIC, 0): 3, (TOPIC, 1): 4}


@pytest.fixture
def log(broker: Broker, tmp_path: Path) -> Path:
    """A copy of what a broker wrote for clients of every kind; without what makes it a broker's own."""
    workload.create_topic(broker.bootstrap, TOPIC, 2)
    workload.produce(broker.bootstrap, TOPIC, 10)
    workload.simple_commit(broker.bootstrap, "dag-simple", OFFSETS)
    workload.simple_commit(broker.bootstrap, "dag-deleted", OFFSETS)
    workload.delete_group(broker.bootstrap, "dag-deleted")
    workload.committed_transaction(broker.bootstrap, "dag-t1", "dag-transactions", OFFSETS)
    workload.aborted_transaction(broker.bootstrap, "dag-t1", "dag-transactions", {(TOPIC, 0): 30})
    with closing(workload.member(broker.bootstrap, "dag-member", OFFSETS, "consumer")):
        copy_log(broker.data_dir, tmp_path / "log")
    return tmp_path / "log"


@pytest.fixture
def expected(run: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The lake that `offsetlake run`, once and without Airflow, makes of a log of the same."""
    shutil.copytree(log, tmp_path / "other-log")
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    code, _, err = run("run", "--lake", "other", "--log", "other-log", "--now", INSTANT, "--emit")
    assert code == 0, err
    return Lake.open(tmp_path / "other")


@pytest.mark.long
def test_killed_task_is_retried_while_another_run_waits(
    airflow: Callable[..., Airflow], log: Path, expected: Lake, tmp_path: Path
) -> None:
    """The first run is held in `compact`, the second waits for it; the first is killed, the second does it all."""
    lake, holds = tmp_path / "lake", tmp_path / "holds"
    conf = json.dumps({"lake": str(lake), "log": str(log), "emit": True})
    lifecycle = ["airflow", "dags", "test", "offset_lifecycle", INSTANT, "--conf", conf]
    holding = airflow("working.py", "first", WITHOUT_SPARK="yes", HOLD=str(holds))
    first = holding.start(*lifecycle)
    holding.wait_for(holds.exists, first)
    working = airflow("working.py", "second")
    second = working.start(*lifecycle)
    working.wait_for(lambda: "waiting for compact (process" in working.said(), second)
    assert [run["job"] for run in rows(Lake.open(lake), "runs")] == ["ingest"]
    assert first.poll() is None
    kill_tree(first)
    try:
        assert second.wait(SECONDS) == 0, working.said()
    finally:
        kill_tree(second)

    made = Lake.open(lake)
    assert state(made) == state(expected)
    runs = rows(made, "runs")
    assert [(run["job"], run["outcome"]) for run in runs] == [
        ("ingest", "done"), ("compact", "done"), ("ingest", "nothing new"), ("compact", "nothing new"),
        ("expire", "done"), ("emit", "done"),
    ]  # fmt: skip
    assert [(run["job"], run["counts"]) for run in runs if run["outcome"] == "done"] == [
        (run["job"], run["counts"]) for run in rows(expected, "runs")
    ]
    gone = {row["group_id"] for row in rows(made, "tombstones") if row["outcome"] == "emitted"}
    assert {"dag-simple", "dag-transactions"} <= gone
    assert "dag-member" not in gone, "it has a member who reads the topic"
    assert_published(working, made)


def assert_published(at: Airflow, lake: Lake) -> None:
    """Hold what was published of the tables to what they are."""
    held = at.held()
    assert {name: held[f"offsetlake.{name}"][-1]["version"] for name in ("offsets", "tombstones")} == lake.versions(
        "offsets", "tombstones"
    )
    reach = {f"{row['topic']}-{row['partition']}": row["position"] for row in rows(lake, "runs")[0]["positions"]}
    assert held["offsetlake.groups"][-1]["positions"] == reach
