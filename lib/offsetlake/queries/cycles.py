"""The cycles of a lake: runs of jobs that belong together, from reading the log to writing tombstones to it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from offsetlake.lake.lake import Lake
from offsetlake.lake.runs import BY_HAND, RESUMED, requesters
from offsetlake.queries.run_changes import UNFINISHED, list_runs
from offsetlake.util.amounts import counted, noun
from offsetlake.util.times import about, to_duration

_ORDER = {"ingest": 0, "compact": 1, "expire": 2, **dict.fromkeys(BY_HAND, 2), "emit": 3}
"""The order of jobs in a cycle. Other jobs, such as `maintain`, are not part of a cycle."""

MAX_TENTHS_MS = 120_000
"""From this duration on, tenths of a second are not shown."""

_SCHEMA = pa.schema(
    {
        "cycle": pa.int64(),
        "last_run": pa.int64(),
        "jobs": pa.list_(pa.string()),
        "outcome": pa.string(),
        "started_at": pa.int64(),
        "finished_at": pa.int64(),
        "duration_ms": pa.int64(),
        "records_read": pa.int64(),
        "rows_written": pa.int64(),
        "failed": pa.list_(pa.string()),
    }
)

_Run = Mapping[str, Any]


def list_cycles(lake: Lake) -> pa.Table:
    """Return the cycles, newest first, including unfinished ones.

    A cycle is a run of `ingest`, and the runs of `compact`, of `expire` or a job by hand, and of `emit` that follow it,
    each once, or twice if the first one finished what was interrupted. A run whose job was called by itself is a
    cycle as well.

    | column      | description |
    |-------------|-------------|
    | cycle, last_run | the numbers of its first and its last run: `runs.run_id` |
    | jobs        | the jobs of its runs |
    | outcome     | done; nothing new, if all runs had nothing new; unfinished, if one is running or was interrupted |
    | started_at, finished_at | when the first run started and the last one finished, ms since the epoch |
    | duration_ms | from start to finish, with the time between its jobs; null while unfinished |
    | records_read, rows_written | the sums over its runs (`list_runs`); null if no run has one |
    | failed      | what went wrong: runs that are unfinished or were interrupted, records that were quarantined or \
    deleted before they were read, decisions that were refused |
    """
    rows = list_runs(lake).sort_by("run_id").to_pylist(maps_as_pydicts="strict")
    gaps = lake.query("SELECT run_id, gaps FROM runs WHERE cardinality(gaps) > 0", "runs").to_pylist()
    lost = {row["run_id"]: sum(gap["end"] - gap["start"] for gap in row["gaps"]) for row in gaps}
    cycles = [_cycle(runs, lost) for runs in _divided(rows)]
    return pa.Table.from_pylist(cycles[::-1], schema=_SCHEMA)


def with_requesters(lake: Lake, cycles: pa.Table) -> pa.Table:
    """Append `requesters` to rows of `list_cycles`: the principals that requested runs of the cycle, as one text."""
    names = requesters(lake, cycles["cycle"].to_pylist() + cycles["last_run"].to_pylist()) if cycles.num_rows else {}
    spans = zip(cycles["cycle"].to_pylist(), cycles["last_run"].to_pylist(), strict=True)
    known = [[name for run in range(first, last + 1) if (name := names.get(run))] for first, last in spans]
    return cycles.append_column("requesters", pa.array([", ".join(dict.fromkeys(each)) for each in known], pa.string()))


def duration_text(ms: int | None) -> str | None:
    """Return the duration of a run or a cycle for people: with tenths of a second below MAX_TENTHS_MS."""
    if ms is None:
        return None
    return f"{ms / 1000:.1f}s" if ms < MAX_TENTHS_MS else to_duration(about(ms))


def as_texts(cycles: pa.Table) -> pa.Table:
    """Return the rows of `list_cycles` for people: with `duration`, and with `jobs` and `failed` as one text each."""
    durations = pa.array(map(duration_text, cycles["duration_ms"].to_pylist()), pa.string())
    rows = cycles.append_column("duration", durations)
    for name in ("jobs", "failed"):
        texts = pa.array([", ".join(texts) for texts in rows[name].to_pylist()], pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, texts)
    return rows


def _divided(rows: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Yield the runs of each cycle, of runs in ascending order."""
    cycle: list[_Run] = []
    for row in rows:
        if cycle and not _follows(cycle[-1], row):
            yield cycle
            cycle = []
        cycle.append(row)
    if cycle:
        yield cycle


def _follows(last: _Run, run: _Run) -> bool:
    """Return whether a run belongs to the cycle of the run before it."""
    if last["job"] not in _ORDER or run["job"] not in _ORDER:
        return False
    again = last["job"] == run["job"] and RESUMED in last["notes"]
    return again or _ORDER[last["job"]] < _ORDER[run["job"]]


def _cycle(runs: Sequence[_Run], lost: Mapping[int, int]) -> dict[str, Any]:
    outcomes = {run["outcome"] for run in runs}
    finished_at = None if UNFINISHED in outcomes else max(run["finished_at"] for run in runs)
    started_at = min(run["started_at"] for run in runs)
    return {
        "cycle": runs[0]["run_id"],
        "last_run": runs[-1]["run_id"],
        "jobs": [*dict.fromkeys(run["job"] for run in runs)],
        "outcome": UNFINISHED if UNFINISHED in outcomes else outcomes.pop() if len(outcomes) == 1 else "done",
        "started_at": started_at,
        "finished_at": finished_at,
        "duration_ms": None if finished_at is None else finished_at - started_at,
        "records_read": _sum(run["records_read"] for run in runs),
        "rows_written": _sum(run["rows_written"] for run in runs),
        "failed": [problem for run in runs for problem in _problems(run, lost.get(run["run_id"], 0))],
    }


def _sum(numbers: Iterator[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _problems(run: _Run, lost: int) -> Iterator[str]:
    job, counts = run["job"], run["counts"]
    if run["outcome"] == UNFINISHED:
        yield f"{job} is running or was interrupted"
    if RESUMED in run["notes"]:
        yield f"{job} was interrupted, and finished later"
    if quarantined := counts.get("quarantine", 0):
        yield f"{job} quarantined {counted(quarantined, 'record')}"
    if lost:
        yield f"{counted(lost, 'log offset was', 'log offsets were')} deleted before {job} read them"
    if refused := counts.get("refused", 0):
        yield f"{counted(refused, 'decision')} of {job} {noun(refused, 'was', 'were')} refused"
