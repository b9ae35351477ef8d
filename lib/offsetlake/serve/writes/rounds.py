"""How writes reach the log: what came in together is appended together, brought to the disk once, and then counts.

One round is under way at a time. It takes what is queued: commits until something that has to see all before it (a
deletion, a conditional write), or such a thing alone, and no more than MAX_ROUND_RECORDS. Nothing is served and nobody
answered before the disk has it.

Clients have equal shares of the rounds, counted in records (self-clocked fair queueing: Golestani 1994). A client that
queues many writes, or large ones, delays its own: the next write of another client is in the next round. The writes of
one share keep their order.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.writer.appender import Appender, LogInDoubt, Partition
from offsetlake.serve.metrics.durations import Histogram
from offsetlake.serve.steps import Share
from offsetlake.serve.writes.watermarks import Watermarks

LOG = logging.getLogger(__name__)
QUICK = 0.001  # seconds: a disk that answers within them is waited for; for a slower one a thread waits
MANY = 8  # writes in one round: a thread waits for the disk then, while the next are taken in
INTERVAL = 1.0  # seconds
LOOK = 1.0  # seconds between two looks whether the log is still in its place
MAX_ROUND_RECORDS = 1000  # unless a single write has more
_UNFORESEEN = "the server has a fault, which its log tells: nobody knows what the log has until a restart reads it"


class Flush(StrEnum):
    """When what was written is brought to the disk: before it is answered, every INTERVAL, or as the system likes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class Write(Protocol):
    """Something to be written to one log partition.

    `alone`: it must see all that was written before, and nothing else goes into its round.
    """

    alone: bool

    @property
    def partition(self) -> Partition:
        """Where it goes: into `__consumer_offsets`, or another log."""

    def batches(self) -> Sequence[Batch]:
        """Give the record batches, now that its turn has come: none where nothing is to be written."""

    def written(self, firsts: list[int]) -> None:
        """Hear that they are in the log for good, and the log offset of the first record of each."""

    def failed(self, error: LogUnavailable) -> None:
        """Hear that the disk takes no more, or may have lost it."""


class _Rest:
    """Writes nothing; done when all before it is. Nothing begins where nobody waits for it any more."""

    partition, alone = -1, True

    def __init__(self, done: "asyncio.Future[None]", begins: Callable[[], None]) -> None:
        self._done, self._begins = done, begins

    def batches(self) -> Sequence[Batch]:
        if not self._done.done():
            self._begins()
        return ()

    def written(self, _firsts: list[int]) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def failed(self, error: LogUnavailable) -> None:
        if not self._done.done():
            self._done.set_exception(error)


class Writes:
    """The queue of writes to one log."""

    def __init__(self, appender: Appender, flush: Flush, loop: asyncio.AbstractEventLoop) -> None:
        self._appender, self._flush, self._loop = appender, flush, loop
        self.watermarks = Watermarks()
        self._queue: list[tuple[int, int, int, Write]] = []  # a heap: place, number, records
        self._place = 0  # of the write that was taken last
        self._numbers = count()
        self._of_nobody = Share()
        self._under_way = False
        self._due = False  # it is time to bring to the disk what was written since the last time
        self._waiter = ThreadPoolExecutor(1, "sync")
        self._took = 0.0  # seconds the disk takes, about
        self.syncs = Histogram()
        self.broken: LogUnavailable | None = None
        """Set once the disk could not say that it has what it was given: it is not asked twice. And at a `fault`."""
        self.fault: asyncio.Future[None] = loop.create_future()
        """Done once a write could not be served or told, for a reason nobody foresaw: the process has to end.

        What is served may be wrong from then on, and who was to be told waits in vain. The next start reads the log.
        """
        if flush is Flush.INTERVAL:
            loop.call_later(INTERVAL, self._come_due)

    def add(self, write: Write, share: Share | None = None, records: int = 1) -> None:
        """Queue a write; its round begins when all sockets that have something to say were heard.

        Writes without a share have one together, and so keep their order: a transaction ends after its commits.
        """
        share = share or self._of_nobody
        share.end = max(self._place, share.end) + records
        self._push(share.end, records, write)

    def _push(self, place: int, records: int, write: Write) -> None:
        heappush(self._queue, (place, next(self._numbers), records, write))
        self._schedule()

    def after(self, delay_ms: int, begin: Callable[[], None]) -> None:
        """Call what queues a write, at once or after a delay."""
        if delay_ms:
            self._loop.call_later(delay_ms / 1000, begin)
        else:
            begin()

    async def rest(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until all that was queued before is done; `meanwhile` is called then, and nothing else is under way."""
        await self._turn(meanwhile)

    async def sync(self) -> None:
        """Wait until all that was queued before is on the disk, whatever the `Flush` is; LogUnavailable where not."""
        await self._turn(self.make_due)

    async def _turn(self, begins: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        last = max((place for place, *_ in self._queue), default=self._place)
        self._push(last, 0, _Rest(done, begins))
        await done

    async def watch(self) -> None:
        """Look again and again, until it is cancelled, whether the log is still in its place."""
        while True:
            self.look()
            await asyncio.sleep(LOOK)

    def look(self) -> None:
        """Refuse all further writes if the folder of the log or an active segment was removed or replaced."""
        if self.broken is None:
            try:
                self._appender.check_files()
            except LogInDoubt as error:
                self._break(error)

    def _break(self, error: LogUnavailable) -> None:
        if self.broken is None:
            LOG.error("%(reason)s: all writes are refused until a restart, reads go on", {"reason": error})
            self.broken = error

    def make_due(self) -> None:
        """Have the round under way brought to the disk, whatever the `Flush` is."""
        self._due = True

    def _schedule(self) -> None:
        if not self._under_way and (self._queue or self._due):
            self._under_way = True
            self._loop.call_soon(self._round)

    def _come_due(self) -> None:
        self._due = True
        self._schedule()
        self._loop.call_later(INTERVAL, self._come_due)

    def _round(self) -> None:
        done = self._append(self._take())
        if self.broken or not (self._due or (self._flush is Flush.ALWAYS and any(firsts for _, firsts in done))):
            self._finish(done, None)
        elif self._took < QUICK and len(done) < MANY:
            self._finish(done, self._sync())
        else:
            synced = self._loop.run_in_executor(self._waiter, self._sync)
            synced.add_done_callback(lambda future: self._finish(done, future.result()))

    def _take(self) -> list[Write]:
        taken: list[Write] = []
        total = 0
        while self._queue:
            place, _, records, write = self._queue[0]
            total += records
            if taken and (taken[0].alone or write.alone or total > MAX_ROUND_RECORDS):
                break
            heappop(self._queue)
            self._place = place
            taken.append(write)
        return taken

    def _append(self, taken: list[Write]) -> list[tuple[Write, list[int]]]:
        """Append what was taken, a partition's together; where that fails, tell those it fails."""
        by_partition: dict[Partition, list[tuple[Write, Sequence[Batch]]]] = {}
        done: list[tuple[Write, list[int]]] = []
        for write in taken:
            batches = self._laid_out(write)
            if isinstance(batches, LogUnavailable):
                self._tell(write, [], batches)
            elif batches:
                by_partition.setdefault(write.partition, []).append((write, batches))
            else:
                done.append((write, []))
        for partition, writes in by_partition.items():
            firsts = self._appended(partition, [batch for _, batches in writes for batch in batches])
            if isinstance(firsts, LogUnavailable):
                for write, _ in writes:
                    self._tell(write, [], firsts)
            else:
                places = iter(firsts)
                done += [(write, [next(places) for _ in batches]) for write, batches in writes]
        return done

    def _laid_out(self, write: Write) -> Sequence[Batch] | LogUnavailable:
        """Give the batches of a write, or why it fails alone."""
        if self.broken:
            return self.broken
        try:
            return write.batches()
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("a write could not be laid out: it is refused, and nothing of it is in the log")
            return LogUnavailable("the server has a fault, which its log tells: nothing of this write is in the log")

    def _appended(self, partition: Partition, batches: list[Batch]) -> list[int] | LogUnavailable:
        """Append to a partition; gives the log offset of each batch, or why nothing of them is in the log for good."""
        try:
            return self._appender.append(partition, batches)
        except LogInDoubt as error:
            self._break(error)
            return error
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("the log could not be written")
            self._break(fault := LogInDoubt(_UNFORESEEN))
            return fault

    def _sync(self) -> LogUnavailable | None:
        started = time.perf_counter()
        try:
            self._appender.sync()
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("the log could not be brought to the disk")
            return LogInDoubt(_UNFORESEEN)
        finally:
            took = time.perf_counter() - started
            self._took += (took - self._took) / 8
            self.syncs.observe(took)
        return None

    def _finish(self, done: list[tuple[Write, list[int]]], error: LogUnavailable | None) -> None:
        if error:
            self._break(error)
        error = error or self.broken  # what `look` has found while a thread waited for the disk
        self._due = False
        for write, firsts in done:
            self._tell(write, firsts, error)
        self._under_way = False
        self._schedule()

    def _tell(self, write: Write, firsts: list[int], error: LogUnavailable | None) -> None:
        """Tell what came of a write; the others are told whatever it raises."""
        try:
            if error:
                write.failed(error)
            else:
                if firsts and isinstance(write.partition, int):  # the log of transactions is nobody's to read
                    self.watermarks.rise(write.partition, self._appender.end(write.partition))
                write.written(firsts)
        except Exception:
            LOG.exception("what came of a write could not be served or told: the process has to end")
            self._break(LogUnavailable(_UNFORESEEN))
            if not self.fault.done():
                self.fault.set_result(None)
