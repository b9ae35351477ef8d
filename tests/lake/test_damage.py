"""Damaged files of tables are noticed by the commands that read them, and named with the command that repairs them."""

import re
import shutil
from pathlib import Path

import pytest

from offsetlake.lake.definitions import REDUCED_HISTORY, STATE, TABLES
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from support.command_line import Run
from support.damage import CHECKPOINTS, COMMITS, DATA, HINTS, flip_page
from support.e2e.in_process import InProcess, NoSpark
from support.e2e.lakes import plan_expiry, state
from support.long_cases import long_cases

pytestmark = pytest.mark.slow

EVERY = COMMITS | CHECKPOINTS | HINTS | DATA
ONE_TABLE_EACH = [*zip(("offset_commits", "runs", "tombstones"), CHECKPOINTS, strict=True)]
UNUSABLE, CHANGED = 6, 10  # exit codes
EXPIRE = ["expire", "--now", "2100-01-01"]

Tables = dict[str, list[dict[str, object]]]


@pytest.fixture(scope="module")
def planned_lake(broker_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that also has planned tombstones."""
    folder = tmp_path_factory.mktemp("planned") / "lake"
    lake = Lake.open(Path(shutil.copytree(broker_lake.location.path, folder)))
    plan_expiry(InProcess(), lake)
    return lake


@pytest.fixture(scope="module")
def expected(planned_lake: Lake) -> Tables:
    return state(planned_lake)


@pytest.fixture
def folder(planned_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    return Path(shutil.copytree(planned_lake.location.path, tmp_path / "lake"))


def check_noticed(run: Run, folder: Path, table: str, *command: str) -> str:
    """Check that a command ends with one sentence about a table; return the command that it says to run."""
    exit_code, _, errors = run(*command, "--lake", str(folder))
    assert exit_code in (UNUSABLE, CHANGED), (command, errors)
    message = errors.strip().split("\n")[-1]
    assert message.startswith("error: "), errors
    assert f"table {table} of the lake {folder}" in message
    assert "restore" in message or "new lake" in message or "`offsetlake rebuild --table " in message
    return next(iter(re.findall(r"`(offsetlake rebuild --table \w+)`", message)), "")


def repair(run: Run, folder: Path, command: str) -> None:
    exit_code, _, errors = run(*command.split()[1:], "--lake", str(folder))
    assert exit_code == 0, errors
    for words in (EXPIRE, ["check", "--full"]):  # the expiry may have been interrupted
        exit_code, _, errors = run(*words, "--lake", str(folder))
        assert exit_code == 0, errors


@pytest.mark.parametrize(
    "kind",
    ["newest commit empty", "data file cut", *long_cases(("newest commit missing", "log missing", "checkpoint torn"))],
)
def test_state_table_is_rebuilt_whatever_is_damaged(run: Run, folder: Path, kind: str, expected: Tables) -> None:
    EVERY[kind](folder / "offsets")
    for command in (["offsets"], EXPIRE, ["sql", "SELECT * FROM offsets"]):
        if kind in ("newest commit missing", "table missing") and command[0] == "sql":
            continue  # a warning
        assert check_noticed(run, folder, "offsets", *command) == "offsetlake rebuild --table offsets"
    repair(run, folder, "offsetlake rebuild --table offsets")
    assert state(Lake.open(folder)) == expected


@pytest.mark.parametrize("kind", ["newest commit empty", "commit in the middle empty", "data file cut"])
def test_loss_of_history_is_said(run: Run, folder: Path, kind: str) -> None:
    EVERY[kind](folder / "offset_commits")
    for command in (["offsets", "--as-of", "2100-01-01"], ["rebuild"]):
        assert not check_noticed(run, folder, "offset_commits", *command)


@pytest.mark.parametrize(("table", "kind"), ONE_TABLE_EACH)
def test_damaged_checkpoint_loses_nothing(run: Run, folder: Path, kind: str, table: str, expected: Tables) -> None:
    EVERY[kind](folder / table)
    command = check_noticed(run, folder, table, "sql", f"SELECT * FROM {table}")
    repair(run, folder, command)
    assert state(Lake.open(folder)) == expected


@pytest.mark.parametrize("kind", HINTS)
def test_hint_that_is_not_valid_is_ignored(run: Run, folder: Path, kind: str, expected: Tables) -> None:
    for table in TABLES:
        EVERY[kind](folder / table)
    assert state(Lake.open(folder)) == expected
    assert run("check", "--lake", str(folder))[0] == 0


@pytest.mark.long
def test_older_copy_is_noticed_although_what_was_verified_is_older_too(
    run: Run, folder: Path, expected: Tables
) -> None:
    COMMITS["newest commit missing"](folder / "offsets")
    (folder / "verified.json").unlink()
    for command in (["offsets"], EXPIRE):
        assert check_noticed(run, folder, "offsets", *command) == "offsetlake rebuild --table offsets"
    repair(run, folder, "offsetlake rebuild --table offsets")
    assert state(Lake.open(folder)) == expected


def test_changed_page_is_found_by_checksums(run: Run, folder: Path) -> None:
    flip_page(folder / "offset_commits")
    for command in (["check", "--full"], ["rebuild", "--table", "offsets"]):
        assert not check_noticed(run, folder, "offset_commits", *command)


def damaged(folder: Path, kind: str, *tables: str) -> list[str]:
    """Damage tables; return those that have such files."""
    done = []
    for table in tables:
        try:
            EVERY[kind](folder / table)
        except (FileNotFoundError, IndexError):
            continue
        done.append(table)
    return done


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY)
def test_damage_of_every_table_is_noticed(run: Run, folder: Path, kind: str) -> None:
    """No command ends with a stack trace."""
    whole = Path(shutil.copytree(folder, folder.with_name("whole")))
    for table in TABLES:
        if not damaged(folder, kind, table):
            continue
        exit_code, _, errors = run("sql", f"SELECT * FROM {table}", "--lake", str(folder))
        assert exit_code in (0, UNUSABLE, CHANGED), (table, errors)
        assert exit_code != 0 or "warning: table" in errors or kind in HINTS, table
        if table in (*REDUCED_HISTORY, "runs") and kind in COMMITS:
            exit_code, _, errors = run("rebuild", "--lake", str(folder))
            assert exit_code in (UNUSABLE, CHANGED), (table, errors)
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", EVERY)
def test_damage_of_all_tables_that_history_determines_is_repaired(
    run: Run, folder: Path, kind: str, expected: Tables
) -> None:
    assert damaged(folder, kind, *(TABLES if kind in CHECKPOINTS | HINTS else STATE))
    for command in (["groups"], EXPIRE):
        exit_code, _, errors = run(*command, "--lake", str(folder))
        assert exit_code == 0 if kind in HINTS else exit_code in (UNUSABLE, CHANGED), (command, errors)
    exit_code, _, errors = run("rebuild", "--lake", str(folder))
    assert exit_code == 0, errors
    assert state(Lake.open(folder)) == expected
