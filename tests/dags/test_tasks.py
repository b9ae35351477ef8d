"""What the tasks ask of `offsetlake`, with what, and what they make of the answers: it answers at once here."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.dags.airflow_runs import Airflow, new_home, program

pytestmark = pytest.mark.slow

VERSIONS = (
    "offset_commits=20,transaction_markers=21,group_records=22,share_state_records=23,quarantine=24,offsets=25,"
    "pending_offsets=26,groups=27,group_members=28,tombstones=29,alterations=30,runs=31,audit_events=32,"
    "share_partitions=33"
)
INGEST = ["ingest", "--format=json"]
COMPACT = ["compact", "--format=json", "--through-run", "11"]
CHECK = ["check", "--format=json", "--gate", "--suite=after_compact", "--versions", VERSIONS]
PLANNED = ["check", "--format=json", "--gate", "--suite=after_expire", "--versions", VERSIONS]
EMIT = [["emit", "--format=json"], ["check", "--format=json", "--gate", "--suite=after_emit", "--versions", VERSIONS]]

SECRET = "correct horse battery"  # noqa: S105 - of no account anywhere
CONNECTION = json.dumps({
    "conn_type": "kafka", "host": "c", "port": 9093, "login": "offsetlake", "password": SECRET,
    "extra": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"},
})  # fmt: skip

RUNS: list[dict[str, Any]] = [
    {"dag": "offset_lifecycle"},
    {
        "dag": "offset_lifecycle",
        "params": {"dry_run": True, "what_if_retention": "3d", "emit": True, "lake": "/prod", "bootstrap": "b:9092"},
        "environment": {"OFFSETLAKE_LOG": "/a/setting"},
    },
    {"dag": "offset_lifecycle", "params": {"emit": True, "bootstrap": "b:9092"}},
    {"dag": "offset_lifecycle", "params": {"emit": True}, "environment": {"FAILING": "after_compact"}},
    {
        "dag": "offset_lifecycle",
        "environment": {"FAILING": "after_emit", "AIRFLOW_VAR_OFFSETLAKE_EMIT": "true", "OFFSETLAKE_LOG": "/a/setting"},
    },
    {"dag": "offset_maintenance"},
    {"dag": "offset_maintenance", "params": {"cut_log": "/log", "dry_run": True}},
    {"dag": "offset_audit", "params": {"docs": "/docs"}},
    {"dag": "offset_audit"},
    {
        "dag": "offset_lifecycle",
        "params": {"kafka_conn_id": "orders", "kafka_config": "/client.properties"},
        "environment": {"AIRFLOW_CONN_ORDERS": CONNECTION, "OFFSETLAKE_LOG": "/a/setting"},
    },
    {"dag": "offset_maintenance", "environment": {"HANGING": "yes"}},
    {"dag": "offset_maintenance", "environment": {"EXIT_CODE": "6"}},
    {"dag": "offset_maintenance", "environment": {"EXIT_CODE": "8"}},
    {"dag": "offset_replication"},
    {
        "dag": "offset_replication",
        "params": {"groups": "app-*", "to": "b:1", "to_lake": "/b", "to_kafka_config": "/b.properties"},
    },
    {
        "dag": "offset_replication",
        "params": {"syncs_at": "target"},
        "environment": {"AIRFLOW_VAR_OFFSETLAKE_TO": "b:1", "AIRFLOW_VAR_OFFSETLAKE_TO_LAKE": "/b"},
    },
]
(
    ALWAYS, DRY, EMITTED, STOPPED, BY_VARIABLE, MAINTAINED, MAINTAINED_DRY, AUDITED, AUDITED_ALONE, CONNECTED, HANGING,
    UNUSABLE, REFUSED, NO_STANDBY, STANDBY, STANDBY_BY_VARIABLE,
) = range(len(RUNS))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """All of RUNS once they have run; `asked` is what the program was called with, by run."""

    states: list[dict[str, str]]
    asked: list[list[dict[str, Any]]]
    said: str
    held: dict[str, list[dict[str, Any]]]

    def words(self, run: int) -> list[list[str]]:
        return [call["words"] for call in self.asked[run]]

    def skipped(self, run: int) -> set[str]:
        return {task for task, state in self.states[run].items() if state == "skipped"}


@pytest.fixture(scope="module")
def ran(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("answering")
    at = Airflow(new_home(migrated, folder / "home"), program(folder / "programs", "answering.py"))
    records = [folder / f"asked-{number}" for number in range(len(RUNS))]
    for record in records:
        record.touch()
    runs = [
        {"params": {}, **run, "environment": run.get("environment", {}) | {"RECORD": str(record)}}
        for run, record in zip(RUNS, records, strict=True)
    ]
    found = at.script("several.py", json.dumps(runs))
    asked = [[json.loads(line) for line in record.read_text().splitlines()] for record in records]
    return Ran(found["states"], asked, found["said"], at.held())


def expire(run: int, *cluster: str) -> list[str]:
    now = f"--now=2100-01-{run + 1:02}T00:00:00+00:00"
    return ["expire", "--format=json", now, "--compacted-by", "12", *cluster]


def test_tasks_receive_the_results_of_upstream_tasks(ran: Ran) -> None:
    assert ran.words(ALWAYS) == [INGEST, COMPACT, CHECK, expire(ALWAYS), PLANNED]
    assert ran.skipped(ALWAYS) == {"what_if", "emit", "check_emitted"}
    assert "at work on ingest" in ran.said


def test_dry_run_plans_nothing(ran: Ran) -> None:
    now = f"--now=2100-01-{DRY + 1:02}T00:00:00+00:00"
    assert ran.words(DRY) == [
        INGEST, COMPACT, CHECK, ["expire", "--what-if", "--format=table", now, "--retention=3d"],
    ]  # fmt: skip
    assert ran.skipped(DRY) == {"expire", "check_planned", "may_emit", "emit", "check_emitted"}


def test_parameter_enables_emit(ran: Ran) -> None:
    assert ran.words(EMITTED) == [INGEST, COMPACT, CHECK, expire(EMITTED, "--bootstrap=b:9092"), PLANNED, *EMIT]
    assert ran.skipped(EMITTED) == {"what_if"}


def test_failed_check_ends_the_run(ran: Ran) -> None:
    assert ran.words(STOPPED) == [INGEST, COMPACT, CHECK], "it is not tried again, and nothing is planned or goes"
    states = ran.states[STOPPED]
    assert {task for task, state in states.items() if state == "success"} == {"ingest", "compact"}
    assert {task for task, state in states.items() if state == "failed"} == {"check_compacted"}
    rule = "after_compact: keys are unique; in offsets at version 3: group billing"
    assert f"AirflowFailException: offsetlake check ended with 9: error: 1 of 1 expectation failed. {rule}" in ran.said


def test_offsets_are_translated_if_there_is_a_standby(ran: Ran) -> None:
    assert (ran.words(NO_STANDBY), ran.skipped(NO_STANDBY)) == ([], {"translate"})
    end = ["--continuous", "--execute", "--format=json"]
    assert ran.words(STANDBY) == [
        ["translate", "app-*", "--to=b:1", "--to-lake=/b", "--to-kafka-config=/b.properties", "--syncs-at=source", *end]
    ]
    assert ran.words(STANDBY_BY_VARIABLE) == [["translate", "*", "--to=b:1", "--to-lake=/b", "--syncs-at=target", *end]]


def test_variable_enables_emit_and_its_check(ran: Ran) -> None:
    assert ran.words(BY_VARIABLE) == [INGEST, COMPACT, CHECK, expire(BY_VARIABLE), PLANNED, *EMIT]
    assert ran.states[BY_VARIABLE]["check_emitted"] == "failed"


def test_parameters_override_the_environment_of_the_worker(ran: Ran) -> None:
    settings = {run: {json.dumps(call["environment"]) for call in ran.asked[run]} for run in (ALWAYS, DRY, BY_VARIABLE)}
    assert settings == {
        ALWAYS: {"{}"},
        DRY: {json.dumps({"OFFSETLAKE_LAKE": "/prod", "OFFSETLAKE_BOOTSTRAP": "b:9092"})},
        BY_VARIABLE: {json.dumps({"OFFSETLAKE_LOG": "/a/setting"})},
    }


def test_assets_have_versions_and_positions(ran: Ran) -> None:
    assert ran.held["offsetlake.groups"][DRY] == {
        "lake": "/prod", "run_id": 12, "outcome": "done", "version": 27, "positions": {"__consumer_offsets-3": 55},
    }  # fmt: skip
    assert {event["version"] for event in ran.held["offsetlake.offset_commits"]} == {20}
    decided = [(event["run_id"], event["version"], event["positions"]) for event in ran.held["offsetlake.tombstones"]]
    assert decided == [(run_id, 29, {}) for run_id in (13, 13, 14, 13, 14, 13)]
    assert [event["run_id"] for event in ran.held["offsetlake.alterations"]] == [14, 14]


def test_maintenance_runs_maintain_and_finds_repairs(ran: Ran) -> None:
    in_part = ["sql", "SELECT * FROM pending_offsets WHERE commit_id IS NOT NULL", "--format=json"]
    now = f"--now=2100-01-{MAINTAINED:02}T03:05:00+00:00"
    maintain, *told = ran.words(MAINTAINED)
    assert maintain == ["maintain", "--format=json"]
    assert sorted(told) == [in_part, ["transactions", "--open-longer-than=15m", now, "--format=json"]]
    assert ran.words(MAINTAINED_DRY)[0] == ["maintain", "--log=/log", "--dry-run"]


def test_connection_is_passed_only_in_the_environment(ran: Ran) -> None:
    assert ran.words(CONNECTED)[3] == expire(CONNECTED, "--bootstrap=c:9093")
    assert {json.dumps(call["environment"], sort_keys=True) for call in ran.asked[CONNECTED]} == {
        json.dumps({
            "OFFSETLAKE_BOOTSTRAP": "c:9093",
            "OFFSETLAKE_KAFKA_CONFIG": "/client.properties",
            "OFFSETLAKE_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "OFFSETLAKE_KAFKA_SASL_PASSWORD": SECRET,
            "OFFSETLAKE_KAFKA_SASL_USERNAME": "offsetlake",
            "OFFSETLAKE_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        }, sort_keys=True)
    }  # fmt: skip
    assert SECRET not in ran.said
    assert SECRET not in json.dumps([call["words"] for call in ran.asked[CONNECTED]])


def test_hanging_transactions_fail_their_task(ran: Ran) -> None:
    assert ran.states[HANGING] == {
        "maintain": "success", "incomplete_commits": "success", "hanging_transactions": "failed",
    }  # fmt: skip
    found = "AirflowFailException: 7 transactions open for 15 minutes or longer, which block the offsets in them"
    assert f'{found}: [{{"producer_id": 0, "groups": ["ledger"]}}, ' in ran.said
    assert '"producer_id": 5' not in ran.said, "no more than some of them, and no row of an answer by itself"


@pytest.mark.parametrize(("run", "code"), [(UNUSABLE, 6), (REFUSED, 8)])
def test_permanent_errors_are_not_retried(ran: Ran, run: int, code: int) -> None:
    assert [words[0] for words in ran.words(run)] == ["maintain"]
    assert ran.states[run]["maintain"] == "failed"
    assert f"AirflowFailException: offsetlake maintain ended with {code}: error: as asked" in ran.said


def test_text_answer_is_one_log_record(ran: Ran) -> None:
    assert "group_id  now\nbilling     6" in ran.said
    assert "offsetlake check answered with 1 row" in ran.said


def test_audit_checks_everything_and_writes_the_report(ran: Ran) -> None:
    check = ["check", "--format=json", "--full", "--versions", VERSIONS, "--docs=/docs"]
    compact, *others = ran.words(AUDITED)
    assert compact == ["compact", "--format=json"]
    assert sorted(others) == [check, ["report", "--to=/docs/report.html"]]
    assert sorted(ran.words(AUDITED_ALONE)) == [["check", *check[1:-1]], compact], "no folder, no report"
    assert ran.skipped(AUDITED_ALONE) == {"report"}
