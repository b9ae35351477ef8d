"""The serving process: owns the log, loads what it says, listens, and ends when it is told to."""

import asyncio
import base64
import contextlib
import logging
import signal
import uuid
from collections.abc import Coroutine
from pathlib import Path

import uvloop

from offsetlake.disk import to_disk
from offsetlake.errors import BadRequest
from offsetlake.log.appender import Appender
from offsetlake.log.ownership import disk_errors, owned
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.segments import Segment
from offsetlake.serve.admin import Admin
from offsetlake.serve.arrival import Arrival
from offsetlake.serve.client import Client
from offsetlake.serve.connection import Connection
from offsetlake.serve.door import Door
from offsetlake.serve.folding import Folding, build
from offsetlake.serve.log_reads import LogReads
from offsetlake.serve.login import Login
from offsetlake.serve.offset_commit import OffsetCommit
from offsetlake.serve.offset_fetch import OffsetFetch
from offsetlake.serve.quota import Quota
from offsetlake.serve.security import Security
from offsetlake.serve.service import Service
from offsetlake.serve.settings import Settings
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics
from offsetlake.serve.transaction_log import TransactionLog
from offsetlake.serve.transactions import Transactions
from offsetlake.serve.writes import Flush, Writes

LOG = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises LogBusy where another process writes to the log, LogUnavailable, LogMismatch, LakeUnusable; BadRequest where
    it cannot listen, or what it is to be protected by cannot be used.
    """
    folder, security = Path(settings.log), Security(settings)
    make_log(folder, settings.log_partitions)
    with owned(folder, "serve"):
        uvloop.run(_serve(settings, folder, security))


def make_log(folder: Path, log_partitions: int) -> None:
    """Make the folders of a log that is not there yet."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob(f"{OFFSETS_TOPIC}-*")):
            for partition in range(log_partitions):
                (folder / str(LogPartition(OFFSETS_TOPIC, partition))).mkdir()
            to_disk(folder)


class Server:
    """What a serving process is made of."""

    def __init__(self, settings: Settings, folder: Path, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        self.settings, self._security = settings, security
        self._ends: dict[LogPartition, int] = {}  # of the log, when it was loaded
        self._appender = Appender(folder, self._end_of)
        self.store, self.writes = Store(), Writes(self._appender, Flush(settings.flush), loop)
        named = settings.topics
        self.topics = Topics(
            None if named is None else {name.encode(): number for name, number in named.items()},
            settings.log_partitions,
        )
        self.reads = LogReads(folder, self.topics, self.writes.watermarks, loop)
        self.quota = None if settings.commits_per_second is None else Quota(settings.commits_per_second)
        self.commits = OffsetCommit(
            self.store,
            self.topics,
            self.writes,
            settings.log_partitions,
            settings.commits_recorded,
            self.quota,
        )
        self._transaction_log = TransactionLog(folder)
        self.transactions = Transactions(self.store, self.writes, self._transaction_log, self.commits.log_partition)
        self._watching: asyncio.Task[None] | None = None
        id_ = uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri())
        self._cluster_id = base64.urlsafe_b64encode(id_.bytes).decode().rstrip("=")
        self._reading = asyncio.Lock()  # the files of the log: nothing is cut off meanwhile
        self.door = Door(settings, self.store, self.writes, self._appender, self.commits.log_partition, self._reading)

    def _end_of(self, segment: Segment) -> int:
        topic, _, number = segment.path.parent.name.rpartition("-")
        return self._ends[LogPartition(topic, int(number))]

    async def listen(self) -> asyncio.Server:
        """Listen for clients; until the log is loaded they are told to wait. BadRequest where it cannot."""
        loop, host, port = asyncio.get_running_loop(), self.settings.host, self.settings.port
        of_groups, reads = self.commits.log_partition, self.reads
        admin = Admin(self.store, self.topics, self.writes, reads, of_groups, self.transactions, self._cluster_id)
        fetches = OffsetFetch(self.store, self.topics)

        def connect(client: Client) -> Connection:
            service = Service(self.commits, fetches, admin, client)
            return Connection(service, client, self._security.connections, loop)

        def accept() -> Arrival:
            return Arrival(self._security, lambda: Login(self._security, admin, connect, loop), loop)

        try:
            listening = await loop.create_server(accept, host, port, backlog=1024)
        except OSError as error:
            raise BadRequest(f"cannot listen on {host}:{port}: {error.strerror}") from error
        host, port = self.settings.advertised or (host, listening.sockets[0].getsockname()[1])
        admin.address = host, port
        return listening

    async def load(self) -> None:
        """Load what the lake and the log say; raises BuildFailed, LogMismatch, LogUnavailable."""
        base, ends = await build(self.settings, None)
        standing, ends_of_transactions = self._transaction_log.read()
        self._ends |= {LogPartition(OFFSETS_TOPIC, number): end for number, end in ends.items()}
        self._ends |= ends_of_transactions
        self.topics.learn(base.known_topics)
        self.store.load(base)
        self.transactions.load(standing)
        self._watching = asyncio.create_task(self.transactions.watch())
        self.writes.watermarks.load(ends)
        LOG.info("serving %d offsets in %d groups", len(base), len(base.groups))

    async def fold(self) -> None:
        """Take over newer compactions, again and again."""
        await Folding(self.settings, self.store, self.writes, self._appender, self._reading).run()

    async def close(self) -> None:
        """Finish what was begun, and send what was answered."""
        await self.door.close()
        if self._watching is not None:
            self._watching.cancel()
        await self.reads.close()
        if not self.store.loading:
            await self.writes.rest()
        for connection, _ in self._security.connections:
            connection.close()
        self._appender.sync()
        self._appender.close()


async def _serve(settings: Settings, folder: Path, security: Security) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, security.look)
    server = Server(settings, folder, security, loop)
    listening = await server.listen()
    LOG.info("listening on %s:%d", settings.host, listening.sockets[0].getsockname()[1])
    stopping, watching = asyncio.create_task(stop.wait()), asyncio.create_task(security.run())
    try:
        await server.door.open()
        if await _first(server.load(), stopping):
            await _first(server.fold(), stopping)
    finally:
        watching.cancel()
        listening.close()
        await server.close()


async def _first(work: Coroutine[None, None, None], stopping: "asyncio.Task[bool]") -> bool:
    """Work until it is done, or until the process is to stop; gives whether it was done. Raises what it raises."""
    task = asyncio.create_task(work)
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False
