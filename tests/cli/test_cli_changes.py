"""The commands that change offsets, on a log that offsetlake owns, made of the log of a real broker."""

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
from support.lakes import new_lake
from support.long_cases import long_cases

pytestmark = pytest.mark.slow

REAL_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log that offsetlake owns, and its lake; made once."""
    folder = tmp_path_factory.mktemp("by-hand")
    shutil.copytree(REAL_LOG, folder / "log")
    (folder / "log" / "meta.properties").unlink()
    cycle(InProcess(), new_lake(folder / "lake"), folder / "log")
    return folder


@pytest.fixture
def log(original: Path, tmp_path: Path, run: Run) -> Path:
    """A copy of the log, beside a copy of the lake in the default folder."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "log"


def query(run: Run, *arguments: str) -> list[dict[str, Any]]:
    """Return the answer of a command, which must succeed."""
    code, output, errors = run(*arguments, "--format", "json")
    assert code == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def offsets(run: Run, group: str) -> dict[tuple[str, int], int]:
    rows = query(run, "offsets", "--group", group)
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in rows}


def commit(log: Path, group: str, topic: str, partition: int, offset: int, topic_id: bytes = ZERO_UUID) -> None:
    """Append a commit, as of a group without members, that no job has read yet."""
    timestamp = to_ms("2026-11-22")
    key = offset_commit_key(group.encode(), topic.encode()) + partition.to_bytes(4, "big")
    value = offset_commit_value(offset, -1, b"", timestamp, -1, topic_id)
    with appending(log, "test") as appender:
        appender.append(partition_for_group(group, 50), [record_batch(timestamp, [(key, value)])])
        appender.sync()


def files(*folders: Path) -> dict[Path, tuple[bytes, int]]:
    """Return the content and the modification time of every file in these folders."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_plan_changes_no_file(run: Run, log: Path) -> None:
    before = files(log, log.parent / "lake")
    code, output, errors = run("cleanup", "bulk-1", "--log", str(log))
    assert code == 0
    assert len(output.splitlines()) == 1 + 6 + 1
    assert "7 changes are planned; nothing was changed." in errors
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
def test_plan_reads_unread_records_and_writes_nothing_to_a_locked_lake(
    run: Run, log: Path, plan: tuple[str, ...]
) -> None:
    commit(log, "bulk-1", "orders", 0, 3)
    lake = Lake.open(log.parent / "lake")
    before = files(log, lake.location.path)
    with lake.lock("a job"):
        code, output, errors = run(*plan, "--log", str(log))
    after = files(log, lake.location.path)
    assert code == 0, errors
    assert {path: file for path, file in after.items() if path.name != "lock"} == {
        path: file for path, file in before.items() if path.name != "lock"
    }
    assert " 3  " in output or "orders,0,3\n" in output or plan[0] == "undelete"


def test_plan_shows_current_and_new_offset_of_each_partition(run: Run, log: Path) -> None:
    commit(log, "bulk-1", "orders", 0, 7)
    code, output, errors = run("reset", "bulk-1", "--all-topics", "--to-offset", "7", "--log", str(log))
    assert code == 0
    lines = [line.split(maxsplit=8) for line in output.splitlines()]
    assert lines[0] == [
        "group_id", "topic", "partition", "current_offset", "requested_offset", "new_offset", "difference", "outcome",
        "reason",
    ]  # fmt: skip
    why = "not clamped: the range of the log is unknown"
    assert lines[1:3] == [
        ["bulk-1", "orders", "0", "7", "7", "7", "0", "unchanged", why],
        ["bulk-1", "orders", "1", "11", "7", "7", "-4", "planned", why],
    ]
    assert "5 changes are planned; nothing was changed." in errors
    rows = query(run, "reset", "bulk-1", "--all-topics", "--to-offset", "7", "--execute", "--log", str(log))
    assert [row["outcome"] for row in rows] == ["unchanged", *["done"] * 5]
    _, _, errors = run("reset", "bulk-1", "--all-topics", "--to-offset", "7", "--log", str(log))
    assert errors.endswith("Nothing to change.\n")
    assert {row["partition"] for row in query(run, "alterations", "--group", "bulk-1")} == {1, 2, 3, 4, 5}


@pytest.mark.long
def test_suggested_commands_execute_and_undo_the_plan(run: Run, log: Path) -> None:
    before = offsets(run, "bulk-1")
    plan = ("reset", "bulk-1", "--topic", "orders:0", "--to-offset", "7", "--log", str(log), "--lake", "lake")
    _, _, errors = run(*plan)
    assert errors.endswith(
        f"1 change is planned; nothing was changed. To execute them: offsetlake {shlex.join(plan)} --execute\n"
    )
    for expected in (before | {("orders", 0): 7}, before):
        command = errors.rpartition(": offsetlake ")[2]
        code, _, errors = run(*shlex.split(command), *(["--execute"] if "--execute" not in command else []))
        assert (code, offsets(run, "bulk-1")) == (0, expected)


def test_plan_names_the_log_and_its_command_runs_as_printed(run: Run, log: Path) -> None:
    code, _, errors = run("cleanup", "--log", str(log), "--", "bulk-1")
    assert (code, f"The plan is for the log in {log}." in errors) == (0, True)
    code, _, errors = run(*shlex.split(errors.rpartition(": offsetlake ")[2]))
    assert (code, "7 changes were made." in errors) == (0, True)


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("offsets --group warehose", "warehouse"),
        ("offsets --topic shipment", "shipments"),
        ("groups --group wharehouse", "warehouse"),
        ("history --group warehouse --topic shipment --partition 0", "shipments"),
        ("history --group warehouse --topic shipments --partition 9", None),
        ("cleanup warehose", "warehouse"),
        ("offsets --group another", None),
    ],
)
def test_similar_groups_and_topics_are_suggested(run: Run, arguments: str, meant: str | None) -> None:
    code, _, errors = run(*arguments.split())
    assert code == 2
    assert ("Did you mean" in errors) == (meant is not None)
    assert meant is None or errors.endswith(f" Did you mean {meant!r}?\n")


def test_restore_keeps_offsets_committed_after_the_time(run: Run, log: Path) -> None:
    commit(log, "bulk-1", "new", 0, 1)
    rows = query(run, "restore", "bulk-1", "--as-of", "2026-11-21T06:00", "--log", str(log))
    assert [(row["topic"], row["outcome"], row["reason"]) for row in rows] == [
        ("new", "unchanged", "the group had no offset at that time: it does not change"),
        *[("orders", "unchanged", None)] * 6,
    ]


@pytest.mark.long
def test_undelete_restores_a_cleaned_up_group(run: Run, log: Path) -> None:
    before = offsets(run, "bulk-1")
    assert len(before) == 6
    rows = query(run, "cleanup", "bulk-1", "--execute", "--log", str(log))
    assert {row["outcome"] for row in rows} == {"emitted"}
    assert offsets(run, "bulk-1") == {}
    assert not query(run, "groups", "--group", "bulk-1")
    code, _, errors = run("cleanup", "bulk-1", "--log", str(log))
    assert (code, "There is no group 'bulk-1'" in errors) == (2, True)
    assert {row["outcome"] for row in query(run, "undelete", "bulk-1", "--execute", "--log", str(log))} == {"done"}
    assert offsets(run, "bulk-1") == before


@pytest.mark.long
@pytest.mark.parametrize("command", ["undelete", "restore"])
def test_restored_offsets_have_no_topic_id(run: Run, log: Path, command: str) -> None:
    """The topic may have been created again since: an offset with the former id would be invisible to its consumers."""

    def stored() -> tuple[int, str | None]:
        (row,) = (row for row in query(run, "offsets", "--group", "bulk-1") if row["partition"] == 0)
        return row["committed_offset"], row["topic_id"]

    commit(log, "bulk-1", "orders", 0, 3, bytes(range(16)))
    assert run("run", "--log", str(log))[0] == 0
    assert stored() == (3, "AAECAwQFBgcICQoLDA0ODw")
    code, _, errors = run("cleanup", "bulk-1", "--execute", "--log", str(log))
    assert code == 0, errors
    number = errors.rpartition("restore --run ")[2].split()[0]
    arguments = ("undelete", "bulk-1") if command == "undelete" else ("restore", "--run", number)
    assert run(*arguments, "--execute", "--log", str(log))[0] == 0
    assert stored() == (3, None)


@pytest.mark.long
def test_restore_undoes_a_cleanup_and_a_reset(run: Run, log: Path) -> None:
    before = {group: offsets(run, group) for group in ("bulk-1", "bulk-2")}
    for arguments in (("cleanup", "bulk-1"), ("reset", "bulk-2", "--all-topics", "--shift-by", "-3")):
        code, _, errors = run(*arguments, "--execute", "--log", str(log))
        assert code == 0
        number = errors.rpartition("restore --run ")[2].split()[0]
        planning = str(int(number) - 1)  # the run that planned it precedes its emit
        assert {group: offsets(run, group) for group in before} != before
        assert len(query(run, "restore", "--run", planning, "--log", str(log))) == 6
        assert run("restore", "--run", number, "--execute", "--log", str(log))[0] == 0
        assert {group: offsets(run, group) for group in before} == before
    assert {row["strategy"] for row in query(run, "alterations")} == {"undo", "shift_by"}
    code, _, errors = run("restore", "--run", "1", "--log", str(log))
    assert (code, "run 1 has changed no offset" in errors) == (2, True)


@pytest.mark.long
def test_default_log_is_the_one_that_the_lake_was_read_from(run: Run, log: Path, tmp_path: Path) -> None:
    assert run("run", "--log", "log")[0] == 0
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    os.chdir(moved)
    code, _, errors = run("cleanup", "bulk-1", "--execute", "--lake", str(tmp_path / "lake"))
    assert code == 0, errors
    assert f"checking the log {log}" in errors
    assert query(run, "groups", "--group", "bulk-1", "--lake", str(tmp_path / "lake")) == []
    log.rename(tmp_path / "other")
    code, _, errors = run("cleanup", "bulk-2", "--lake", str(tmp_path / "lake"))
    assert (code, f"There is no folder {log}" in errors) == (3, True)
    assert run("cleanup", "bulk-2", "--lake", str(tmp_path / "lake"), "--log", str(tmp_path / "other"))[0] == 0


def test_broker_folder_can_be_planned_for_but_is_never_written(run: Run, log: Path) -> None:
    (log / "meta.properties").touch()
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    assert run("run", "--log", "log")[0] == 0
    assert run("cleanup", "bulk-1")[0] == 0
    for command in (("cleanup", "bulk-1", "--execute"), ("emit",)):
        code, _, errors = run(*command)
        assert (code, "belongs to a broker" in errors) == (7, True)
    assert {path: path.read_bytes() for path in log.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_group_with_members_is_refused_with_its_members(run: Run, log: Path) -> None:
    for arguments in (
        ("cleanup", "fraud-detection"),
        ("reset", "fraud-detection", "--all-topics", "--to-offset", "1"),
        ("cleanup", "fraud-detection", "--topic", "payments"),
    ):
        code, output, errors = run(*arguments, "--execute", "--log", str(log), "--format", "csv")
        assert code == 8
        assert "it has members: rdkafka at /127.0.0.1" in output or "and has members: rdkafka" in output
        assert "changes were refused: see the column reason." in errors
    assert len(offsets(run, "fraud-detection")) == 10


def test_cleanup_by_pattern_refuses_groups_with_members(run: Run, log: Path) -> None:
    code, output, _ = run("cleanup", "*", "--log", str(log), "--format", "json")
    rows = [json.loads(line) for line in output.splitlines()]
    assert code == 0
    assert {row["group_id"] for row in rows if row["outcome"] == "refused"} >= {"fraud-detection", "ledger"}
    assert {row["outcome"] for row in rows if row["group_id"].startswith("bulk-")} == {"planned"}


@pytest.mark.long
def test_only_if_refuses_partitions_at_another_offset(run: Run, log: Path) -> None:
    arguments = ("reset", "bulk-3", "--topic", "orders:0,1", "--to-offset", "5", "--log", str(log), "--execute")
    assert run(*arguments, "--only-if", "11")[0] == 0
    code, output, _ = run(*arguments, "--only-if", "11", "--format", "csv")
    assert (code, "the committed offset is 5 now, not 11" in output) == (8, True)
    assert offsets(run, "bulk-3") == {("orders", n): 5 if n < 2 else 11 for n in range(6)}


def test_exported_offsets_can_be_imported(run: Run, log: Path, tmp_path: Path) -> None:
    code, exported, _ = run("reset", "bulk-4", "--all-topics", "--to-current", "--export", "--log", str(log))
    assert code == 0
    assert exported == "".join(f"orders,{n},11\n" for n in range(6))
    (tmp_path / "offsets.csv").write_text(exported.replace(",11", ",7"))
    rows = query(run, "reset", "bulk-4", "--from-file", "offsets.csv", "--execute", "--log", str(log))
    assert {row["evidence"] for row in rows} == {"offsets.csv"}
    assert set(offsets(run, "bulk-4").values()) == {7}
    (tmp_path / "bad.csv").write_text("orders,0,1\norders,x,2\norders,1\n")
    code, _, errors = run("reset", "bulk-4", "--from-file", "bad.csv", "--execute", "--log", str(log))
    assert code == 2
    assert "line 2" in errors
    assert "line 3" in errors
    assert set(offsets(run, "bulk-4").values()) == {7}


@pytest.mark.parametrize("file", ["before.csv", *long_cases(("before.parquet", "before.arrow", "before.jsonl"))])
def test_offsets_are_taken_over_from_a_snapshot(run: Run, log: Path, file: str) -> None:
    code, _, errors = run("snapshot", file, "--log", str(log))
    assert code == 0, errors
    before = offsets(run, "bulk-7")
    query(run, "reset", "bulk-7", "--all-topics", "--to-offset", "2", "--execute", "--log", str(log))
    assert set(offsets(run, "bulk-7").values()) == {2}
    rows = query(run, "import", file, "bulk-*", "--execute", "--log", str(log))
    assert {(row["group_id"], row["outcome"]) for row in rows if row["outcome"] != "unchanged"} == {("bulk-7", "done")}
    assert {row["evidence"] for row in rows} == {file}
    assert offsets(run, "bulk-7") == before
    assert query(run, "import", file, "bulk-7", "--log", str(log), "--execute")[0]["outcome"] == "unchanged"


def test_from_group_copies_offsets_to_a_new_group(run: Run, log: Path) -> None:
    assert run("reset", "bulk-99", "--from-group", "bulk-5", "--execute", "--log", str(log))[0] == 0
    assert offsets(run, "bulk-99") == offsets(run, "bulk-5") != {}


def test_restore_as_of_sets_the_offset_of_that_time(run: Run, log: Path) -> None:
    [first, *_] = sorted(
        query(run, "sql", "SELECT * FROM offset_commits WHERE group_id = 'bulk-6' AND partition = 0"),
        key=lambda row: row["log_offset"],
    )
    as_of = str(first["log_timestamp"])
    rows = query(run, "restore", "bulk-6", "--as-of", as_of, "--execute", "--log", str(log))
    assert [row["committed_offset"] for row in rows if row["partition"] == 0] == [first["committed_offset"]]
    assert offsets(run, "bulk-6")["orders", 0] == first["committed_offset"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("reset", "bulk-1", "--all-topics"), 2, "Specify where to reset to by exactly one of --to-earliest"),
        (("reset", "bulk-1", "--to-offset", "1"), 2, "Specify what to reset: --all-topics"),
        (("reset", "bulk-1", "--all-topics", "--to-offset", "1", "--shift-by", "2"), 2, "by exactly one of"),
        (("reset", "nobody", "--all-topics", "--to-offset", "1"), 2, "There is no group 'nobody'"),
        (("reset", "bulk-*", "--all-topics", "--to-offset", "1"), 2, "is a pattern"),
        (("reset", "bulk-1", "--topic", "nothing", "--to-offset", "1"), 2, "Unknown topic 'nothing'"),
        (("reset", "bulk-1", "--all-topics", "--to-earliest"), 8, "cannot be made: see the column reason."),
        (("reset", "bulk-1", "--from-file", "gone.csv"), 2, "Cannot read gone.csv"),
        (("import", "gone.csv"), 2, "Cannot read gone.csv"),
        (("import", "gone.csv", "--zookeeper-config", "z"), 2, "--zookeeper-config is for addresses of ZooKeeper"),
        (("reset", "--all-topics", "--to-offset", "1"), 2, "Specify the group to reset."),
        (("restore", "bulk-1"), 2, "Specify what to restore"),
        (("restore", "bulk-1", "--as-of", "2001-01-01"), 2, "history begins at"),
        (("undelete", "nobody"), 2, "has ever committed"),
        (("cleanup", "bulk-1", "--topic", "nothing"), 2, "has an offset of topic 'nothing'"),
    ],
)
def test_invalid_request_is_an_error(run: Run, log: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    exit_code, _, errors = run(*arguments, "--log", str(log))
    assert exit_code == code, errors
    assert message in errors


def test_log_that_another_process_writes_is_not_changed(run: Run, log: Path) -> None:
    with owned(log, "serve"):
        code, _, errors = run("cleanup", "bulk-1", "--execute", "--log", str(log))
    assert code == 7
    assert "serve (process" in errors
    assert len(offsets(run, "bulk-1")) == 6
    assert not query(run, "tombstones"), "nothing stays planned"


def test_emit_to_a_broker_folder_is_refused_before_spark_starts(run: Run, log: Path) -> None:
    (log / "meta.properties").touch()
    code, _, errors = run("run", "--emit", "--log", str(log))
    assert code == 7
    assert "starting Spark" not in errors
