"""The tables that a process has open while it holds the lock of their lake.

Of the Delta log of each table there is a copy in a local folder: each file of the log is read once, and delta-rs writes
commits and checkpoints into the copy. By itself, delta-rs reads each entry twice and a checkpoint in a dozen requests,
and both again after each commit. A commit is then written to the log itself under a name that must not exist yet, so it
is refused if another process has committed since the log was read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.errors import LakeBusy
from offsetlake.lake.commits import FENCE
from offsetlake.lake.damage import LostCommitError
from offsetlake.lake.location.location import Lease, Location
from offsetlake.lake.log_entries import (
    entries_fault,
    entry_name,
    last_checkpoint,
    newest_checkpoint,
    newest_version,
    sealed,
)

_LAST_CHECKPOINT = "_last_checkpoint"
_SIDECARS = "_sidecars"
_INTERVAL = "delta.checkpointInterval"
_DEFAULT_INTERVAL = "10"
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_REQUESTS_AT_ONCE = 8
_ATTEMPTS = 5  # of a commit, while other programs commit


class TableLog:
    """The Delta log of a table, and its copy in a folder.

    `verified` is the version up to which all commits are verified or of this process; None if that is not known.
    """

    def __init__(self, location: Location, folder: Path) -> None:
        self._log = location.child("_delta_log")
        self._folder, self._copy = folder, folder / "_delta_log"
        self._names: list[str] = []
        self._listed_after: str | None = None
        self._table: DeltaTable | None = None
        self.verified: int | None = None

    def names(self, after: str = "") -> list[str]:
        """Return the names of the files in the log that follow `after`, as when the log was first listed.

        If names before that are needed, the log is listed again, and the table opened again as it is then.
        """
        if self._listed_after is None or after < self._listed_after:
            self._names, self._listed_after, self._table = self._log.names(after), after, None
        return [name for name in self._names if name > after]

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        copy = self._copy / name
        if copy.exists():
            return copy.read_bytes()
        content = self._log.read(name)
        if content is not None:
            self._copy.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
        return content

    def newest(self) -> int:
        """Return the newest version; -1 if there is none."""
        if self._table is not None:
            return self._table.version()
        after = self._listed_after or ""
        return max(newest_version(self.names(after)), int(after or -1))

    def open(self) -> DeltaTable:
        """Return the newest version of the table; its rows cannot be read.

        Raises TableNotFoundError, and LostCommitError if the entries that it consists of are damaged.
        """
        if self._table is None:
            checkpoint = self._copy_newest()
            if why := entries_fault(self, checkpoint + 1, self.newest()):
                raise LostCommitError(why)
            self._table = DeltaTable(str(self._folder))
        return self._table

    def _copy_newest(self) -> int:
        """Copy the newest checkpoint, the entries after it, and the newest entry, which delta-rs reads to commit.

        Returns the version of the checkpoint; -1 if there is none.
        """
        last = last_checkpoint(self)
        checkpoint = int(last["version"])
        if self._listed_after is None:
            self.names(f"{checkpoint:020}" if checkpoint >= 0 else "")
        newest = self.newest()
        wanted = [entry_name(version) for version in range(max(min(checkpoint + 1, newest), 0), newest + 1)]
        if checkpoint >= 0:
            wanted.append(_checkpoint_name(checkpoint))
        if last.keys() & {"parts", "v2Checkpoint"} or not self._read_all(wanted):
            self._copy_everything()
        return max(checkpoint, newest_checkpoint(self._names))

    def _copy_everything(self) -> None:
        """Copy all files of the log: other programs have written checkpoints of several files, or none."""
        self._read_all(name for name in self.names() if name[:20].isdigit())
        if _SIDECARS in self._names:
            sidecars = self._log.child(_SIDECARS)
            (self._copy / _SIDECARS).mkdir(exist_ok=True)
            for name in sidecars.names():
                (self._copy / _SIDECARS / name).write_bytes(sidecars.read(name) or b"")

    def _read_all(self, names: Iterable[str]) -> bool:
        """Read files; return whether all exist."""
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            return None not in [*pool.map(self.read, names)]

    def commit(self, write: Callable[[DeltaTable], object]) -> bool:
        """Commit to the newest version known; return False if another commit has that place, and read the log again.

        `write` writes the commit into the copy of the log; it gets the table as delta-rs opens it there.
        """
        table = self.open()
        version = table.version() + 1
        entry = self._copy / entry_name(version)
        if entry.exists():  # it was read after the table was opened
            self.close()
            return False
        write(table)
        ours = False
        try:
            entry.write_bytes(sealed(version, entry.read_bytes()))
            ours = self._log.create(entry.name, entry.read_bytes())
        finally:
            if not ours:
                entry.unlink()
                self.close()
        if ours:
            table.update_incremental()
            self._names.append(entry.name)
            if self.verified == version - 1:
                self.verified = version
            if (version + 1) % int(table.metadata().configuration.get(_INTERVAL, _DEFAULT_INTERVAL)) == 0:
                self._write_checkpoint(table)
        return ours

    def _write_checkpoint(self, table: DeltaTable) -> None:
        table.create_checkpoint()
        name = _checkpoint_name(table.version())
        if self._log.create(name, (self._copy / name).read_bytes()):
            with suppress(LakeBusy):  # another program has written a newer checkpoint
                self._log.replace(_LAST_CHECKPOINT, (self._copy / _LAST_CHECKPOINT).read_bytes())

    def close(self) -> None:
        """Read the log again at its next use, because others have changed it."""
        self._table, self._listed_after = None, None
        for file in (self._copy / _LAST_CHECKPOINT, *self._copy.glob("*.checkpoint.*")):  # a damaged one is removed
            file.unlink(missing_ok=True)


class OpenTables:
    """Tables by name; `open_table` opens one with its rows, at a version or the newest one.

    The copies of the Delta logs are in `folder`.

    Only the holder of the lock commits to the tables. A commit of another program meanwhile is found at the next commit
    to the table, or before the next cycle.
    """

    def __init__(
        self,
        lake: Location,
        lease: Lease | None,
        location_of: Callable[[str], Location],
        open_table: Callable[[str, int | None], DeltaTable],
        folder: Path,
    ) -> None:
        self._lake, self._lease = lake, lease
        self._location_of, self._open, self._folder = location_of, open_table, folder
        self._logs: dict[str, TableLog] = {}
        self._tables: dict[str, DeltaTable] = {}

    def log(self, name: str) -> TableLog:
        """Return the Delta log of a table."""
        if name not in self._logs:
            self._logs[name] = TableLog(self._location_of(name), self._folder / name)
        return self._logs[name]

    def mark_verified(self, versions: Mapping[str, int]) -> None:
        """Record that all commits up to these versions are verified."""
        for name, version in versions.items():
            self.log(name).verified = version

    def verified(self) -> dict[str, int]:
        """Return by table the version up to which all commits are verified or of this process."""
        return {name: log.verified for name, log in self._logs.items() if log.verified is not None}

    def without_rows(self, name: str, version: int | None = None) -> DeltaTable:
        """Return a table whose rows need not be read, at a version or at the newest one that this process knows."""
        newest = self.log(name).open()
        return newest if version in (None, newest.version()) else self._open(name, version)

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """Return a table at a version, or at the newest one that this process knows."""
        newest = self._tables.get(name)
        if newest is None:
            newest = self._tables[name] = self._open(name, None)
        elif newest.version() < self.log(name).newest():
            newest.update_incremental()
        return newest if version in (None, newest.version()) else self._open(name, version)

    def commit(
        self,
        name: str,
        actions: Sequence[AddAction | RemoveAction],
        properties: CommitProperties,
        check: Callable[[DeltaTable], None] = lambda _: None,
    ) -> None:
        """Commit actions to a table as `write` does."""

        def append(table: DeltaTable) -> None:
            table.create_write_transaction(
                [*actions],
                "append",
                table.schema(),
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        self.write(name, append, properties, check)

    def write(
        self,
        name: str,
        write: Callable[[DeltaTable], object],
        properties: CommitProperties,
        check: Callable[[DeltaTable], None] = lambda _: None,
    ) -> None:
        """Commit to a table what `write` writes (see `TableLog.commit`) with the properties and NO_HOOKS.

        The names of new data files are on the disk before, and the commit afterwards.

        `check` raises an error if that does not apply to the table as it is. Raises LakeBusy if another process has
        taken over the lease of this one, or if others commit again and again.
        """
        before = _transactions(self.log(name).open(), properties)
        for _ in range(_ATTEMPTS):
            log = self.log(name)
            self._check_lease(log.open())
            if _transactions(log.open(), properties) != before:
                return  # this commit was refused because an attempt that seemed to fail had succeeded
            check(log.open())
            with self._lake.errors():
                self._location_of(name).sync(files=False)
            if log.commit(write):
                return
        self._check_lease(self.log(name).open())
        raise LakeBusy(f"other programs commit to table {name} of {self._lake}: run the command again")

    @contextmanager
    def committing(self, name: str) -> Iterator[DeltaTable]:
        """Yield the newest version of a table for a commit by delta-rs; raise LakeBusy if Delta refuses the commit."""
        target = self.table(name)
        target.update_incremental()
        self._check_lease(target)
        try:
            with self._lake.errors():
                yield target
        except CommitFailedError as error:
            raise LakeBusy(
                f"the commit to table {name} of {self._lake} was refused, because another process committed first, "
                f"or because the answer of the store was lost ({error}): run the command again"
            ) from error
        finally:
            self.close(name)
        with self._lake.errors():  # delta-rs writes without fsync
            for location in (self._location_of(name), self._location_of(name).child("_delta_log")):
                location.sync(files=True)

    def _check_lease(self, opened: DeltaTable) -> None:
        """Raise LakeBusy if another process has taken over the lease of this one."""
        if self._lease:
            self._lease.check()
            if (opened.transaction_version(FENCE) or 0) > self._lease.epoch:
                raise LakeBusy(
                    f"another job has taken over the lease of this one on {self._lake}: run the command again"
                )

    def close(self, name: str) -> None:
        """Open a table again at its next use, because its Delta log was changed otherwise than by `TableLog.commit`."""
        self._tables.pop(name, None)
        self.log(name).close()


def _transactions(table: DeltaTable, properties: CommitProperties) -> list[int | None]:
    """Return the versions of the transaction identifiers of a commit in a table, except for that of the fence."""
    identifiers = (transaction.app_id for transaction in properties.app_transactions or ())
    return [table.transaction_version(identifier) for identifier in identifiers if identifier != FENCE]


def _checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"
