"""Emit where retention and a person have decided about the same group, and neither was emitted at once."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.log.writer.os_users import process_principal
from offsetlake.pipeline.changes import execute as changes
from offsetlake.pipeline.changes import reset as offset_resets
from offsetlake.pipeline.changes.cleanup import plan_cleanup
from offsetlake.pipeline.emit.job import CUT_SHORT, emit
from offsetlake.rules import strategies
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, rows
from support.lakes import new_lake
from support.oracle.encoders import (
    group_log_partition,
    group_metadata_key,
    group_metadata_value,
    offset_key,
    offset_value,
)
from support.oracle.log_reader import read_log
from support.oracle.log_writer import Batch, Record, write_partition
from support.oracle.replay import replay

T = 1_700_000_000_000
GROUP = "billing"


def write_log(folder: Path, *groups: str) -> None:
    """Two offsets a group, each group in a batch of its own."""
    ends: dict[int, list[Batch]] = {}
    for group_id in groups:
        batches = ends.setdefault(group_log_partition(group_id, 50), [])
        first = 2 * len(batches)
        records = [
            Record(first + at, T, offset_key(group_id, "orders", at), offset_value(3, 5, commit_timestamp=T))
            for at in range(2)
        ]
        batches.append(Batch(records=tuple(records)))
    for partition, batches in ends.items():
        write_partition(folder, partition, batches)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "log", GROUP)
    return tmp_path / "log"


@pytest.fixture
def lake(log: Path, place: str) -> Lake:
    made = new_lake(place)
    cycle(InProcess(), made, log)
    return made


def cut_short(*_: Any, **__: Any) -> Any:
    raise LogUnavailable("cut short")


def only_planned(lake: Lake, log: Path, job: str, table: str, make: changes.Make) -> None:
    """Do by hand, cut short when it was to be emitted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changes, "emit_through", cut_short)
        with pytest.raises(LogUnavailable):
            changes.execute(lake, LogAddress(folder=log), job, table, make, lambda _: None)


def reset_to_nine(lake: Lake) -> pa.Table:
    asked = offset_resets.Reset(GROUP, "to_offset", lambda rows: strategies.to_offset(rows, 9), {"orders": [0]})
    return offset_resets.reset(lake, asked, None, T + 1).drop_columns(["note"])


def send(lake: Lake, log: Path) -> dict[str, int]:
    return {name: n for name, n in emit(lake, LogAddress(folder=log), lambda _: None).counts.items() if n}


def reasons(lake: Lake, outcome: str) -> set[tuple[str | None, int | None, str | None]]:
    return {(r["topic"], r["partition"], r["reason"]) for r in rows(lake, "tombstones") if r["outcome"] == outcome}


def test_group_with_a_reset_offset_is_not_deleted(lake: Lake, log: Path) -> None:
    plan_expiry(InProcess(), lake)
    only_planned(lake, log, "reset", "alterations", lambda: reset_to_nine(lake))
    assert send(lake, log) == {"done": 1, "emitted": 1, "refused": 2}
    assert reasons(lake, "refused") == {
        ("orders", 0, "another decision commits this offset"),
        (None, None, "the group has offsets that are not deleted"),
    }
    cycle(InProcess(), lake, log)
    (offset,) = rows(lake, "offsets")
    assert (offset["topic"], offset["partition"], offset["committed_offset"]) == ("orders", 0, 9)
    assert [row["group_id"] for row in rows(lake, "groups")] == [GROUP]
    assert send(lake, log) == {}


def test_group_with_a_restored_offset_is_not_deleted(lake: Lake, log: Path) -> None:
    """The group itself was planned to go when it had no offsets: its record would hide those it is given."""
    cleaned = plan_cleanup(lake, GROUP, "orders", T, live=False)
    changes.execute(lake, LogAddress(folder=log), "cleanup", "tombstones", lambda: cleaned, lambda _: None)
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    undelete = lambda: offset_resets.undelete(lake, GROUP, None, T + 1).drop_columns(["note"])  # noqa: E731
    only_planned(lake, log, "undelete", "alterations", undelete)
    assert send(lake, log) == {"done": 2, "refused": 1}
    cycle(InProcess(), lake, log)
    assert {row["partition"] for row in rows(lake, "offsets")} == {0, 1}
    assert [row["group_id"] for row in rows(lake, "groups")] == [GROUP]


def test_group_with_a_stale_cleanup_is_not_deleted(lake: Lake, log: Path) -> None:
    one = lambda: plan_cleanup(lake, GROUP, "orders", T, live=False).slice(0, 1)  # noqa: E731
    only_planned(lake, log, "cleanup", "tombstones", one)
    write_log(log, GROUP, "others", "more")
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    send(lake, log)
    assert (None, None, "the group has offsets that are not deleted") in reasons(lake, "refused")
    cycle(InProcess(), lake, log)
    assert [row["partition"] for row in rows(lake, "offsets")] == [0]
    assert {*replay(read_log(log)).committed} == {(GROUP, "orders", 0)}
    assert [row["group_id"] for row in rows(lake, "groups")] == [GROUP]


def test_interrupted_reset_gets_its_row_of_runs(lake: Lake, log: Path) -> None:
    for _ in range(2):
        only_planned(lake, log, "reset", "alterations", lambda: reset_to_nine(lake))
    # The plan is written down and the run is not, as when it is killed between the two.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changes.current_run, "finish", cut_short)
        with pytest.raises(LogUnavailable):
            changes.execute(lake, LogAddress(folder=log), "reset", "alterations", lambda: reset_to_nine(lake), print)
    assert send(lake, log) == {"done": 1}
    changes.execute(lake, LogAddress(folder=log), "reset", "alterations", lambda: reset_to_nine(lake), print)
    resets = [row for row in rows(lake, "runs") if row["job"] == "reset"]
    assert sorted(row["run_id"] for row in resets) == [3, 4, 5, 7]
    notes = [f"requested by {process_principal()}", CUT_SHORT]
    assert [row["notes"] for row in resets if row["run_id"] == 5] == [notes]


def test_group_planned_by_two_runs_is_deleted_once(tmp_path: Path) -> None:
    """Its only record stands at the log's very first offset."""
    log, lake = tmp_path / "log", new_lake(tmp_path / "lake")
    value = group_metadata_value(3, protocol_type="consumer", generation=1, protocol=None, leader=None)
    records = (Record(0, T, group_metadata_key(GROUP), value),)
    write_partition(log, group_log_partition(GROUP, 50), [Batch(records=records)])
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    only_planned(lake, log, "cleanup", "tombstones", lambda: plan_cleanup(lake, GROUP, None, T, live=False))
    assert send(lake, log) == {"emitted": 1}
