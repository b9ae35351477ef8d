"""The interface of a location: what the rest of the program needs of the place where a lake is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from offsetlake.errors import LakeUnusable, OffsetlakeError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

WAIT_SECONDS = 60
"""How long a job waits for another one that writes to the same lake."""
LOCK = "lock"
"""The name of the file that the writing job of a lake holds."""


class Lease(ABC):
    """The right of one process to write to a lake, while `Location.lock` is in its block."""

    epoch: int
    """Grows with each holder; 0 if the operating system guards the lock."""
    taken_over: bool
    """Whether the former holder did not release it: it may be paused, and continue later."""
    fenced: bool
    """Whether the tables refuse commits of a former holder. Until then, the next holder takes the lease over, too."""

    @abstractmethod
    def check(self) -> None:
        """Raise LakeBusy if another process has taken the lease over."""


class Location(ABC):
    """A folder on a disk, or the objects of a bucket whose names begin with a prefix. It can be pickled.

    Names are those of files directly inside it. `str()` gives the path or the URI.
    """

    tears_writes: ClassVar[bool]
    """Whether a crash can leave files that are empty or cut. An object is written as a whole."""

    @abstractmethod
    def child(self, name: str) -> Self:
        """Return the location of a folder inside."""

    @abstractmethod
    def absolute(self) -> "Location":
        """Return the same location independent of the working directory."""

    @property
    def name(self) -> str:
        """The last part of the path or the URI."""
        return str(self).rsplit("/", 1)[-1]

    @property
    @abstractmethod
    def spark_uri(self) -> str:
        """The location as Spark names it."""

    @property
    @abstractmethod
    def filesystem(self) -> "FileSystem":
        """The file system of the location for pyarrow."""

    @abstractmethod
    def path_of(self, name: str) -> str:
        """Return the path of a file inside, as `filesystem` names it."""

    @abstractmethod
    def names(self, after: str = "") -> list[str]:
        """Return the sorted names of files and folders that follow `after`; none if the location does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Write a file that does not exist yet, atomically; return False if it exists."""

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file atomically: a process that is killed leaves the old or the new content.

        Raises LakeBusy if another process has written the file since this one read or wrote it, where the store can
        tell.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; nothing happens if it does not exist."""

    @abstractmethod
    def discard(self, name: str) -> None:
        """Delete a data file that no commit names; nothing happens if it does not exist."""

    @abstractmethod
    def rename(self, former: str, name: str) -> None:
        """Rename a folder inside; raises LakeUnusable where that is not atomic."""

    @abstractmethod
    def linked_copy(self, folder: Path) -> "Location":
        """Return a copy in a new folder whose changes do not affect this one; itself where copies are not cheap."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The location as every process names it: without symbolic links."""

    @abstractmethod
    def prepare(self) -> None:
        """Create the location if it does not exist, where that is necessary."""

    @abstractmethod
    def new_file(self, name: str) -> Path:
        """Return the local path at which to write a data file; `keep` or `discard` it afterwards."""

    @abstractmethod
    def keep(self, name: str, written: Path) -> None:
        """Return after the data file that was written is in the location and survives a power failure."""

    @abstractmethod
    def sync(self, *, files: bool) -> None:
        """Return after the names of the files inside, with `files` also their content, survive a power failure."""

    @abstractmethod
    def lock(self, job: str, waiting: Callable[[str], None]) -> AbstractContextManager[Lease]:
        """Lock the location for a writing job.

        If another job holds the lock, calls `waiting` with a message and waits WAIT_SECONDS, then raises LakeBusy.
        """

    @abstractmethod
    def explain(self, error: Exception) -> str:
        """Return what is wrong with the location and what to do, if an error is about that; else an empty string."""

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise LakeUnusable for errors that `explain` explains."""
        try:
            yield
        except Exception as error:
            if isinstance(error, OffsetlakeError) or not (why := self.explain(error)):
                raise
            raise LakeUnusable(why) from error
