"""Bases, one after the other: made by a process of their own, taken over between two writes."""

import asyncio
import logging
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from offsetlake.errors import OffsetlakeError
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.child_process import ask
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.store import Layer, Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.atomic_files import suppress_full

LOG = logging.getLogger(__name__)
LOOK = 2.0  # seconds between two looks for a newer compaction
GROUPS_TO_FOLD = 100_000  # groups changed since the base was made: more of them are folded without a compaction
FREED_AT_ONCE = 500  # groups of a layer no longer needed


async def build(settings: Settings, ends: dict[int, int] | None) -> tuple[MappedSnapshot, dict[int, int]]:
    """Have a base made that reaches to `ends`, or to the ends of the log if they are None.

    Gives it with the ends. Raises ChildFailed.
    """
    with ExitStack() as opened:
        files = _files(Path(settings.log), opened)
        request = {
            "lake": settings.lake,
            "log": settings.log,
            "ends": ends,
            "log_partitions": settings.log_partitions,
            "log_format": settings.log_format,
            "files": files,
        }
        answer = await ask("offsetlake.serve.storage.snapshot_build", request, files)
        base = MappedSnapshot(answer["file"])
        if answer["file"] == files[-1]:
            LOG.warning(
                "the disk of the log %(log)s has no room for the snapshot: its %(size)d bytes are in memory",
                {"log": settings.log, "size": base.size},
            )
        return base, {int(partition): end for partition, end in answer["ends"].items()}


def _files(folder: Path, opened: ExitStack) -> list[int]:
    """Open files without names for a snapshot, so that nothing is left of them whatever becomes of this process.

    The pages of one on the disk of the log can be dropped when memory is short; if that disk is full, it is kept in
    memory.
    """
    files = []
    with suppress_full():
        files.append(opened.enter_context(tempfile.TemporaryFile(dir=folder)).fileno())  # noqa: SIM115 - `opened` closes it
    memory = os.memfd_create("offsetlake-snapshot")
    opened.callback(os.close, memory)
    return [*files, memory]


class SnapshotRefresh:
    """Looks for newer compactions, and has the store take them over; `reading` is held while the log is read anew."""

    def __init__(
        self, settings: Settings, store: Store, writes: Writes, appender: Appender, reading: asyncio.Lock
    ) -> None:
        self._settings, self._store, self._writes, self._appender = settings, store, writes, appender
        self._reading = reading
        self._seen = ""  # the compaction that is served, or could not be taken over
        with suppress(OSError):  # then the first look takes it over once more
            self._seen = self._compaction()

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look()
            except (OffsetlakeError, OSError) as error:
                LOG.warning("the tables could not be taken over, what is served goes on: %(reason)s", {"reason": error})

    async def _look(self) -> None:
        found = self._compaction()
        seen, self._seen = self._seen, found
        if found != seen or len(self._store.fresh) >= GROUPS_TO_FOLD:
            await self._fold()

    def _compaction(self) -> str:
        """Name what the newest compaction wrote last."""
        log = Path(self._settings.lake, "offsets", "_delta_log")
        return max((path.name for path in log.glob("*.json")), default="")

    async def _fold(self) -> None:
        ends: dict[int, int] = {}

        def freeze() -> None:
            # In a round of its own: nothing else, and no sync in a thread, has to do with the segments this may open.
            ends.update({number: self._appender.end(number) for number in range(self._settings.log_partitions)})
            self._store.freeze()

        try:
            await self._writes.rest(freeze)
            async with self._reading:
                base, _ = await build(self._settings, ends)
        except BaseException:  # cancelled too
            if ends:  # it is frozen
                self._store.thaw()
            raise
        folded = self._store.fold(base)
        taken = {"offsets": len(base), "groups": len(base.groups), "version": base.version}
        LOG.info("took over a snapshot of %(offsets)d offsets in %(groups)d groups", taken)
        await _free(folded)


async def _free(layer: Layer) -> None:
    """Let go of a layer bit by bit: at once it would hold up the answers."""
    while layer:
        for _ in range(min(FREED_AT_ONCE, len(layer))):
            layer.popitem()
        await asyncio.sleep(0)
