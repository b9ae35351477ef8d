"""The changes that `run` prints, and the list of runs."""

import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from offsetlake.cli.next_commands import next_commands
from offsetlake.lake.lake import Lake
from offsetlake.pipeline import runner
from offsetlake.queries.run_changes import changes
from support.command_line import Run
from support.e2e.in_process import NoSpark
from support.e2e.lakes import grow, rows
from support.oracle.log_reader import read_log
from support.oracle.random_logs import RandomLog, random_log
from support.oracle.replay import replay
from support.queries.lakes import commit, small_lake

pytestmark = pytest.mark.slow

HISTORY = (
    "offset_commits",
    "transaction_markers",
    "group_records",
    "share_state_records",
    "quarantine",
    "audit_events",
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RandomLog:
    """A log of many groups, of which the folder `log` holds the first part."""
    monkeypatch.setattr(runner, "LazySession", NoSpark)
    made = random_log(random.Random(7), 400, groups=25, log_partitions=3, batches_per_segment=20)
    RandomLog(made.world, made.plans[: len(made.plans) // 2]).write(tmp_path / "log")
    return made


def test_run_prints_the_groups_it_changed(run: Run, log: RandomLog, tmp_path: Path) -> None:
    first = read_log(tmp_path / "log")
    run("run", "--log", "log", "--now", "2000-01-01")
    grow(tmp_path / "log", log)
    code, out, _ = run("run", "--log", "log", "--now", "2000-01-01")
    assert code == 0

    state = replay(read_log(tmp_path / "log"))
    old = {(record.log_partition, record.log_offset) for record in first}
    commits: dict[str, int] = defaultdict(int)
    tombstones: dict[str, int] = defaultdict(int)
    keys: dict[str, set[object]] = defaultdict(set)
    newest: dict[str, int] = defaultdict(int)
    for entry in state.history:
        if (entry.record.log_partition, entry.record.log_offset) not in old:
            group = entry.key[0]
            (commits if entry.kind == "commit" else tombstones)[group] += 1
            keys[group].add(entry.key)
            newest[group] = max(newest[group], entry.record.log_timestamp)
    order = sorted(keys, key=lambda group: (-commits[group] - tombstones[group], -newest[group], group))
    assert len(order) > 10, "the log has more groups than are listed"

    said, listed = out.split(f"This run changed {len(order)} groups; the 10 with the most commits:\n")
    lines = listed.splitlines()
    assert lines[0].split() == [
        "group_id", "commits", "tombstones", "changed_offsets", "offsets", "last_timestamp",
    ]  # fmt: skip
    assert [re.split(r" {2,}", line)[0] for line in lines[1:11]] == order[:10]
    for line, group in zip(lines[1:11], order, strict=False):
        offsets = sum(key[0] == group for key in state.committed)
        numbers = (commits[group], tombstones[group], len(keys[group]), offsets)
        assert line.split()[-5:-1] == [str(number) for number in numbers]
    assert lines[11].startswith(f"and {len(order) - 10} more: offsetlake sql ")
    assert f"the lake now contains {len(state.committed)} offsets (" in said

    again = run("run", "--log", "log", "--now", "2000-01-01")[1]
    assert "Nothing new" in again
    assert "This run changed" not in again, "nothing changed, and no group is listed"


KILLED = """
import os, signal
from offsetlake.lake import current_run
finish = current_run.finish
def killing(lake, job, plan, **others):
    return os.kill(os.getpid(), signal.SIGKILL) if job == "compact" else finish(lake, job, plan, **others)
current_run.finish = killing
from offsetlake.cli.main import main
main(["run", "--log", "log", "--now", "2000-01-01"])
"""
CYCLE_COLUMNS = ("cycle", "last_run", "jobs", "outcome", "failed")


def cycles(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("runs", "--cycles", "--format", "json")[1].splitlines()]


@pytest.mark.long
def test_cycles_show_a_killed_job_until_it_is_resumed_and_after(run: Run, log: RandomLog, tmp_path: Path) -> None:
    run("run", "--log", "log", "--now", "2000-01-01")
    grow(tmp_path / "log", log)
    done = subprocess.run([sys.executable, "-c", KILLED], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    killed, first = cycles(run)
    assert [killed[name] for name in CYCLE_COLUMNS] == [
        4, 5, ["ingest", "compact"], "unfinished", ["compact is running or was interrupted"],
    ]  # fmt: skip
    assert (killed["finished_at"], killed["duration_ms"]) == (None, None)
    assert [first[name] for name in CYCLE_COLUMNS] == [1, 3, ["ingest", "compact", "expire"], "done", []]
    read = len(read_log(tmp_path / "log"))
    assert first["records_read"] + killed["records_read"] == read

    run("run", "--log", "log", "--now", "2000-01-01")
    own = {row["run_id"]: row for row in rows(Lake.open(tmp_path / "lake"), "runs")}
    again, resumed, _ = cycles(run)
    assert [resumed[name] for name in CYCLE_COLUMNS] == [
        4, 5, ["ingest", "compact"], "done", ["compact was interrupted, and finished later"],
    ]  # fmt: skip
    assert resumed["duration_ms"] == own[5]["finished_at"] - own[4]["started_at"]
    assert (again["cycle"], again["records_read"]) == (6, 0)


def test_runs_are_divided_into_cycles_with_what_went_wrong(run: Run, tmp_path: Path) -> None:
    jobs = [
        ("ingest", {"offset_commits": 4, "quarantine": 2}), ("compact", {"offsets": 3}), ("expire", {"planned": 2}),
        ("emit", {"emitted": 1, "refused": 1}), ("maintain", {}), ("compact", {}), ("compact", {}), ("ingest", {}),
        ("reset", {"planned": 5}), ("emit", {"done": 5}), ("forget", {}), ("ingest", {}), ("ingest", {}),
    ]  # fmt: skip
    notes = {6: ["finished after an interruption"]}
    small_lake(
        tmp_path / "lake",
        runs=[
            {
                "run_id": number, "job": job, "started_at": 10 * number, "finished_at": 10 * number + 5,
                "counts": [*counts.items()], "notes": notes.get(number, []),
                "outcome": "done" if counts else "nothing new",
                "gaps": [{"topic": "__consumer_offsets", "partition": 0, "start": 3, "end": 10}] * (number == 1),
            }
            for number, (job, counts) in enumerate(jobs, start=1)
        ],
    )  # fmt: skip
    found = cycles(run)[::-1]
    assert [(each["cycle"], each["jobs"], each["outcome"]) for each in found] == [
        (1, ["ingest", "compact", "expire", "emit"], "done"),
        (5, ["maintain"], "nothing new"),
        (6, ["compact"], "nothing new"),
        (8, ["ingest", "reset", "emit"], "done"),
        (11, ["forget"], "nothing new"),
        (12, ["ingest"], "nothing new"),
        (13, ["ingest"], "nothing new"),
    ]
    assert [found[0][name] for name in ("started_at", "finished_at", "duration_ms")] == [10, 45, 35]
    assert [found[0][name] for name in ("records_read", "rows_written", "failed")] == [
        6, 10,
        [
            "ingest quarantined 2 records", "7 log offsets were deleted before ingest read them",
            "1 decision of emit was refused",
        ],
    ]  # fmt: skip
    assert found[2]["last_run"] == 7
    code, out, _ = run("runs", "--cycles", "--limit", "3")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["cycle", "13", "12", "11"])


@pytest.mark.usefixtures("log")
def test_runs_lists_the_runs_newest_first(run: Run, tmp_path: Path) -> None:
    for _ in range(2):
        run("run", "--log", "log", "--now", "2000-01-01")
    lake = Lake.open(tmp_path / "lake")
    lake.files.write("plan-compact.json", {"run_id": 9, "started_at": 1_700_000_000_000, "notes": []})
    listed = [json.loads(line) for line in run("runs", "--format", "json")[1].splitlines()]
    assert [row["run_id"] for row in listed] == [9, 6, 5, 4, 3, 2, 1]
    assert (listed[0]["job"], listed[0]["outcome"], listed[0]["finished_at"]) == ("compact", "unfinished", None)
    recorded = {row["run_id"]: row for row in rows(lake, "runs")}
    for row in listed[1:]:
        own = recorded[row["run_id"]]
        assert row["counts"] == dict(own["counts"])
        assert row["duration_ms"] == own["finished_at"] - own["started_at"]
        ends = sum(each["end"] - each["start"] for each in own["ranges"] or ())
        assert (row["records_read"] or 0) <= ends, "an ingest reads no more records than log offsets"
    records = read_log(tmp_path / "log")
    assert (listed[-1]["records_read"], listed[3]["records_read"], listed[2]["records_read"]) == (
        len(records), 0, None,
    )  # fmt: skip

    added = {table: Counter(row["ingest_run"] for row in rows(lake, table)) for table in HISTORY}
    for row in listed:
        if row["job"] == "ingest":
            assert row["rows_written"] == sum(of_table[row["run_id"]] for of_table in added.values())
        elif row["job"] == "expire":
            written = [each for each in rows(lake, "tombstones") if each["run_id"] == row["run_id"]]
            assert row["rows_written"] == len(written)
        else:
            assert row["rows_written"] is None

    code, out, err = run("runs", "--limit", "3")
    assert (code, err) == (0, "… and 4 more rows: use --limit 0 to write all.\n")
    assert out.splitlines()[0].split() == [
        "run_id", "job", "outcome", "started_at", "duration", "records_read", "rows_written", "log", "result",
    ]  # fmt: skip
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["9", "compact", "unfinished"], ["6", "expire", "nothing"], ["5", "compact", "nothing"],
    ]  # fmt: skip


def test_run_that_reads_only_group_records_names_commands(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(1, 5)])
    commands = next_commands(lake, changes(lake, [7], 10), [])
    assert commands == next_commands(lake, None, [])
