"""The serving process: owns the log, loads what it says, listens, and ends when it is told to."""

import asyncio
import base64
import contextlib
import logging
import signal
import uuid
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from offsetlake.disk import to_disk
from offsetlake.errors import BadRequest
from offsetlake.log.appender import Appender
from offsetlake.log.ownership import disk_errors, owned
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.segments import Segment
from offsetlake.serve.admin import OFFSET_COMMIT, OFFSET_FETCH, Admin
from offsetlake.serve.client import Client
from offsetlake.serve.connection import Connection, Requests
from offsetlake.serve.door import Door
from offsetlake.serve.folding import Folding, build
from offsetlake.serve.offset_commit import OffsetCommit
from offsetlake.serve.offset_fetch import OffsetFetch
from offsetlake.serve.parts import Parts
from offsetlake.serve.service import Service
from offsetlake.serve.settings import Settings
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics
from offsetlake.serve.traffic import Measured, Traffic
from offsetlake.serve.writes import Flush, Writes

if TYPE_CHECKING:
    from offsetlake.serve.http_server import HttpServer

LOG = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises LogBusy where another process writes to the log, LogUnavailable, LogMismatch, LakeUnusable; BadRequest where
    it cannot listen.
    """
    folder = Path(settings.log)
    _make_log(folder, settings.log_partitions)
    with owned(folder, "serve"):
        uvloop.run(_serve(settings, folder))


def _make_log(folder: Path, log_partitions: int) -> None:
    """Make the folders of a log that is not there yet."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob(f"{OFFSETS_TOPIC}-*")):
            for partition in range(log_partitions):
                (folder / str(LogPartition(OFFSETS_TOPIC, partition))).mkdir()
            to_disk(folder)


class Server:
    """What a serving process is made of."""

    def __init__(self, settings: Settings, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = settings
        self._ends: dict[int, int] = {}  # of the log, when it was loaded
        self._appender = Appender(folder, self._end_of)
        self.store, self.writes = Store(), Writes(self._appender, Flush(settings.flush), loop)
        named = settings.topics
        self.topics = Topics(None if named is None else {name.encode(): number for name, number in named.items()})
        self.commits = OffsetCommit(self.store, self.topics, self.writes, settings.log_partitions)
        self._connections: set[Connection] = set()
        id_ = uuid.uuid5(uuid.NAMESPACE_URL, folder.resolve().as_uri())
        cluster_id = base64.urlsafe_b64encode(id_.bytes).decode().rstrip("=")
        self._fetches = OffsetFetch(self.store, self.topics)
        self._admin = Admin(self.store, self.topics, self.writes, self.commits.log_partition, cluster_id)
        self._traffic = None if settings.http is None else Traffic()
        self._http: HttpServer | None = None
        self._reading = asyncio.Lock()  # the files of the log: nothing is cut off meanwhile
        self.door = Door(settings, self.store, self.writes, self._appender, self.commits.log_partition, self._reading)

    def _end_of(self, segment: Segment) -> int:
        return self._ends[int(segment.path.parent.name.rpartition("-")[2])]

    async def listen(self) -> asyncio.Server:
        """Listen for clients; until the log is loaded they are told to wait. BadRequest where it cannot."""
        loop, host, port = asyncio.get_running_loop(), self.settings.host, self.settings.port
        fetches, admin = self._fetches, self._admin

        def connect() -> Connection:
            client = Client()
            requests: Requests = Service(self.commits, fetches, admin, client)
            if self._traffic is not None:
                requests = Measured(requests, self._traffic)
            return Connection(requests, client, self._connections, loop)

        try:
            listening = await loop.create_server(connect, host, port, backlog=1024)
        except OSError as error:
            raise BadRequest(f"cannot listen on {host}:{port}: {error.strerror}") from error
        admin.address = host, listening.sockets[0].getsockname()[1]
        return listening

    def listen_for_http(self) -> None:
        """Listen for HTTP where that is wanted; BadRequest where it cannot."""
        if self._traffic is None or self.settings.http is None:
            return
        from offsetlake.serve.http_server import HttpServer  # noqa: PLC0415 - what it needs takes 20 MB and half a second

        parts = Parts(
            self.settings.lake,
            self.store,
            self.topics,
            self.writes,
            self._appender,
            self.commits.log_partition,
            self._connections,
            self._errors,
            self._traffic,
        )
        host, port = self.settings.http
        self._http = HttpServer(parts, host, port)
        LOG.info("answering HTTP on http://%(host)s:%(port)d", {"host": host, "port": self._http.port})

    def _errors(self) -> Counter[tuple[int, int]]:
        """Count the error codes that were answered, by API."""
        hot = ((OFFSET_COMMIT, self.commits.errors), (OFFSET_FETCH, self._fetches.errors))
        return self._admin.errors + Counter({(api, code): n for api, of in hot for code, n in of.items()})

    async def load(self) -> None:
        """Load what the lake and the log say; raises ChildFailed."""
        base, ends = await build(self.settings, None)
        self._ends |= ends
        self.topics.learn(base.known_topics)
        self.store.load(base)
        taken = {"offsets": len(base), "groups": len(base.groups), "version": base.version}
        LOG.info("serving %(offsets)d offsets in %(groups)d groups", taken)

    async def fold(self) -> None:
        """Take over newer compactions, again and again."""
        await Folding(self.settings, self.store, self.writes, self._appender, self._reading).run()

    async def close(self) -> None:
        """Finish what was begun, and send what was answered."""
        if self._http is not None:
            await self._http.close()
        await self.door.close()
        if not self.store.loading:
            await self.writes.rest()
        for connection in [*self._connections]:
            connection.close()
        self._appender.sync()
        self._appender.close()


async def _serve(settings: Settings, folder: Path) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(settings, folder, loop)
    listening = await server.listen()
    server.listen_for_http()
    LOG.info("listening on %(host)s:%(port)d", {"host": settings.host, "port": listening.sockets[0].getsockname()[1]})
    stopping = asyncio.create_task(stop.wait())
    try:
        await server.door.open()
        if await _first(server.load(), stopping):
            await _first(server.fold(), stopping)
    finally:
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
