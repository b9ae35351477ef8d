"""Emit against commits that keep coming: no commit newer than the one judged goes, and none that went stays."""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from offsetlake.errors import LogBusy
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from support.e2e.committing import TOPIC, commit_all
from support.e2e.in_process import InProcess
from support.e2e.lakes import Rows, cycle, plan_expiry, rows
from support.lakes import new_lake
from support.oracle.log_reader import LogRecord, read_log
from support.oracle.replay import decode_offset_record, replay

ROOT = Path(__file__).parents[3]
RACED = 3_000
"""So many decisions at the least must have come to each outcome."""


@contextmanager
def committing(log: Path) -> Iterator[None]:
    """Have another process commit, all the while."""
    path = os.pathsep.join([str(ROOT / "lib"), str(ROOT / "tests")])
    command = [sys.executable, "-m", "support.e2e.committing", str(log), "17"]
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}) as program:
        try:
            before = len(read_log(log))
            while len(read_log(log)) == before:
                assert program.poll() is None
                time.sleep(0.02)
            yield
            assert program.poll() is None, "it was ended by nobody"
        finally:
            program.kill()


def send(lake: Lake, log: Path) -> Counter[str]:
    while True:
        try:
            return Counter(emit(lake, LogAddress(folder=log), lambda _: None).counts)
        except LogBusy:
            time.sleep(0.001)


@pytest.mark.long
@pytest.mark.slow
def test_concurrent_commits_are_never_deleted(tmp_path: Path) -> None:
    log, lake = tmp_path / "log", new_lake(tmp_path / "lake")
    log.mkdir()
    commit_all(log)
    counts: Counter[str] = Counter()
    with committing(log):
        while min(counts["emitted"], counts["refused"]) < RACED:
            cycle(InProcess(), lake, log)
            plan_expiry(InProcess(), lake)
            counts += send(lake, log)
    cycle(InProcess(), lake, log)
    decisions, records = rows(lake, "tombstones"), read_log(log)
    emitted = [row for row in decisions if row["outcome"] == "emitted"]
    refused = [row for row in decisions if row["outcome"] == "refused"]
    assert (counts["emitted"], counts["refused"]) == (len(emitted), len(refused))
    assert {row["topic"] for row in emitted} == {row["topic"] for row in refused} == {TOPIC, None}, "groups too"
    _each_tombstone_follows_what_was_judged(records, emitted)
    _what_was_refused_has_moved(records, refused)
    committed = replay(records).committed
    stored = {(row["group_id"], row["topic"], row["partition"]): row["log_offset"] for row in rows(lake, "offsets")}
    assert stored == {key: commit.log_offset for key, commit in committed.items()}
    assert {group_id for group_id, _, _ in committed} == {row["group_id"] for row in rows(lake, "groups")}


def _each_tombstone_follows_what_was_judged(records: list[LogRecord], emitted: Rows) -> None:
    ours = {(row["log_partition"], row["log_offset"]): row for row in emitted}
    before: dict[tuple[str, str, int], int] = {}
    standing: Counter[str] = Counter()
    for record in records:
        at = record.log_partition, record.log_offset
        entry = decode_offset_record(record)
        if entry is None:
            group_id = ours.pop(at)["group_id"]
            assert standing[group_id] == 0, "a group goes behind its offsets"
            continue
        if entry.commit is None:
            row = ours.pop(at)
            assert (row["group_id"], row["topic"], row["partition"]) == entry.key
            assert before.pop(entry.key) == row["judged_offset"]
            standing[entry.key[0]] -= 1
        else:
            standing[entry.key[0]] += entry.key not in before
            before[entry.key] = record.log_offset
    assert not ours, "every decision that went stands in the log, and nothing else does"


def _what_was_refused_has_moved(records: list[LogRecord], refused: Rows) -> None:
    newest = {entry.key: record.log_offset for record in records if (entry := decode_offset_record(record))}
    for row in refused:
        if row["topic"] is None:
            assert row["reason"] == "the group has offsets that are not deleted"
        else:
            assert newest[row["group_id"], TOPIC, row["partition"]] > row["judged_offset"]
            assert row["reason"].startswith("the committed offset changed: ")
