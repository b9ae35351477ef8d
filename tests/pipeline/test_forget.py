"""`forget`: no file of the lake contains the name of a forgotten principal, whenever the job was interrupted."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from offsetlake.lake import upkeep
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.foreign.guard import adapt, refuse_changed
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.maintain import forget as forget_job
from offsetlake.pipeline.maintain.forget import forget, rows_about
from support.command_line import Run
from support.e2e.lakes import rows
from support.e2e.lakes import upkeep as maintain
from support.queries.lakes import Row, commit, small_lake

ALICE = {"principal": "User:alice", "client_id": "alice-laptop", "address": "10.0.0.8:51234"}
BOB = {"principal": "User:bob", "client_id": "reader", "address": "10.0.0.9:40000"}


def event(offset: int, who: dict[str, str]) -> Row:
    return {"log_offset": offset, "last_log_offset": offset, "log_timestamp": 1_000 * offset, **who}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = small_lake(tmp_path / "lake", offset_commits=[commit(1, 1)], audit_events=[event(1, ALICE), event(2, BOB)])
    small_lake(made.location.path, audit_events=[event(3, BOB)])
    small_lake(made.location.path, audit_events=[event(4, ALICE)])
    made.delta_table("audit_events").optimize.compact(commit_properties=ours("test", 2))
    upkeep.checkpoint(made, "audit_events")
    adapt(made, quiet)
    return made


def quiet(_text: str) -> None:
    pass


def names_in(lake: Lake) -> set[str]:
    """Return which of the names any file of the lake contains: data files, checkpoints, log entries and plans."""
    texts = []
    for file in lake.location.path.rglob("*"):
        if file.name.endswith(".parquet"):
            texts.append(repr(pq.read_table(file).to_pylist()))
        elif file.is_file():
            texts.append(file.read_text(encoding="utf-8"))
    return {name for name in ("alice", "10.0.0.8", "bob", "10.0.0.9") if any(name in text for text in texts)}


def assert_forgotten(lake: Lake) -> None:
    assert names_in(lake) == {"bob", "10.0.0.9"}
    found = [tuple(row[name] for name in ("log_offset", *ALICE)) for row in rows(lake, "audit_events")]
    nobody = ("forgotten", None, None)
    assert sorted(found) == [(1, *nobody), (2, *BOB.values()), (3, *BOB.values()), (4, *nobody)]
    refuse_changed(lake)
    configuration = lake.delta_table("audit_events").metadata().configuration
    assert configuration["delta.appendOnly"] == "true"


@pytest.mark.long
def test_no_file_contains_the_principal(lake: Lake) -> None:
    assert names_in(lake) == {"alice", "10.0.0.8", "bob", "10.0.0.9"}
    report = forget(lake, "User:alice", quiet)
    assert_forgotten(lake)
    assert (report.outcome, report.counts) == ("done", {"audit_events": 2})
    assert forget(lake, "User:alice", quiet).outcome == "nothing new"
    small_lake(lake.location.path, audit_events=[event(5, BOB)])
    maintain(lake)
    assert lake.count("audit_events") == 5


STEPS = ("replace_files", "record", "upkeep.vacuum", "upkeep.remove_log", "upkeep.checkpoint", "current_run.finish")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_interrupted_run_is_resumed(lake: Lake, step: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        _interrupt(patched, step, after=after)
        with pytest.raises(KeyboardInterrupt):
            forget(lake, "User:alice", quiet)
    forget(lake, "User:alice", quiet)
    assert_forgotten(lake)
    runs = [row for row in rows(lake, "runs") if row["job"] == "forget"]
    assert [dict(run["counts"]) for run in runs if run["outcome"] == "done"] == [{"audit_events": 2}]


def _interrupt(patched: pytest.MonkeyPatch, step: str, *, after: bool) -> None:
    *modules, name = step.split(".")
    owner: Any = getattr(forget_job, modules[0]) if modules else forget_job
    real = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if after:
            real(*arguments, **options)
        raise KeyboardInterrupt

    patched.setattr(owner, name, interrupted)


def test_interrupted_run_of_another_principal_is_resumed_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        _interrupt(patched, "replace_files", after=False)
        with pytest.raises(KeyboardInterrupt):
            forget(lake, "User:bob", quiet)
    forget(lake, "User:alice", quiet)
    assert names_in(lake) == set()
    assert {row["principal"] for row in rows(lake, "audit_events")} == {"forgotten"}


def test_plan_is_printed_first(lake: Lake, run: Run) -> None:
    record = {"log_offset": 9, "group_id": "g", "kind": "value", "record_name": "GroupMetadata"}
    small_lake(lake.location.path, group_records=[{**record, "value": '{"members":[{"clientHost":"/10.0.0.8"}]}'}])
    found = {row["table"]: (row["rows"], row["action"]) for row in rows_about(lake, "User:alice").to_pylist()}
    assert found == {"audit_events": (2, "replace"), "group_members": (0, "keep"), "group_records": (1, "keep")}
    where = ("--principal", "User:alice", "--lake", str(lake.location.path))
    code, out, error = run("forget", *where, "--format", "json")
    assert (code, json.loads(out.splitlines()[0])["rows"]) == (0, 2)
    assert "Nothing was changed: with --execute" in error
    assert "alice" in names_in(lake)
    code, out, error = run("forget", *where, "--execute")
    assert code == 0
    assert "Replaced the principal in 2 audit events" in out
    assert "remains in the log itself" in error
    assert names_in(lake) == {"bob", "10.0.0.8", "10.0.0.9"}, "the record of the group has the host"
