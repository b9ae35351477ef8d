"""Commits of other programs are found once, and adapted to or refused; delta-rs without our transaction makes them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import LakeBusy, LakeUnusable, TableChanged
from offsetlake.lake.definitions import STATE
from offsetlake.lake.delta import commits
from offsetlake.lake.foreign import guard
from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import FinishedRun
from offsetlake.lake.state_files import list_state_files
from offsetlake.pipeline import runner
from offsetlake.pipeline.compact import job as compact_job
from offsetlake.pipeline.compact.job import compact
from offsetlake.pipeline.compact.rebuild import rebuild
from support.command_line import Run
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import state

Other = Callable[[Lake], object]


pytestmark = pytest.mark.slow


def quiet(_text: str) -> None:
    pass


@pytest.fixture
def lake(broker_lake: Lake, tmp_path: Path) -> Lake:
    return Lake.open(Path(shutil.copytree(broker_lake.location.path, tmp_path / "lake")))


def verify(lake: Lake) -> list[str]:
    said: list[str] = []
    with guard.writing(lake, "test", said.append):
        pass
    return said


def delete(lake: Lake, table: str, where: str) -> None:
    assert lake.delta_table(table).delete(where)["num_deleted_rows"]


def optimize(lake: Lake, table: str) -> None:
    assert lake.delta_table(table).optimize.compact()["numFilesRemoved"]


def rebuilt(lake: Lake, *tables: str, log_partition: int | None = None) -> FinishedRun:
    return rebuild(InProcess, lake, quiet, tables, log_partition)  # type: ignore[arg-type]


def two_log_partitions(lake: Lake) -> list[int]:
    return sorted(list_state_files(lake, "offsets", lake.versions("offsets")["offsets"]))[:2]


def test_each_commit_is_read_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify(lake) == []
    assert lake.files.read("verified.json") == lake.versions()
    read: list[int] = []
    real = commits._read
    monkeypatch.setattr(
        commits, "_read", lambda table, version, text: read.append(version) or real(table, version, text)
    )
    verify(lake)
    guard.open_verified(lake.location.path)
    assert not read
    optimize(lake, "offsets")
    guard.refuse_changed(lake)
    assert read == [lake.versions("offsets")["offsets"]]


def test_our_own_commits_are_not_reported(lake: Lake) -> None:
    for table in lake.tables():
        found = commits.follow(lake.table_location(table), lake.delta_log(table), table, None)
        assert (found.rearranged, found.changed, found.altered) == ([], [], None), table
        assert found.version == found.readable == lake.versions(table)[table]


def test_commit_with_line_separators_in_names_is_read(lake: Lake) -> None:
    """JSON does not escape U+2028 and U+0085, which are no line ends of a commit file of Delta."""
    name = "a\u2028\x85b"
    lake.delta_table("offsets").update(updates={"group_id": f"'{name}'"}, predicate="group_id = 'ab-test'")
    with pytest.raises(TableChanged):
        guard.refuse_changed(lake, "offsets")


def test_rearranged_state_is_read_and_rewritten_as_state_files(lake: Lake) -> None:
    before, versions = state(lake), lake.versions(*STATE)
    optimize(lake, "offsets")
    assert guard.state_versions(lake) == versions, "a reader writes nothing, and reads the version before"
    with pytest.raises(LakeUnusable, match="`offsetlake compact` arranges them again"):
        list_state_files(lake, "offsets", versions["offsets"] + 1)
    (said,) = verify(lake)
    assert said.startswith(f"table offsets: version {versions['offsets'] + 1} (OPTIMIZE by delta-rs")
    assert said.endswith("rearranged files and kept all rows: verified, and 1 file rewritten")
    assert guard.state_versions(lake)["offsets"] == versions["offsets"] + 2
    assert len(list_state_files(lake, "offsets", versions["offsets"] + 2)) == 24
    assert state(lake) == before
    assert verify(lake) == []


def test_files_without_statistics_are_read(lake: Lake) -> None:
    before = state(lake)
    for table in ("offsets", "offset_commits"):
        lake.delta_table(table).alter.set_table_properties({"delta.dataSkippingStatsColumns": "topic"})
    optimize(lake, "offsets")
    verify(lake)
    compact(InProcess, lake, quiet)  # type: ignore[arg-type]
    rebuilt(lake, *STATE)
    assert state(lake) == before


def test_restored_rows_are_no_change(lake: Lake) -> None:
    version = lake.versions("offsets")["offsets"]
    delete(lake, "offsets", "topic = 'orders'")
    with pytest.raises(
        TableChanged, match=rf"table offsets .*version {version + 1} \(DELETE by delta-rs.*rebuild --table"
    ):
        guard.open_verified(lake.location.path)
    lake.delta_table("offsets").restore(version)
    verify(lake)
    lake.delta_table("offsets").restore(version - 1)
    with pytest.raises(TableChanged, match="RESTORE"):
        verify(lake)


def _log_without_a_version(lake: Lake) -> None:
    delete(lake, "offsets", "topic = 'orders'")
    deleted = lake.versions("offsets")["offsets"]
    lake.delta_table("offsets").alter.set_table_properties({"delta.checkpointInterval": "50"})
    lake.delta_table("offsets").create_checkpoint()
    (lake.table_location("offsets").path / "_delta_log" / f"{deleted:020}.json").unlink()


def _older_copy(lake: Lake) -> None:
    log = lake.table_location("offsets").path / "_delta_log"
    (log / f"{lake.versions('offsets')['offsets']:020}.json").unlink()


@pytest.mark.parametrize("other", [_log_without_a_version, _older_copy])
def test_unreadable_commits_are_refused_until_a_rebuild(lake: Lake, other: Other) -> None:
    before = state(lake)
    verify(lake)
    other(lake)
    with pytest.raises(TableChanged, match=r"table offsets .* cannot be verified"):
        verify(lake)
    rebuilt(lake, "offsets")
    verify(lake)
    assert state(lake) == before


def test_rebuild_of_a_log_partition_repairs_only_that_one(lake: Lake) -> None:
    before = state(lake)
    first, second = two_log_partitions(lake)
    delete(lake, "offsets", f"log_partition IN ({first}, {second})")
    (note,) = rebuilt(lake, "offsets", log_partition=first).notes
    assert note.startswith("still unusable: rows of table offsets")
    with pytest.raises(TableChanged):
        verify(lake)
    assert rebuilt(lake, "offsets", log_partition=second).notes == ()
    verify(lake)
    assert state(lake) == before


def test_log_partitions_in_one_file_are_rebuilt_together(lake: Lake) -> None:
    before = state(lake)
    first, second = two_log_partitions(lake)
    delete(lake, "offsets", f"log_partition IN ({first}, {second})")
    optimize(lake, "offsets")
    assert rebuilt(lake, "offsets", log_partition=second).notes[0].startswith("still unusable")
    rebuilt(lake, "offsets", log_partition=first)
    verify(lake)
    assert state(lake) == before


@pytest.mark.long
def test_compaction_fails_if_files_are_rearranged_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit would take files away that are no longer there, and leave their rows in the table twice."""
    before = state(lake)["offsets"]
    real = compact_job.distribute

    def meanwhile(*arguments: Any) -> Any:
        made = real(*arguments)
        optimize(lake, "offsets")
        return made

    monkeypatch.setattr(compact_job.runs, "last_run", _nothing_compacted(compact_job.runs.last_run))
    monkeypatch.setattr(compact_job, "distribute", meanwhile)
    with pytest.raises(LakeBusy, match="another program rearranged the files of table offsets"):
        compact(InProcess, lake, quiet)  # type: ignore[arg-type]
    monkeypatch.undo()
    compact(InProcess, lake, quiet)  # type: ignore[arg-type]
    assert state(lake)["offsets"] == before


def _nothing_compacted(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda lake, job, *more: None if job == "compact" else real(lake, job, *more)


def test_commands_refuse_a_changed_table_until_it_is_rebuilt(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    _, before, _ = run("offsets", "--format", "json", "--lake", str(lake.location.path))
    delete(lake, "offsets", "topic = 'orders'")
    for command in (["offsets"], ["groups"], ["check"], ["compact"], ["expire"], ["expire", "--what-if"], ["maintain"]):
        code, out, err = run(*command, "--lake", str(lake.location.path))
        assert (code, out) == (10, ""), command
        assert "offsetlake rebuild --table offsets" in err
    code, out, err = run(
        "sql", "SELECT count(*) AS n FROM offsets", "--format", "json", "--lake", str(lake.location.path)
    )
    assert code == 0
    assert json.loads(out)["n"] == lake.count("offsets")
    assert err.startswith("warning: rows of table offsets")
    code, out, err = run("rebuild", "--table", "offsets", "--lake", str(lake.location.path))
    assert code == 0, err
    assert "Rebuilt from history in" in out
    assert "rebuilding offsets: 0 of" in err
    assert run("offsets", "--format", "json", "--lake", str(lake.location.path))[:2] == (0, before)
    code, _, err = run("rebuild", "--table", "offset", "--lake", str(lake.location.path))
    assert (code, "Unknown table 'offset'" in err) == (2, True)


def test_a_verified_lake_keeps_its_tables_until_they_change(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = Lake._open_table
    monkeypatch.setattr(Lake, "_open_table", lambda *given: opened.append(given[1]) or real(*given))
    verified = guard.VerifiedLake(lake.location)
    count = "SELECT count(*) AS n FROM offsets"
    for _ in range(2):
        offsets = verified.open().query(count, "offsets").to_pylist()
    assert opened == ["offsets"]
    optimize(lake, "offsets")
    opened.clear()
    assert verified.open().query(count, "offsets").to_pylist() == offsets
    assert opened == ["offsets"]
    delete(lake, "offsets", "topic = 'orders'")
    with pytest.raises(TableChanged, match="table offsets"):
        verified.open()
    with pytest.raises(TableChanged, match="table offsets"):
        verified.open()


def test_a_verified_lake_is_read_at_the_versions_at_which_it_was_opened(lake: Lake) -> None:
    verified = guard.VerifiedLake(lake.location)
    first, versions = verified.open(), lake.versions()
    optimize(lake, "offsets")
    assert first.versions() == versions
    assert first.delta_table("offsets").version() == versions["offsets"]
    newest = verified.open()
    assert newest.versions() == lake.versions() == versions | {"offsets": versions["offsets"] + 1}
    assert newest.delta_table("offsets").version() == versions["offsets"] + 1
    assert first.delta_table("offsets", version=0).version() == 0
