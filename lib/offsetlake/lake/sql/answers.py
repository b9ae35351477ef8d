"""Query results that are too large for memory: rows in scratch files of the process, read batch by batch.

Both classes have the methods of `pyarrow.Table` that writing an answer uses: schema, num_rows, slice, select and
to_batches.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from offsetlake.lake.sql.engine import SPILLING, Engine, scratch_folder

MAX_ROWS_IN_MEMORY = 1 << 16
"""Rows of an answer that are kept in memory."""

_NAME = "answer"
_SMALL_GROUPS = WriterProperties(max_row_group_size=MAX_ROWS_IN_MEMORY)  # a writer keeps one in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows outside memory, with the properties of a table."""

    schema: pa.Schema
    num_rows: int

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self.schema.names)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.schema)

    def select(self, names: Sequence[str]) -> Self:
        """Return the same rows with these columns only."""
        return replace(self, schema=pa.schema([self.schema.field(name) for name in names]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedAnswer(_Rows):
    """Rows collected in parts and sorted by an ORDER BY when they are read."""

    table: DeltaTable
    order: str

    def slice(self, offset: int = 0, length: int | None = None) -> "SortedAnswer | pa.Table":
        """Return some rows: a table, or this object if these are all rows."""
        if offset == 0 and (length is None or length >= self.num_rows):
            return self
        limited = f"OFFSET {offset}" if length is None else f"LIMIT {length} OFFSET {offset}"
        return self._stream(limited).read_all()

    def to_batches(self, max_chunksize: int) -> Iterator[pa.RecordBatch]:
        """Read all rows, sorted, in batches of at most `max_chunksize` rows."""
        for batch in self._stream(""):
            for start in range(0, batch.num_rows, max_chunksize):
                yield batch.slice(start, max_chunksize)

    def _stream(self, limited: str) -> pa.RecordBatchReader:
        columns = ", ".join(f'"{name}"' for name in self.schema.names)
        engine = Engine({_NAME: self.table}, settings=SPILLING)
        return engine.stream(f"SELECT {columns} FROM {_NAME} ORDER BY {self.order} {limited}")  # noqa: S608


class PartedAnswer:
    """Collects the rows of an answer part by part: in memory while they are few, else in scratch files."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._folder = Path(scratch_folder(), uuid.uuid4().hex)
        self._schema = pa.schema([])
        self._rows = 0
        self._waiting: list[pa.RecordBatch] = []

    def add(self, part: pa.RecordBatchReader) -> None:
        """Add the rows of one part."""
        self._schema = part.schema
        batches = self._counted(part)
        for batch in batches:
            self._waiting.append(batch)
            if sum(waiting.num_rows for waiting in self._waiting) > MAX_ROWS_IN_MEMORY:
                self._write(batches)

    def _counted(self, part: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in part:
            self._rows += batch.num_rows
            yield batch

    def _write(self, following: Iterable[pa.RecordBatch]) -> None:
        """Write the rows that wait in memory, and those after them: a commit of a table takes as long as many rows."""
        batches = chain(self._waiting, following)
        reader = pa.RecordBatchReader.from_batches(self._schema, batches)
        write_deltalake(self._folder, reader, mode="append", writer_properties=_SMALL_GROUPS)
        self._waiting = []

    def answer(self) -> SortedAnswer:
        """Return all rows added; at least one part must have been added."""
        self._write([])
        table = DeltaTable(self._folder)
        return SortedAnswer(table=table, schema=self._schema, order=self._order, num_rows=self._rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer(_Rows):
    """Rows in the order in which a query returned them, in an Arrow file."""

    path: Path

    def slice(self, offset: int = 0, length: int | None = None) -> "KeptAnswer | pa.Table":
        """Return some rows: a table, or this object if these are all rows."""
        if offset == 0 and (length is None or length >= self.num_rows):
            return self
        wanted, batches = offset + (self.num_rows if length is None else length), []
        for batch in self.to_batches(MAX_ROWS_IN_MEMORY):
            batches.append(batch.slice(0, wanted))
            wanted -= batch.num_rows
            if wanted <= 0:
                break
        return pa.Table.from_batches(batches, self.schema).slice(offset)

    def to_batches(self, max_chunksize: int) -> Iterator[pa.RecordBatch]:
        """Read all rows in batches of at most `max_chunksize` rows."""
        with pa.OSFile(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index).select(self.schema.names)
                for start in range(0, batch.num_rows, max_chunksize):
                    yield batch.slice(start, max_chunksize)


def kept(found: pa.RecordBatchReader) -> pa.Table | KeptAnswer:
    """Read the result of a query: into memory if it is small, else into a file."""
    batches: list[pa.RecordBatch] = []
    for batch in found:
        batches.append(batch)
        if sum(part.num_rows for part in batches) > MAX_ROWS_IN_MEMORY:
            return _in_file(found.schema, chain(batches, found))
    return pa.Table.from_batches(batches, found.schema)


def _in_file(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> KeptAnswer:
    path, rows = Path(scratch_folder(), uuid.uuid4().hex), 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return KeptAnswer(path=path, schema=schema, num_rows=rows)


Answer = pa.Table | SortedAnswer | KeptAnswer
