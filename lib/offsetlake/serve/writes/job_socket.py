"""The job socket: jobs write to the log of a running server by `offsetlake.log.writer.append_protocol`."""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from aiokafka.errors import CorruptRecordException

from offsetlake.errors import LogUnavailable
from offsetlake.lake.location.locate import locate
from offsetlake.log.disk.cutting import delete, plan_cut
from offsetlake.log.disk.lacking import LACKING_REMEDY
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer import append_protocol
from offsetlake.log.writer.append_protocol import JobRequest, JobStatus
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.os_users import peer_principal
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.conditional import ConditionalWrite, GroupBatch, ReadLogEnd, read_batch
from offsetlake.serve.writes.rounds import Writes

LOG = logging.getLogger(__name__)
_BACKLOG = 100
_INVALID_REQUEST_ERRORS = (Malformed, struct.error, IndexError, ValueError, CorruptRecordException)


class RewindResult(NamedTuple):
    """The log offset of the first offset, or -1 and why the offsets were not set."""

    log_offset: int
    refusal: str = ""


class Rewinding(Protocol):
    """Sets offsets of groups while their members run."""

    async def rewind(self, batch: GroupBatch) -> RewindResult:
        """Set the offsets in a batch."""

    def rewind_limit_ms(self, name: bytes) -> int | None:
        """Return how long a rewind of a group waits for members at most; None if the group has no members."""


TopicEnds = Callable[[list[str]], Awaitable[Mapping[str, Sequence[tuple[int, int] | None]]]]
"""Returns log start and end offsets by topic and partition."""


class JobSocket:
    """Serves the requests of jobs. While `reading` is locked, the log's files are read and no segment is deleted."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        writes: Writes,
        appender: Appender,
        log_partition: Callable[[bytes], int],
        reading: asyncio.Lock,
        rewinding: Rewinding,
        topic_ends: TopicEnds | None = None,
    ) -> None:
        self._settings, self.store, self.writes, self.appender = settings, store, writes, appender
        self._log_partition, self._reading, self.rewinding = log_partition, reading, rewinding
        self.topic_ends = topic_ends
        self._folder = Path(settings.log)
        self._acceptor: Acceptor | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()  # connections without a request under way
        self._closing = False

    async def open(self) -> None:
        """Listen. Only the owner of the log may call this.

        Raises:
            LogUnavailable: The socket cannot be created in the folder of the log.
        """
        listener = socket.socket(socket.AF_UNIX)
        with disk_errors(self._folder), append_protocol.address_of(self._folder) as address:
            (self._folder / append_protocol.SOCKET).unlink(missing_ok=True)  # left behind by an owner that was killed
            os.fchmod(listener.fileno(), 0o600)  # the socket file is created with this mode
            listener.bind(address)
            listener.listen(_BACKLOG)
        self._acceptor = Acceptor([listener], self._accept, asyncio.get_running_loop())

    async def close(self) -> None:
        """Accept no more connections, finish the requests under way and close the connections."""
        self._closing = True
        if self._acceptor is not None:
            (self._folder / append_protocol.SOCKET).unlink(missing_ok=True)
            self._acceptor.close()
        for task in self._idle:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, connection: socket.socket, _address: object) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        job = JobConnection(self, peer_principal(connection))
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            while not self._closing:
                self._idle.add(task)
                await writer.drain()
                request = await _read_request(reader)
                self._idle.discard(task)
                writer.write(await job.answer(request))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the job has disconnected; writes that it requested are still done
        except asyncio.CancelledError:
            if not self._closing:
                raise
        except _INVALID_REQUEST_ERRORS as error:
            LOG.info("Closed the connection of a job that sent an invalid request: %(reason)s", {"reason": error})
        finally:
            job.close()
            self._idle.discard(task)
            writer.close()

    def check_partition(self, partition: int) -> None:
        """Raise LogUnavailable if the log has no such partition."""
        if not 0 <= partition < self._settings.log_partitions:
            raise LogUnavailable(
                f"The log {self._folder} has {self._settings.log_partitions} log partitions; there is no log partition "
                f"{partition}."
            )
        if partition in self.store.snapshot.groups_not_read:
            raise LogUnavailable(f"The log {self._folder} lacks {OFFSETS_TOPIC}-{partition}. {LACKING_REMEDY}")

    def check_group(self, group: bytes, partition: int) -> None:
        """Raise LogUnavailable if a group belongs in another log partition."""
        if self._log_partition(group) != partition:
            raise LogUnavailable(
                f"Group {group.decode()!r} belongs in log partition {self._log_partition(group)} of the log "
                f"{self._folder}, not in log partition {partition}."
            )

    async def cut(self, partition: int, needed: int, lake: str) -> tuple[int, int]:
        """Delete the segments below the log offset `needed`; return their number and their size in bytes.

        Raises:
            LogUnavailable: The segments cannot be deleted, or `lake` is not the lake of this server, which alone
                determines which segments are no longer needed.
        """
        served = locate(self._settings.lake)
        if lake != served.identity:
            raise LogUnavailable(
                f"The log {self._folder} is served with the lake {self._settings.lake}, so only compactions of that "
                f"lake can delete log segments, not those of the lake {lake}."
            )
        async with self._reading:
            return await asyncio.get_running_loop().run_in_executor(None, self._cut, partition, needed)

    def _cut(self, partition: int, needed: int) -> tuple[int, int]:
        cut = plan_cut(self._folder, LogPartition(OFFSETS_TOPIC, partition), needed)
        delete(cut)
        return len(cut.obsolete), cut.size


class JobConnection:
    """One job's connection: the principal of the job and the log end offsets that were sent to it."""

    def __init__(self, job_socket: JobSocket, principal: str) -> None:
        self._job_socket, self._principal = job_socket, principal
        self._first_ends: dict[int, int] = {}  # by log partition, the first log end offset that was sent to the job
        self._is_watching = False
        self._handlers: dict[int, Callable[[bytes], Awaitable[bytes]]] = {
            JobRequest.HELLO: self._hello,
            JobRequest.END: self._end,
            JobRequest.APPEND: self._append,
            JobRequest.SYNC: self._sync,
            JobRequest.CUT: self._cut,
            JobRequest.REWIND: self._rewind,
            JobRequest.REWIND_LIMIT: self._rewind_limit,
            JobRequest.TOPIC_ENDS: self._topic_ends,
        }

    async def answer(self, request: bytes) -> bytes:
        """Handle a request and return the frame of the answer.

        Raises:
            Exception: One of _INVALID_REQUEST_ERRORS.
        """
        handler = self._handlers.get(request[0])
        if handler is None:
            raise Malformed(f"unknown request type {request[0]}")
        if self._job_socket.store.loading:
            return append_protocol.frame(
                JobStatus.BUSY, b"The server of this log is still loading it. Try again in a moment."
            )
        try:
            return append_protocol.frame(JobStatus.DONE, await handler(request[1:]))
        except LogUnavailable as error:
            return append_protocol.frame(JobStatus.UNAVAILABLE, str(error).encode())

    def close(self) -> None:
        """End the watch of the store, if the job began one."""
        if self._is_watching:
            self._job_socket.store.newest.unwatch()
            self._is_watching = False

    async def _hello(self, fields: bytes) -> bytes:
        (version,) = append_protocol.HELLO_FIELDS.unpack(fields)
        if version != append_protocol.VERSION:
            raise LogUnavailable(
                f"The server of this log speaks version {append_protocol.VERSION} of the append protocol, this job "
                f"version {version}. Use the same version of offsetlake for both."
            )
        return self._principal.encode()

    async def _end(self, fields: bytes) -> bytes:
        (partition,) = append_protocol.END_FIELDS.unpack(fields)
        self._job_socket.check_partition(partition)
        if not self._is_watching:
            self._is_watching = True
            self._job_socket.store.newest.watch()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._job_socket.writes.add(ReadLogEnd(partition, self._job_socket.appender, done))
        end = await done
        self._first_ends.setdefault(partition, end)
        return append_protocol.LOG_OFFSET.pack(end)

    async def _append(self, fields: bytes) -> bytes:
        partition, read_end = append_protocol.APPEND_FIELDS.unpack_from(fields)
        if read_end < self._first_ends.get(partition, read_end + 1):
            raise Malformed(f"an append to log partition {partition} before the job requested its end")
        batches = _read_batches(fields, append_protocol.APPEND_FIELDS.size)
        for batch in batches:
            self._check(batch, partition)
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._job_socket.writes.add(ConditionalWrite(partition, read_end, batches, self._job_socket.store, done))
        return await done

    def _check(self, batch: GroupBatch, partition: int) -> None:
        self._job_socket.check_group(batch.group, partition)
        if batch.principal not in {None, self._principal}:
            raise Malformed(f"a job of {self._principal} sent audit headers of {batch.principal}")

    async def _rewind(self, fields: bytes) -> bytes:
        (partition,) = append_protocol.END_FIELDS.unpack_from(fields)
        batch = read_batch(fields[append_protocol.END_FIELDS.size :])
        self._check(batch, partition)
        log_offset, refusal = await self._job_socket.rewinding.rewind(batch)
        return append_protocol.LOG_OFFSET.pack(log_offset) + refusal.encode()

    async def _rewind_limit(self, fields: bytes) -> bytes:
        limit_ms = self._job_socket.rewinding.rewind_limit_ms(fields)
        return append_protocol.LOG_OFFSET.pack(-1 if limit_ms is None else limit_ms)

    async def _topic_ends(self, fields: bytes) -> bytes:
        if self._job_socket.topic_ends is None:
            raise LogUnavailable("The server of this log is not a node of a cluster.")
        return json.dumps(await self._job_socket.topic_ends(json.loads(fields))).encode()

    async def _sync(self, fields: bytes) -> bytes:
        if fields:
            raise Malformed("a sync request has no fields")
        await self._job_socket.writes.sync()
        return b""

    async def _cut(self, fields: bytes) -> bytes:
        partition, needed = append_protocol.CUT_FIELDS.unpack_from(fields)
        self._job_socket.check_partition(partition)
        lake = fields[append_protocol.CUT_FIELDS.size :].decode()
        return append_protocol.CUT_ANSWER.pack(*await self._job_socket.cut(partition, needed, lake))


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    (size,) = append_protocol.SIZE.unpack(await reader.readexactly(append_protocol.SIZE.size))
    if not 1 <= size <= append_protocol.MAX_FRAME_BYTES:
        raise Malformed(f"invalid request size {size}")
    return await reader.readexactly(size)


def _read_batches(fields: bytes, position: int) -> list[GroupBatch]:
    batches = []
    while position < len(fields):
        (size,) = append_protocol.SIZE.unpack_from(fields, position)
        begin = position + append_protocol.SIZE.size
        position = begin + max(size, 0)
        if size <= 0 or position > len(fields):
            raise Malformed(f"invalid record batch size {size}")
        batches.append(read_batch(fields[begin:position]))
    return batches
