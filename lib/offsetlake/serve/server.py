"""The serving process: it owns the log, loads it, listens for clients and ends on a signal."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from offsetlake.errors import BadRequest, OffsetlakeError
from offsetlake.log.disk.lacking import LACKING_REMEDY
from offsetlake.log.disk.segments import partition_folders
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import disk_errors, owned
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.collection import uncollected
from offsetlake.serve.components import ServerComponents
from offsetlake.serve.front.broker import Broker, with_adopted_log
from offsetlake.serve.front.topic_ends import topic_ends
from offsetlake.serve.metrics.traffic import MeasuredRequests
from offsetlake.serve.net.accept import accept
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection, Requests
from offsetlake.serve.net.descriptors import limit_connections
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.login import Login
from offsetlake.serve.net.security import Security
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.settings import Settings
from offsetlake.serve.snapshot_refresh import SnapshotRefresh, build
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.writes.job_socket import JobSocket
from offsetlake.util.atomic_files import to_disk

if TYPE_CHECKING:
    from offsetlake.serve.front.handover.returning import Returning
    from offsetlake.serve.http.server import HttpServer

LOG = logging.getLogger(__name__)
SWITCH_INTERVAL_SECONDS = 0.0005
"""How long the thread that synced the log waits for the busy event loop, up to three times."""


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        LogBusy: Another process writes to the log.
        LogUnavailable, LogMismatch, LakeUnusable: The log or the lake cannot be used.
        BadRequest: The address, the certificate, the credentials or the ACL cannot be used.
        OffsetlakeError: An internal error ended the server.
    """
    settings = limit_connections(with_adopted_log(settings))
    folder, security = Path(settings.log), Security(settings)
    create_log(folder, settings.log_partitions)
    with owned(folder, "serve"):
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        uvloop.run(_serve(settings, security))


def create_log(folder: Path, log_partitions: int) -> None:
    """Create the folders of the log if it does not exist."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not partition_folders(folder, OFFSETS_TOPIC):
            for partition in range(log_partitions):
                (folder / str(LogPartition(OFFSETS_TOPIC, partition))).mkdir()
            to_disk(folder)


class Server:
    """Runs a serving process from the first socket to the last."""

    def __init__(self, settings: Settings, security: Security, loop: asyncio.AbstractEventLoop) -> None:
        self._settings, self._loop = settings, loop
        self._turns = Turns(loop, Memory())
        self._components = components = ServerComponents(settings, security, loop)
        self._reading = asyncio.Lock()  # locked while the files of the log are read: no segment may be deleted
        self.job_socket = JobSocket(
            settings,
            components.store,
            components.writes,
            components.appender,
            components.log_partition,
            self._reading,
            components.rewinds,
            None if settings.node_id is None or components.cluster is None else partial(topic_ends, components.cluster),
        )
        self._watch_tasks: list[asyncio.Task[None]] = []
        self._broker: Broker | None = None
        self._returning: Returning | None = None
        self._http: HttpServer | None = None
        self._share_acceptor: Acceptor | None = None

    async def listen(self) -> Acceptor:
        """Listen for clients, whose requests fail with COORDINATOR_LOAD_IN_PROGRESS (14) until the log is loaded.

        Raises:
            BadRequest: The address cannot be used.
        """
        host, security, take = self._settings.host, self._components.security, self._components.dispatcher.take
        login = partial(Login, security, take, self._connect, self._loop)
        acceptor, port = await accept(host, self._settings.port, security, login, self._loop)
        self._address = self._components.dispatcher.address = self._settings.advertised or (host, port)
        LOG.info("Listening on %(host)s:%(port)d", {"host": host, "port": port})
        return acceptor

    def _connect(self, client: Client) -> Connection:
        components = self._components
        requests: Requests = Service(components.commits, components.fetches, components.dispatcher, client)
        if components.traffic is not None:
            requests = MeasuredRequests(requests, components.traffic)
        return Connection(requests, client, components.security.connections, self._turns)

    def listen_for_http(self) -> None:
        """Listen for HTTP if the settings say so.

        Raises:
            BadRequest: The address cannot be used.
        """
        if self._settings.http is None:
            return
        from offsetlake.serve.http.server import HttpServer  # noqa: PLC0415 - its dependencies take 20 MB and half a second

        host, port = self._settings.http
        self._http = HttpServer(self._components, host, port)
        scheme = "http" if self._settings.tls_certificate is None else "https"
        LOG.info("Serving HTTP on %(url)s", {"url": f"{scheme}://{host}:{self._http.port}"})

    async def load(self) -> None:
        """Load the lake and the log; as a broker of a cluster, also wait for its metadata and register.

        Raises:
            ChildFailed: The snapshot cannot be built.
            LogMismatch, LogUnavailable: The transaction log cannot be used.
        """
        leadership, cluster = self._components.leadership, self._components.cluster
        if cluster is not None:
            self._watch_tasks = [self._watched(cluster.run())]
        if self._settings.returning:
            await self._load_to_return()
            return
        snapshot, ends = await build(self._settings, None)
        if leadership is not None:
            self._broker = Broker(self._settings, leadership, self._address)
            await self._broker.start()
            if self._components.forwarding is not None:
                await self._components.forwarding.load()
                self._watch_tasks.append(self._watched(self._components.forwarding.run()))
        self._components.load(snapshot, ends)
        watches = (self._components.transactions.watch(), self._components.writes.watch())
        self._watch_tasks += [asyncio.create_task(watch) for watch in watches]
        fields = {"offsets": len(snapshot), "groups": len(snapshot.groups), "version": snapshot.version}
        if snapshot.unknown:
            names = sorted(name.decode() for name in snapshot.unknown)
            LOG.warning(
                "Records of %(count)d groups cannot be decoded, so nothing of these groups is deleted, and their "
                "unknown offsets are answered with KAFKA_STORAGE_ERROR, until later records replace them: %(names)s. "
                "`offsetlake run` stores the records in `quarantine`",
                {"count": len(names), "names": ", ".join(names[:10])},
            )
        self._warn_of_lacking(snapshot)
        LOG.info("Serving %(offsets)d offsets in %(groups)d groups", fields)
        await self._components.load_share_states()
        self._watch_tasks += map(self._watched, self._components.background_work())
        await self._components.membership.load()
        if cluster is not None:
            await cluster.loaded()
            await self._listen_for_share_consumers()

    def _warn_of_lacking(self, snapshot: MappedSnapshot) -> None:
        for topic, numbers in snapshot.not_read.items():
            LOG.warning(
                "NOT READ: the log %(log)s lacks %(topic)s-%(numbers)s. Requests of their groups fail with "
                "COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR, which clients retry. %(remedy)s",
                {"log": self._settings.log, "topic": topic, "numbers": ", ".join(map(str, sorted(numbers)))}
                | {"remedy": LACKING_REMEDY},
            )
        for partition, offsets in snapshot.missing.items():
            LOG.warning(
                "INCOMPLETE: the log %(log)s lacks the log offsets %(offsets)s of %(partition)s. Groups and offsets in "
                "it may be missing, or older than they were: serve a complete copy of the log, with a new lake",
                {"log": self._settings.log, "offsets": offsets, "partition": partition},
            )

    async def _load_to_return(self) -> None:
        """Register as a broker whose log others copy; raise errors as `load`."""
        from offsetlake.serve.front.handover import returning  # noqa: PLC0415 - it imports NumPy

        components, settings = self._components, self._settings
        cluster, leadership = components.cluster, components.leadership
        if cluster is None or leadership is None:
            raise BadRequest("Only a node of a cluster can give its log back: specify --cluster and --node-id.")
        ends = await asyncio.to_thread(returning.recovered_ends, Path(settings.log), settings.log_partitions)
        self._broker = Broker(settings, leadership, self._address)
        await self._broker.start()
        followers = components.reads.followers
        self._returning = returning.Returning(settings, cluster, self._broker.epoch, followers, ends)
        components.writes.watermarks.load(ends)

    async def _listen_for_share_consumers(self) -> None:
        """Listen for share consumers if the settings say so.

        Raises:
            BadRequest: The address cannot be used.
        """
        share, security, address = self._components.share, self._components.security, self._settings.share
        if share is None or address is None:
            return

        def connect(client: Client) -> Connection:
            return share.connect(client, security.connections, self._turns)

        login = partial(Login, security, share.take, connect, self._loop)
        self._share_acceptor, port = await accept(*address, security, login, self._loop)
        host = (self._settings.advertised or address)[0]
        share.address = host, port
        LOG.info("Serving share consumers on %(host)s:%(port)d", {"host": host, "port": port})

    def _watched(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Start work that never ends; an unexpected error of it ends the process, as its results are needed."""

        def ended(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and not self.fault.done():
                LOG.error("Work that must not end has failed", exc_info=task.exception())
                self.fault.set_result(None)

        task = asyncio.create_task(work)
        task.add_done_callback(ended)
        return task

    @property
    def fault(self) -> "asyncio.Future[None]":
        """The future that is done after an internal error (`offsetlake.serve.writes.rounds.Writes.fault`)."""
        return self._components.writes.fault

    async def run(self) -> None:
        """Refresh the snapshot after each compaction, and be a broker, until the task is cancelled.

        Raises:
            OffsetlakeError: This process cannot be a broker of its cluster any longer.
        """
        components = self._components
        if self._returning is not None and self._broker is not None:
            await self._returning.run()
            await self._broker.stop()
            await self._returning.unregister()
            return
        refresh = SnapshotRefresh(
            self._settings, components.store, components.writes, components.appender, self._reading
        )
        tasks = [asyncio.create_task(refresh.run())]
        broker = self._broker
        if broker is not None and components.deleted_topics is not None:
            tasks.append(asyncio.create_task(broker.run()))
            tasks.append(asyncio.create_task(components.deleted_topics.run(lambda: broker.epoch)))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Finish the requests under way and send their answers; after an internal error, return at once."""
        components = self._components
        if self._broker is not None:
            await self._broker.stop()
        if components.writes.fault.done():
            return
        components.rewinds.stop()
        if self._http is not None:
            await self._http.close()
        await self.job_socket.close()
        for watch in self._watch_tasks:
            watch.cancel()
        if self._share_acceptor is not None:
            self._share_acceptor.close()
        if components.share is not None:
            await components.share.close()
        await components.reads.close()
        components.dispatcher.close()
        with contextlib.closing(components.appender):
            try:
                if not components.store.loading:
                    await components.writes.drain()
            finally:  # answers are sent even if the log is broken
                for connection, _ in components.security.connections:
                    connection.close()
                components.appender.sync()
            if components.dual_commits is not None:
                await components.dual_commits.close()


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
        await server.job_socket.open()
        if await _run_until(uncollected(server.load()), stopping, server.fault):
            await _run_until(server.run(), stopping, server.fault)
        if server.fault.done():
            raise OffsetlakeError(
                "An internal error occurred (see the stack trace in the log), and the served offsets may be wrong. The "
                "server exits; its next start reads the log again."
            )
    finally:
        watching.cancel()
        listening.close()
        await server.close()


async def _run_until(work: Coroutine[None, None, None], *stops: "asyncio.Future[Any]") -> bool:
    """Run `work` until it is done or one of `stops` is, which cancels it; return whether it was done."""
    task = asyncio.create_task(work)
    await asyncio.wait((task, *stops), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return False
