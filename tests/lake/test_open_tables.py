"""Commits by copies of Delta logs: each takes the next version or is refused, and other programs read the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions

from offsetlake.errors import LakeBusy
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit
from offsetlake.lake.foreign import remake
from offsetlake.lake.foreign.remake import replace_table
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.folder import Folder
from offsetlake.util.atomic_files import temporary_of
from support.e2e.lakes import rows

TABLE = "history_cuts"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture
def locked(lake: Lake) -> Iterator[Lake]:
    with lake.lock("test"):
        yield lake


def add_row(lake: Lake, number: int, job: str = "test") -> None:
    """Commit a row with this number, by a run of the same number."""
    file = TableFile(lake, TABLE)
    file.write_rows([{"run_id": number, "scope": "history", "through_run": number, "begins_timestamp": None}])
    commit(lake, TABLE, [FileChanges(file.close())], job, number)


def numbers(lake: Lake) -> list[int]:
    return sorted(row["run_id"] for row in rows(Lake.open(lake.location), TABLE))


def names_in_log(lake: Lake) -> list[str]:
    return lake.table_location(TABLE).child("_delta_log").names()


def test_commits_of_two_processes_get_different_versions(locked: Lake) -> None:
    """The other process has not locked the lake, as any other engine."""
    first = locked.versions(TABLE)[TABLE]
    add_row(locked, 1)
    add_row(Lake.open(locked.location), 2, "other")
    add_row(locked, 3)
    assert numbers(locked) == [1, 2, 3]
    assert locked.versions(TABLE)[TABLE] == first + 3
    with locked.open_tables() as tables:
        assert tables.log(TABLE).newest() == DeltaTable(str(locked.table_location(TABLE))).version()


def test_commits_are_verified_up_to_the_first_of_others(locked: Lake) -> None:
    with locked.open_tables() as tables:
        tables.mark_verified(locked.versions(TABLE))
        add_row(locked, 1)
        verified = locked.versions(TABLE)
        assert tables.verified() == verified
        add_row(Lake.open(locked.location), 2, "other")
        add_row(locked, 3)
        assert tables.verified() == verified


def test_checkpoints_are_written_and_read(locked: Lake) -> None:
    for number in range(1, 13):
        add_row(locked, number)
    assert f"{9:020}.checkpoint.parquet" in names_in_log(locked)
    for name in names_in_log(locked):
        if name < f"{9:020}.checkpoint":
            locked.table_location(TABLE).child("_delta_log").discard(name)
    add_row(Lake.open(locked.location), 13)
    assert numbers(locked) == [*range(1, 14)]


@pytest.mark.parametrize(
    "lost",
    [
        ["_last_checkpoint", *(f"{version:020}.json" for version in range(9))],
        ["_last_checkpoint", f"{9:020}.checkpoint.parquet"],
    ],
    ids=["named by no file", "not there"],
)
def test_checkpoint_of_other_programs_is_found(lake: Lake, lost: list[str]) -> None:
    for number in range(1, 13):
        add_row(lake, number)
    for name in lost:
        lake.table_location(TABLE).child("_delta_log").discard(name)
    with lake.lock("test"):
        add_row(lake, 13)
    assert numbers(lake) == [*range(1, 14)]


def test_log_of_a_locked_lake_is_copied_once(locked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add_row(locked, 1)
    monkeypatch.setattr(type(locked.location), "read", lambda *_: pytest.fail("the log is read again"))
    monkeypatch.setattr(type(locked.location), "names", lambda *_: pytest.fail("the log is listed again"))
    add_row(locked, 2)
    assert len(active_files(locked, TABLE)) == 2
    assert locked.count(TABLE) == 2


def test_copies_of_logs_are_removed_when_a_lock_fails(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(location: Folder, after: str = "") -> list[str]:
        raise PermissionError(f"list {location} after {after!r}")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Folder, "names", denied)
    failure = pytest.raises(PermissionError, match="list")
    with failure as raised, lake.lock("test"):
        pass
    assert raised.value.__traceback__ is not None  # its frames keep alive what the lock made
    assert not [*tmp_path.glob("offsetlake-logs-*")]


def test_commit_follows_one_of_others_that_was_read_after_the_table_was_opened(lake: Lake) -> None:
    for number in range(1, 13):  # writes a checkpoint
        add_row(lake, number)
    with lake.lock("test"), lake.open_tables() as tables:
        log = tables.log(TABLE)
        log.open()
        add_row(Lake.open(lake.location), 13, "other")
        for name in log.names():  # from before the checkpoint, as if older commits were to be verified
            log.read(name)
        add_row(lake, 14)
        add_row(lake, 15)
    assert numbers(lake) == [*range(1, 16)]
    entries = [name for name in names_in_log(lake) if name.endswith(".json")]
    assert entries == [f"{version:020}.json" for version in range(len(entries))]


def test_process_whose_lease_is_taken_over_while_it_replaces_all_rows_commits_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaTable(str(lake.table_location(TABLE))).alter.set_table_properties({"delta.appendOnly": "false"})
    add_row(lake, 1)
    file = TableFile(lake, TABLE)
    file.write_rows([{"run_id": 3, "scope": "history", "through_run": 3, "begins_timestamp": None}])

    def after_a_fence(*arguments: Any, **options: Any) -> None:
        with Lake.open(lake.location).open_tables() as tables:
            tables.commit(TABLE, [], ours("fence", 1, epoch=1))
        create_table_with_add_actions(*arguments, **options)

    monkeypatch.setattr(remake, "create_table_with_add_actions", after_a_fence)
    with lake.lock("test"), pytest.raises(LakeBusy, match="has taken over the lease"):
        replace_table(lake, TABLE, file.close(), "rebuild", 3)
    assert numbers(lake) == [1]


def test_commit_whose_answer_was_lost_is_not_repeated(locked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    create, answers = Folder.create, iter([False])

    def losing_the_first_answer(folder: Folder, name: str, content: bytes) -> bool:
        return create(folder, name, content) and next(answers, True)

    monkeypatch.setattr(Folder, "create", losing_the_first_answer)
    before = locked.versions(TABLE)[TABLE]
    add_row(locked, 1)
    assert (numbers(locked), locked.versions(TABLE)[TABLE]) == ([1], before + 1)


def test_temporary_file_of_a_killed_process_does_not_change_what_it_links_to(tmp_path: Path) -> None:
    entry = tmp_path / "other"
    entry.write_text("content")
    temporary_of(tmp_path / "new").symlink_to(entry)
    assert Folder(tmp_path).create("new", b"new content")
    assert (entry.read_text(), (tmp_path / "new").read_text()) == ("content", "new content")
