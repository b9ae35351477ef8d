"""What the DAGs are: every one imports, and has the tasks, the order and the limits it is to have."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.dags.airflow_runs import ROOT, Airflow

pytestmark = pytest.mark.slow

HISTORY = [
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "audit_events",
]
STATE = ["offsets", "pending_offsets", "groups", "group_members", "share_partitions"]


@pytest.fixture(scope="module")
def described(migrated: Any) -> Any:
    return Airflow(migrated, migrated).script("describe.py")


def test_every_dag_imports(described: Any) -> None:
    assert described["errors"] == {}
    assert sorted(described["dags"]) == ["offset_audit", "offset_lifecycle", "offset_maintenance", "offset_replication"]


@pytest.mark.parametrize(
    ("dag", "schedule"),
    [
        ("offset_lifecycle", "*/10 * * * *"),
        ("offset_maintenance", "5 3 * * *"),
        ("offset_audit", "5 4 * * *"),
        ("offset_replication", "*/5 * * * *"),
    ],
)
def test_dags_allow_one_run_and_one_writer_at_a_time(described: Any, dag: str, schedule: str) -> None:
    found = described["dags"][dag]
    assert (found["schedule"], found["zone"], found["catchup"], found["max_active_runs"]) == (schedule, "UTC", False, 1)
    for task in found["tasks"].values():
        assert (task["pool"], task["pool_slots"], task["retries"]) == ("offsetlake_writer", 1, 2)
        assert (task["owner"], task["minutes"]) == ("offsetlake", 120)


def test_daily_dags_do_not_start_with_the_lifecycle(described: Any) -> None:
    minutes = {dag["schedule"].split()[0] for dag in described["dags"].values()}
    assert minutes == {"*/10", "*/5", "5"}


@pytest.mark.long
def test_documented_default_args_override_the_defaults(airflow: Callable[..., Airflow], tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    [example] = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "DEFAULT_ARGS" in block]
    (folder / "offsetlake_defaults.py").write_text(example)
    described = airflow("answering.py").script("describe.py", str(folder))
    assert described["errors"] == {}
    tasks = [task for dag in described["dags"].values() for task in dag["tasks"].values()]
    assert {(task["owner"], task["minutes"], task["pool"], task["callbacks"]) for task in tasks} == {
        ("data-platform", 360, "offsetlake_writer", 1),
    }  # fmt: skip


def test_lifecycle_tasks_have_their_upstream_tasks(described: Any) -> None:
    tasks = described["dags"]["offset_lifecycle"]["tasks"]
    assert {name: task["upstream"] for name, task in tasks.items()} == {
        "ingest": [],
        "compact": ["ingest"],
        "check_compacted": ["compact"],
        "plan_or_preview": ["check_compacted"],
        "what_if": ["plan_or_preview"],
        "expire": ["compact", "plan_or_preview"],
        "check_planned": ["expire"],
        "may_emit": ["check_planned"],
        "emit": ["may_emit"],
        "check_emitted": ["emit"],
    }
    assert {name: task["outlets"] for name, task in tasks.items() if task["outlets"]} == {
        "ingest": [f"offsetlake.{table}" for table in HISTORY],
        "compact": [f"offsetlake.{table}" for table in STATE],
        "expire": ["offsetlake.tombstones"],
        "emit": ["offsetlake.tombstones", "offsetlake.alterations"],
    }


def test_emit_requires_a_parameter_or_variable(described: Any) -> None:
    params = described["dags"]["offset_lifecycle"]["params"]
    assert params == {
        "lake": "", "log": "", "bootstrap": "", "config": "", "kafka_config": "", "kafka_conn_id": "", "emit": False,
        "dry_run": False, "what_if_retention": "",
    }  # fmt: skip
    assert (
        described["dags"]["offset_maintenance"]["params"] | {"cut_log": "", "dry_run": False}
        == (described["dags"]["offset_maintenance"]["params"])
    )


def test_maintenance_and_audit_tasks_have_their_upstream_tasks(described: Any) -> None:
    behind = {
        dag: {name: task["upstream"] for name, task in described["dags"][dag]["tasks"].items()}
        for dag in ("offset_maintenance", "offset_audit", "offset_replication")
    }
    assert behind == {
        "offset_maintenance": {
            "maintain": [],
            "incomplete_commits": ["maintain"],
            "hanging_transactions": ["maintain"],
        },
        "offset_audit": {
            "compact": [],
            "check": ["compact"],
            "has_folder": ["compact"],
            "report": ["has_folder"],
        },
        "offset_replication": {"has_standby": [], "translate": ["has_standby"]},
    }
