"""Table `runs` and the plans of running jobs: where the last run ended, and what an interrupted run has left to do.

A job first writes its plan to a file of the lake, then its tables, each commit tagged with the run, then its row in
`runs`, and removes the plan. After a kill, the next run of the job completes what is missing, by the same plan.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, Self, TypeVar

import pyarrow.parquet as pq

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.definitions import definition
from offsetlake.lake.files import FileChanges, TableFile, active_files, commit, table_schema
from offsetlake.lake.lake import Lake, disk_errors
from offsetlake.util.times import now_ms

BY_HAND = ("cleanup", "reset", "restore", "undelete", "repair")
"""Jobs that write decisions of a person and have them emitted."""

JOBS = ("ingest", "compact", "expire", "emit", *BY_HAND, "maintain", "rebuild")

RESUMED = "finished after an interruption"
"""The note of a run that was interrupted and that a later call of its job finished by its plan."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is needed to repeat a run that was interrupted; `begin` sets its number and its start time (ms)."""

    run_id: int = 0
    started_at: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the plan that `to_json` wrote, also by another version of the program; ignores unknown fields."""
        known = {known_field.name for known_field in fields(cls)}
        return cls(**{name: _frozen(value) for name, value in stored.items() if name in known})

    def with_notes(self, *notes: str) -> Self:
        """Return the plan with further notes."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True, kw_only=True)
class IngestPlan(Plan):
    """Which part of the log an ingest reads.

    | field        | description |
    |--------------|-------------|
    | log, log_identity | location of the log; its cluster id, if the log has one |
    | ranges, gaps | log offsets to read, and those deleted before they were read, as `ranges_to_json` writes them |
    | positions    | topic, partition and position from which the next ingest reads on |
    | log_ends     | rows of the table `log_ends` without their run; empty in older plans |
    """

    log: str
    log_identity: str | None
    ranges: str
    gaps: str
    positions: tuple[tuple[str, int, int], ...]
    log_ends: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompactPlan(Plan):
    """The ingest runs that a compaction takes in, none if `from_run` is greater, and the versions it starts from."""

    from_run: int
    through_run: int
    versions: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RebuildPlan(Plan):
    """The tables to rebuild with their versions, and the log partition to rebuild; None means all."""

    tables: tuple[str, ...]
    log_partition: int | None
    versions: dict[str, int]


class LogRange(NamedTuple):
    """Log offsets of a log partition; `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int


class LogPosition(NamedTuple):
    """Where the next ingest starts in a log partition, and the CRC-32C of the last batch before, if known."""

    topic: str
    partition: int
    position: int
    tail_checksum: int | None


class Ingested(NamedTuple):
    """What an ingest read, what was deleted before it could be read, and where the next ingest starts."""

    log_identity: str | None
    ranges: tuple[LogRange, ...]
    positions: tuple[LogPosition, ...]
    gaps: tuple[LogRange, ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: a row of `runs`."""

    run_id: int
    job: str
    outcome: str
    started_at: int
    finished_at: int
    log: str | None = None
    log_identity: str | None = None
    ranges: tuple[LogRange, ...] | None = None
    positions: tuple[LogPosition, ...] | None = None
    gaps: tuple[LogRange, ...] | None = None
    through_run: int | None = None
    counts: dict[str, int]
    notes: tuple[str, ...] = ()

    @property
    def resumed(self) -> bool:
        """Whether the run only finished what an interrupted one had left."""
        return RESUMED in self.notes

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Run":
        """Return the run that a row of `runs` describes."""
        kinds: dict[str, type[LogRange | LogPosition]] = {
            "ranges": LogRange, "positions": LogPosition, "gaps": LogRange,
        }  # fmt: skip
        typed = {
            name: tuple(kind(**entry) for entry in row[name]) for name, kind in kinds.items() if row[name] is not None
        }
        return cls(**{**row, **typed, "counts": dict(row["counts"]), "notes": tuple(row["notes"])})

    def to_row(self) -> dict[str, Any]:
        """Return the row of `runs`."""
        row = {name: getattr(self, name) for name in definition("runs").column_names}
        for name in ("ranges", "positions", "gaps"):
            row[name] = None if row[name] is None else [entry._asdict() for entry in row[name]]
        return row | {"counts": list(self.counts.items()), "notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True)
class Report(Run):
    """A run that has just finished, with the Delta version of each table as the run left it."""

    versions: dict[str, int] = field(default_factory=dict)


SomePlan = TypeVar("SomePlan", bound=Plan)


def last_run(lake: Lake, job: str, outcome: str | None = None, through: int | None = None) -> Run | None:
    """Return the newest run of a job, or None; `outcome` limits the outcome, and `through` the number of the run."""
    found: list[dict[str, Any]] = []
    for file in sorted(_files(lake), key=_newest, reverse=True):
        if found and _newest(file) < found[-1]["run_id"]:
            break
        if file["min.job"] <= job <= file["max.job"]:
            rows = pq.read_table(lake.table_path("runs") / file["path"], schema=table_schema("runs")).to_pylist()
            of_job = [row for row in rows if row["job"] == job and outcome in (None, row["outcome"])]
            found += [row for row in of_job if through is None or row["run_id"] <= through]
            found.sort(key=lambda row: int(row["run_id"]))
    return Run.from_row(found[-1]) if found else None


def _files(lake: Lake) -> list[dict[str, Any]]:
    """Return the files of `runs`, mostly one per run, with the bounds of their columns: a query would open them all."""
    return active_files(lake, "runs")


def _newest(file: dict[str, Any]) -> int:
    return int(file["max.run_id"])


def jobs(lake: Lake) -> dict[int, str]:
    """Return the job of each run."""
    rows = lake.query("SELECT run_id, job FROM runs", "runs").to_pylist()
    return {row["run_id"]: row["job"] for row in rows}


def compacted_positions(lake: Lake) -> dict[tuple[str, int], int]:
    """Return the log offset up to which the compacted tables cover each log partition, by log topic and partition."""
    compacted = last_run(lake, "compact")
    positions = positions_after(lake, compacted.through_run) if compacted else ()
    return {(topic, partition): position for topic, partition, position, _ in positions}


def positions_after(lake: Lake, ingest_run: int | None) -> tuple[LogPosition, ...]:
    """Return the positions that an ingest recorded; none if there is no such run."""
    rows = lake.query(f"SELECT positions FROM runs WHERE run_id = {ingest_run or 0}", "runs").to_pylist()  # noqa: S608
    return tuple(LogPosition(**position) for position in rows[0]["positions"]) if rows else ()


def unfinished_plan(lake: Lake, job: str, kind: type[SomePlan]) -> SomePlan | None:
    """Return the plan of an interrupted run of this job, or None; raises LakeUnusable if the file is no such plan."""
    stored = lake.read_file(_plan_file(job))
    if stored is None:
        return None
    try:
        plan = kind.from_json(stored)
    except (TypeError, AttributeError, KeyError) as error:
        raise LakeUnusable(
            f"{lake.path / _plan_file(job)} is not a plan of {job} ({error}): remove it, and the job starts again"
        ) from error
    finished = lake.query(f"SELECT 1 FROM runs WHERE run_id = {plan.run_id}", "runs").num_rows  # noqa: S608
    return None if finished else plan


def refuse_unfinished(lake: Lake, what: str) -> None:
    """Raise LakeBusy if a run is unfinished, of any job but maintain, which changes no row; `what` says why."""
    for job in JOBS:
        plan = unfinished_plan(lake, job, Plan) if job != "maintain" else None
        if plan:
            raise LakeBusy(
                f"run {plan.run_id} of {job} in {lake.path} {what}, and continues with the current tables: "
                f"run `offsetlake {'emit' if job in BY_HAND else job}` again first"
            )


def begin(lake: Lake, job: str, plan: SomePlan) -> SomePlan:
    """Give the run a number and write its plan, before anything else of the run is written."""
    others = [other["run_id"] for name in JOBS if (other := lake.read_file(_plan_file(name)))]
    newest = max([0, *others, *map(_newest, _files(lake))])
    numbered = replace(plan, run_id=newest + 1, started_at=now_ms())
    with disk_errors(lake.path):
        lake.write_file(_plan_file(job), numbered.to_json())
    return numbered


def finish(
    lake: Lake,
    job: str,
    plan: Plan,
    *,
    outcome: str,
    counts: Mapping[str, int],
    log: str | None = None,
    through_run: int | None = None,
    ingested: Ingested | None = None,
) -> Report:
    """Write the row of the run, once, and remove its plan; `ingested` is what an ingest read.

    The versions of the tables in the report are those that the run, which holds the lock of the lake, leaves.
    """
    report = Report(
        run_id=plan.run_id,
        job=job,
        outcome=outcome,
        started_at=plan.started_at,
        finished_at=max(now_ms(), plan.started_at),
        counts=dict(counts),
        notes=plan.notes,
        log=log,
        through_run=through_run,
        **(ingested._asdict() if ingested else {}),
    )
    file = TableFile(lake, "runs")
    file.write_rows([report.to_row()])
    commit(lake, "runs", [FileChanges(file.close())], job, plan.run_id)
    with disk_errors(lake.path):
        lake.remove_file(_plan_file(job))
    return replace(report, versions=lake.versions())


def _plan_file(job: str) -> str:
    return f"plan-{job}.json"


def _frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
