"""Who reset this, when, from what to what: done by real clients and by jobs, ingested, and told."""

import getpass
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.ingest import job as ingest_module
from offsetlake.pipeline.ingest.job import ingest
from offsetlake.util.times import to_iso
from support.broker import workload
from support.broker.broker import java
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, rows
from support.lakes import new_lake
from support.oracle.dump_log import run_dump_log
from support.serve.serving import Serving

pytestmark = pytest.mark.slow

GROUP, TOPIC = "billing", "orders"
USER, HOST = f"os:{getpass.getuser()}", socket.gethostname()
ANYBODY = "User:ANONYMOUS"


def tool(bootstrap: str, *arguments: str) -> None:
    """kafka-consumer-groups."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = java(main, "--bootstrap-server", bootstrap, "--group", GROUP, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was served: a client committed, and tools set back, deleted."""
    folder = tmp_path_factory.mktemp("audit_events")
    with Serving(folder / "lake", folder / "log") as serving:
        workload.simple_commit(serving.bootstrap, GROUP, {(TOPIC, 0): 42, (TOPIC, 1): 7})
        workload.simple_commit(serving.bootstrap, "old", {(TOPIC, 0): 1})
        tool(serving.bootstrap, "--reset-offsets", "--topic", f"{TOPIC}:0", "--to-offset", "10", "--execute")
        tool(serving.bootstrap, "--delete-offsets", "--topic", f"{TOPIC}:1")
        workload.delete_group(serving.bootstrap, "old")
    cycle(InProcess(), Lake.open(folder / "lake"), folder / "log")
    return folder


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """The same, to go on with; where commands run."""
    for name in ("lake", "log"):
        shutil.copytree(done / name, tmp_path / name)
    return tmp_path


def asked(run: Run, *arguments: str) -> Rows:
    code, out, err = run(*arguments, "--format", "json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def history(run: Run, partition: int) -> list[tuple[Any, ...]]:
    found = asked(run, "history", "--group", GROUP, "--topic", TOPIC, "--partition", str(partition))
    columns = ("event", "previous_offset", "committed_offset", "what", "principal", "client_id")
    hosts = {row["address"].partition(":")[0] for row in found if row["address"]}
    assert hosts <= {"127.0.0.1", HOST}
    return [tuple(row[name] for name in columns) for row in found]


COMMITTED = ("commit", None, 42, "commit", ANYBODY, "rdkafka")
SET_BACK = ("reset_back", 42, 10, "commit", ANYBODY, "adminclient-1")


@pytest.mark.long
def test_events_of_clients_are_recorded(run: Run, copied: Path) -> None:
    assert history(run, 0) == [SET_BACK, COMMITTED]
    assert history(run, 1) == [
        ("tombstone", 7, None, "delete offsets", ANYBODY, "adminclient-1"),
        ("commit", None, 7, "commit", ANYBODY, "rdkafka"),
    ]
    told = asked(run, "audit-events")
    assert [(row["what"], row["group_id"]) for row in told] == [
        ("delete group", "old"), ("delete offsets", GROUP), ("commit", GROUP), ("commit", "old"), ("commit", GROUP),
    ]  # fmt: skip
    assert run("audit-events", "--limit", "1")[1].splitlines()[0].split() == [
        "log_timestamp", "what", "group_id", "principal", "client_id", "address", "log_partition", "log_offset",
        "last_log_offset",
    ]  # fmt: skip


def reset(run: Run, offset: int) -> None:
    code, _, err = run("reset", GROUP, "--topic", TOPIC, "--to-offset", str(offset), "--execute", "--log", "log")
    assert code == 0, err


@pytest.mark.long
def test_events_of_jobs_are_recorded(run: Run, copied: Path) -> None:
    """Through the door of a server, and into the folder itself: the same is told."""
    with Serving(copied / "lake", copied / "log"):
        reset(run, 5)
    reset(run, 3)
    cycle(InProcess(), Lake.open(copied / "lake"), copied / "log")
    told = ("reset", USER, "offsetlake reset")
    assert history(run, 0) == [("reset_back", 5, 3, *told), ("reset_back", 10, 5, *told), SET_BACK, COMMITTED]
    assert [row["what"] for row in asked(run, "audit-events", "--principal", USER)] == ["reset", "reset"]
    since = asked(run, "history", "--group", GROUP, "--topic", TOPIC, "--partition", "0")[0]["log_timestamp"]
    assert len(asked(run, "audit-events", "--since", to_iso(since), "--group", "bill*")) == 1


def test_events_of_retention_are_recorded(run: Run, copied: Path) -> None:
    for command in ("expire --now 2100-01-01", "emit --log log"):
        code, _, err = run(*command.split())
        assert code == 0, err
    cycle(InProcess(), Lake.open(copied / "lake"), copied / "log")
    assert history(run, 0)[0] == ("tombstone", 10, None, "expire", USER, "offsetlake emit")


def test_kafka_log_dump_names_the_headers(done: Path) -> None:
    dumped = run_dump_log(sorted((done / "log").glob("*/*.log")))
    assert dumped.count("headerKeys: [act.what,act.principal,act.client,act.address]") == 5


@pytest.mark.long
def test_resumed_ingest_reads_each_event_once(done: Path, tmp_path: Path) -> None:
    """Behind each table: the next run does the same again, and passes over what is there."""
    log, whole = LogAddress(folder=done / "log"), rows(Lake.open(done / "lake"), "audit_events")
    commit = ingest_module.commit
    for last in ingest_module.HISTORY:
        lake = new_lake(tmp_path / last)

        def cut(of: Lake, table: str, *rest: Any, last: str = last) -> None:
            commit(of, table, *rest)
            if table == last:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ingest_module, "commit", cut)
            with pytest.raises(KeyboardInterrupt):
                ingest(InProcess, lake, log, lambda _: None)  # type: ignore[arg-type]
        for _ in range(2):
            ingest(InProcess, lake, log, lambda _: None)  # type: ignore[arg-type]
        assert rows(lake, "audit_events") == whole


def without_versions(entry: Path) -> None:
    """Remove from a commit of `runs` what older versions did not write: the versions of tables, and the checksum."""
    first, newline, rest = entry.read_text(encoding="utf-8").partition("\n")
    info = json.loads(first)["commitInfo"]
    left = {name: value for name, value in info.items() if name not in ("offsetlake.versions", "offsetlake.checksum")}
    assert len(left) == len(info) - 2
    entry.write_text(json.dumps({"commitInfo": left}) + newline + rest, encoding="utf-8")


def test_lake_without_audit_events_is_upgraded(run: Run, copied: Path) -> None:
    lake = copied / "lake"
    shutil.rmtree(lake / "audit_events")
    (lake / "offsetlake.json").write_text('{"version": 4}')
    (lake / "verified.json").unlink()  # such a lake has none, and another table in the place of one is refused
    without_versions(max((lake / "runs" / "_delta_log").glob("*.json")))
    assert [row[3:] for row in history(run, 0)] == [(None, None, None)] * 2
    reset(run, 5)
    cycle(InProcess(), new_lake(lake), copied / "log")
    assert [row["what"] for row in asked(run, "audit-events")] == ["reset"], "what was read before is not read again"
