"""A lake: a location with Delta tables, its version, and the lock that only one writing job holds at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from offsetlake.errors import LakeUnusable
from offsetlake.lake import damage
from offsetlake.lake.creation import MARKER, make_tables, refuse_other_content, stored_version
from offsetlake.lake.definitions import FORMER_NAMES, LAKE_VERSION, TABLES
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.delta.log_entries import DeltaLog, newest_version, segment_fault
from offsetlake.lake.delta.open_tables import OpenTables
from offsetlake.lake.location.locate import LakeLocation, locate
from offsetlake.lake.location.location import Lease, Location
from offsetlake.lake.small_files import SmallFiles
from offsetlake.lake.sql.engine import Engine
from offsetlake.lake.sql.views import named_in, needed
from offsetlake.util.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from offsetlake.lake.kept_tables import PinnedTables

_in_use: WeakValueDictionary[int, "Lake"] = WeakValueDictionary()
_numbers = count()


def lakes_in_use() -> list["Lake"]:
    """Return the lakes that this process has opened and still uses, the newest first."""
    return [*_in_use.values()][::-1]


class Lake:
    """A lake with the data of one log. Use `create` or `open`; both are cheap.

    While the lake is locked, its tables are opened once, and its files listed and read once: only the holder of the
    lock writes to them. A commit of another program during that time is found before the next cycle.
    """

    def __init__(self, location: LakeLocation) -> None:
        self.location = locate(location).absolute()
        self.files = SmallFiles(self.location)
        self.pinned: PinnedTables | None = None
        self._version = 0
        self._lease: Lease | None = None
        self._tables: OpenTables | None = None
        _in_use[next(_numbers)] = self

    def __reduce__(self) -> tuple[type["Lake"], tuple[Location]]:
        """Pickle the location only: a task has neither the lock nor the tables of the driver."""
        return Lake, (self.location,)

    @classmethod
    def open(cls, location: LakeLocation) -> "Lake":
        """Return a lake for reading; raise LakeUnusable if there is none or a newer program made it."""
        lake = cls(location)
        if lake.version() == 0:
            raise LakeUnusable(f"no lake in {location}: `offsetlake run --lake {location} --log FOLDER` creates one")
        return lake

    @classmethod
    def create(cls, location: LakeLocation) -> "Lake":
        """Return a lake for writing; create it if there is none, upgrade it if an older program made it."""
        lake = cls(location)
        if lake.version() < LAKE_VERSION:
            with lake.location.errors():
                lake._upgrade()
        return lake

    @classmethod
    def check(cls, location: LakeLocation) -> None:
        """Raise LakeUnusable if `create` would: the folder has other content, or a newer program made the lake."""
        lake = cls(location)
        if lake.version() == 0:
            refuse_other_content(lake.location)

    def version(self) -> int:
        """Return the version of the lake, 0 if there is no lake yet; raises LakeUnusable."""
        if (self._lease or self.pinned) and self._version:
            return self._version
        self._version = stored_version(self.location)
        return self._version

    def _upgrade(self) -> None:
        self.location.prepare()
        with self.lock("create"):
            version = self.version()
            if version == 0:
                refuse_other_content(self.location)
            make_tables(self.location, version)
            self.files.write(MARKER, {"version": LAKE_VERSION})

    def table_location(self, table: str) -> Location:
        """Return the location of a table; in a lake that is not upgraded yet it may have the table's former name."""
        if table in FORMER_NAMES.values() and self.version() < LAKE_VERSION:
            names = self.location.names()
            for former, current in FORMER_NAMES.items():
                if table == current and table not in names and former in names:
                    return self.location.child(former)
        return self.location.child(table)

    def delta_table(self, table: str, version: int | None = None) -> DeltaTable:
        """Return a table, at a Delta version or the newest one; raise LakeUnusable if the table is missing."""
        with self.location.errors():
            if self._tables:
                return self._tables.table(table, version)
            if self.pinned:
                return self.pinned.table(table, version, self._open_whole)
            return self._open_whole(table, version)

    def without_rows(self, table: str, version: int | None = None) -> DeltaTable:
        """Return a table as `delta_table` does, to read only its Delta log: files, statistics, properties, runs."""
        if self._tables is None:
            return self.delta_table(table, version)
        with self.location.errors(), self._missing_named(table):
            return self._tables.without_rows(table, version)

    def delta_log(self, table: str) -> DeltaLog:
        """Return the Delta log of a table."""
        return self._tables.log(table) if self._tables else self.table_location(table).child("_delta_log")

    def _open_whole(self, table: str, version: int | None) -> DeltaTable:
        """Open a table, and raise LakeUnusable if the commits that it consists of are torn."""
        opened = self._open_table(table, version)
        if self.location.tears_writes and (why := segment_fault(self.delta_log(table), opened.version())):
            raise damage.damaged(self.location, table, why)
        return opened

    def _open_table(self, table: str, version: int | None) -> DeltaTable:
        uri = str(self.table_location(table))
        if version is None:
            with self._missing_named(table):
                return DeltaTable(uri)
        try:
            return DeltaTable(uri, version=version)
        except DeltaError:
            self._open_table(table, None)  # raises LakeUnusable if the fault is not one of this version
            raise

    @contextmanager
    def _missing_named(self, table: str) -> Iterator[None]:
        """Raise LakeUnusable if a table is not found in the block, or its Delta log is damaged."""
        try:
            with damage.named(self.location, table):
                yield
        except LakeUnusable as error:
            if self.version() == LAKE_VERSION or not isinstance(error.__cause__, TableNotFoundError):
                raise
            raise LakeUnusable(
                f"table {table} of the lake {self.location} is missing, because an older offsetlake made the lake: "
                "the next job that writes adds it"
            ) from error

    @contextmanager
    def open_tables(self) -> Iterator[OpenTables]:
        """Yield the tables that are open while the lake is locked, otherwise tables that are open in the block."""
        with self.location.errors():
            if self._tables:
                yield self._tables
                return
            with self._copies_of_logs(None) as tables:
                yield tables

    @contextmanager
    def _copies_of_logs(self, lease: Lease | None) -> Iterator[OpenTables]:
        with temporary_folder("offsetlake-logs-") as folder:
            yield OpenTables(self.location, lease, self.table_location, self._open_table, folder)

    def close_table(self, table: str) -> None:
        """Open a table again at its next use, because its Delta log was changed not only by `OpenTables.commit`."""
        if self._tables:
            self._tables.close(table)

    def properties(
        self, job: str, number: int, rebuilt: str | None = None, versions: Mapping[str, int] | None = None
    ) -> CommitProperties:
        """Return the properties that mark a commit as one of a run of this process (`lake.delta.commits`)."""
        return ours(job, number, self._lease.epoch if self._lease else 0, rebuilt, versions)

    def versions(self, *tables: str) -> dict[str, int]:
        """Return the Delta versions of the named tables, by default of all tables."""
        pinned = self.pinned.versions if self.pinned else {}
        return {name: pinned[name] if name in pinned else self._version_of(name) for name in tables or self.tables()}

    def _version_of(self, table: str) -> int:
        """Return the Delta version of a table by the names in its log; opening the table would read the entries."""
        newest = self._tables.log(table).newest() if self._tables else newest_version(self.delta_log(table).names())
        return newest if newest >= 0 else self.delta_table(table).version()

    def tables(self) -> list[str]:
        """Return the tables that exist; a lake of an older program lacks the newer ones until a job writes."""
        if self.version() == LAKE_VERSION:
            return [*TABLES]
        return [table for table in TABLES if DeltaTable.is_deltatable(str(self.table_location(table)))]

    def check_up_to_date(self) -> None:
        """Raise LakeUnusable if an older program made the lake, because its tables lack columns that the views need."""
        if self.version() < LAKE_VERSION:
            raise LakeUnusable(
                f"an older offsetlake made the lake {self.location}, and its tables lack columns that the views need: "
                "the next job that writes adds them"
            )

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table by name; a lake of an older program lacks the newer ones until a job writes."""
        return [field.name for field in self.without_rows(table).schema().fields]

    def query(self, sql: str, *tables: str, **versions: int) -> pa.Table:
        """Run SQL (DataFusion's dialect) over the named tables and views, without Spark.

        By default over all tables, and the views that the statement names. `versions` pins tables to Delta versions:
        `query(sql, offsets=3)`.
        """
        names = tables if tables or versions else (*self.tables(), *named_in(sql))
        return self.engine(names, versions).query(sql)

    def engine(
        self,
        names: Iterable[str],
        versions: Mapping[str, int],
        only: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        replacements: Mapping[str, DeltaTable] | None = None,
    ) -> Engine:
        """Return an SQL engine over the named tables and views, and those they are built on.

        `versions` pins tables to Delta versions; `only` maps tables to SQL conditions that their rows must satisfy;
        `settings` are those of the engine; `replacements` maps names to tables to read in place of the lake's. Readers
        of the same versions share an engine that needs nothing but names.
        """
        named = (*names, *versions)

        def create() -> Engine:
            registered, views = needed(named)
            if views:
                self.check_up_to_date()
            replaced = replacements or {}
            opened = {table: self.delta_table(table, versions.get(table)) for table in registered - replaced.keys()}
            opened |= {table: replaced[table] for table in registered & replaced.keys()}
            return Engine(opened, views, only, settings)

        if self.pinned and not (versions or only or settings or replacements):
            return self.pinned.engine(named, create)
        return create()

    def count(self, table: str, condition: str = "true") -> int:
        """Return the number of rows of a table that satisfy an SQL condition; all of them are counted by statistics."""
        if condition == "true":
            counts = pa.table(self.without_rows(table).get_add_actions(flatten=True))["num_records"]
            if not counts.null_count:
                return int(pc.sum(counts, min_count=0).as_py())
        return int(self.query(f"SELECT count(*) AS n FROM {table} WHERE {condition}", table)["n"][0].as_py())  # noqa: S608

    @contextmanager
    def lock(self, job: str, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Lock the lake for a writing job; raises LakeBusy, see `Location.lock`. Does nothing if it is locked already.

        If the former holder did not release the lock of an object store, it may only be paused: it can commit nothing
        more, because each table gets a commit with the epoch of the new holder first.
        """
        if self._lease:
            yield
            return
        with self.location.lock(job, waiting) as lease, self._copies_of_logs(lease) as tables:
            self._lease, self._tables = lease, tables
            self.files.lock(lease)
            try:
                if lease.taken_over:
                    self._fence()
                    lease.fenced = True
                yield
            finally:
                self._lease, self._tables, self._version = None, None, 0
                self.files.unlock()

    @property
    def locked(self) -> bool:
        """Whether this process has locked the lake."""
        return self._lease is not None

    def _fence(self) -> None:
        for table in self.tables():
            with self.open_tables() as tables:
                tables.commit(table, [], self.properties("fence", self.without_rows(table).version() + 1))
