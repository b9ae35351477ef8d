"""Emits the decisions of log partitions: checks their conditions, writes them, and records the outcomes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake import runs
from offsetlake.lake.files import FileChanges, TableFile, table_schema
from offsetlake.lake.history.history_files import HistoryFile, partition_files, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.decisions import DECIDED, TOMBSTONE, as_writes, standing
from offsetlake.pipeline.emit.live_state import Tables, read_current
from offsetlake.pipeline.emit.log_writer import LogWriter, Writer
from offsetlake.rules.conditions import (
    SHARE,
    SHARE_ONLY_THROUGH_CLUSTER,
    Check,
    CurrentState,
    check_decisions,
    check_share_decisions,
)
from offsetlake.util.row_codes import among

STALE = "the tables were compacted after it was planned: plan it again"

PLANNERS = {"tombstones": ("expire", "emit"), "alterations": ("emit",)}
"""The jobs whose rows in `runs` say from which run on there are decisions that are still planned."""

_OUTCOMES = {
    "tombstones": {Check.WRITE: "emitted", Check.DONE: "gone", Check.REFUSED: "refused"},
    "alterations": {Check.WRITE: "done", Check.DONE: "done", Check.REFUSED: "refused"},
}


@dataclass(slots=True)
class Emission:
    """One run of `emit`.

    `planned_by`, if not None, limits it to the plan of one run, and `selected` to the tombstones of these decisions,
    with the columns of `decisions.TOMBSTONE`.
    """

    lake: Lake
    log: LogAddress
    writer: Writer
    run_id: int
    planned_by: int | None
    selected: pa.Table | None = None
    _tables: Tables = field(init=False)
    through_run: int = field(init=False)
    _from_run: dict[str, int] = field(init=False)
    _decided: dict[str, list[HistoryFile]] = field(init=False)
    _files: dict[str, TableFile] = field(init=False)
    _own: dict[str, pa.Table] = field(init=False)
    _compacted: int = field(init=False)
    _jobs: dict[int, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._tables = Tables(self.lake, runs.compacted_positions(self.lake))
        versions = self.lake.versions(*DECIDED)
        self._from_run = {table: runs.open_run(self.lake, *jobs) for table, jobs in PLANNERS.items()}
        self._decided = {
            table: partition_files(self.lake, table, versions[table], self._from_run[table]) for table in DECIDED
        }
        self._files = {table: TableFile(self.lake, table) for table in DECIDED}
        self._own = {} if self.planned_by is None else {table: self._planned_by(table) for table in DECIDED}
        compacted = runs.last_run(self.lake, "compact", "done")
        self._compacted = compacted.run_id if compacted else 0
        self.through_run = (compacted.through_run if compacted else None) or 0

    def partitions(self) -> list[int]:
        """Return the log partitions that may have decisions."""
        if self.planned_by is not None:
            return sorted({*chain(*(rows["log_partition"].to_pylist() for rows in self._own.values()))})
        files = chain(*self._decided.values())
        spans = [range(file.first_partition, file.last_partition + 1) for file in files]
        return sorted({*chain(*spans)})

    def count(self) -> int:
        """Return the number of decisions that may still be planned."""
        return sum(self.lake.count(table, f"run_id >= {run}") for table, run in self._from_run.items())

    def emit(self, partitions: Sequence[int]) -> Counter[str]:
        """Emit the decisions of some log partitions, record the outcomes, and return the number of each outcome."""
        planned = {table: _by_partition(self._planned(table, partitions)) for table in DECIDED}
        counts: Counter[str] = Counter()
        for partition in partitions:
            in_partition = {table: rows[partition] for table, rows in planned.items() if partition in rows}
            if in_partition:
                counts.update(self._emit_partition(partition, in_partition))
        return counts

    def rewind(self, live: pa.Table) -> Counter[str]:
        """Set offsets of groups with members, record the outcomes, and return the number of each outcome.

        The rows of `alterations` were not written as a plan: another run of `emit` must not continue with them.

        Raises:
            LogUnavailable: Whether the offsets of a group are set is unknown.
        """
        counts: Counter[str] = Counter()
        assert isinstance(self.writer, LogWriter)  # noqa: S101 - plans for clusters have no such groups
        for partition, rows in _by_partition(live).items():
            planned = {"alterations": rows}
            decisions = as_writes(planned)
            written = self.writer.rewind(partition, decisions.append_column("job", self._jobs_of(decisions["run_id"])))
            results = np.full(decisions.num_rows, Check.WRITE, np.int64)
            results[[*written.refused]] = Check.REFUSED
            counts.update(
                self._record(planned, decisions, results, {**written.notes, **written.refused}, written.log_offset)
            )
        return counts

    def close(self) -> dict[str, FileChanges]:
        """Return the files with the outcomes, for the commits at the end of the run."""
        return {table: FileChanges(added=file.close()) for table, file in self._files.items()}

    def _planned_by(self, table: str) -> pa.Table:
        sql = f"SELECT * FROM {table} WHERE run_id = {self.planned_by} AND outcome = 'planned'"  # noqa: S608
        return self.lake.query(sql, table).cast(table_schema(table))

    def _planned(self, table: str, partitions: Sequence[int]) -> pa.Table:
        if self.planned_by is not None:
            return self._own[table]
        is_recent = pc.field("run_id") >= self._from_run[table]
        rows = partition_rows(self.lake, table, self._decided[table], partitions, is_recent)
        rows = standing(rows, DECIDED[table])
        if self.selected is None:
            return rows
        return (
            rows.filter(pa.array(among(rows, self.selected, TOMBSTONE))) if table == "tombstones" else rows.slice(0, 0)
        )

    def _emit_partition(self, partition: int, planned: dict[str, pa.Table]) -> Counter[str]:
        decisions = as_writes(planned)
        groups = pc.unique(decisions["group_id"]).cast(pa.string())
        current = read_current(self._tables, self.log, partition, groups, self.writer.end(partition))
        stale = pc.and_(decisions["by_hand"], pc.less(decisions["run_id"], self._compacted))
        stale_reason = pc.if_else(stale, STALE, pa.scalar(None, pa.string()))
        decisions = decisions.append_column("stale", stale_reason)
        results, reasons = self._check(decisions, current)
        allowed = np.flatnonzero(results == Check.WRITE)
        writes = decisions.append_column("job", self._jobs_of(decisions["run_id"]))
        written = self.writer.write(partition, writes.take(allowed) if len(allowed) < len(results) else writes)
        log_offset = np.full(len(results), -1)
        log_offset[allowed] = written.log_offset
        for row, note in written.notes.items():
            reasons[allowed[row]] = note
        for row, refusal in written.refused.items():
            results[allowed[row]], reasons[allowed[row]] = Check.REFUSED, refusal
        return self._record(planned, decisions, results, reasons, log_offset)

    def _check(self, decisions: pa.Table, current: CurrentState) -> tuple[npt.NDArray[np.int64], dict[int, str]]:
        """Check which decisions may be written; those about share groups only through a cluster."""
        is_share = pc.fill_null(pc.equal(decisions["group_type"], SHARE), fill_value=False).to_numpy()
        results = np.full(decisions.num_rows, Check.REFUSED, np.int64)
        reasons: dict[int, str] = {}
        checks = {False: check_decisions, True: check_share_decisions}
        for share, check in checks.items():
            rows = np.flatnonzero(is_share == share)
            if share and not self.writer.writes_share_groups:
                reasons |= dict.fromkeys(rows.tolist(), SHARE_ONLY_THROUGH_CLUSTER)
            elif len(rows):
                results[rows], refusals = check(decisions.take(rows), current)
                reasons |= {int(rows[row]): reason for row, reason in refusals.items()}
        return results, reasons

    def _jobs_of(self, run_ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the jobs of planning runs; only an interrupted `expire` has no row in `runs`."""
        if unknown := {*pc.unique(run_ids).to_pylist()} - self._jobs.keys():
            self._jobs |= dict.fromkeys(unknown, "expire") | runs.jobs(self.lake, unknown)
        jobs = pa.array(self._jobs.values(), pa.string())
        return jobs.take(pc.index_in(run_ids, pa.array(self._jobs, pa.int64())))

    def _record(
        self,
        planned: dict[str, pa.Table],
        decisions: pa.Table,
        results: npt.NDArray[np.int64],
        reasons: dict[int, str],
        log_offset: npt.NDArray[np.int64],
    ) -> Counter[str]:
        counts: Counter[str] = Counter()
        for table, rows in planned.items():
            of_table = np.flatnonzero(pc.equal(decisions["table"], table))
            order = of_table[np.argsort(decisions["row"].to_numpy()[of_table])]  # the order of `rows`
            outcomes = pa.array([_OUTCOMES[table][check] for check in Check])
            columns = {
                "run_id": pa.repeat(self.run_id, len(order)),
                "outcome": outcomes.take(results[order]),
                "reason": _texts_of(reasons, order),
                "log_offset": pa.array(log_offset[order], mask=log_offset[order] < 0),
            }
            for name, column in columns.items():
                field_ = rows.schema.field(name)
                rows = rows.set_column(rows.schema.get_field_index(name), field_, column.cast(field_.type))  # noqa: PLW2901
            self._files[table].write(rows)
            for name, number in zip(
                outcomes.to_pylist(), np.bincount(results[order], minlength=len(Check)).tolist(), strict=True
            ):
                counts[name] += number  # two results can have the same outcome
        return counts


def _texts_of(texts: dict[int, str], rows: npt.NDArray[np.int64]) -> pa.Array:
    """Return the texts of these rows, null for rows without one."""
    if not texts:
        return pa.nulls(len(rows), pa.string())
    return pa.array([texts.get(row) for row in rows.tolist()], pa.string())


def _by_partition(rows: pa.Table) -> dict[int, pa.Table]:
    """Split rows by log partition."""
    partition = rows["log_partition"].to_numpy()
    if (partition[1:] < partition[:-1]).any():
        order = np.argsort(partition, kind="stable")
        rows, partition = rows.take(order), partition[order]
    starts = [0, *(np.flatnonzero(np.diff(partition)) + 1).tolist(), len(partition)]
    return {int(partition[start]): rows.slice(start, end - start) for start, end in pairwise(starts) if start < end}
