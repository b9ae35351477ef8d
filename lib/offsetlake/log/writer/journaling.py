"""Brings rounds of writes to the disk through a journal, and the segments of the log in the background."""

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from offsetlake.log.writer.journal import PARTS, Journal, JournalEntry

LOG = logging.getLogger(__name__)


class Journaling:
    """Collects what a round appends, and writes it to a journal, which the first round creates.

    Each time a lap of the journal begins, a thread brings the segments to the disk that were appended to. A lap waits
    until that was done for the laps that it overwrites.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal: Journal | None = None
        self._is_available = True
        self._entries: list[JournalEntry] = []
        self._syncs: deque[tuple[int, Future[None]]] = deque()  # of the segments of laps, the oldest first
        self._thread = ThreadPoolExecutor(1, "segments")

    def add(self, entry: JournalEntry) -> None:
        """Add batches that were appended to a segment."""
        self._entries.append(entry)

    def sync(self, take_unsynced: Callable[[], Sequence[FileIO]]) -> bool:
        """Bring what was added to the disk; return False if the caller must sync the segments instead.

        `take_unsynced` returns the segments that are not on the disk, which it must not return again.

        Raises:
            OSError: What is on the disk is unknown.
        """
        added, self._entries = self._entries, []
        if not added:
            return True
        journal = self._opened()
        if journal is None:
            return False
        entries = journal.encode(added)
        if not journal.fits(len(entries)):
            return False
        while self._syncs and self._syncs[0][1].done():
            self._syncs.popleft()[1].result()
        if journal.begins_lap(len(entries)):
            self._syncs.append((journal.lap, self._thread.submit(_sync, take_unsynced())))
            while self._syncs and self._syncs[0][0] <= journal.lap + 1 - PARTS:
                self._syncs.popleft()[1].result()
        journal.write(entries, len(added))
        if os.fstat(journal.file.fileno()).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "its journal was removed or replaced")
        return True

    def wait(self) -> None:
        """Wait until the thread uses no segment; raise OSError if one could not be brought to the disk."""
        while self._syncs:
            self._syncs.popleft()[1].result()

    def check_file(self) -> None:
        """Raise OSError if the journal was removed or replaced."""
        if self._journal is not None and not os.path.samestat(
            self._journal.path.stat(), os.fstat(self._journal.file.fileno())
        ):
            raise FileNotFoundError(errno.ENOENT, "its journal was removed or replaced")

    def close(self, *, synced: bool) -> None:
        """Close the journal, and remove it if all segments are on the disk."""
        self._thread.shutdown()
        if self._journal is not None:
            self._journal.file.close()
            if synced:
                self._journal.remove()

    def _opened(self) -> Journal | None:
        """Return the journal; None if there was no space for it."""
        if self._journal is None and self._is_available:
            try:
                self._journal = Journal(self._folder)
            except OSError as error:
                self._is_available = False
                LOG.warning(
                    "%(folder)s has no journal: %(reason)s. Each log partition is brought to the disk by itself.",
                    {"folder": self._folder, "reason": error.strerror},
                )
        return self._journal


def _sync(segments: Sequence[FileIO]) -> None:
    for segment in segments:
        os.fdatasync(segment.fileno())
