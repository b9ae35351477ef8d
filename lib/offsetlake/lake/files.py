"""Data files of tables, written by tasks in parallel, and the commit that makes them part of their table.

A commit replaces files by others atomically, tagged with its run: the Delta log keeps the newest run number of each
job, so that a resumed job skips the tables that it has already written. A file that no commit references is not part of
its table: files that a killed task has left are never read, and `maintain` vacuums them.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.errors import LakeBusy, TableChanged
from offsetlake.lake.constraints import check_rows
from offsetlake.lake.definitions import HISTORY, definition
from offsetlake.lake.delta.commits import app_id
from offsetlake.lake.lake import Lake
from offsetlake.util.times import now_ms

ROWS_A_GROUP = 1 << 18


@dataclass(slots=True)
class FileChanges:
    """The changes of a commit to one table: files to add, and paths of files to remove."""

    added: list[AddAction] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class TableFile:
    """Writes a new data file of a table batch by batch; without rows no file is created.

    Every row is checked against the constraints of the table: CheckFailed is raised before a commit can name the file.
    """

    def __init__(self, lake: Lake, table: str) -> None:
        self._table, self._schema = table, table_schema(table)
        self._location, self._name = lake.table_location(table), f"part-{uuid.uuid4()}.parquet"
        self._path = self._location.new_file(self._name)
        self._repeating = definition(table).repeating
        self._as_differences = _integers(self._schema) if table in HISTORY else []
        self._statistics = {name: _Statistics() for name in _indexed(table)}
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []

    def write(self, rows: pa.Table) -> None:
        """Add rows with the columns of the table, in any order; other columns are ignored."""
        if not rows.num_rows:
            return
        self._waiting.append(rows.select(self._schema.names).cast(_held_as(rows.schema, self._schema)))
        if sum(part.num_rows for part in self._waiting) >= ROWS_A_GROUP:
            self._flush()

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Add rows given as dicts."""
        if rows:
            self.write(pa.Table.from_pylist(rows, schema=self._schema))

    def _flush(self) -> None:
        rows = _without_unused(pa.concat_tables(self._waiting))
        self._waiting = []
        check_rows(self._table, rows)
        self._rows += rows.num_rows
        for name, statistics in self._statistics.items():
            statistics.add(rows[name])
        with self._location.errors():
            if self._writer is None:
                self._writer = pq.ParquetWriter(
                    self._path,
                    rows.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=self._repeating,
                    column_encoding=dict.fromkeys(self._as_differences, "DELTA_BINARY_PACKED"),
                    store_schema=False,
                    write_page_checksum=True,
                    write_page_index=True,  # rows of one log partition of many are then read without the others
                )
            for part in _row_groups(rows):
                self._writer.write_table(part, row_group_size=ROWS_A_GROUP)

    def close(self) -> list[AddAction]:
        """Finish the file and return its action for a commit: none if it has no rows."""
        if self._waiting:
            self._flush()
        if self._writer is None:
            return []
        with self._location.errors():
            self._writer.close()
            size = self._path.stat().st_size
            self._location.keep(self._name, self._path)
        stats = {
            "numRecords": self._rows,
            "minValues": {n: s.smallest for n, s in self._statistics.items() if s.smallest is not None},
            "maxValues": {n: s.largest for n, s in self._statistics.items() if s.largest is not None},
            "nullCount": {n: s.nulls for n, s in self._statistics.items()},
        }
        return [AddAction(self._name, size, {}, now_ms(), True, json.dumps(stats))]

    def discard(self) -> None:
        """Remove the unfinished file."""
        if self._writer is not None:
            self._writer.close()
        self._path.unlink(missing_ok=True)


def discard_files(lake: Lake, table: str, paths: Iterable[str]) -> None:
    """Remove data files that no commit references."""
    location = lake.table_location(table)
    with location.errors():
        for path in paths:
            location.discard(path)


@dataclass(slots=True)
class _Statistics:
    """Minimum, maximum and null count of a column, by which readers skip files."""

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
    """Return the columns of a table by its definition; every lake of the current version has these columns."""
    return pa.schema(Schema(definition(table).fields()).to_arrow())


@cache
def repeating_as_dictionaries(table: str) -> pa.Schema:
    """Return the columns of a table as `table_schema` does, but repeated texts as dictionaries."""
    repeating, as_dictionary = definition(table).repeating, pa.dictionary(pa.int32(), pa.string())
    schema = table_schema(table)
    return pa.schema([field.with_type(as_dictionary) if field.name in repeating else field for field in schema])


def _held_as(given: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Return the schema, with those columns as dictionaries that are dictionaries in `given`."""
    types = [given.field(column.name).type for column in schema]
    columns = zip(schema, types, strict=True)
    return pa.schema([c.with_type(given_as) if pa.types.is_dictionary(given_as) else c for c, given_as in columns])


def _without_unused(rows: pa.Table) -> pa.Table:
    """Unify the dictionaries of each column and drop unused values, which Parquet would otherwise store."""
    for index, column in enumerate(rows.schema):
        if pa.types.is_dictionary(column.type):
            array = rows[index].unify_dictionaries().combine_chunks()
            used = pc.unique(array.indices).drop_null()
            if len(used) < len(array.dictionary):
                array = pa.DictionaryArray.from_arrays(pc.index_in(array.indices, used), array.dictionary.take(used))
            rows = rows.set_column(index, column, array)
    return rows


def _integers(schema: pa.Schema) -> list[str]:
    """Return the columns of integers: which are stored as differences: these take less space and time."""
    return [column.name for column in schema if pa.types.is_integer(column.type)]


def _row_groups(rows: pa.Table) -> list[pa.Table]:
    """Split rows so that superseded commits, and routine ones, have their own row groups, which readers skip."""
    parts = [rows]
    for name in [name for name in ("superseded", "routine") if name in rows.column_names]:
        flags = [pc.fill_null(part[name], fill_value=False) for part in parts]
        pairs = zip(parts, flags, strict=True)
        parts = [part.filter(chosen) for part, flag in pairs for chosen in (pc.invert(flag), flag)]
    return [part for part in parts if part.num_rows]


def _indexed(table: str) -> list[str]:
    """Return the columns with statistics: those that the definition names, or all of simple types."""
    table_definition = definition(table)
    named = table_definition.properties.get("delta.dataSkippingStatsColumns")
    return (
        named.split(",")
        if named
        else [c["name"] for c in table_definition.columns if c["type"] in ("long", "integer", "string")]
    )


def commit(
    lake: Lake,
    table: str,
    changes: Iterable[FileChanges],
    job: str,
    run_id: int,
    rebuilt: str | None = None,
    *,
    keeps_rows: bool = False,
    versions: Mapping[str, int] | None = None,
) -> None:
    """Apply all file changes in one commit; does nothing if this run already did.

    `versions` are recorded with the commit.
    `keeps_rows` is for new files that have the rows of the removed ones: Delta permits that in an append-only table.

    Raises LakeBusy if another program has rearranged the files to remove.
    """
    all_changes = list(changes)
    now = now_ms()
    added = [action for of_task in all_changes for action in of_task.added]
    actions: list[AddAction | RemoveAction] = [replace(action, data_change=not keeps_rows) for action in added]
    removed = [*dict.fromkeys(path for of_task in all_changes for path in of_task.removed)]
    actions += [RemoveAction(path, not keeps_rows, now) for path in removed]
    if not actions or committed(lake, table, job, run_id):
        return
    once = lake.properties(job, run_id, rebuilt, versions)
    with lake.open_tables() as tables:
        tables.commit(table, actions, once, partial(refuse_rearranged, lake, table, {*removed}))


def refuse_rearranged(lake: Lake, table: str, removed: set[str], target: DeltaTable) -> None:
    """Raise LakeBusy if files to remove are not in the table: Delta accepts that, and rows would be in it twice."""
    if removed and not removed <= {file["path"] for file in active_files(lake, table, target)}:
        raise LakeBusy(
            f"another program rearranged the files of table {table} of {lake.location} meanwhile: run the command again"
        )


def committed(lake: Lake, table: str, job: str, run_id: int) -> bool:
    """Check whether this run of a job, or a later one, has written to a table."""
    return (lake.without_rows(table).transaction_version(app_id(job)) or 0) >= run_id


def rows_of_run(lake: Lake, table: str, run_id: int) -> int:
    """Return the number of rows that an ingest has written to a history table, by statistics of files if possible."""
    files = [
        file
        for file in active_files(lake, table)
        if file.get("min.ingest_run") is None or file["min.ingest_run"] <= run_id <= file["max.ingest_run"]
    ]
    if all(file.get("min.ingest_run") == file.get("max.ingest_run") == run_id for file in files):
        return sum(int(file["num_records"]) for file in files)
    return lake.count(table, f"ingest_run = {run_id}")


def active_files(lake: Lake, table: str, version: DeltaTable | int | None = None) -> list[dict[str, Any]]:
    """Return the data files of a table, at a version or now, with their statistics as `min.column`, `max.column`.

    The files can be read as plain Parquet: raises TableChanged if they have deletion vectors, or columns with other
    names in the files.
    """
    target = version if isinstance(version, DeltaTable) else lake.without_rows(table, version)
    protocol = target.protocol()
    if protocol.min_reader_version > 1:
        why = renamed_columns(target, definition(table).column_names)
        if "deletionVectors" in (protocol.reader_features or []) and target.deletion_vectors().read_all().num_rows:
            why = "has deletion vectors"
        if why:
            raise TableChanged(
                f"table {table} of the lake {lake.location} {why}, written by another program: restore a state table "
                "with `offsetlake rebuild`, any other table with RESTORE in Spark"
            )
    files: list[dict[str, Any]] = pa.table(target.get_add_actions(flatten=True)).to_pylist()
    return files


def has_files(lake: Lake, table: str) -> bool:
    """Return whether a table has data files; a lake of an older program may lack the table."""
    return table in lake.tables() and bool(active_files(lake, table))


def renamed_columns(target: DeltaTable, names: Iterable[str]) -> str:
    """Return a message with the columns that a table lacks or that have other names in its files; empty if none."""
    physical = {f.name: f.metadata.get("delta.columnMapping.physicalName", f.name) for f in target.schema().fields}
    wrong = sorted(name for name in names if physical.get(name) != name)
    return f"lacks columns, or has them under other names: {', '.join(wrong)}" if wrong else ""
