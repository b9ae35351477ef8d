"""DAGs of many lakes: what each of them is, what its tasks run, and one that works on its own lake."""

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.writer.example_log import write_example
from support.dags.airflow_runs import ROOT, Airflow
from support.e2e.lakes import rows

BASES = ("offset_audit", "offset_lifecycle", "offset_maintenance", "offset_replication")
PROGRAM = ROOT / "dags" / "lake_fleet.py"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lakes = {"prod-eu": ("log = 'eu-log'", "eu"), "us.2": ("bootstrap = 'b:1'", "us")}
    text = "".join(
        f"[lakes.'{name}']\nlake = '{tmp_path / lake}'\n{log}\n" for name, (log, lake) in lakes.items()
    ).replace("eu-log", str(tmp_path / "eu-log"))
    (tmp_path / "lakes.toml").write_text(text)
    return tmp_path / "lakes.toml"


@pytest.mark.long
@pytest.mark.slow
def test_each_lake_has_dags_and_a_pool_of_its_own(airflow: Callable[..., Airflow], file: Path, tmp_path: Path) -> None:
    made = airflow("answering.py", OFFSETLAKE_FLEET=str(file))
    described = made.script("describe.py")
    assert described["errors"] == {}
    assert sorted(described["dags"]) == sorted(f"{base}.{name}" for base in BASES for name in ("prod-eu", "us.2"))
    for name, dag in described["dags"].items():
        lake = name.partition(".")[2]
        assert {task["pool"] for task in dag["tasks"].values()} == {f"offsetlake_writer.{lake}"}
        assert not {"lake", "log", "bootstrap", "kafka_config"} & dag["params"].keys()
        outlets = {asset for task in dag["tasks"].values() for asset in task["outlets"]}
        assert all(asset.startswith(f"offsetlake.{lake}.") for asset in outlets)
    pools = subprocess.check_output([sys.executable, PROGRAM], env={"OFFSETLAKE_FLEET": str(file)})
    assert {name: pool["slots"] for name, pool in json.loads(pools).items()} == {
        "offsetlake_writer.prod-eu": 1, "offsetlake_writer.us.2": 1,
    }  # fmt: skip
    (tmp_path / "pools.json").write_bytes(pools)
    assert "2 pool" in made.run("airflow", "pools", "import", str(tmp_path / "pools.json"))


@pytest.mark.long
def test_a_dag_works_on_its_lake_only(airflow: Callable[..., Airflow], file: Path, tmp_path: Path) -> None:
    write_example(tmp_path / "eu-log")
    made = airflow("working.py", "real", OFFSETLAKE_FLEET=str(file), WITHOUT_SPARK="yes")
    found = made.script(
        "several.py", json.dumps([{"dag": "offset_lifecycle.prod-eu", "params": {}, "environment": {}}])
    )
    assert found["states"][0]["check_planned"] == "success", found["said"]
    assert found["states"][0]["emit"] == "skipped"
    runs = rows(Lake.open(tmp_path / "eu"), "runs")
    assert [(run["job"], run["log"]) for run in runs if run["job"] == "ingest"] == [
        ("ingest", str(tmp_path / "eu-log"))
    ]
    assert [run["job"] for run in runs] == ["ingest", "compact", "expire"]
    assert not (tmp_path / "us").exists()
    [event] = made.held()["offsetlake.prod-eu.offsets"]
    assert (event["lake"], event["version"]) == ("prod-eu", Lake.open(tmp_path / "eu").versions("offsets")["offsets"])


@pytest.mark.long
@pytest.mark.slow
def test_tasks_run_with_the_lake_of_their_dag(airflow: Callable[..., Airflow], file: Path, tmp_path: Path) -> None:
    names = ("offset_lifecycle.us.2", "offset_lifecycle.prod-eu", "offset_replication.us.2", "offset_audit.us.2")
    records = [tmp_path / str(number) for number in range(len(names))]
    variables = {
        "AIRFLOW_VAR_OFFSETLAKE_EMIT.US.2": "true", "AIRFLOW_VAR_OFFSETLAKE_TO.US.2": "c:1", "OFFSETLAKE_LOG": "/other",
        "AIRFLOW_VAR_OFFSETLAKE_TO_LAKE.US.2": "/standby", "OFFSETLAKE_FLEET": str(file),
    }  # fmt: skip
    runs: list[dict[str, Any]] = [
        {"dag": name, "params": {}, "environment": {"RECORD": str(record)}}
        for name, record in zip(names, records, strict=True)
    ]
    runs[3]["params"] = {"docs": "/docs"}
    airflow("answering.py", **variables).script("several.py", json.dumps(runs))
    calls = [[json.loads(line) for line in record.read_text().splitlines()] for record in records]
    for name, own in zip(names, calls, strict=True):
        selected = {
            (call["environment"]["OFFSETLAKE_FLEET"], call["environment"]["OFFSETLAKE_CLUSTER"]) for call in own
        }
        assert selected == {(str(file), name.partition(".")[2])}
    us, eu, standby, audit = ([call["words"] for call in own] for own in calls)
    assert [words[0] for words in us] == ["ingest", "compact", "check", "expire", "check", "emit", "check"]
    assert us[3][-1] == "--bootstrap=b:1"
    assert [words[0] for words in eu] == ["ingest", "compact", "check", "expire", "check"], "its Variable is not set"
    assert not any("--bootstrap" in word for word in eu[3])
    assert standby[0][2:4] == ["--to=c:1", "--to-lake=/standby"]
    assert ["report", "--to=/docs/report.html"] in audit


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "lists no lake"),
        ("[lakes]", "lists no lake"),
        ("lakes = 1", "lists no lake"),
        ("[lakes.'a b']", "lake 'a b': expected a table, whose name"),
        ("[lakes.'é']", "lake 'é': expected a table, whose name"),
        (f"[lakes.{'x' * 101}]", "expected a table, whose name"),
        ("[lakes]\na = 1", "lake 'a': expected a table"),
    ],
)
def test_an_invalid_file_of_lakes_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "lakes.toml").write_text(text, encoding="utf-8")
    read_lakes = runpy.run_path(str(PROGRAM))["read_lakes"]
    with pytest.raises(ValueError, match=re.escape(problem)):
        read_lakes(str(tmp_path / "lakes.toml"))
    assert [lake.own("x") for lake in read_lakes(None)] == ["x"]


@pytest.mark.long
def test_an_invalid_file_of_lakes_is_an_import_error(airflow: Callable[..., Airflow], file: Path) -> None:
    file.write_text("[lakes.'a b']")
    described = airflow("answering.py", OFFSETLAKE_FLEET=str(file)).script("describe.py")
    assert described["dags"] == {}
    assert all("lake 'a b': expected a table" in error for error in described["errors"].values())
    assert len(described["errors"]) >= len(BASES)
