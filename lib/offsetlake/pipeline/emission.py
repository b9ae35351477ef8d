"""The decisions of some log partitions on their way out: which stand, which may still be done, what came of each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import LakeUnusable
from offsetlake.lake import runs
from offsetlake.lake.files import Exchange, TableFile, table_schema
from offsetlake.lake.history_files import HistoryFile, partition_files, partition_rows
from offsetlake.lake.lake import Lake
from offsetlake.lifecycle.conditions import DONE, GO, REFUSED, conditions
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.current import Tables, read_current
from offsetlake.pipeline.decisions import BY_HAND, DECIDED, as_writes, replaced, standing
from offsetlake.pipeline.writers import Writer

STALE = "the tables were brought up to date since it was planned: plan it again"

_OUTCOMES = {
    "tombstones": {GO: "emitted", DONE: "gone", REFUSED: "refused"},
    "alterations": {GO: "done", DONE: "done", REFUSED: "refused"},
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

    def __post_init__(self) -> None:
        self._tables = Tables(self.lake, runs.compacted_positions(self.lake))
        versions = self.lake.versions(*DECIDED)
        self._decided = {table: partition_files(self.lake, table, versions[table]) for table in DECIDED}
        self._files = {table: TableFile(self.lake, table) for table in DECIDED}
        self._own = {} if self.planned_by is None else {table: self._planned_by(table) for table in DECIDED}
        compacted = runs.last_run(self.lake, "compact", "done")
        self._compacted = compacted["run_id"] if compacted else 0

    def partitions(self) -> list[int]:
        """Log partitions that may have decisions."""
        if self.planned_by is not None:
            return sorted({*chain(*(rows["log_partition"].to_pylist() for rows in self._own.values()))})
        spans = [range(file.first_partition, file.last_partition + 1) for of in self._decided.values() for file in of]
        return sorted({*chain(*spans)})

    def emit(self, partitions: Sequence[int]) -> Counter[str]:
        """Do what stands of some log partitions, and write down what came of it; counts the outcomes."""
        planned = {table: self._planned(table, partitions) for table in DECIDED}
        counts: Counter[str] = Counter()
        for partition in partitions:
            of = {t: rows.filter(pc.equal(rows["log_partition"], partition)) for t, rows in planned.items()}
            if any(rows.num_rows for rows in of.values()):
                counts.update(self._emit_partition(partition, of))
        return counts

    def close(self) -> dict[str, Exchange]:
        """Give the files of outcomes, for the commits that end the run."""
        return {table: Exchange(added=file.close()) for table, file in self._files.items()}

    def _planned_by(self, table: str) -> pa.Table:
        sql = f"SELECT * FROM {table} WHERE run_id = {self.planned_by} AND outcome = 'planned'"  # noqa: S608
        return self.lake.query(sql, table).cast(table_schema(table))

    def _planned(self, table: str, partitions: Sequence[int]) -> pa.Table:
        if self.planned_by is not None:
            return self._own[table]
        rows = standing(partition_rows(self.lake, table, self._decided[table], partitions), DECIDED[table])
        judged = runs.last_run(self.lake, "expire")
        by_retention = table == "tombstones" and pc.any(pc.not_equal(rows["rule"], BY_HAND)).as_py()
        if by_retention and (judged is None or judged["run_id"] < self._compacted):
            raise LakeUnusable(
                "tombstones are planned, but the tables were brought up to date since: judge them again with "
                "`offsetlake expire` first"
            )
        return rows

    def _emit_partition(self, partition: int, planned: dict[str, pa.Table]) -> Counter[str]:
        decisions = as_writes(planned)
        groups = pc.unique(decisions["group_id"]).cast(pa.string())
        current = read_current(self._tables, self.log, partition, groups, self.writer.end(partition))
        found, reasons = conditions(decisions, current)
        stale = (found == GO) & decisions["by_hand"].to_numpy() & (decisions["run_id"].to_numpy() < self._compacted)
        for row in np.flatnonzero(stale).tolist():
            found[row], reasons[row] = REFUSED, STALE
        going = np.flatnonzero(found == GO)
        written = self.writer.write(partition, decisions.take(going))
        log_offset = np.full(len(found), -1)
        log_offset[going] = written.log_offset
        for row, told in written.told.items():
            reasons[going[row]] = told
        for row, refusal in written.refused.items():
            found[going[row]], reasons[going[row]] = REFUSED, refusal
        return self._record(planned, decisions, found, reasons, log_offset)

    def _record(
        self,
        planned: dict[str, pa.Table],
        decisions: pa.Table,
        found: npt.NDArray[np.int64],
        reasons: list[str | None],
        log_offset: npt.NDArray[np.int64],
    ) -> Counter[str]:
        counts: Counter[str] = Counter()
        why = pa.array(reasons, pa.string())
        for table, rows in planned.items():
            at = np.flatnonzero(pc.equal(decisions["table"], table).to_numpy())
            outcomes = np.array([_OUTCOMES[table][code] for code in (GO, DONE, REFUSED)])[found[at]]
            columns = {
                "outcome": pa.array(outcomes, pa.string()),
                "reason": why.take(pa.array(at)),
                "log_offset": pa.array(log_offset[at], mask=log_offset[at] < 0),
            }
            ended = replaced(rows.take(decisions["row"].take(pa.array(at))), run_id=self.run_id)
            for name, column in columns.items():
                place = ended.schema.get_field_index(name)
                ended = ended.set_column(place, ended.schema.field(name), column.cast(ended.schema.field(name).type))
            self._files[table].write(ended)
            counts.update(dict(zip(*np.unique(outcomes, return_counts=True), strict=True)))
        return counts
