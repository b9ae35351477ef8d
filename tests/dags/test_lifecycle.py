"""`airflow dags test offset_lifecycle` on the log of a real broker, held to `offsetlake run` on the same log."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dags.airflow_runs import ROOT, SECONDS, Airflow, kill_tree
from e2e.lakes import rows, state
from offsetlake.lake.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.long]

INSTANT = "2100-01-01T00:00:00+00:00"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The bundled log without what makes it a broker's own: it may be written to."""
    folder = tmp_path / "log"
    shutil.copytree(ROOT / "tests/fixtures/broker-log", folder, ignore=shutil.ignore_patterns("meta.properties"))
    return folder


def lifecycle(lake: Path, log: Path, **params: bool) -> list[str]:
    conf = json.dumps({"lake": str(lake), "log": str(log), **params})
    return ["airflow", "dags", "test", "offset_lifecycle", INSTANT, "--conf", conf]


def ran(at: Airflow, lake: Path, log: Path, *options: str) -> Lake:
    """Run `offsetlake run` on a log of the same, once; gives the lake."""
    at.run("offsetlake", "run", "--lake", str(lake), "--log", str(log), "--now", INSTANT, *options)
    return Lake.open(lake)


@pytest.mark.jvm
def test_end_to_end(airflow: Callable[..., Airflow], log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other-log"
    shutil.copytree(log, other)
    expected = ran(airflow("working.py", "once", WITHOUT_SPARK="yes"), tmp_path / "other", other, "--emit")

    at = airflow("working.py")
    at.run(*lifecycle(tmp_path / "lake", log, emit=True))

    lake = Lake.open(tmp_path / "lake")
    assert state(lake) == state(expected)
    assert [(run["job"], run["outcome"], run["counts"]) for run in rows(lake, "runs")] == [
        (run["job"], run["outcome"], run["counts"]) for run in rows(expected, "runs")
    ]
    assert {row["outcome"] for row in rows(lake, "tombstones")} == {"planned", "emitted"}
    held = at.held()
    emitted = {name: held[f"offsetlake.{name}"][-1]["version"] for name in ("offsets", "tombstones")}
    assert emitted == lake.versions("offsets", "tombstones")
    reach = {f"{row['topic']}-{row['partition']}": row["position"] for row in rows(lake, "runs")[0]["positions"]}
    assert held["offsetlake.groups"][-1]["positions"] == reach


def test_killed_while_another_waits(airflow: Callable[..., Airflow], log: Path, tmp_path: Path) -> None:
    """The first run is held in `compact`, the second waits for it; the first is killed, the second does it all."""
    lake, holds = tmp_path / "lake", tmp_path / "holds"
    holding = airflow("working.py", "first", WITHOUT_SPARK="yes", HOLD=str(holds))
    first = holding.start(*lifecycle(lake, log))
    holding.wait_for(holds.exists, first)
    waiting = airflow("working.py", "second", WITHOUT_SPARK="yes")
    second = waiting.start(*lifecycle(lake, log))
    waiting.wait_for(lambda: "waiting for compact (process" in waiting.said(), second)
    assert [run["job"] for run in rows(Lake.open(lake), "runs")] == ["ingest"]
    assert first.poll() is None
    kill_tree(first)
    assert second.wait(SECONDS) == 0, waiting.said()

    expected = ran(airflow("working.py", "once", WITHOUT_SPARK="yes"), tmp_path / "never killed", log)
    assert state(Lake.open(lake)) == state(expected)
    assert [(run["job"], run["outcome"]) for run in rows(Lake.open(lake), "runs")] == [
        ("ingest", "done"), ("compact", "done"), ("ingest", "nothing new"), ("compact", "nothing new"),
        ("expire", "done"),
    ]  # fmt: skip
    assert {row["outcome"] for row in rows(Lake.open(lake), "tombstones")} == {"planned"}, "nothing goes unless asked"
