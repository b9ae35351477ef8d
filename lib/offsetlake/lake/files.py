"""Data files of tables, written side by side by Spark's tasks, and the commit that makes them part of their table.

A commit exchanges files for others in one step, tagged with its run: Delta keeps the newest run number of each job in
the commit itself, so a job that was killed and runs again passes over the tables it had already written. A file that no
commit names is no part of its table: what a killed task leaves behind is never seen, and goes with the next VACUUM.
"""

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.errors import LakeBusy, TableChanged
from offsetlake.lake.commits import app_id, ours
from offsetlake.lake.constraints import check_rows
from offsetlake.lake.definitions import definition
from offsetlake.lake.lake import Lake, disk_errors
from offsetlake.util.atomic_files import to_disk

ROWS_A_GROUP = 1 << 18


@dataclass(slots=True)
class FileChanges:
    """What a commit is to do to one table: files to add, and paths of files to take away."""

    added: list[AddAction] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class TableFile:
    """One new data file of a table, written batch by batch; it exists only if there are rows.

    Every row is checked against the constraints of the table: CheckFailed is raised before a commit can name the file.
    """

    def __init__(self, lake: Lake, table: str) -> None:
        self._table, self._schema = table, table_schema(table)
        self._path = lake.table_path(table) / f"part-{uuid.uuid4()}.parquet"
        self._repeating = definition(table).repeating
        self._statistics = {name: _Statistics() for name in _indexed(table)}
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows: the columns of the table, in any order, and others, which are passed over."""
        if not rows.num_rows:
            return
        self._waiting.append(rows.select(self._schema.names).cast(_held_as(rows.schema, self._schema)))
        if sum(part.num_rows for part in self._waiting) >= ROWS_A_GROUP:
            self._flush()

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Add rows given as dicts, as `write`."""
        if rows:
            self.write(pa.Table.from_pylist(rows, schema=self._schema))

    def _flush(self) -> None:
        rows = _without_unused(pa.concat_tables(self._waiting))
        self._waiting = []
        check_rows(self._table, rows)
        self._rows += rows.num_rows
        for name, statistics in self._statistics.items():
            statistics.add(rows[name])
        with disk_errors(self._path.parent):
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path,
                    rows.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=self._repeating,
                    store_schema=False,
                )
            for part in _row_groups(rows):
                self._writer.write_table(part, row_group_size=ROWS_A_GROUP)

    def close(self) -> list[AddAction]:
        """Finish the file and give what a commit says of it: nothing if no row came."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            return []
        with disk_errors(self._path.parent):
            self._writer.close()
            to_disk(self._path)
        stat = self._path.stat()
        stats = {
            "numRecords": self._rows,
            "minValues": {n: s.smallest for n, s in self._statistics.items() if s.smallest is not None},
            "maxValues": {n: s.largest for n, s in self._statistics.items() if s.largest is not None},
            "nullCount": {n: s.nulls for n, s in self._statistics.items()},
        }
        return [AddAction(self._path.name, stat.st_size, {}, int(stat.st_mtime * 1000), True, json.dumps(stats))]

    def discard(self) -> None:
        """Remove the unfinished file."""
        if self._writer is not None:
            self._writer.close()
        self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Statistics:
    """Bounds of one column, by which readers skip files."""

    smallest: Any = None
    largest: Any = None
    nulls: int = 0

    def add(self, values: pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        if pa.types.is_dictionary(values.type):
            values = values.chunk(0).dictionary
        bounds = pc.min_max(values).as_py()
        if bounds["min"] is not None:
            self.smallest = bounds["min"] if self.smallest is None else min(self.smallest, bounds["min"])
            self.largest = bounds["max"] if self.largest is None else max(self.largest, bounds["max"])


@cache
def table_schema(table: str) -> pa.Schema:
    """Columns of a table, as its definition and so every lake that is up to date has them."""
    return pa.schema(Schema(definition(table).fields()).to_arrow())


@cache
def repeating_as_dictionaries(table: str) -> pa.Schema:
    """Columns of a table as `table_schema` has them, but texts that repeat as dictionaries."""
    repeating, as_dictionary = definition(table).repeating, pa.dictionary(pa.int32(), pa.string())
    schema = table_schema(table)
    return pa.schema([of.with_type(as_dictionary) if of.name in repeating else of for of in schema])


def _held_as(given: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Keep the columns that are given as dictionaries as dictionaries."""
    types = [given.field(column.name).type for column in schema]
    columns = zip(schema, types, strict=True)
    return pa.schema([c.with_type(given_as) if pa.types.is_dictionary(given_as) else c for c, given_as in columns])


def _without_unused(rows: pa.Table) -> pa.Table:
    """Make each dictionary one, of just the values its column has: Parquet keeps it as it is given."""
    for at, column in enumerate(rows.schema):
        if pa.types.is_dictionary(column.type):
            array = rows[at].unify_dictionaries().combine_chunks()
            used = pc.unique(array.indices).drop_null()
            if len(used) < len(array.dictionary):
                array = pa.DictionaryArray.from_arrays(pc.index_in(array.indices, used), array.dictionary.take(used))
            rows = rows.set_column(at, column, array)
    return rows


def _row_groups(rows: pa.Table) -> list[pa.Table]:
    """Keep superseded commits in row groups of their own: who looks for the latest skips them whole."""
    if "superseded" not in rows.column_names:
        return [rows]
    parts = (rows.filter(chosen) for chosen in (pc.invert(rows["superseded"]), rows["superseded"]))
    return [part for part in parts if part.num_rows]


def _indexed(table: str) -> list[str]:
    """Columns Delta keeps statistics of: those the definition names, or all of simple type."""
    of = definition(table)
    named = of.properties.get("delta.dataSkippingStatsColumns")
    return named.split(",") if named else [c["name"] for c in of.columns if c["type"] in ("long", "integer", "string")]


def commit(
    lake: Lake,
    table: str,
    exchanges: Iterable[FileChanges],
    job: str,
    run_id: int,
    properties: CommitProperties | None = None,
) -> None:
    """Add and take away the files of all exchanges in one commit; a no-op where this run already did.

    Raises LakeBusy where another program has rearranged the files that are to be taken away.
    """
    made = list(exchanges)
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [action for exchange in made for action in exchange.added]
    removed = [path for exchange in made for path in exchange.removed]
    actions += [RemoveAction(path, True, now) for path in removed]
    if not actions or committed(lake, table, job, run_id):
        return
    target = lake.delta_table(table)
    # A commit may remove files that are not there: their rows would then be in the table twice.
    if removed and not {*removed} <= {file["path"] for file in active_files(lake, table, target)}:
        raise LakeBusy(f"another program rearranged the files of table {table} of {lake.path} meanwhile: run it again")
    with disk_errors(lake.path):
        once = properties or ours(job, run_id)
        target.create_write_transaction(actions, "append", target.schema(), commit_properties=once)


def committed(lake: Lake, table: str, job: str, run_id: int) -> bool:
    """Check whether this run of a job, or a later one, has written to a table."""
    return (lake.delta_table(table).transaction_version(app_id(job)) or 0) >= run_id


def active_files(lake: Lake, table: str, at: DeltaTable | int | None = None) -> list[dict[str, Any]]:
    """List the data files of a table, now or at a version, with their statistics as `min.column`, `max.column`.

    They can be read as plain Parquet: raises TableChanged where a reader has to know deletion vectors, or columns that
    are named otherwise in the files.
    """
    target = at if isinstance(at, DeltaTable) else lake.delta_table(table, at)
    protocol = target.protocol()
    if protocol.min_reader_version > 1:
        why = renamed_columns(target, definition(table).column_names)
        if "deletionVectors" in (protocol.reader_features or []) and target.deletion_vectors().read_all().num_rows:
            why = "has deletion vectors"
        if why:
            raise TableChanged(
                f"table {table} of the lake {lake.path} {why}, which only others write: `offsetlake rebuild` brings "
                "tables of latest state back, RESTORE in Spark the others"
            )
    files: list[dict[str, Any]] = pa.table(target.get_add_actions(flatten=True)).to_pylist()
    return files


def renamed_columns(target: DeltaTable, names: Iterable[str]) -> str:
    """Return which of these columns a table lacks, or has under another name in its files; empty for none."""
    physical = {f.name: f.metadata.get("delta.columnMapping.physicalName", f.name) for f in target.schema().fields}
    wrong = sorted(name for name in names if physical.get(name) != name)
    return f"lacks columns of ours, or has them under other names: {', '.join(wrong)}" if wrong else ""
