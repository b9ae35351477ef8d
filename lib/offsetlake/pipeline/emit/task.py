"""The decisions of some log partitions on their way out: which stand, which may still be done, what came of each."""

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
from offsetlake.lake.history_files import HistoryFile, partition_files, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.decisions import DECIDED, as_writes, standing
from offsetlake.pipeline.emit.live_state import Tables, read_current
from offsetlake.pipeline.emit.log_writer import Writer
from offsetlake.rules.conditions import Check, check_decisions

STALE = "the tables were brought up to date since it was planned: plan it again"

_OUTCOMES = {
    "tombstones": {Check.WRITE: "emitted", Check.DONE: "gone", Check.REFUSED: "refused"},
    "alterations": {Check.WRITE: "done", Check.DONE: "done", Check.REFUSED: "refused"},
}


@dataclass(slots=True)
class Emission:
    """One run of `emit` at work; `planned_by` limits it to what one run has planned."""

    lake: Lake
    log: LogAddress
    writer: Writer
    run_id: int
    planned_by: int | None
    _tables: Tables = field(init=False)
    _decided: dict[str, list[HistoryFile]] = field(init=False)
    _files: dict[str, TableFile] = field(init=False)
    _own: dict[str, pa.Table] = field(init=False)
    _compacted: int = field(init=False)
    _jobs: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self._tables = Tables(self.lake, runs.compacted_positions(self.lake))
        versions = self.lake.versions(*DECIDED)
        self._decided = {table: partition_files(self.lake, table, versions[table]) for table in DECIDED}
        self._files = {table: TableFile(self.lake, table) for table in DECIDED}
        self._own = {} if self.planned_by is None else {table: self._planned_by(table) for table in DECIDED}
        compacted = runs.last_run(self.lake, "compact", "done")
        self._compacted = compacted.run_id if compacted else 0
        self._jobs = runs.jobs(self.lake)

    def partitions(self) -> list[int]:
        """Log partitions that may have decisions."""
        if self.planned_by is not None:
            return sorted({*chain(*(rows["log_partition"].to_pylist() for rows in self._own.values()))})
        spans = [range(file.first_partition, file.last_partition + 1) for of in self._decided.values() for file in of]
        return sorted({*chain(*spans)})

    def emit(self, partitions: Sequence[int]) -> Counter[str]:
        """Do what stands of some log partitions, and write down what came of it; counts the outcomes."""
        planned = {table: _by_partition(self._planned(table, partitions)) for table in DECIDED}
        counts: Counter[str] = Counter()
        for partition in partitions:
            of = {table: rows[partition] for table, rows in planned.items() if partition in rows}
            if of:
                counts.update(self._emit_partition(partition, of))
        return counts

    def close(self) -> dict[str, FileChanges]:
        """Give the files of outcomes, for the commits that end the run."""
        return {table: FileChanges(added=file.close()) for table, file in self._files.items()}

    def _planned_by(self, table: str) -> pa.Table:
        sql = f"SELECT * FROM {table} WHERE run_id = {self.planned_by} AND outcome = 'planned'"  # noqa: S608
        return self.lake.query(sql, table).cast(table_schema(table))

    def _planned(self, table: str, partitions: Sequence[int]) -> pa.Table:
        if self.planned_by is not None:
            return self._own[table]
        rows = partition_rows(self.lake, table, self._decided[table], partitions, alone=True)
        return standing(rows, DECIDED[table])

    def _emit_partition(self, partition: int, planned: dict[str, pa.Table]) -> Counter[str]:
        decisions = as_writes(planned)
        groups = pc.unique(decisions["group_id"]).cast(pa.string())
        current = read_current(self._tables, self.log, partition, groups, self.writer.end(partition))
        stale = pc.and_(decisions["by_hand"], pc.less(decisions["run_id"], self._compacted))
        why = pc.if_else(stale, STALE, pa.scalar(None, pa.string()))
        found, reasons = check_decisions(decisions.append_column("stale", why), current)
        going = np.flatnonzero(found == Check.WRITE)
        writes = decisions.append_column("job", self._jobs_of(decisions["run_id"]))
        written = self.writer.write(partition, writes.take(going) if len(going) < len(found) else writes)
        log_offset = np.full(len(found), -1)
        log_offset[going] = written.log_offset
        for row, told in written.told.items():
            reasons[going[row]] = told
        for row, refusal in written.refused.items():
            found[going[row]], reasons[going[row]] = Check.REFUSED, refusal
        return self._record(planned, decisions, found, reasons, log_offset)

    def _jobs_of(self, run_ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Give the jobs of planning runs; without a row in `runs` is only an expire that was cut short."""
        jobs = pa.array(self._jobs.values(), pa.string())
        return pc.fill_null(jobs.take(pc.index_in(run_ids, pa.array(self._jobs, pa.int64()))), "expire")

    def _record(
        self,
        planned: dict[str, pa.Table],
        decisions: pa.Table,
        found: npt.NDArray[np.int64],
        reasons: dict[int, str],
        log_offset: npt.NDArray[np.int64],
    ) -> Counter[str]:
        counts: Counter[str] = Counter()
        for table, rows in planned.items():
            here = np.flatnonzero(pc.equal(decisions["table"], table))
            back = here[np.argsort(decisions["row"].to_numpy()[here])]  # in the order of `rows`
            outcomes = pa.array([_OUTCOMES[table][check] for check in Check])
            columns = {
                "run_id": pa.repeat(self.run_id, len(back)),
                "outcome": outcomes.take(found[back]),
                "reason": _at_rows(reasons, back),
                "log_offset": pa.array(log_offset[back], mask=log_offset[back] < 0),
            }
            for name, column in columns.items():
                of = rows.schema.field(name)
                rows = rows.set_column(rows.schema.get_field_index(name), of, column.cast(of.type))  # noqa: PLW2901
            self._files[table].write(rows)
            for name, number in zip(
                outcomes.to_pylist(), np.bincount(found[back], minlength=len(Check)).tolist(), strict=True
            ):
                counts[name] += number  # two codes may be one outcome
        return counts


def _at_rows(texts: dict[int, str], rows: npt.NDArray[np.int64]) -> pa.Array:
    """Give the texts of these rows, null where there is none."""
    if not texts:
        return pa.nulls(len(rows), pa.string())
    return pa.array([texts.get(row) for row in rows.tolist()], pa.string())


def _by_partition(rows: pa.Table) -> dict[int, pa.Table]:
    """Part rows by log partition."""
    partition = rows["log_partition"].to_numpy()
    if (partition[1:] < partition[:-1]).any():
        order = np.argsort(partition, kind="stable")
        rows, partition = rows.take(order), partition[order]
    starts = [0, *(np.flatnonzero(np.diff(partition)) + 1).tolist(), len(partition)]
    return {int(partition[a]): rows.slice(a, b - a) for a, b in pairwise(starts) if a < b}
