"""The tables that a process has open while it holds the lock of their lake; a commit goes through `TableLog`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from offsetlake.errors import LakeBusy
from offsetlake.lake.delta.commits import FENCE
from offsetlake.lake.delta.table_log import TableLog
from offsetlake.lake.location.location import Lease, Location

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_ATTEMPTS = 5  # of a commit, while other programs commit


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
