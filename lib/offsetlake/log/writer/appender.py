"""Appends record batches to the partitions of a log in a folder; the caller must own the log.

With a journal, `sync` writes everything that was appended since the last one to the journal, and waits for the disk
once; a thread brings the segments to the disk before their records in the journal are overwritten. Without one, `sync`
waits for the disk once for each partition.
"""

import errno
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.disk.segments import Segment, segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.journal import JournalEntry
from offsetlake.log.writer.journaling import Journaling
from offsetlake.log.writer.ownership import disk_errors

SEGMENT_BYTES = 10 << 20  # small, so that old segments can be deleted early
MAX_CHECKED_SEGMENTS = 200  # in one call of `check_files`, with two system calls each
_REMOVED = "its active segment was removed or replaced"
_BASE_OFFSET, _LEADER_EPOCH = struct.Struct(">q"), struct.Struct(">i")
_LEADER_EPOCH_POSITION = 12


class LogInDoubt(LogUnavailable):
    """An fsync failed or a file disappeared, so which writes are on disk is unknown until the log is read again.

    A repeated fsync proves nothing: Linux reports a failed write only once.
    """


@dataclass(slots=True)
class _Tail:
    """The active segment of a partition: `end` is the log end offset, `size` that of the complete batches.

    It is `unsynced` if it may have bytes that nothing was told to bring to the disk yet.
    """

    partition: str
    path: Path
    file: FileIO
    base_offset: int
    end: int
    size: int
    unsynced: bool = False


Partition = int | LogPartition
"""A partition to write to; a partition of `__consumer_offsets` is given by its number."""


class Appender:
    """Appends to the partitions of a log in a folder that this process owns.

    After LogInDoubt was raised once, every method raises it.

    Args:
        folder: The folder of the log.
        end_of: Returns the log end offset of a partition from its last segment, which must end with a whole batch.
        leader_epoch: Returns the leader epoch of a partition of `__consumer_offsets`, as a broker of a cluster; None:
            the batches keep the one that they have.
        journaled: Whether to use a journal, if there is space for it. The log must have been repaired (`recover`).
    """

    def __init__(
        self,
        folder: Path,
        end_of: Callable[[Segment], int],
        leader_epoch: Callable[[int], int] | None = None,
        *,
        journaled: bool = False,
    ) -> None:
        self._folder, self._end_of, self._leader_epoch = folder, end_of, leader_epoch
        self._tails: dict[Partition, _Tail] = {}
        self._identity: tuple[int, int] | None = None  # of the folder in the first check
        self._checked = 0  # number of tails that were checked in this round
        self._doubt: str | None = None
        self._closed = False
        self._journaling = Journaling(folder) if journaled else None
        self._appended: list[_Tail] = []  # since the last sync, if there is a journal

    def end(self, partition: Partition) -> int:
        """Return the log end offset of a partition, which its next record gets."""
        return self._tail(partition).end

    def ends(self) -> dict[Partition, int]:
        """Return the log end offsets of the partitions that were used so far."""
        return {partition: tail.end for partition, tail in self._tails.items()}

    def append(self, partition: Partition, batches: Sequence[Batch]) -> list[int]:
        """Append batches to a partition, and return the log offset of the first record of each.

        The batches are durable after `sync`.

        Raises:
            LogUnavailable: The write failed, and none of the batches are in the log.
            LogInDoubt: The write failed, and some of the batches may be in the log.
        """
        tail = self._tail(partition)
        if tail.size >= SEGMENT_BYTES:
            tail = self._roll(partition)
        first_offsets = []
        end = tail.end
        for batch in batches:
            _BASE_OFFSET.pack_into(batch.data, 0, end)
            if self._leader_epoch is not None and isinstance(partition, int):  # the checksum does not cover it
                _LEADER_EPOCH.pack_into(batch.data, _LEADER_EPOCH_POSITION, self._leader_epoch(partition))
            first_offsets.append(end)
            end += batch.records
        data = b"".join([batch.data for batch in batches])
        self._write(tail, data)
        if self._journaling is not None:
            self._journaling.add(JournalEntry(tail.partition, tail.base_offset, tail.size, data))
            self._appended.append(tail)
        tail.size, tail.end, tail.unsynced = tail.size + len(data), end, True
        return first_offsets

    def sync(self) -> None:
        """Bring everything that was appended to the disk.

        Raises:
            LogInDoubt: An fsync failed.
        """
        self._check()
        if self._journaling is None or not self._sync_journal(self._journaling):
            self._sync_segments()

    def _sync_journal(self, journaling: Journaling) -> bool:
        """Bring everything to the disk through the journal; return False if the segments must be synced."""
        appended, self._appended = self._appended, []
        with self._doubting(self._folder):
            if not journaling.sync(self._take_unsynced):
                return False
            for tail in appended:
                if not tail.file.closed:  # it is, and on the disk, if a later append began the next segment
                    _check_linked(tail)
        return True

    def _take_unsynced(self) -> list[FileIO]:
        unsynced = [tail for tail in [*self._tails.values()] if tail.unsynced]
        for tail in unsynced:
            tail.unsynced = False
        return [tail.file for tail in unsynced]

    def _sync_segments(self) -> None:
        for partition, tail in [*self._tails.items()]:
            if tail.unsynced:
                with self._doubting(self._partition_folder(partition)):
                    os.fdatasync(tail.file.fileno())
                    _check_linked(tail)
                tail.unsynced = False

    def check_files(self) -> None:
        """Raise LogInDoubt if the folder or an active segment was removed or replaced.

        One call checks MAX_CHECKED_SEGMENTS segments, the next call the following ones.
        """
        self._check()
        tails = [*self._tails.values()]
        first = self._checked if self._checked < len(tails) else 0
        self._checked = first + MAX_CHECKED_SEGMENTS
        with self._doubting(self._folder):
            identity = _identity(self._folder.stat())
            if self._identity is None:
                self._identity = identity
            elif identity != self._identity:
                raise FileNotFoundError(errno.ENOENT, "its folder was replaced")
            if self._journaling is not None:
                self._journaling.check_file()
            for tail in tails[first : self._checked]:
                if _identity(tail.path.stat()) != _identity(os.fstat(tail.file.fileno())):
                    raise FileNotFoundError(errno.ENOENT, _REMOVED)

    def close(self) -> None:
        """Close the segments; a crash of the machine may lose what was not synced.

        A journal is removed after the segments were brought to the disk, and kept if they could not be.
        """
        if self._journaling is not None:
            synced = False
            if self._doubt is None:
                with suppress(LogUnavailable), self._doubting(self._folder):
                    self._journaling.wait()
                    self._sync_segments()
                    synced = True
            self._journaling.close(synced=synced)
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
            raise LogUnavailable(f"The log {self._folder} is closed because its server is stopping.")
        self._check()
        if partition not in self._tails:
            path = self._partition_folder(partition)
            with disk_errors(path):
                if not path.exists():
                    with self._syncing_folder(self._folder):
                        path.mkdir()
            segments = segments_of(path)
            end = self._end_of(segments[-1]) if segments else 0
            self._tails[partition] = self._open(path, segments[-1].base_offset if segments else 0, end)
        return self._tails[partition]

    def _open(self, path: Path, base_offset: int, end: int) -> _Tail:
        segment = path / f"{base_offset:020}.log"
        with disk_errors(path), ExitStack() as opened:
            with self._syncing_folder(path):
                file = opened.enter_context(FileIO(segment, "ab"))
            size = file.tell()
            opened.pop_all()  # keeps the file open
        return _Tail(path.name, segment, file, base_offset, end, size)

    def _roll(self, partition: Partition) -> _Tail:
        """Start the next segment after the previous one is on disk, so that only a last segment can be incomplete."""
        full, path = self._tails[partition], self._partition_folder(partition)
        with self._doubting(path):
            os.fdatasync(full.file.fileno())
            if self._journaling is not None:
                self._journaling.wait()  # its thread may use the file, which is closed below
        full.unsynced = False
        self._tails[partition] = self._open(path, full.end, full.end)
        full.file.close()
        return self._tails[partition]

    def _write(self, tail: _Tail, data: bytes) -> None:
        """Write to a segment; remove the part of a write that failed."""
        try:
            written = tail.file.write(data)
            while written < len(data):
                written += tail.file.write(data[written:])
        except OSError as error:
            with self._doubting(self._folder):
                tail.file.truncate(tail.size)
            raise LogUnavailable(
                f"The log {self._folder} cannot be written: {error.strerror}. None of the batches are in the log."
            ) from error

    @contextmanager
    def _syncing_folder(self, folder: Path) -> Iterator[None]:
        """Fsync a folder after a file was created in it; fail before the creation if the folder cannot be opened."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            yield
            with self._doubting(folder):
                os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def _doubting(self, folder: Path) -> Iterator[None]:
        """Raise LogInDoubt for an OSError, now and in all later calls."""
        try:
            yield
        except OSError as error:
            self._doubt = f"The log {folder} cannot be written: {error.strerror}."
            raise LogInDoubt(self._doubt) from error


def _check_linked(tail: _Tail) -> None:
    """Raise OSError if a segment has no name any more: an fsync of it succeeds, but no restart would find it."""
    if os.fstat(tail.file.fileno()).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, _REMOVED)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
