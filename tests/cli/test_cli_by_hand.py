"""The commands that change offsets, as a person meets them, on a log of our own made of a real broker's."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.ownership import owned
from offsetlake.util.times import to_ms
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"


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


def commit(log: Path, group: str, topic: str, partition: int, offset: int) -> None:
    """Append a commit, as a group without members makes it, that no job has read yet."""
    at = to_ms("2026-11-22")
    key = offset_commit_key(group.encode(), topic.encode()) + partition.to_bytes(4, "big")
    value = offset_commit_value(offset, -1, b"", at, -1, ZERO_UUID)
    with appending(log, "test") as appender:
        appender.append(partition_for_group(group, 50), [record_batch(at, [(key, value)])])
        appender.sync()


def files(*folders: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file of some folders, and when it was written."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_plan_changes_nothing(run: Run, log: Path) -> None:
    before = files(log, log.parent / "lake")
    code, output, errors = run("cleanup", "bulk-1", "--log", str(log))
    assert code == 0
    assert len(output.splitlines()) == 1 + 6 + 1
    assert "7 planned, nothing is done yet" in errors
    assert files(log, log.parent / "lake") == before


@pytest.mark.parametrize(
    "plan",
    [
        ("reset", "bulk-1", "--all-topics", "--to-offset", "5"),
        ("reset", "bulk-1", "--all-topics", "--to-current", "--export"),
        ("restore", "bulk-1", "--as-of", "2026-11-21T05:38:54Z"),
        ("undelete", "bulk-1"),
    ],
)
def test_plans_read_the_newest_records_and_write_nothing(run: Run, log: Path, plan: tuple[str, ...]) -> None:
    """The lock is held as by a job that is at work; records have come since the newest run."""
    commit(log, "bulk-1", "orders", 0, 3)
    lake = Lake.open(log.parent / "lake")
    before = files(log, lake.path)
    with lake.lock("a job"):
        code, output, errors = run(*plan, "--log", str(log))
    after = files(log, lake.path)
    assert code == 0, errors
    assert {path: of for path, of in after.items() if path.name != "lock"} == {
        path: of for path, of in before.items() if path.name != "lock"
    }
    assert " 3  " in output or "orders,0,3\n" in output or plan[0] == "undelete"


def test_a_plan_shows_each_partition_as_it_is_and_as_it_will_be(run: Run, log: Path) -> None:
    commit(log, "bulk-1", "orders", 0, 7)
    code, output, errors = run("reset", "bulk-1", "--all-topics", "--to-offset", "7", "--log", str(log))
    assert code == 0
    rows = [line.split(maxsplit=8) for line in output.splitlines()]
    assert rows[0] == [
        "group_id", "topic", "partition", "current_offset", "requested_offset", "new_offset", "difference", "outcome",
        "reason",
    ]  # fmt: skip
    why = "not clamped: the range of the log is unknown"
    assert rows[1:3] == [
        ["bulk-1", "orders", "0", "7", "7", "7", "0", "unchanged", why],
        ["bulk-1", "orders", "1", "11", "7", "7", "-4", "planned", why],
    ]
    assert "5 planned, nothing is done yet" in errors
    came = asked(run, "reset", "bulk-1", "--all-topics", "--to-offset", "7", "--execute", "--log", str(log))
    assert [row["outcome"] for row in came] == ["unchanged", *["done"] * 5]
    _, _, errors = run("reset", "bulk-1", "--all-topics", "--to-offset", "7", "--log", str(log))
    assert errors.endswith("nothing is to be changed\n")
    assert {row["partition"] for row in asked(run, "alterations", "--group", "bulk-1")} == {1, 2, 3, 4, 5}


def test_hints_are_commands_that_run_as_they_are(run: Run, log: Path) -> None:
    before = offsets(run, "bulk-1")
    plan = ("reset", "bulk-1", "--topic", "orders:0", "--to-offset", "7", "--log", str(log), "--lake", "lake")
    _, _, errors = run(*plan)
    assert errors.endswith(f"1 planned, nothing is done yet. To do it: offsetlake {shlex.join(plan)} --execute\n")
    for expected in (before | {("orders", 0): 7}, before):
        command = errors.rpartition(": offsetlake ")[2]
        code, _, errors = run(*shlex.split(command), *(["--execute"] if "--execute" not in command else []))
        assert (code, offsets(run, "bulk-1")) == (0, expected)


def test_what_a_group_did_not_have_then_stays(run: Run, log: Path) -> None:
    commit(log, "bulk-1", "new", 0, 1)
    rows = asked(run, "restore", "bulk-1", "--as-of", "2026-11-21T06:00", "--log", str(log))
    assert [(row["topic"], row["outcome"], row["reason"]) for row in rows] == [
        ("new", "unchanged", "it had no offset then, and keeps this one"),
        *[("orders", "unchanged", None)] * 6,
    ]


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
        number = errors.rpartition("restore --run ")[2].split()[0]
        by_hand = str(int(number) - 1)  # the run that planned it: its emit is the one behind it
        assert {group: offsets(run, group) for group in before} != before
        assert len(asked(run, "restore", "--run", by_hand, "--log", str(log))) == 6
        assert run("restore", "--run", number, "--execute", "--log", str(log))[0] == 0
        assert {group: offsets(run, group) for group in before} == before
    assert {row["strategy"] for row in asked(run, "alterations")} == {"undo", "shift_by"}
    code, _, errors = run("restore", "--run", "1", "--log", str(log))
    assert (code, "run 1 has changed no offset" in errors) == (2, True)


def test_the_log_is_the_one_the_lake_was_read_from(run: Run, log: Path, tmp_path: Path) -> None:
    assert run("run", "--log", "log")[0] == 0
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    os.chdir(moved)
    code, _, errors = run("cleanup", "bulk-1", "--execute", "--lake", str(tmp_path / "lake"))
    assert code == 0, errors
    assert f"looking at the log {log}" in errors
    assert asked(run, "groups", "--group", "bulk-1", "--lake", str(tmp_path / "lake")) == []
    log.rename(tmp_path / "other")
    code, _, errors = run("cleanup", "bulk-2", "--lake", str(tmp_path / "lake"))
    assert (code, f"no folder {log}" in errors) == (3, True)
    assert run("cleanup", "bulk-2", "--lake", str(tmp_path / "lake"), "--log", str(tmp_path / "other"))[0] == 0


def test_a_brokers_own_folder_is_planned_for_and_never_written(run: Run, log: Path) -> None:
    (log / "meta.properties").touch()
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    assert run("run", "--log", "log")[0] == 0
    assert run("cleanup", "bulk-1")[0] == 0
    for command in (("cleanup", "bulk-1", "--execute"), ("emit",)):
        code, _, errors = run(*command)
        assert (code, "is a broker's own folder" in errors) == (7, True)
    assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before


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
