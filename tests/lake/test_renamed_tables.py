"""Lakes of version 5, whose table `audit_events` was named `acts`: read as they are, and upgraded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from offsetlake.errors import LakeUnusable
from offsetlake.lake import definitions
from offsetlake.lake.definitions import LAKE_VERSION, TABLES
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.foreign.guard import open_verified, refuse_changed, writing
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import folder as folder_module
from offsetlake.lake.scratch import scratch
from offsetlake.lake.small_files import SmallFiles
from offsetlake.pipeline.checks.expectations import evidence, pinned, read_suites
from offsetlake.queries import questions
from offsetlake.queries.run_changes import list_runs
from support.queries.lakes import commit, small_lake

EVENT = {
    "ingest_run": 1, "log_partition": 0, "log_offset": 4, "last_log_offset": 4, "log_timestamp": 4, "group_id": "g",
    "what": "commit", "principal": "User:alice", "client_id": "c", "address": "a",
}  # fmt: skip
RANGE = {"topic": "__consumer_offsets", "partition": 0, "start": 4, "end": 5}
POSITION = {"topic": "__consumer_offsets", "partition": 0, "position": 5, "tail_checksum": None}
RUN = {"started_at": 1, "finished_at": 2}
COUNTS = [("offset_commits", 1), ("acts", 1)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A lake as a program of lake version 5 wrote it: an ingest, and a compaction."""
    ingested = {**RUN, "run_id": 1, "job": "ingest", "counts": COUNTS, "ranges": [RANGE], "positions": [POSITION]}
    compacted = {**RUN, "run_id": 2, "job": "compact", "counts": [], "through_run": 1}
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(4, 10)], runs=[ingested, compacted])
    new, former = lake.location.path / "audit_events", lake.location.path / "acts"
    schema = DeltaTable(new).schema()
    for file in sorted(new.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    new.rmdir()
    properties = {"delta.appendOnly": "true"}
    made = DeltaTable.create(
        former, schema, name="acts", description="Who did it", configuration=properties, commit_properties=ours("c", 5)
    )
    made.alter.add_constraint({"log_position_known": "log_offset >= 0"}, commit_properties=ours("c", 5))
    row = pa.Table.from_pylist([EVENT], schema=pa.schema(schema.to_arrow()))
    write_deltalake(former, row, mode="append", commit_properties=ours("ingest", 1))
    versions = lake.versions(*(table for table in TABLES if table != "audit_events"))
    (lake.location.path / "verified.json").write_text(json.dumps(versions | {"acts": DeltaTable(former).version()}))
    (lake.location.path / "offsetlake.json").write_text('{"version": 5}')
    return lake.location.path


def _is_upgraded(path: Path) -> None:
    lake = Lake.open(path)
    table = lake.delta_table("audit_events")
    assert (lake.version(), (path / "acts").exists()) == (LAKE_VERSION, False)
    assert (table.metadata().name, table.metadata().description) == (
        "audit_events", definitions.definition("audit_events").comment,
    )  # fmt: skip
    assert questions.audit_events(lake).to_pylist() == [EVENT]
    refuse_changed(lake)


def test_older_lake_is_read_without_being_changed(old: Path) -> None:
    lake = open_verified(old)
    assert questions.audit_events(lake).to_pylist() == [EVENT]
    assert questions.history(lake, "g", "t", 0)["principal"].to_pylist() == ["User:alice"]
    assert lake.query("SELECT principal FROM audit_events").num_rows == 1
    assert (old / "acts").exists()
    assert lake.version() == 5


def test_older_lake_is_upgraded_when_it_is_opened_for_writing(old: Path) -> None:
    lake = Lake.create(old)
    _is_upgraded(old)
    with writing(lake, "test", lambda _: None):
        pass
    assert json.loads((old / "verified.json").read_text()) == lake.versions(), (
        "all commits are verified, under new names"
    )


def test_scratch_copy_of_older_lake_is_upgraded_and_the_lake_is_not(old: Path) -> None:
    with scratch(Lake.open(old)) as copy:
        _is_upgraded(copy.location.path)
    assert questions.audit_events(Lake.open(old)).to_pylist() == [EVENT]
    assert (old / "acts").exists()


@pytest.mark.slow
def test_counts_under_the_former_name_are_understood(old: Path) -> None:
    for lake in (Lake.open(old), Lake.create(old)):
        (suite,) = read_suites(["after_compact"])
        found = evidence(lake, suite, pinned(lake, [suite], {}), 0)
        broken = [each.column for each, seen in zip(suite.expectations, found, strict=True) if seen.rows]
        assert "ingests_with_other_rows" not in broken
        ingest = next(row for row in list_runs(lake).to_pylist() if row["job"] == "ingest")
        assert ingest["records_read"] == 1
        assert dict(ingest["counts"]) == {"offset_commits": 1, "audit_events": 1}


def _interrupted(function: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """Return a function that is killed before or after it does its work."""

    def killed(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise KeyboardInterrupt

    return killed


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Path, "rename"),
        (folder_module, "to_disk"),
        (definitions.DeltaTable, "metadata"),
        (definitions, "add_checks"),
        (SmallFiles, "write"),
    ],
)
def test_upgrade_that_is_killed_is_finished_by_the_next(
    old: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, _interrupted(getattr(owner, name), after=after))
        with pytest.raises(KeyboardInterrupt):
            Lake.create(old)
    assert questions.audit_events(open_verified(old)).to_pylist() == [EVENT], "a reader needs no upgrade"
    Lake.create(old)
    _is_upgraded(old)
    versions = Lake.open(old).versions()
    Lake.create(old)
    assert Lake.open(old).versions() == versions


def test_lake_whose_first_creation_was_killed_before_the_rename_is_finished(old: Path) -> None:
    (old / "offsetlake.json").unlink()
    (old / "verified.json").unlink()
    Lake.create(old)
    _is_upgraded(old)


def test_table_under_both_names_is_refused(old: Path) -> None:
    (old / "audit_events").mkdir()
    with pytest.raises(LakeUnusable, match="contains the table audit_events also under its former name acts"):
        Lake.create(old)
