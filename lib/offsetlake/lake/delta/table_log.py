"""The Delta log of a table, and its copy in a local folder, into which delta-rs writes commits and checkpoints.

Each file of the log is read once. By itself, delta-rs reads each entry twice and a checkpoint in a dozen requests, and
both again after each commit. A commit is then written to the log itself under a name that must not exist yet, so it is
refused if another process has committed since the log was read.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from offsetlake.errors import LakeBusy
from offsetlake.lake.delta.log_entries import (
    entries_fault,
    entry_name,
    last_checkpoint,
    newest_checkpoint,
    newest_version,
    sealed,
)
from offsetlake.lake.location.location import Location

_LAST_CHECKPOINT = "_last_checkpoint"
_SIDECARS = "_sidecars"
_INTERVAL = "delta.checkpointInterval"
_DEFAULT_INTERVAL = "10"
_REQUESTS_AT_ONCE = 8


class LostCommitError(DeltaError):
    """An entry of a Delta log is damaged."""


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


def _checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"
