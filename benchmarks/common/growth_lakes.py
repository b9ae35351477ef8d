"""Synthetic lakes for `growth.py`: lakes with the rows of many runs, and lakes after days of simulated cycles."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.lake import runs, upkeep
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.files import TableFile, table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.folder import Folder
from offsetlake.lake.upkeep import VacuumRetention
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.pipeline.maintain.merging import merge
from support.oracle.bulk import SPAN, START_TIME

if TYPE_CHECKING:
    from deltalake import DeltaTable

RECENT_RUNS = 400  # since the last `maintain`
LOG_PARTITIONS = 50
PARTITIONS, CHANGED_PARTITIONS, COMPLETE_RECORD_ASKS = 1_000, 20, 300
COMMITS_PER_INGEST, DECISIONS_PER_EXPIRE = 20, 10
LAST_MS = START_TIME + SPAN + 3_600_000
ENDS = [(f"topic-{number % 10}", number // 10, 1_000_000) for number in range(PARTITIONS)]
_CYCLE = ("ingest", "compact", "expire", "emit")
_CYCLE_MS = 300_000
_DAY_MS = 86_400_000
_KEPT_DAYS = 7
_STATE_FILES = 50
_STATE_FILES_CHANGED = 5  # per cycle, in a commit each

Row = dict[str, Any]


class Writer:
    """Commits files to the tables of a lake, which stay open, without waiting for the disk."""

    def __init__(self, lake: Lake) -> None:
        Folder.make_durable = lambda *_: None
        self._lake = lake
        self._tables: dict[str, DeltaTable] = {}

    def commit(self, table: str, added: list[AddAction], removed: Iterable[str] = (), removed_at: int = 0) -> None:
        """Add and remove files in one commit."""
        if not added:
            return
        if table not in self._tables:
            self._tables[table] = self._lake.delta_table(table)
        target = self._tables[table]
        actions = [*added, *(RemoveAction(path, True, removed_at) for path in removed)]
        properties = ours("growth", target.version() + 1)
        target.create_write_transaction(actions, "append", target.schema(), commit_properties=properties)
        target.update_incremental()

    def close(self) -> None:
        """Forget the tables, which others are going to write to."""
        self._tables.clear()


def aged_lake(path: Path, number: int) -> None:
    """Create a lake with the rows of this many runs, the newest RECENT_RUNS of them in a file per run."""
    lake = Lake.create(path)
    writer = Writer(lake)
    old = max(0, number - RECENT_RUNS)
    for run_ids in np.array_split(np.arange(1, old + 1), upkeep.MIN_SMALL_FILES):
        _write(lake, writer, run_ids.tolist(), number)
    writer.close()
    for table in upkeep.APPENDED:
        merge(lake, table, old, lambda _: None)
        upkeep.vacuum(lake, table, VacuumRetention(0, 0), dry_run=False)
    for run_id in range(old + 1, number + 1):
        _write(lake, writer, [run_id], number)


def _write(lake: Lake, writer: Writer, run_ids: list[int], newest: int, tables: Collection[str] | None = None) -> None:
    """Write the rows of runs, one file per table."""
    for table, rows_of in _ROWS.items():
        if tables is not None and table not in tables:
            continue
        file = TableFile(lake, table)
        for start in range(0, len(run_ids), 4_000):
            rows = [row for run_id in run_ids[start : start + 4_000] for row in rows_of(run_id, newest)]
            file.write_rows([dict.fromkeys(table_schema(table).names) | row for row in rows])
        writer.commit(table, file.close())


def _job(run_id: int) -> str:
    return _CYCLE[(run_id - 1) % len(_CYCLE)]


def _time(run_id: int, newest: int) -> int:
    return LAST_MS - (newest - run_id) // len(_CYCLE) * _CYCLE_MS - 60_000


def _runs(run_id: int, newest: int) -> Iterator[Row]:
    job, at = _job(run_id), _time(run_id, newest)
    positions = tuple(runs.IngestPosition(OFFSETS_TOPIC, partition, 0, None) for partition in range(LOG_PARTITIONS))
    ranges = tuple(runs.LogRange(OFFSETS_TOPIC, partition, 0, 0) for partition in range(LOG_PARTITIONS))
    ingested = {"log": "log", "positions": positions, "ranges": ranges, "gaps": ()} if job == "ingest" else {}
    coverage = {
        "compact": {"through_run": run_id - 1},
        "expire": {"open_run": run_id - 1},
        "emit": {"open_run": run_id},
    }
    run = runs.Run(
        run_id=run_id, job=job, outcome="done", started_at=at, finished_at=at + 1000,
        counts={"offset_commits": COMMITS_PER_INGEST}, **ingested, **coverage.get(job, {}),
    )  # fmt: skip
    yield run.to_row()


def _log_ends(run_id: int, newest: int) -> Iterator[Row]:
    if _job(run_id) != "ingest":
        return
    ask = (run_id - 1) // len(_CYCLE)
    complete_ask = ask - ask % COMPLETE_RECORD_ASKS
    shared = {"ingest_run": run_id, "asked_timestamp": _time(run_id, newest)}
    shared |= {"complete_run": complete_ask * len(_CYCLE) + 1}
    yield shared
    changed = range(PARTITIONS) if ask == complete_ask else range(0, PARTITIONS, PARTITIONS // CHANGED_PARTITIONS)
    first = _time(1, newest)
    for number in changed:
        topic, partition, end = ENDS[number]
        offsets = {"start_offset": 0, "end_offset": end - (newest - run_id), "first_timestamp": first}
        yield {**shared, **offsets, "topic": topic, "partition": partition}


def _tombstones(run_id: int, newest: int) -> Iterator[Row]:
    job = _job(run_id)
    if job not in ("expire", "emit"):
        return
    for number in range(DECISIONS_PER_EXPIRE):
        decision = (run_id - 1) // len(_CYCLE) * DECISIONS_PER_EXPIRE + number
        yield {
            "run_id": run_id, "outcome": "planned" if job == "expire" else "emitted", "group_id": f"old-{decision % 997}",
            "topic": "topic-0", "partition": number, "log_partition": decision % LOG_PARTITIONS,
            "judged_offset": decision, "committed_offset": 1, "rule": "commit_age", "clock": "commit_timestamp",
            "clock_timestamp": 1, "retention_ms": 1, "judged_timestamp": _time(run_id, newest),
        }  # fmt: skip


def _offset_commits(run_id: int, newest: int) -> Iterator[Row]:
    if _job(run_id) != "ingest":
        return
    at = _time(run_id, newest)
    for number in range(COMMITS_PER_INGEST):
        yield {
            "ingest_run": run_id, "log_partition": number % LOG_PARTITIONS, "log_offset": 10**9 + run_id * 1000 + number,
            "log_timestamp": at, "record_type": 1, "group_id": f"old-{number}", "topic": "topic-0", "partition": 0,
            "kind": "commit", "superseded": True, "committed_offset": run_id, "metadata": "", "commit_timestamp": at,
            "value_version": 3,
        }  # fmt: skip


_ROWS: dict[str, Callable[[int, int], Iterator[Row]]] = {
    "offset_commits": _offset_commits, "tombstones": _tombstones, "log_ends": _log_ends, "runs": _runs,
}  # fmt: skip


def simulated_days(lake: Lake, days: int, cycles_per_day: int) -> tuple[str, ...]:
    """Write what the cycles and the daily `maintain` of some days write; return the tables.

    The days end now: files get the times that they would have. delta-rs removes the files that it compacts at the time of
    the clock, so these are vacuumed at once until the last week, and then kept, as is everything for a week.
    """
    now = int(time.time() * 1000)
    writer, tables = Writer(lake), ("log_ends", "runs", "offsets")
    seen: set[Path] = set()
    paths = {}
    for number in range(_STATE_FILES):
        paths[number] = _state_file(lake, writer, number, None, now)
    run_id = 0
    for day in range(days):
        at = now - (days - day) * _DAY_MS
        for cycle in range(cycles_per_day):
            for _ in _CYCLE:
                run_id += 1
                _write(lake, writer, [run_id], run_id, tables)
            for number in range(run_id, run_id + _STATE_FILES_CHANGED):
                paths[number % _STATE_FILES] = _state_file(
                    lake, writer, number % _STATE_FILES, paths[number % _STATE_FILES], at
                )
            _date(lake, tables, seen, at + cycle * _DAY_MS // cycles_per_day)
        writer.close()
        age, is_last_week = now - at - _DAY_MS, days - day <= _KEPT_DAYS
        for table in tables:
            if table in upkeep.APPENDED:
                _keep_removed(lake, table, days=_KEPT_DAYS if is_last_week else 0)
                merge(lake, table, run_id, lambda _: None)
            upkeep.vacuum(lake, table, VacuumRetention(_DAY_MS if is_last_week else 0, _DAY_MS + age), dry_run=False)
            upkeep.checkpoint(lake, table)
        _date(lake, tables, seen, at + _DAY_MS)
    return tables


def _keep_removed(lake: Lake, table: str, *, days: int) -> None:
    """Set how long the Delta log keeps entries of removed files."""
    name, value = "delta.deletedFileRetentionDuration", f"interval {days} days"
    target = lake.delta_table(table)
    if target.metadata().configuration.get(name) != value:
        target.alter.set_table_properties({name: value}, commit_properties=ours("growth", target.version() + 1))


def _state_file(lake: Lake, writer: Writer, number: int, former: str | None, at: int) -> str:
    """Replace a state file at the time of the simulated day; return the path of the new one."""
    row = {
        "group_id": f"group-{number}", "topic": "t", "partition": 0, "committed_offset": 1, "metadata": "",
        "commit_timestamp": 1, "log_partition": number, "log_offset": 1, "record_type": 1, "value_version": 3,
    }  # fmt: skip
    file = TableFile(lake, "offsets")
    file.write_rows([dict.fromkeys(table_schema("offsets").names) | row])
    added = file.close()
    writer.commit("offsets", added, [former] if former else [], at)
    return added[0].path


def _date(lake: Lake, tables: tuple[str, ...], seen: set[Path], at: int) -> None:
    """Set the times of all files that were written since the last call."""
    for table in tables:
        for path in lake.table_location(table).path.rglob("*"):
            if path not in seen:
                seen.add(path)
                os.utime(path, (at / 1000, at / 1000))
