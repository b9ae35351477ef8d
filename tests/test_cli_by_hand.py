"""The commands that change offsets, as a person meets them, on a log of our own made of a real broker's."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import Run
from e2e.in_process import InProcess
from e2e.lakes import cycle
from offsetlake.lake.lake import Lake
from offsetlake.log.ownership import owned

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parent / "fixtures" / "broker-log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of our own and its lake, made once."""
    folder = tmp_path_factory.mktemp("by-hand")
    shutil.copytree(REAL_LOG, folder / "log")
    (folder / "log" / "meta.properties").unlink()
    cycle(InProcess(), Lake.create(folder / "lake"), folder / "log")
    return folder


@pytest.fixture
def log(made: Path, tmp_path: Path, run: Run) -> Path:
    """A log of our own, and a lake in the folder to which `run` goes."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "log"


def asked(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """The answer of a command that must succeed."""
    code, output, errors = run(*arguments, "--format", "json")
    assert code == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def offsets(run: Run, group: str) -> dict[tuple[str, int], int]:
    rows = asked(run, "offsets", "--group", group)
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in rows}


def test_a_plan_changes_nothing(run: Run, log: Path) -> None:
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    code, output, errors = run("cleanup", "bulk-1", "--log", str(log))
    assert code == 0
    assert len(output.splitlines()) == 1 + 6 + 1
    assert "7 planned, nothing is done yet: add --execute to do it" in errors
    assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before
    assert not asked(run, "tombstones")


def test_a_group_is_cleaned_up_and_brought_back(run: Run, log: Path) -> None:
    before = offsets(run, "bulk-1")
    assert len(before) == 6
    came = asked(run, "cleanup", "bulk-1", "--execute", "--log", str(log))
    assert {row["outcome"] for row in came} == {"emitted"}
    assert offsets(run, "bulk-1") == {}
    assert not asked(run, "groups", "--group", "bulk-1")
    code, _, errors = run("cleanup", "bulk-1", "--log", str(log))
    assert (code, "there is no group 'bulk-1'" in errors) == (2, True)
    assert {row["outcome"] for row in asked(run, "undelete", "bulk-1", "--execute", "--log", str(log))} == {"done"}
    assert offsets(run, "bulk-1") == before


def test_a_run_is_undone_whatever_it_did(run: Run, log: Path) -> None:
    before = {group: offsets(run, group) for group in ("bulk-1", "bulk-2")}
    for arguments in (("cleanup", "bulk-1"), ("reset", "bulk-2", "--all-topics", "--shift-by", "-3")):
        code, _, errors = run(*arguments, "--execute", "--log", str(log))
        assert code == 0
        number = errors.rpartition("restore --run ")[2].strip()
        by_hand = str(int(number) - 1)  # the run that planned it: its emit is the one behind it
        assert {group: offsets(run, group) for group in before} != before
        assert len(asked(run, "restore", "--run", by_hand, "--log", str(log))) == 6
        assert run("restore", "--run", number, "--execute", "--log", str(log))[0] == 0
        assert {group: offsets(run, group) for group in before} == before
    assert {row["strategy"] for row in asked(run, "alterations")} == {"undo", "shift_by"}
    code, _, errors = run("restore", "--run", "1", "--log", str(log))
    assert (code, "run 1 has changed no offset" in errors) == (2, True)


def test_a_group_with_members_is_refused_by_name(run: Run, log: Path) -> None:
    for arguments in (
        ("cleanup", "fraud-detection"),
        ("reset", "fraud-detection", "--all-topics", "--to-offset", "1"),
        ("cleanup", "fraud-detection", "--topic", "payments"),
    ):
        code, output, errors = run(*arguments, "--execute", "--log", str(log), "--format", "csv")
        assert code == 8
        assert "it has members: rdkafka at /127.0.0.1" in output or "and has members: rdkafka" in output
        assert "refused: see reason" in errors
    assert len(offsets(run, "fraud-detection")) == 10


def test_a_pattern_leaves_out_who_is_active(run: Run, log: Path) -> None:
    code, output, _ = run("cleanup", "*", "--log", str(log), "--format", "json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert {row["group_id"] for row in rows if row["outcome"] == "refused"} >= {"fraud-detection", "ledger"}
    assert {row["outcome"] for row in rows if row["group_id"].startswith("bulk-")} == {"planned"}


def test_a_condition_on_the_present_value(run: Run, log: Path) -> None:
    arguments = ("reset", "bulk-3", "--topic", "orders:0,1", "--to-offset", "5", "--log", str(log), "--execute")
    assert run(*arguments, "--only-if", "11")[0] == 0
    code, output, _ = run(*arguments, "--only-if", "11", "--format", "csv")
    assert (code, "it is at 5, and was to be at 11" in output) == (8, True)
    assert offsets(run, "bulk-3") == {("orders", n): 5 if n < 2 else 11 for n in range(6)}


def test_offsets_go_out_as_a_file_and_come_back(run: Run, log: Path, tmp_path: Path) -> None:
    code, exported, _ = run("reset", "bulk-4", "--all-topics", "--to-current", "--export", "--log", str(log))
    assert code == 0
    assert exported == "".join(f"orders,{n},11\n" for n in range(6))
    (tmp_path / "offsets.csv").write_text(exported.replace(",11", ",7"))
    came = asked(run, "reset", "bulk-4", "--from-file", "offsets.csv", "--execute", "--log", str(log))
    assert {row["evidence"] for row in came} == {"offsets.csv"}
    assert set(offsets(run, "bulk-4").values()) == {7}
    (tmp_path / "bad.csv").write_text("orders,0,1\norders,x,2\norders,1\n")
    code, _, errors = run("reset", "bulk-4", "--from-file", "bad.csv", "--execute", "--log", str(log))
    assert code == 2
    assert "line 2" in errors
    assert "line 3" in errors
    assert set(offsets(run, "bulk-4").values()) == {7}


def test_a_new_group_begins_where_another_is(run: Run, log: Path) -> None:
    assert run("reset", "bulk-99", "--from-group", "bulk-5", "--execute", "--log", str(log))[0] == 0
    assert offsets(run, "bulk-99") == offsets(run, "bulk-5") != {}


def test_to_what_it_had_at_an_instant(run: Run, log: Path) -> None:
    [first, *_] = sorted(
        asked(run, "sql", "SELECT * FROM offset_commits WHERE group_id = 'bulk-6' AND partition = 0"),
        key=lambda row: row["log_offset"],
    )
    instant = str(first["log_timestamp"])
    came = asked(run, "restore", "bulk-6", "--as-of", instant, "--execute", "--log", str(log))
    assert [row["committed_offset"] for row in came if row["partition"] == 0] == [first["committed_offset"]]
    assert offsets(run, "bulk-6")["orders", 0] == first["committed_offset"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("reset", "bulk-1", "--all-topics"), 2, "say where to reset to, by one of --to-earliest"),
        (("reset", "bulk-1", "--to-offset", "1"), 2, "say what to reset: --all-topics"),
        (("reset", "bulk-1", "--all-topics", "--to-offset", "1", "--shift-by", "2"), 2, "by one of"),
        (("reset", "nobody", "--all-topics", "--to-offset", "1"), 2, "there is no group 'nobody'"),
        (("reset", "bulk-*", "--all-topics", "--to-offset", "1"), 2, "is a pattern"),
        (("reset", "bulk-1", "--topic", "nothing", "--to-offset", "1"), 2, "there is no topic 'nothing'"),
        (("reset", "bulk-1", "--all-topics", "--to-earliest"), 8, "cannot be done"),
        (("reset", "bulk-1", "--from-file", "gone.csv"), 2, "gone.csv cannot be read"),
        (("reset", "--all-topics", "--to-offset", "1"), 2, "name the group to reset"),
        (("restore", "bulk-1"), 2, "say what to go back to"),
        (("restore", "bulk-1", "--as-of", "2001-01-01"), 2, "history begins at"),
        (("undelete", "nobody"), 2, "has ever committed"),
        (("cleanup", "bulk-1", "--topic", "nothing"), 2, "has an offset of topic 'nothing'"),
    ],
)
def test_what_makes_no_sense_is_said(run: Run, log: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    left, _, errors = run(*arguments, "--log", str(log))
    assert left == code, errors
    assert said in errors


def test_a_log_that_another_writes_is_left_alone(run: Run, log: Path) -> None:
    with owned(log, "serve"):
        code, _, errors = run("cleanup", "bulk-1", "--execute", "--log", str(log))
    assert code == 7
    assert "serve (process" in errors
    assert len(offsets(run, "bulk-1")) == 6
    assert not asked(run, "tombstones"), "what cannot be done now is not left planned for later"


def test_a_brokers_own_folder_is_refused_before_anything_is_done(run: Run, log: Path) -> None:
    (log / "meta.properties").touch()
    code, _, errors = run("run", "--emit", "--log", str(log))
    assert code == 7
    assert "starting Spark" not in errors
