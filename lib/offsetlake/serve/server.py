"""The serving process: owns the log, loads what it says, listens, and ends when it is told to."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import disk_errors, owned
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.components import ServerComponents
from offsetlake.serve.metrics.traffic import Measured
from offsetlake.serve.net.accept import AcceptedConnections
from offsetlake.serve.net.acceptor import Acceptor, listen
from offsetlake.serve.net.connection import Connection, Requests
from offsetlake.serve.net.descriptors import limit_connections
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.login import Login
from offsetlake.serve.net.security import Security
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.settings import Settings
from offsetlake.serve.snapshot_refresh import SnapshotRefresh, build
from offsetlake.serve.writes.job_socket import JobSocket
from offsetlake.util.atomic_files import to_disk

if TYPE_CHECKING:
    from offsetlake.serve.http.server import HttpServer

LOG = logging.getLogger(__name__)
SWITCH_SECONDS = 0.0005  # how long a thread that has synced the log waits for a busy event loop, up to three times


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises LogBusy where another process writes to the log, LogUnavailable, LogMismatch, LakeUnusable; BadRequest where
    it cannot listen, or what it is to be protected by cannot be used; OffsetlakeError at a fault of its own.
    """
    settings = limit_connections(settings)
    folder, security = Path(settings.log), Security(settings)
    make_log(folder, settings.log_partitions)
    with owned(folder, "serve"):
        sys.setswitchinterval(SWITCH_SECONDS)
        uvloop.run(_serve(settings, security))


def make_log(folder: Path, log_partitions: int) -> None:
    """Make the folders of a log that is not there yet."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob(f"{OFFSETS_TOPIC}-*")):
            for partition in range(log_partitions):
                (folder / str(LogPartition(OFFSETS_TOPIC, partition))).mkdir()
            to_disk(folder)


class Server:
    """A serving process, from its beginning to its end."""

    def __init__(self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        self._settings, self._loop = settings, loop
        self._turns = Turns(loop, Memory())
        self._parts = of = ServerComponents(settings, security, loop)
        self._reading = asyncio.Lock()  # the files of the log: nothing is cut off meanwhile
        self.door = JobSocket(settings, of.store, of.writes, of.appender, of.log_partition, self._reading)
        self._watching: list[asyncio.Task[None]] = []
        self._http: HttpServer | None = None

    async def listen(self) -> Acceptor:
        """Listen for clients; until the log is loaded they are told to wait. BadRequest where it cannot."""
        host, port, security = self._settings.host, self._settings.port, self._parts.security
        accepted = AcceptedConnections(
            security,
            lambda: security.tls,
            lambda: Login(security, self._parts.admin.take, self._connect, self._loop),
            self._loop,
        )
        try:
            sockets = await listen(host, port, backlog=1024)
        except OSError as error:
            raise BadRequest(f"cannot listen on {host}:{port}: {error.strerror}") from error
        port = sockets[0].getsockname()[1]
        self._parts.admin.address = self._settings.advertised or (host, port)
        LOG.info("listening on %(host)s:%(port)d", {"host": host, "port": port})
        return Acceptor(sockets, accepted.start, self._loop)

    def _connect(self, client: Client) -> Connection:
        of = self._parts
        requests: Requests = Service(of.commits, of.fetches, of.admin, client)
        if of.traffic is not None:
            requests = Measured(requests, of.traffic)
        return Connection(requests, client, of.security.connections, self._turns)

    def listen_for_http(self) -> None:
        """Listen for HTTP where that is wanted; BadRequest where it cannot."""
        if self._settings.http is None:
            return
        from offsetlake.serve.http.server import HttpServer  # noqa: PLC0415 - what it needs takes 20 MB and half a second

        host, port = self._settings.http
        self._http = HttpServer(self._parts, host, port)
        scheme = "http" if self._settings.tls_certificate is None else "https"
        LOG.info("answering HTTP on %(url)s", {"url": f"{scheme}://{host}:{self._http.port}"})

    async def load(self) -> None:
        """Load what the lake and the log say; raises ChildFailed, LogMismatch, LogUnavailable."""
        base, ends = await build(self._settings, None)
        self._parts.load(base, ends)
        watches = (self._parts.transactions.watch(), self._parts.writes.watch())
        self._watching = [asyncio.create_task(watch) for watch in watches]
        taken = {"offsets": len(base), "groups": len(base.groups), "version": base.version}
        LOG.info("serving %(offsets)d offsets in %(groups)d groups", taken)

    @property
    def fault(self) -> "asyncio.Future[None]":
        """`offsetlake.serve.writes.rounds.Writes.fault`."""
        return self._parts.writes.fault

    async def fold(self) -> None:
        """Take over newer compactions, again and again."""
        of = self._parts
        await SnapshotRefresh(self._settings, of.store, of.writes, of.appender, self._reading).run()

    async def close(self) -> None:
        """Finish what was begun, and send what was answered; after a fault who waits might wait for ever."""
        of = self._parts
        if of.writes.fault.done():
            return
        if self._http is not None:
            await self._http.close()
        await self.door.close()
        for watch in self._watching:
            watch.cancel()
        await of.reads.close()
        with contextlib.closing(of.appender):
            try:
                if not of.store.loading:
                    await of.writes.rest()
            finally:  # a log that is broken keeps nobody from being told what was answered
                for connection, _ in of.security.connections:
                    connection.close()
                of.appender.sync()


async def _serve(settings: Settings, security: Security) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: security.reload(force=True))
    server = Server(settings, security, loop)
    listening = await server.listen()
    stopping, watching = asyncio.create_task(stop.wait()), asyncio.create_task(security.run())
    try:
        server.listen_for_http()
        await server.door.open()
        if await _first(server.load(), stopping, server.fault):
            await _first(server.fold(), stopping, server.fault)
        if server.fault.done():
            raise OffsetlakeError(
                "the server has a fault, told above with its trace, and what it serves may be wrong: it ends, and the "
                "next start reads what the log says"
            )
    finally:
        watching.cancel()
        listening.close()
        await server.close()


async def _first(work: Coroutine[None, None, None], *ends: "asyncio.Future[Any]") -> bool:
    """Work until it is done, or until the process is to end; gives whether it was done. Raises what it raises."""
    task = asyncio.create_task(work)
    await asyncio.wait((task, *ends), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False
