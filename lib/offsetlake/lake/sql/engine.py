"""The SQL engine (DataFusion, inside delta-rs) over tables of a lake, with a memory limit and a folder to spill to."""

import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from offsetlake.errors import NotEnoughMemory
from offsetlake.lake.sql.views import View
from offsetlake.util.columns import is_time
from offsetlake.util.memory_limit import limited

Tables = Mapping[str, DeltaTable]
"""Tables by name, each open at one version."""
ENGINE_BYTES = 384 << 20
"""Memory for the sorts, joins and aggregations of a query; sorts and aggregations spill what exceeds it."""

TOO_LARGE = (
    "the query needs more than 1 GB of memory: narrow it, for example by --group, --topic or --since, or in SQL by "
    "WHERE group_id = '…'"
)
_UNFILTERED = "every_"  # prefix of the name of a table that a view of the original name filters
MEMORY_LIMIT = "datafusion.runtime.memory_limit"
"""The setting with which an engine gets less memory than ENGINE_BYTES."""

SPILLING = {
    MEMORY_LIMIT: "320M",
    "datafusion.execution.target_partitions": "1",
    "datafusion.execution.sort_spill_reservation_bytes": str(64 << 20),  # per sort, to merge what it has spilled
    "datafusion.execution.batch_size": "4096",
}
"""Settings with which sorts of any size fit into less than ENGINE_BYTES: one at a time, which takes longer."""
SMALL = SPILLING | {
    MEMORY_LIMIT: "64M",
    "datafusion.execution.sort_spill_reservation_bytes": str(16 << 20),
    "datafusion.execution.batch_size": "2048",
}
"""Settings with which sorts and aggregations of any size need about 100 MB; see `Engine.query` for larger joins."""

_MILLISECONDS, _TIMESTAMPS = "datafusion.public", "timestamps"
"""The schemas of tables and views with times in ms, and of those that show them as timestamps."""
_TIMESTAMP = 'Timestamp(Millisecond, Some("UTC"))'

_DEFAULTS: dict[str, str] = {}
_EXHAUSTED = "Resources exhausted"
_CREATING = threading.Lock()


def use_little_memory() -> None:
    """Use the settings SMALL for all engines of this process that are created without settings."""
    _DEFAULTS.update(SMALL)


def spilling() -> Mapping[str, str]:
    """Return the settings SPILLING, or SMALL in a process with little memory."""
    return _DEFAULTS or SPILLING


class Engine:
    """A session: tables and views by name, then any number of queries."""

    def __init__(
        self,
        tables: Tables,
        views: Iterable[View] = (),
        only: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Register tables and views.

        `only` maps names of tables to SQL conditions: queries and views see only the rows that satisfy them. Files
        whose statistics rule a condition out are not read. `settings` are DataFusion's own.
        """
        given = dict(_DEFAULTS if settings is None else settings)
        self._memory_limit = given.pop(MEMORY_LIMIT, f"{ENGINE_BYTES >> 20}M")
        builder = QueryBuilder(given)
        builder.execute(f"SET {MEMORY_LIMIT} = '{self._memory_limit}'")
        builder.execute(f"SET datafusion.runtime.temp_directory = '{scratch_folder()}'")
        conditions = only or {}
        for name, table in tables.items():
            if name in conditions:
                builder.register(_UNFILTERED + name, table)
                builder.execute(f"CREATE VIEW {name} AS SELECT * FROM {_UNFILTERED}{name} WHERE {conditions[name]}")  # noqa: S608
            else:
                builder.register(name, table)
        for view in views:
            builder.execute(f"CREATE VIEW {view.name} AS {view.select}")
        self._builder = builder

    def use_timestamps(self, columns: Mapping[str, Iterable[str]]) -> None:
        """Show columns of times, in ms since the epoch, as timestamps in UTC to the queries that follow.

        `columns` has the names of the columns of registered tables and views. Views keep reading milliseconds: the
        names that queries use are views in a schema of their own.
        """
        self._builder.execute(f"CREATE SCHEMA {_TIMESTAMPS}")
        for name, every in columns.items():
            times = ", ".join(f"arrow_cast({column}, '{_TIMESTAMP}') AS {column}" for column in filter(is_time, every))
            shown = f"* REPLACE ({times})" if times else "*"
            self._builder.execute(f"CREATE VIEW {_TIMESTAMPS}.{name} AS SELECT {shown} FROM {_MILLISECONDS}.{name}")  # noqa: S608
        self._builder.execute(f"SET datafusion.catalog.default_schema = '{_TIMESTAMPS}'")

    def copy(self, name: str, sql: str) -> None:
        """Keep the rows of a query, which are few, in memory as a table, for statements that name it many times."""
        try:
            self._builder.execute(f"CREATE TABLE {name} AS {sql}")
        except DeltaError as error:
            raise _explained(error) from error

    def stream(self, sql: str) -> pa.RecordBatchReader:
        """Run a query and return its result batch by batch.

        Raises NotEnoughMemory, here or while the result is read, if the query needs more than ENGINE_BYTES.
        """
        try:
            reader = pa.RecordBatchReader.from_stream(self._builder.execute(sql))
        except (DeltaError, pa.ArrowException) as error:
            raise _explained(error) from error
        schema = pa.schema([field.with_type(_common(field.type)) for field in reader.schema])
        return pa.RecordBatchReader.from_batches(schema, _batches(reader, schema))

    def query(self, sql: str) -> pa.Table:
        """Run a query and return its whole result.

        An engine with the settings SMALL gets the memory of SPILLING once a join needs it.
        """
        try:
            return self.stream(sql).read_all()
        except NotEnoughMemory:
            if self._memory_limit != SMALL[MEMORY_LIMIT]:
                raise
        self._memory_limit = SPILLING[MEMORY_LIMIT]
        self._builder.execute(f"SET {MEMORY_LIMIT} = '{self._memory_limit}'")
        return self.stream(sql).read_all()


def _batches(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    try:
        for batch in reader:
            yield batch.cast(schema)
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise _explained(error) from error


def _explained(error: Exception) -> Exception:
    """Return the error to raise for an error of the engine."""
    if _EXHAUSTED not in str(error):
        return error
    return NotEnoughMemory(TOO_LARGE)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Exit with the message and code of NotEnoughMemory if queries make the process too large inside the block."""
    with limited(NotEnoughMemory.exit_code, TOO_LARGE, lambda: _scratch().cleanup()):
        yield


def quoted(value: str) -> str:
    """Return a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def scratch_folder() -> str:
    """Return the scratch folder of this process for data larger than memory; it is removed when the process ends."""
    return _scratch().name


def _scratch() -> "tempfile.TemporaryDirectory[str]":
    with _CREATING:  # of two that threads create at once, the cache drops one, which removes the folder in use
        return _created_scratch()


@cache
def _created_scratch() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="offsetlake-")


def _common(kind: pa.DataType) -> pa.DataType:
    """Return the type to convert to: pyarrow cannot filter or compare the string views of the engine."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_common(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_common(field.type)) for field in kind])
    return kind
