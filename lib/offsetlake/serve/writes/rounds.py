"""Group commit: the writes that are queued together are appended together and synced once, in rounds.

One round runs at a time. It takes writes from the queue: either shared writes such as commits, at most
MAX_ROUND_RECORDS records, or one exclusive write, which must see all writes before it (a deletion, a conditional
write). A write is neither served nor answered before it is durable.

Clients have equal shares of the rounds, counted in records (self-clocked fair queueing, Golestani 1994). A client that
queues many or large writes delays its own: the next write of another client is in the next round. The writes of one
share keep their order.
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
MAX_INLINE_SYNC_SECONDS = 0.001
"""The event loop itself waits for the sync of a disk that is that fast; for a slower one, a thread waits."""

MIN_THREAD_SYNC_WRITES = 8
"""A thread waits for the sync of a round with that many writes, so that requests are read meanwhile."""

FLUSH_INTERVAL_SECONDS = 1.0
LOG_CHECK_INTERVAL_SECONDS = 1.0
MAX_ROUND_RECORDS = 1000
"""A single write may have more."""

_INTERNAL_ERROR = "An internal error occurred (see the server's log); what was written is unknown until a restart."


class Flush(StrEnum):
    """When writes are synced: before they are answered, every FLUSH_INTERVAL_SECONDS, or when the OS flushes."""

    ALWAYS = "always"
    INTERVAL = "interval"
    OS = "os"


class Write(Protocol):
    """A write to one log partition.

    An `exclusive` write has a round of its own, so that it sees all writes before it.
    """

    exclusive: bool

    @property
    def partition(self) -> Partition:
        """The partition of `__consumer_offsets`, or of another log, to write to."""

    def batches(self) -> Sequence[Batch]:
        """Return the record batches when the round of the write begins; none if there is nothing to write."""

    def written(self, firsts: list[int]) -> None:
        """Handle that the batches are durable; `firsts` are the log offsets of their first records."""

    def failed(self, error: LogUnavailable) -> None:
        """Handle that the batches could not be written, or may have been lost."""


class _Barrier:
    """A write of nothing that is done when all writes before it are; it calls `begin` unless it was cancelled."""

    partition, exclusive = -1, True

    def __init__(self, done: "asyncio.Future[None]", begin: Callable[[], None]) -> None:
        self._done, self._begin = done, begin

    def batches(self) -> Sequence[Batch]:
        if not self._done.done():
            self._begin()
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
        self._queue: list[tuple[int, int, int, Write]] = []  # a heap: virtual finish time, sequence number, records
        self._virtual_time = 0  # the finish time of the write that was taken last
        self._sequence_numbers = count()
        self._default_share = Share()
        self._running = False
        self._sync_due = False  # the next round has to sync, whatever the Flush is
        self._sync_thread = ThreadPoolExecutor(1, "sync")
        self._sync_seconds = 0.0  # moving average of the duration of a sync
        self.syncs = Histogram()
        self.broken: LogUnavailable | None = None
        """Why no write is accepted any more, set after a failed sync (which is never retried) or at a `fault`."""
        self.fault: asyncio.Future[None] = loop.create_future()
        """Done when an unexpected error prevented a durable write from being served or answered.

        The process has to exit: served offsets may be wrong, and clients may wait in vain. The next start is correct.
        """
        if flush is Flush.INTERVAL:
            loop.call_later(FLUSH_INTERVAL_SECONDS, self._sync_at_interval)

    def add(self, write: Write, share: Share | None = None, records: int = 1) -> None:
        """Queue a write; its round begins when the event loop has read all sockets that are ready.

        Writes without a share have one in common and so keep their order: a transaction ends after its commits.
        """
        share = share or self._default_share
        share.end = max(self._virtual_time, share.end) + records
        self._push(share.end, records, write)

    def _push(self, finish_time: int, records: int, write: Write) -> None:
        heappush(self._queue, (finish_time, next(self._sequence_numbers), records, write))
        self._schedule()

    def after(self, delay_ms: int, begin: Callable[[], None]) -> None:
        """Call `begin`, which queues a write, at once or after a delay."""
        if delay_ms:
            self._loop.call_later(delay_ms / 1000, begin)
        else:
            begin()

    async def drain(self, then: Callable[[], None] = lambda: None) -> None:
        """Wait until all writes queued before are done; `then` is called while no other write is under way."""
        await self._barrier(then)

    async def sync(self) -> None:
        """Wait until all writes queued before are synced, whatever the `Flush` is; raise LogUnavailable on failure."""
        await self._barrier(self.require_sync)

    async def _barrier(self, begin: Callable[[], None]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        last = max((finish_time for finish_time, *_ in self._queue), default=self._virtual_time)
        self._push(last, 0, _Barrier(done, begin))
        await done

    async def watch(self) -> None:
        """Check the log folder again and again until the task is cancelled."""
        while True:
            self.check_log()
            await asyncio.sleep(LOG_CHECK_INTERVAL_SECONDS)

    def check_log(self) -> None:
        """Refuse all further writes if the folder of the log or an active segment was removed or replaced."""
        if self.broken is None:
            try:
                self._appender.check_files()
            except LogInDoubt as error:
                self._break(error)

    def _break(self, error: LogUnavailable) -> None:
        if self.broken is None:
            LOG.error("%(reason)s All writes are refused until a restart; reads continue.", {"reason": error})
            self.broken = error

    def require_sync(self) -> None:
        """Sync the round under way, whatever the `Flush` is."""
        self._sync_due = True

    def _schedule(self) -> None:
        if not self._running and (self._queue or self._sync_due):
            self._running = True
            self._loop.call_soon(self._run_round)

    def _sync_at_interval(self) -> None:
        self._sync_due = True
        self._schedule()
        self._loop.call_later(FLUSH_INTERVAL_SECONDS, self._sync_at_interval)

    def _run_round(self) -> None:
        done = self._append(self._take())
        if self.broken or not (self._sync_due or (self._flush is Flush.ALWAYS and any(firsts for _, firsts in done))):
            self._finish(done, None)
        elif self._sync_seconds < MAX_INLINE_SYNC_SECONDS and len(done) < MIN_THREAD_SYNC_WRITES:
            self._finish(done, self._sync())
        else:
            synced = self._loop.run_in_executor(self._sync_thread, self._sync)
            synced.add_done_callback(lambda future: self._finish(done, future.result()))

    def _take(self) -> list[Write]:
        taken: list[Write] = []
        total = 0
        while self._queue:
            finish_time, _, records, write = self._queue[0]
            total += records
            if taken and (taken[0].exclusive or write.exclusive or total > MAX_ROUND_RECORDS):
                break
            heappop(self._queue)
            self._virtual_time = finish_time
            taken.append(write)
        return taken

    def _append(self, taken: list[Write]) -> list[tuple[Write, list[int]]]:
        """Append the writes of a round by partition; return those done, with the log offsets of their batches."""
        by_partition: dict[Partition, list[tuple[Write, Sequence[Batch]]]] = {}
        done: list[tuple[Write, list[int]]] = []
        for write in taken:
            batches = self._batches(write)
            if isinstance(batches, LogUnavailable):
                self._notify(write, [], batches)
            elif batches:
                by_partition.setdefault(write.partition, []).append((write, batches))
            else:
                done.append((write, []))
        for partition, writes in by_partition.items():
            firsts = self._append_to(partition, [batch for _, batches in writes for batch in batches])
            if isinstance(firsts, LogUnavailable):
                for write, _ in writes:
                    self._notify(write, [], firsts)
            else:
                log_offsets = iter(firsts)
                done += [(write, [next(log_offsets) for _ in batches]) for write, batches in writes]
        return done

    def _batches(self, write: Write) -> Sequence[Batch] | LogUnavailable:
        """Return the batches of a write, or the error with which this write alone fails."""
        if self.broken:
            return self.broken
        try:
            return write.batches()
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("A write was refused because its record batches could not be built")
            return LogUnavailable("An internal error occurred (see the server's log), and nothing was written.")

    def _append_to(self, partition: Partition, batches: list[Batch]) -> list[int] | LogUnavailable:
        """Append to a partition; return the log offset of each batch, or the error if none was written."""
        try:
            return self._appender.append(partition, batches)
        except LogInDoubt as error:
            self._break(error)
            return error
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("Appending to the log failed")
            self._break(fault := LogInDoubt(_INTERNAL_ERROR))
            return fault

    def _sync(self) -> LogUnavailable | None:
        started = time.perf_counter()
        try:
            self._appender.sync()
        except LogUnavailable as error:
            return error
        except Exception:
            LOG.exception("Syncing the log failed")
            return LogInDoubt(_INTERNAL_ERROR)
        finally:
            seconds = time.perf_counter() - started
            self._sync_seconds += (seconds - self._sync_seconds) / 8
            self.syncs.observe(seconds)
        return None

    def _finish(self, done: list[tuple[Write, list[int]]], error: LogUnavailable | None) -> None:
        if error:
            self._break(error)
        error = error or self.broken  # set by `check_log` while a thread waited for the sync
        self._sync_due = False
        for write, firsts in done:
            self._notify(write, firsts, error)
        self._running = False
        self._schedule()

    def _notify(self, write: Write, firsts: list[int], error: LogUnavailable | None) -> None:
        """Notify a write of its outcome; an exception of one write does not affect the others."""
        try:
            if error:
                write.failed(error)
            else:
                if firsts and isinstance(write.partition, int):  # the transaction log is not served to readers
                    self.watermarks.advance(write.partition, self._appender.end(write.partition))
                write.written(firsts)
        except Exception:
            LOG.exception("A durable write could not be served or answered; the process has to exit")
            self._break(LogUnavailable(_INTERNAL_ERROR))
            if not self.fault.done():
                self.fault.set_result(None)
