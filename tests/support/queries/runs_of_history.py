"""Small lakes whose history was read in several ingest runs, each followed by a compaction; written without Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from offsetlake.lake.lake import Lake
from support.oracle.random_logs import RandomLog
from support.queries.lakes import Row, history_of, small_lake

_FIRST_MS = 1_760_000_000_000  # after all records of random logs, and before now
_RUN_MS = 1_000


def finished_at(run_id: int) -> int:
    """Return when a run finished, in ms since the epoch."""
    return _FIRST_MS + _RUN_MS * run_id


def lake_in_runs(path: Path, log: RandomLog, cuts: Sequence[int], more: Mapping[str, Sequence[Row]]) -> Lake:
    """Return a lake whose ingest runs 1, 3, 5, … have read the batches of the log up to each of the cuts.

    `more` are rows of other tables, at log offsets of the log.
    """
    history = {**history_of(log.records()), **more}
    read: set[tuple[int, int]] = set()
    for number, cut in enumerate(cuts):
        until = {(each.log_partition, each.log_offset) for each in RandomLog(log.world, log.plans[:cut]).records()}
        run_id = 2 * number + 1
        tables = {
            table: [
                {**row, "ingest_run": run_id}
                for row in rows
                if (row["log_partition"], row["log_offset"]) in until - read
            ]
            for table, rows in history.items()
        }
        read |= until
        small_lake(path, **tables, runs=runs_of(run_id))
    return Lake.open(path)


def runs_of(run_id: int) -> list[Row]:
    """Return the rows of `runs` of an ingest run and of the compaction after it."""
    times = {"started_at": finished_at(run_id), "finished_at": finished_at(run_id)}
    return [
        {**times, "run_id": run_id, "job": "ingest"},
        {**times, "run_id": run_id + 1, "job": "compact", "through_run": run_id},
    ]
