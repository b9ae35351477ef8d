"""Snapshot refreshes: a child process builds a snapshot, and the store switches to it between two writes."""

import asyncio
import logging
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from offsetlake.errors import LakeUnusable, OffsetlakeError
from offsetlake.lake.location.locate import locate
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.child_process import run_child
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.memtable import Memtable
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.atomic_files import suppress_full

LOG = logging.getLogger(__name__)
CHECK_INTERVAL_SECONDS = 2.0
MAX_MEMTABLE_GROUPS = 100_000
"""More changed groups than these start a refresh without a new compaction."""

FREED_GROUPS_PER_STEP = 500


async def build(settings: Settings, ends: dict[int, int] | None) -> tuple[MappedSnapshot, dict[int, int]]:
    """Build a snapshot that covers the log up to `ends`, or the whole log if they are None.

    Returns:
        The snapshot, and the log offset after the last record that it contains by log partition.

    Raises:
        ChildFailed: The child process failed.
    """
    with ExitStack() as stack:
        files = _open_files(Path(settings.log), stack)
        request = {
            "lake": settings.lake,
            "log": settings.log,
            "ends": ends,
            "log_partitions": settings.log_partitions,
            "log_format": settings.log_format,
            "files": files,
        }
        answer = await run_child("offsetlake.serve.storage.snapshot_build", request, files)
        snapshot = MappedSnapshot(answer["file"])
        if answer["file"] == files[-1]:
            LOG.warning(
                "The disk of the log %(log)s has no space for the snapshot: its %(size)d bytes are kept in memory",
                {"log": settings.log, "size": snapshot.size},
            )
        return snapshot, {int(partition): end for partition, end in answer["ends"].items()}


def _open_files(folder: Path, stack: ExitStack) -> list[int]:
    """Open unnamed files for a snapshot, which disappear with this process, and return their descriptors.

    The first one is on the disk of the log, so that its pages can be evicted when memory is short. The last one is in
    memory, for the case that the disk is full.
    """
    files = []
    with suppress_full():
        files.append(stack.enter_context(tempfile.TemporaryFile(dir=folder)).fileno())  # noqa: SIM115 - `stack` closes it
    memory = os.memfd_create("offsetlake-snapshot")
    stack.callback(os.close, memory)
    return [*files, memory]


class SnapshotRefresh:
    """Refreshes the snapshot after each compaction. `reading` is locked while a child process reads the log's files."""

    def __init__(
        self, settings: Settings, store: Store, writes: Writes, appender: Appender, reading: asyncio.Lock
    ) -> None:
        self._settings, self._store, self._writes, self._appender = settings, store, writes, appender
        self._reading = reading
        self._last_compaction = ""  # that was served, or whose refresh failed
        with suppress(OSError, LakeUnusable):  # then the first check refreshes once more
            self._last_compaction = self._newest_compaction()

    async def run(self) -> None:
        """Check for compactions and refresh the snapshot until the task is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            try:
                await self._check()
            except (OffsetlakeError, OSError) as error:
                LOG.warning(
                    "The snapshot refresh failed, serving continues from the current snapshot: %(reason)s",
                    {"reason": error},
                )

    async def _check(self) -> None:
        newest = await asyncio.to_thread(self._newest_compaction)
        last, self._last_compaction = self._last_compaction, newest
        if newest != last or len(self._store.memtable) >= MAX_MEMTABLE_GROUPS:
            await self._refresh()

    def _newest_compaction(self) -> str:
        """Return the name of the newest commit of the table `offsets`, which a compaction writes last."""
        log = locate(self._settings.lake).child("offsets").child("_delta_log")
        names = log.names(after=self._last_compaction)
        return max((name for name in names if name.endswith(".json")), default=self._last_compaction)

    async def _refresh(self) -> None:
        ends: dict[int, int] = {}

        def begin() -> None:
            # Runs in a round of its own: no other write and no sync uses the segments that this may open.
            ends.update({number: self._appender.end(number) for number in range(self._settings.log_partitions)})
            self._store.begin_refresh()

        try:
            await self._writes.drain(begin)
            async with self._reading:
                snapshot, _ = await build(self._settings, ends)
        except BaseException:  # including cancellation
            if ends:  # the refresh has begun
                self._store.merge_back()
            raise
        obsolete = self._store.finish_refresh(snapshot)
        fields = {"offsets": len(snapshot), "groups": len(snapshot.groups), "version": snapshot.version}
        LOG.info("Refreshed the snapshot: %(offsets)d offsets in %(groups)d groups", fields)
        await _free(obsolete)


async def _free(memtable: Memtable) -> None:
    """Free an obsolete memtable in steps, as freeing all of it at once would delay answers."""
    while memtable:
        for _ in range(min(FREED_GROUPS_PER_STEP, len(memtable))):
            memtable.popitem()
        await asyncio.sleep(0)
