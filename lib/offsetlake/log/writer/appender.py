"""Record batches go to the ends of a log's partitions; `sync` brings them to the disk. Whoever appends owns the log."""

import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import disk_errors

SEGMENT_BYTES = 10 << 20  # as KAFKA-1000 had it for this topic: small segments can be cut away soon
LOOKED_AT = 200  # active segments at once: two calls of the system each
_REMOVED = "its active segment was removed or replaced"
_BASE_OFFSET = struct.Struct(">q")


class LogInDoubt(LogUnavailable):
    """The disk could not say that it has something, or has let go of it: until it is read anew nobody knows.

    Asked again it may well say yes, for Linux tells a failed write once: that says nothing of what it was told before.
    """


@dataclass(slots=True)
class _Tail:
    """The segment a partition is written to: `end` is the next log offset, `size` the bytes that are known good."""

    path: Path
    file: FileIO
    end: int
    size: int
    unsynced: bool = False


Partition = int | LogPartition
"""A partition to write to: one of `__consumer_offsets` by its number alone."""


class Appender:
    """Appends to the partitions of the coordinators' logs in a folder that this process owns.

    `end_of` gives of a partition's last segment the log offset behind it; nothing torn is at its end. Once it raised
    LogInDoubt, it does so whatever is asked.
    """

    def __init__(self, folder: Path, end_of: Callable[[Segment], int]) -> None:
        self._folder, self._end_of = folder, end_of
        self._tails: dict[Partition, _Tail] = {}
        self._identity: tuple[int, int] | None = None  # of the folder, when it was first looked at
        self._looked_at = 0  # tails that have been looked at, in turn
        self._doubt: str | None = None
        self._closed = False

    def end(self, partition: Partition) -> int:
        """Give the log offset the next record of a partition gets."""
        return self._tail(partition).end

    def ends(self) -> dict[Partition, int]:
        """Give, of the partitions that were asked for so far, the log offset the next record gets."""
        return {partition: tail.end for partition, tail in self._tails.items()}

    def append(self, partition: Partition, batches: Sequence[Batch]) -> list[int]:
        """Write batches one behind the other; gives the log offset of the first record of each.

        They are in the log for good once `sync` has returned. Raises LogUnavailable where the disk takes no more: then
        nothing of these batches is in the log, unless it is LogInDoubt.
        """
        tail = self._tail(partition)
        if tail.size >= SEGMENT_BYTES:
            tail = self._roll(partition)
        firsts = []
        end = tail.end
        for batch in batches:
            _BASE_OFFSET.pack_into(batch.data, 0, end)
            firsts.append(end)
            end += batch.records
        data = memoryview(b"".join(batch.data for batch in batches))
        size = tail.size + len(data)
        with self._writing(tail):
            while data:
                data = data[tail.file.write(data) :]
        tail.size, tail.end, tail.unsynced = size, end, True
        return firsts

    def sync(self) -> None:
        """Return when all that was appended is on disk; LogInDoubt where the disk cannot say so."""
        self._check()
        for partition, tail in self._tails.items():
            if tail.unsynced:
                with self._doubting(self._partition_folder(partition)):
                    os.fdatasync(tail.file.fileno())
                    if os.fstat(tail.file.fileno()).st_nlink == 0:
                        raise FileNotFoundError(errno.ENOENT, _REMOVED)
                tail.unsynced = False

    def look(self) -> None:
        """Raise LogInDoubt if the folder or an active segment was removed or replaced; looks at LOOKED_AT segments."""
        self._check()
        tails = [*self._tails.values()]
        first = self._looked_at if self._looked_at < len(tails) else 0
        self._looked_at = first + LOOKED_AT
        with self._doubting(self._folder):
            identity = _identity(self._folder.stat())
            if self._identity is None:
                self._identity = identity
            elif identity != self._identity:
                raise FileNotFoundError(errno.ENOENT, "its folder was replaced")
            for tail in tails[first : self._looked_at]:
                if _identity(tail.path.stat()) != _identity(os.fstat(tail.file.fileno())):
                    raise FileNotFoundError(errno.ENOENT, _REMOVED)

    def close(self) -> None:
        """Close the segments; what was not synced may be lost in a crash of the machine."""
        for tail in self._tails.values():
            tail.file.close()
        self._tails.clear()
        self._closed = True

    def _partition_folder(self, partition: Partition) -> Path:
        return self._folder / str(LogPartition(OFFSETS_TOPIC, partition) if isinstance(partition, int) else partition)

    def _check(self) -> None:
        if self._doubt is not None:
            raise LogInDoubt(self._doubt)

    def _tail(self, partition: Partition) -> _Tail:
        if self._closed:
            raise LogUnavailable(f"the log {self._folder} is closed: its server ends")
        self._check()
        if partition not in self._tails:
            path = self._partition_folder(partition)
            with disk_errors(path):
                if not path.exists():
                    with self._naming(self._folder):
                        path.mkdir()
            segments = segments_of(path)
            end = self._end_of(segments[-1]) if segments else 0
            self._tails[partition] = self._open(path, segments[-1].base_offset if segments else 0, end)
        return self._tails[partition]

    def _open(self, path: Path, base_offset: int, end: int) -> _Tail:
        segment = path / f"{base_offset:020}.log"
        with disk_errors(path), ExitStack() as opened:
            with self._naming(path):
                file = opened.enter_context(FileIO(segment, "ab"))
            size = file.tell()
            opened.pop_all()  # it stays open
        return _Tail(segment, file, end, size)

    def _roll(self, partition: Partition) -> _Tail:
        """Begin the next segment; the one before is on disk first, so that only a last segment can be torn."""
        full, path = self._tails[partition], self._partition_folder(partition)
        with self._doubting(path):
            os.fdatasync(full.file.fileno())
        full.unsynced = False
        self._tails[partition] = self._open(path, full.end, full.end)
        full.file.close()
        return self._tails[partition]

    @contextmanager
    def _writing(self, tail: _Tail) -> Iterator[None]:
        """Take back what was written of a batch that failed half-way."""
        try:
            yield
        except OSError as error:
            with self._doubting(self._folder):
                tail.file.truncate(tail.size)
            raise LogUnavailable(
                f"the log {self._folder} takes no more ({error.strerror}): nothing of this write is in it"
            ) from error

    @contextmanager
    def _naming(self, folder: Path) -> Iterator[None]:
        """Bring a name that is made in a folder to the disk; none is made where it cannot be opened for that."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            yield
            with self._doubting(folder):
                os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _doubting(self, folder: Path) -> Iterator[None]:
        """Write nothing any more where the disk could not say that it has done what it was told: LogInDoubt."""
        try:
            yield
        except OSError as error:
            self._doubt = f"the log {folder} cannot be written: {error.strerror}"
            raise LogInDoubt(self._doubt) from error


def _identity(of: os.stat_result) -> tuple[int, int]:
    return of.st_dev, of.st_ino
