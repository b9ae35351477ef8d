"""A lake: a folder of Delta tables, its version, and the lock that only one writing job holds at a time."""

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.definitions import FORMER_NAMES, LAKE_VERSION, TABLES, create_table, definition, upgrade_table
from offsetlake.lake.engine import Engine
from offsetlake.lake.views import named_in, needed
from offsetlake.util.atomic_files import replacing, temporary_of, to_disk

WAIT_SECONDS = 60
_MARKER = "offsetlake.json"
LOCK = "lock"
_ENTRY = f"{'[0-9]' * 20}.json"  # an entry of a Delta log, which is complete when it exists


class Lake:
    """A lake with the data of one log. Use `create` or `open`; both are cheap."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @classmethod
    def open(cls, path: Path) -> "Lake":
        """Return a lake for reading; raise LakeUnusable if there is none or a newer program made it."""
        lake = cls(path)
        if lake.version() == 0:
            raise LakeUnusable(f"no lake in {path}: `offsetlake run --lake {path} --log FOLDER` creates one")
        return lake

    @classmethod
    def create(cls, path: Path) -> "Lake":
        """Return a lake for writing; create it if there is none, upgrade it if an older program made it."""
        lake = cls(path)
        if lake.version() < LAKE_VERSION:
            with disk_errors(lake.path):
                lake._upgrade()
        return lake

    @classmethod
    def check(cls, path: Path) -> None:
        """Raise LakeUnusable if `create` would: the folder has other content, or a newer program made the lake."""
        lake = cls(path)
        if lake.version() == 0 and path.exists():
            lake._refuse_other_content()

    def version(self) -> int:
        """Return the version of the lake, 0 if there is no lake yet; raises LakeUnusable."""
        marker = self.path / _MARKER
        try:
            version = int(json.loads(marker.read_text(encoding="utf-8"))["version"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeUnusable(f"cannot read {marker} ({error}): check that {self.path} is a lake") from error
        if version > LAKE_VERSION:
            raise LakeUnusable(
                f"the lake {self.path} is at version {version}, written by a newer offsetlake; "
                f"this version supports lakes up to version {LAKE_VERSION}: upgrade offsetlake"
            )
        return version

    def _upgrade(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self.lock("create"):
            version = self.version()
            if version == 0:
                self._refuse_other_content()
            self._rename_tables()
            for table in TABLES:
                if DeltaTable.is_deltatable(str(self.table_path(table))):
                    upgrade_table(self.table_path(table), definition(table), version)
                else:
                    create_table(self.table_path(table), definition(table))
            self.write_file(_MARKER, {"version": LAKE_VERSION})

    def _rename_tables(self) -> None:
        """Rename the folders of tables that an older program made under former names; idempotent."""
        for former, table in FORMER_NAMES.items():
            old, new = self.path / former, self.path / table
            if not old.exists():
                continue
            if new.exists():
                raise LakeUnusable(
                    f"the lake {self.path} contains the table {table} also under its former name {former}, because an "
                    f"older offsetlake wrote to it after an interrupted upgrade: move one of the two folders away"
                )
            old.rename(new)
            to_disk(self.path)

    def _refuse_other_content(self) -> None:
        known = {*TABLES, *FORMER_NAMES, LOCK, temporary_of(Path(_MARKER)).name}
        others = {entry.name for entry in self.path.iterdir()} - known
        if others:
            raise LakeUnusable(
                f"the folder {self.path} is not empty and does not contain an offsetlake lake: "
                "name an empty or a new folder with --lake"
            )

    def table_path(self, table: str) -> Path:
        """Return the folder of a table; in a lake that is not upgraded yet it may have the table's former name."""
        for former, current in FORMER_NAMES.items():
            if table == current and not (self.path / table).exists() and (self.path / former).exists():
                return self.path / former
        return self.path / table

    def delta_table(self, table: str, version: int | None = None) -> DeltaTable:
        """Open a table, at a Delta version or the newest one; raise LakeUnusable if the table is missing."""
        try:
            return DeltaTable(self.table_path(table), version=version)
        except TableNotFoundError as error:
            if self.version() < LAKE_VERSION:
                why = "is missing, because an older offsetlake made the lake: the next job that writes adds it"
            else:
                why = "is missing: restore its folder, or read the log into a new lake"
            raise LakeUnusable(f"table {table} of the lake {self.path} {why}") from error

    def versions(self, *tables: str) -> dict[str, int]:
        """Return the Delta versions of the named tables, by default of all tables."""
        return {table: self._version_of(table) for table in tables or self.tables()}

    def _version_of(self, table: str) -> int:
        """Return the Delta version of a table by the names in its log; opening the table would read the entries."""
        versions = [int(entry.stem) for entry in (self.table_path(table) / "_delta_log").glob(_ENTRY)]
        return max(versions) if versions else self.delta_table(table).version()

    def tables(self) -> list[str]:
        """Return the tables that exist; a lake of an older program lacks the newer ones until a job writes."""
        return [table for table in TABLES if DeltaTable.is_deltatable(str(self.table_path(table)))]

    def check_up_to_date(self) -> None:
        """Raise LakeUnusable if an older program made the lake, because its tables lack columns that the views need."""
        if self.version() < LAKE_VERSION:
            raise LakeUnusable(
                f"an older offsetlake made the lake {self.path}, and its tables lack columns that the views need: "
                "the next job that writes adds them"
            )

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table by name; a lake of an older program lacks the newer ones until a job writes."""
        return [field.name for field in self.delta_table(table).schema().fields]

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
        `settings` are those of the engine; `replacements` maps names to tables to read in place of the lake's.
        """
        registered, views = needed((*names, *versions))
        if views:
            self.check_up_to_date()
        replaced = replacements or {}
        opened = {
            table: replaced[table] if table in replaced else self.delta_table(table, versions.get(table))
            for table in registered
        }
        return Engine(opened, views, only, settings)

    def count(self, table: str, condition: str = "true") -> int:
        """Return the number of rows of a table that satisfy an SQL condition."""
        return int(self.query(f"SELECT count(*) AS n FROM {table} WHERE {condition}", table)["n"][0].as_py())  # noqa: S608

    @contextmanager
    def lock(self, job: str, waiting: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Lock the lake for a writing job; the kernel releases the lock when the process ends for whatever reason.

        If another job has the lock, calls `waiting` with a message and waits WAIT_SECONDS, then raises LakeBusy.
        """
        with disk_errors(self.path):
            file = (self.path / LOCK).open("ab", buffering=0)
        with file:
            with disk_errors(self.path):
                self._acquire(file.fileno(), waiting)
                file.truncate(0)
                file.write(f"{job} (process {os.getpid()})".encode())
            yield

    def _acquire(self, handle: int, waiting: Callable[[str], None]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        reported = False
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = (self.path / LOCK).read_text(encoding="utf-8") or "another job"
                if time.monotonic() > deadline:
                    raise LakeBusy(f"{holder} still writes to {self.path} after {WAIT_SECONDS} s: try again") from error
                if not reported:
                    waiting(f"waiting for {holder}, which writes to {self.path}")
                reported = True
                time.sleep(0.2)  # flock cannot wait with a timeout

    def write_file(self, name: str, content: dict[str, Any]) -> None:
        """Replace a small JSON file of the lake; a kill leaves the old or the new file, never a partial one."""
        with replacing(self.path / name) as file:
            file.write_text(json.dumps(content), encoding="utf-8")

    def read_file(self, name: str) -> dict[str, Any] | None:
        """Return what `write_file` wrote, or None if there is no such file."""
        file = self.path / name
        try:
            return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        except ValueError as error:
            raise LakeUnusable(
                f"{file} is not valid JSON ({error}): remove it, and the job whose plan it was starts again"
            ) from error

    def remove_file(self, name: str) -> None:
        """Remove a file that `write_file` wrote."""
        (self.path / name).unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise LakeUnusable for errors of the operating system about a full, read-only or forbidden disk."""
    try:
        yield
    except (OSError, DeltaError) as error:
        number = _os_error(error)
        if number is None:
            raise
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise LakeUnusable(
                f"no space left on the disk of {path}: free some and run again; what was written so far is kept"
            ) from error
        raise LakeUnusable(f"the lake {path} cannot be written: {os.strerror(number)}") from error


def _os_error(error: Exception) -> int | None:
    """Return the number of an error of the operating system, which deltalake has only in its text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    named = re.search(r"\(os error (\d+)\)", str(error))
    return int(named[1]) if named else None
