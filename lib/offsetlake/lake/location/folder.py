"""Lakes in folders: atomic replacement of files, and a lock that the kernel releases when its process ends."""

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.location.linked_copy import linked_copy
from offsetlake.lake.location.location import LOCK, WAIT_SECONDS, Lease, Location
from offsetlake.lake.location.mounts import local_lock_option
from offsetlake.util.atomic_files import replacing, temporary_of, to_disk

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_POLL_SECONDS = 0.2  # flock cannot wait with a timeout


class FileLock(Lease):
    """A lock of the kernel, which nobody can take over while its process lives."""

    epoch = 0
    taken_over = False
    fenced = True

    def check(self) -> None:
        """Do nothing: the lock is held until the file is closed."""


@dataclass(frozen=True, slots=True)
class Folder(Location):
    """A folder, by its path as a person wrote it."""

    path: Path
    tears_writes: ClassVar[bool] = True

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def absolute(self) -> "Folder":
        """Return the folder by its absolute path."""
        return Folder(self.path.absolute())

    def child(self, name: str) -> "Folder":
        """Return the folder of this name inside."""
        return Folder(self.path / name)

    @property
    def spark_uri(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def filesystem(self) -> "FileSystem":
        """The local file system."""
        from pyarrow.fs import LocalFileSystem  # noqa: PLC0415 - the serving process does not read tables

        return LocalFileSystem()

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.path / name)

    def names(self, after: str = "") -> list[str]:
        """Return the sorted names of files and folders, without those that an interrupted `replace` has left."""
        try:
            entries = [entry.name for entry in self.path.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in entries if name > after and not (name[0] == "." and name.endswith(".tmp")))

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Write a file by a hard link, which fails if the name exists."""
        file = self.path / name
        temporary = temporary_of(file)
        temporary.unlink(missing_ok=True)  # left behind by a kill, it may be a link to another file
        temporary.write_bytes(content)
        to_disk(temporary)
        try:
            os.link(temporary, file)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        to_disk(self.path)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file and rename it over the old one."""
        with replacing(self.path / name) as file:
            file.write_bytes(content)

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if it does not exist."""
        (self.path / name).unlink(missing_ok=True)

    def discard(self, name: str) -> None:
        """Unlink a file."""
        self.remove(name)

    def rename(self, former: str, name: str) -> None:
        """Rename a folder inside."""
        (self.path / former).rename(self.path / name)
        to_disk(self.path)

    def linked_copy(self, folder: Path) -> Location:
        """Return a copy whose unchangeable files are symbolic links."""
        with Folder(folder).errors():
            return Folder(linked_copy(self.path, folder))

    @property
    def identity(self) -> str:
        """The path without symbolic links."""
        return str(self.path.resolve())

    def prepare(self) -> None:
        """Create the folder and those above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def new_file(self, name: str) -> Path:
        """Return the path of the file: nobody reads a data file before a commit names it."""
        return self.path / name

    def keep(self, name: str, written: Path) -> None:
        """Fsync a file."""
        to_disk(written)

    def sync(self, *, files: bool) -> None:
        """Fsync the folder, with `files` also each file inside."""
        for entry in self.path.iterdir() if files else ():
            with suppress(FileNotFoundError):  # removed after it was listed
                if entry.is_file():
                    to_disk(entry)
        to_disk(self.path)

    @contextmanager
    def lock(self, job: str, waiting: Callable[[str], None]) -> Iterator[Lease]:
        """Lock the folder by flock; the kernel releases the lock when the process ends for whatever reason.

        Raises LakeUnusable if jobs on other machines do not see the lock.
        """
        with self.errors():
            self._refuse_local_locks()
            file = (self.path / LOCK).open("ab", buffering=0)
        with file:
            with self.errors():
                self._acquire(file.fileno(), waiting)
                file.truncate(0)
                file.write(f"{job} (process {os.getpid()})".encode())
            yield FileLock()

    def _refuse_local_locks(self) -> None:
        if option := local_lock_option(self.path):
            raise LakeUnusable(
                f"the lake {self} is on NFS, mounted with {option}: jobs on other machines do not see the lock of this "
                "one, and could write at the same time; mount it without this option"
            )

    def _acquire(self, handle: int, waiting: Callable[[str], None]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        reported = False
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = (self.path / LOCK).read_text(encoding="utf-8", errors="replace") or "another job"
                if time.monotonic() > deadline:
                    raise LakeBusy(f"{holder} still writes to {self} after {WAIT_SECONDS} s: try again") from error
                if not reported:
                    waiting(f"waiting for {holder}, which writes to {self}")
                reported = True
                time.sleep(_POLL_SECONDS)

    def explain(self, error: Exception) -> str:
        """Explain errors of the operating system about a full, read-only or forbidden disk."""
        number = _os_error(error)
        if number is None:
            return ""
        if number in (errno.ENOSPC, errno.EDQUOT):
            return f"no space left on the disk of {self}: free some and run again; what was written so far is kept"
        return f"the lake {self} cannot be written: {os.strerror(number)}"


def _os_error(error: Exception) -> int | None:
    """Return the number of an error of the operating system, which deltalake has only in its text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    named = re.search(r"\(os error (\d+)\)", str(error))
    return int(named[1]) if named else None
