"""The table `runs`: what each finished run read and wrote, and where the next run of its job starts."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.definitions import definition
from offsetlake.lake.files import active_files
from offsetlake.lake.history.history_files import file_dataset
from offsetlake.lake.lake import Lake

BY_HAND = ("cleanup", "reset", "restore", "undelete", "repair", "import", "translate", "reject")
"""Jobs that write decisions of a person, and have them emitted or end planned ones."""

RESUMED = "finished after an interruption"
"""The note of a run that was interrupted and that a later call of its job finished by its plan."""

_REQUESTED_BY = "requested by "


class LogRange(NamedTuple):
    """Log offsets of a log partition; `end` is exclusive."""

    topic: str
    partition: int
    start: int
    end: int


class IngestPosition(NamedTuple):
    """Where the next ingest starts in a log partition, and the CRC-32C of the last batch before, if known."""

    topic: str
    partition: int
    position: int
    tail_checksum: int | None


class LeaderEpoch(NamedTuple):
    """The leader epoch of the last batch before the position of a log partition."""

    topic: str
    partition: int
    leader_epoch: int


class AbsentPartition(NamedTuple):
    """A partition of the log that exists, but was not in the folder that an ingest read."""

    topic: str
    partition: int


class Ingested(NamedTuple):
    """What an ingest read, what was deleted or absent before it could be read, and where the next ingest starts.

    `leader_epochs` are those in which the log before the positions ends, where they are known; `missing` are log
    offsets that the log had according to other files of its broker, but did not contain.
    """

    log_identity: str | None
    ranges: tuple[LogRange, ...]
    positions: tuple[IngestPosition, ...]
    gaps: tuple[LogRange, ...]
    leader_epochs: tuple[LeaderEpoch, ...] = ()
    log_partitions: int | None = None
    grown: bool | None = None
    absent: tuple[AbsentPartition, ...] = ()
    missing: tuple[LogRange, ...] = ()


class Coverage(NamedTuple):
    """What the tables contain after a run: columns of `runs` that only some jobs record."""

    through_run: int | None = None
    open_run: int | None = None


_NESTED: dict[str, type[LogRange | IngestPosition | LeaderEpoch | AbsentPartition]] = {
    "ranges": LogRange,
    "positions": IngestPosition,
    "gaps": LogRange,
    "leader_epochs": LeaderEpoch,
    "absent": AbsentPartition,
    "missing": LogRange,
}
"""The columns of `runs` that contain a struct for each log partition."""


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
    positions: tuple[IngestPosition, ...] | None = None
    gaps: tuple[LogRange, ...] | None = None
    through_run: int | None = None
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    open_run: int | None = None
    leader_epochs: tuple[LeaderEpoch, ...] | None = None
    log_partitions: int | None = None
    grown: bool | None = None
    absent: tuple[AbsentPartition, ...] | None = None
    missing: tuple[LogRange, ...] | None = None

    @property
    def resumed(self) -> bool:
        """Whether the run only finished what an interrupted one had left."""
        return RESUMED in self.notes

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Run":
        """Return the run that a row of `runs` describes."""
        typed = {
            name: tuple(kind(**entry) for entry in row[name]) for name, kind in _NESTED.items() if row[name] is not None
        }
        return cls(**{**row, **typed, "counts": dict(row["counts"]), "notes": tuple(row["notes"])})

    def to_row(self) -> dict[str, Any]:
        """Return the row of `runs`."""
        row = {name: getattr(self, name) for name in definition("runs").column_names}
        for name in _NESTED:
            row[name] = None if row[name] is None else [entry._asdict() for entry in row[name]]
        return row | {"counts": list(self.counts.items()), "notes": list(self.notes)}


@dataclass(frozen=True, kw_only=True)
class FinishedRun(Run):
    """A run that has just finished, with the Delta version of each table as the run left it."""

    versions: dict[str, int] = field(default_factory=dict)


def last_run(lake: Lake, job: str, outcome: str | None = None, through: int | None = None) -> Run | None:
    """Return the newest run of a job, or None; `outcome` limits the outcome, and `through` the number of the run."""
    return _last_run(lake, _Wanted(job, outcome, through))


def adoption(lake: Lake) -> Run | None:
    """Return the adoption of the cluster whose node the lake belongs to; None if there is none, or it was returned."""
    adopted = last_run(lake, "adopt")
    if adopted is None:
        return None
    returned = last_run(lake, "return")
    return adopted if returned is None or returned.run_id < adopted.run_id else None


def log_ends_source(lake: Lake) -> tuple[str, str]:
    """Return the option of `offsetlake run`, and its value, with which a cycle records log end offsets of topics."""
    node = adoption(lake)
    return ("--bootstrap", "HOST:PORT") if node is None else ("--log", node.log or "DIR")


def open_run(lake: Lake, *jobs: str) -> int:
    """Return the oldest run whose decisions may be planned or not compacted, according to these jobs; 0 if unknown."""
    known = [_last_run(lake, _Wanted(job, has_open_run=True)) for job in jobs]
    return max((run.open_run for run in known if run and run.open_run), default=0)


class _Wanted(NamedTuple):
    """A condition of runs: the job, the outcome and the newest run if named, and whether `open_run` must be known."""

    job: str
    outcome: str | None = None
    through: int | None = None
    has_open_run: bool = False

    def may_be_in(self, file: Mapping[str, Any]) -> bool:
        """Return whether a data file, as `active_files` lists it, can contain such a run, by its statistics."""
        return (
            file["min.job"] <= self.job <= file["max.job"]
            and (self.outcome is None or file["min.outcome"] <= self.outcome <= file["max.outcome"])
            and (self.through is None or file["min.run_id"] <= self.through)
            and not (self.has_open_run and file.get("null_count.open_run") == file["num_records"])
        )

    @property
    def condition(self) -> pc.Expression:
        """The condition that the rows of such runs satisfy."""
        condition = pc.field("job") == self.job
        if self.outcome is not None:
            condition &= pc.field("outcome") == self.outcome
        if self.through is not None:
            condition &= pc.field("run_id") <= self.through
        return condition & pc.field("open_run").is_valid() if self.has_open_run else condition


def _last_run(lake: Lake, wanted: _Wanted) -> Run | None:
    """Return the newest such run; reads the newest files first."""
    found: list[dict[str, Any]] = []
    for file in sorted(active_files(lake, "runs"), key=itemgetter("max.run_id"), reverse=True):
        if found and file["max.run_id"] < found[-1]["run_id"]:
            break
        if wanted.may_be_in(file):
            dataset, chosen = file_dataset(lake, "runs", [file["path"]]), wanted.condition
            if file["num_records"] > 1:  # the positions of all runs would take seconds to read
                chosen = pc.field("run_id") == pc.max(dataset.to_table(["run_id"], filter=chosen)["run_id"])
            found = sorted([*found, *dataset.to_table(filter=chosen).to_pylist()], key=itemgetter("run_id"))
    return Run.from_row(found[-1]) if found else None


def rows_of_runs(lake: Lake, first: int, last: int, columns: list[str], where: pc.Expression | None = None) -> pa.Table:
    """Return columns of a range of runs, from the files that contain them."""
    files = [f for f in active_files(lake, "runs") if f["min.run_id"] <= last and f["max.run_id"] >= first]
    dataset = file_dataset(lake, "runs", [file["path"] for file in files])
    chosen = (pc.field("run_id") >= first) & (pc.field("run_id") <= last)
    return dataset.to_table(columns, filter=chosen if where is None else chosen & where)


def jobs(lake: Lake, run_ids: Collection[int]) -> dict[int, str]:
    """Return the job of each of these runs, at least one, that has finished."""
    rows = rows_of_runs(lake, min(run_ids), max(run_ids), ["run_id", "job"])
    return dict(zip(*(rows[name].to_pylist() for name in ("run_id", "job")), strict=True))


def compacted_positions(lake: Lake) -> dict[tuple[str, int], int]:
    """Return the log offset up to which the compacted tables cover each log partition, by log topic and partition."""
    compacted = last_run(lake, "compact")
    positions = positions_after(lake, compacted.through_run) if compacted else ()
    return {(at.topic, at.partition): at.position for at in positions}


def requested_by(principal: str) -> str:
    """Return the note of a run that a principal requested."""
    return f"{_REQUESTED_BY}{principal}"


def requester(notes: Iterable[str]) -> str | None:
    """Return the principal that requested a run with these notes; None if that is not recorded."""
    return next((note.removeprefix(_REQUESTED_BY) for note in notes if note.startswith(_REQUESTED_BY)), None)


def requesters(lake: Lake, run_ids: Collection[int]) -> dict[int, str | None]:
    """Return who requested each of these runs, at least one, that has finished; see `requester`."""
    rows = rows_of_runs(lake, min(run_ids), max(run_ids), ["run_id", "notes"])
    return dict(zip(rows["run_id"].to_pylist(), map(requester, rows["notes"].to_pylist()), strict=True))


def positions_after(lake: Lake, ingest_run: int | None) -> tuple[IngestPosition, ...]:
    """Return the positions that an ingest recorded; none if there is no such run."""
    rows = rows_of_runs(lake, ingest_run or 0, ingest_run or 0, ["positions"]).to_pylist()
    return tuple(IngestPosition(**position) for position in rows[0]["positions"]) if rows else ()


def ingested_log_offsets(lake: Lake, topic: str, from_run: int, through_run: int) -> Counter[int]:
    """Return by partition of a topic how many log offsets a range of ingest runs has read."""
    counts: Counter[int] = Counter()
    for row in rows_of_runs(lake, from_run, through_run, ["ranges"], pc.field("job") == "ingest").to_pylist():
        for entry in (LogRange(**entry) for entry in row["ranges"] or ()):
            if entry.topic == topic:
                counts[entry.partition] += entry.end - entry.start
    return counts
