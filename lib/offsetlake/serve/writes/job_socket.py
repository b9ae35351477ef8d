"""The server's side of the job socket: jobs write to the served log by `offsetlake.log.writer.append_protocol`."""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from aiokafka.errors import CorruptRecordException

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.cutting import delete, plan_cut
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer import append_protocol
from offsetlake.log.writer.append_protocol import Request, Status
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.os_users import peer_principal
from offsetlake.log.writer.ownership import disk_errors
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.conditional import Conditional, GroupBatch, ReadLogEnd, read_batch
from offsetlake.serve.writes.rounds import Writes

LOG = logging.getLogger(__name__)
_BACKLOG = 100
_NO_REQUEST = (Malformed, struct.error, IndexError, ValueError, CorruptRecordException)


class JobSocket:
    """Takes requests of jobs. `reading` is held by whoever reads the log's files anew: nothing is cut meanwhile."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        writes: Writes,
        appender: Appender,
        log_partition: Callable[[bytes], int],
        reading: asyncio.Lock,
    ) -> None:
        self._settings, self.store, self.writes, self.appender = settings, store, writes, appender
        self._log_partition, self._reading = log_partition, reading
        self._folder = Path(settings.log)
        self._listening: Acceptor | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()  # those of them whose job asks nothing now
        self._closing = False

    async def open(self) -> None:
        """Listen; LogUnavailable where the folder takes no socket. Only the owner of the log may."""
        listener = socket.socket(socket.AF_UNIX)
        with disk_errors(self._folder), append_protocol.address_of(self._folder) as address:
            (self._folder / append_protocol.SOCKET).unlink(missing_ok=True)  # of an owner that was killed
            os.fchmod(listener.fileno(), 0o600)  # what is made of it has that mode from the first
            listener.bind(address)
            listener.listen(_BACKLOG)
        self._listening = Acceptor([listener], self._accept, asyncio.get_running_loop())

    async def close(self) -> None:
        """Let nobody in, finish what was asked, and say good-bye."""
        self._closing = True
        if self._listening is not None:
            (self._folder / append_protocol.SOCKET).unlink(missing_ok=True)
            self._listening.close()
        for task in self._idle:
            task.cancel()
        if self._visits:
            await asyncio.wait(self._visits)

    def _accept(self, connection: socket.socket, _address: object) -> None:
        task = asyncio.get_running_loop().create_task(self._come_in(connection))
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)

    async def _come_in(self, connection: socket.socket) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        visit = JobConnection(self, peer_principal(connection))
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            while not self._closing:
                self._idle.add(task)
                await writer.drain()
                request = await _request(reader)
                self._idle.discard(task)
                writer.write(await visit.answer(request))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the job has ended, and what it asked to be written is written
        except asyncio.CancelledError:
            if not self._closing:
                raise
        except _NO_REQUEST as error:
            LOG.info("a job sent what is no request (%(reason)s): its connection is closed", {"reason": error})
        finally:
            visit.end()
            self._idle.discard(task)
            writer.close()

    def check_partition(self, partition: int) -> None:
        """Raise LogUnavailable where the log has no such partition."""
        if not 0 <= partition < self._settings.log_partitions:
            raise LogUnavailable(
                f"the log {self._folder} is served with {self._settings.log_partitions} log partitions: there is no "
                f"{partition}"
            )

    def check_group(self, group: bytes, partition: int) -> None:
        """Raise LogUnavailable where a group belongs in another log partition."""
        if self._log_partition(group) != partition:
            raise LogUnavailable(
                f"group {group.decode()!r} belongs in log partition {self._log_partition(group)} of the log "
                f"{self._folder}, not in {partition}"
            )

    async def cut(self, partition: int, needed: int, lake: Path) -> tuple[int, int]:
        """Delete segments of which nothing is needed; gives how many, and their bytes. LogUnavailable where it cannot.

        Only for the lake that is served: what another has taken in is no reason to let it go.
        """
        served = Path(self._settings.lake)
        if lake != served.resolve():
            raise LogUnavailable(
                f"the log {self._folder} is served with the lake {served}: while it is, only that lake tells what the "
                f"log is not needed for; not {lake}"
            )
        async with self._reading:
            return await asyncio.get_running_loop().run_in_executor(None, self._cut, partition, needed)

    def _cut(self, partition: int, needed: int) -> tuple[int, int]:
        cut = plan_cut(self._folder, LogPartition(OFFSETS_TOPIC, partition), needed)
        delete(cut)
        return len(cut.obsolete), cut.size


class JobConnection:
    """One job's connection: who is there, and up to where it was told that the log reaches."""

    def __init__(self, door_: JobSocket, principal: str) -> None:
        self._door, self._principal = door_, principal
        self._told: dict[int, int] = {}  # by log partition, the first end
        self._watches = False
        self._handlers: dict[int, Callable[[bytes], Awaitable[bytes]]] = {
            Request.HELLO: self._hello,
            Request.END: self._end,
            Request.APPEND: self._append,
            Request.SYNC: self._sync,
            Request.CUT: self._cut,
        }

    async def answer(self, request: bytes) -> bytes:
        """Do what is asked; gives the answer's frame. Raises one of _NO_REQUEST where nothing is."""
        handler = self._handlers.get(request[0])
        if handler is None:
            raise Malformed(f"request {request[0]}")
        if self._door.store.loading:
            return append_protocol.frame(Status.BUSY, b"the server of this log still loads it: try again in a moment")
        try:
            return append_protocol.frame(Status.DONE, await handler(request[1:]))
        except LogUnavailable as error:
            return append_protocol.frame(Status.UNAVAILABLE, str(error).encode())

    def end(self) -> None:
        """Forget the job."""
        if self._watches:
            self._door.store.unwatch()
            self._watches = False

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
        self._door.check_partition(partition)
        if not self._watches:
            self._watches = True
            self._door.store.watch()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._door.writes.add(ReadLogEnd(partition, self._door.appender, done))
        end = await done
        self._told.setdefault(partition, end)
        return append_protocol.LOG_OFFSET.pack(end)

    async def _append(self, fields: bytes) -> bytes:
        partition, looked_up_to = append_protocol.APPEND_FIELDS.unpack_from(fields)
        if looked_up_to < self._told.get(partition, looked_up_to + 1):
            raise Malformed("an append to what was not looked at")
        batches = _batches(fields, append_protocol.APPEND_FIELDS.size)
        for each in batches:
            self._door.check_group(each.group, partition)
            if each.principal not in {None, self._principal}:
                raise Malformed(f"{self._principal} at the door writes as {each.principal}")
        done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._door.writes.add(Conditional(partition, looked_up_to, batches, self._door.store, done))
        return await done

    async def _sync(self, fields: bytes) -> bytes:
        if fields:
            raise Malformed("a sync with fields")
        await self._door.writes.sync()
        return b""

    async def _cut(self, fields: bytes) -> bytes:
        partition, needed = append_protocol.CUT_FIELDS.unpack_from(fields)
        self._door.check_partition(partition)
        return append_protocol.CUT_ANSWER.pack(
            *await self._door.cut(partition, needed, Path(fields[append_protocol.CUT_FIELDS.size :].decode()))
        )


async def _request(reader: asyncio.StreamReader) -> bytes:
    (size,) = append_protocol.SIZE.unpack(await reader.readexactly(append_protocol.SIZE.size))
    if not 1 <= size <= append_protocol.MAX_FRAME_BYTES:
        raise Malformed(f"a request of {size} bytes")
    return await reader.readexactly(size)


def _batches(fields: bytes, at: int) -> list[GroupBatch]:
    found = []
    while at < len(fields):
        (size,) = append_protocol.SIZE.unpack_from(fields, at)
        begin, at = at + append_protocol.SIZE.size, at + append_protocol.SIZE.size + max(size, 0)
        if size <= 0 or at > len(fields):
            raise Malformed(f"a record batch of {size} bytes")
        found.append(read_batch(fields[begin:at]))
    return found
