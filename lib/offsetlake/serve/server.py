"""The serving process: it owns the log, loads it, listens for clients and ends on a signal."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from offsetlake.errors import OffsetlakeError
from offsetlake.log.disk.lacking import LACKING_REMEDY
from offsetlake.log.disk.segments import partition_folders
from offsetlake.log.positions import OFFSETS_TOPIC, LogPartition
from offsetlake.log.writer.ownership import disk_errors, owned
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.core import Core
from offsetlake.serve.garbage import without_collections
from offsetlake.serve.metrics.traffic import MeasuredRequests
from offsetlake.serve.net.accept import accept
from offsetlake.serve.net.acceptor import Acceptor
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection, Requests
from offsetlake.serve.net.descriptors import limit_connections
from offsetlake.serve.net.login import Login
from offsetlake.serve.net.security import Security
from offsetlake.serve.settings import Settings
from offsetlake.serve.snapshot_refresh import SnapshotRefresh, build
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.util.atomic_files import to_disk

LOG = logging.getLogger(__name__)
SWITCH_INTERVAL_SECONDS = 0.0005
"""How long the thread that synced the log waits for the busy event loop, up to three times."""

Compose = Callable[[Settings, Security, asyncio.AbstractEventLoop], Core]
"""Returns the core of a serving process, with its features."""


def serve(settings: Settings, compose: Compose) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        LogBusy: Another process writes to the log.
        LogUnavailable, LogMismatch, LakeUnusable: The log or the lake cannot be used.
        BadRequest: The address, the certificate, the credentials or the ACL cannot be used.
        OffsetlakeError: An internal error ended the server.
    """
    settings = limit_connections(settings)
    folder, security = Path(settings.log), Security(settings)
    create_log(folder, settings.log_partitions)
    with owned(folder, "serve"):
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        uvloop.run(_serve(settings, security, compose))


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

    def __init__(self, core: Core) -> None:
        self._core = core
        self._replacing = next((feature for feature in core.features if feature.replaces_groups), None)

    async def listen(self) -> Acceptor:
        """Listen for clients, whose requests fail with COORDINATOR_LOAD_IN_PROGRESS (14) until the log is loaded.

        Raises:
            BadRequest: An address cannot be used.
        """
        core, host = self._core, self._core.settings.host
        login = partial(Login, core.security, core.dispatcher.take, self._connect, core.loop)
        acceptor, port = await accept(host, core.settings.port, core.security, login, core.loop)
        core.cluster_apis.address = core.settings.advertised or (host, port)
        LOG.info("Listening on %(host)s:%(port)d", {"host": host, "port": port})
        return acceptor

    def _connect(self, client: Client) -> Connection:
        core = self._core
        requests: Requests = Service(core.commits, core.fetches, core.dispatcher, client)
        if core.traffic is not None:
            requests = MeasuredRequests(requests, core.traffic)
        return Connection(requests, client, core.security.connections, core.turns)

    async def start(self) -> None:
        """Start what answers before the log is loaded; raise errors as `Feature.start`."""
        for feature in self._core.features:
            await feature.start()
        await self._core.job_socket.open()

    async def load(self) -> None:
        """Load the lake and the log, and all features.

        Raises:
            ChildFailed: The snapshot cannot be built.
            LogMismatch, LogUnavailable: The transaction log cannot be used.
            OffsetlakeError: See `Feature`.
        """
        core = self._core
        if self._replacing is not None:
            await self._replacing.join()
            return
        snapshot, ends = await build(core.settings, None)
        for feature in core.features:
            await feature.join()
        core.load(snapshot, ends)
        core.watch(core.transactions.watch())
        core.watch(core.writes.watch())
        self._warn_of_unknown(snapshot)
        self._warn_of_lacking(snapshot)
        fields = {"offsets": len(snapshot), "groups": len(snapshot.groups)}
        LOG.info("Serving %(offsets)d offsets in %(groups)d groups", fields)
        for feature in core.features:
            await feature.offsets_served()
        await core.membership.load()
        for feature in core.features:
            await feature.groups_served()

    def _warn_of_unknown(self, snapshot: MappedSnapshot) -> None:
        if snapshot.unknown:
            names = sorted(name.decode() for name in snapshot.unknown)
            LOG.warning(
                "Records of %(count)d groups cannot be decoded, so nothing of these groups is deleted, and their "
                "unknown offsets are answered with KAFKA_STORAGE_ERROR, until later records replace them: %(names)s. "
                "`offsetlake run` stores the records in `quarantine`",
                {"count": len(names), "names": ", ".join(names[:10])},
            )

    def _warn_of_lacking(self, snapshot: MappedSnapshot) -> None:
        for topic, numbers in snapshot.not_read.items():
            LOG.warning(
                "NOT READ: the log %(log)s lacks %(topic)s-%(numbers)s. Requests of their groups fail with "
                "COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR, which clients retry. %(remedy)s",
                {"log": self._core.settings.log, "topic": topic, "numbers": ", ".join(map(str, sorted(numbers)))}
                | {"remedy": LACKING_REMEDY},
            )
        for partition, offsets in snapshot.missing.items():
            LOG.warning(
                "INCOMPLETE: the log %(log)s lacks the log offsets %(offsets)s of %(partition)s. Groups and offsets in "
                "it may be missing, or older than they were: serve a complete copy of the log, with a new lake",
                {"log": self._core.settings.log, "offsets": offsets, "partition": partition},
            )

    async def run(self) -> None:
        """Refresh the snapshot after each compaction, and do the work of features, until the task is cancelled.

        Raises:
            OffsetlakeError: See `Feature.run`.
        """
        core = self._core
        if self._replacing is not None:
            await self._replacing.run()
            return
        refresh = SnapshotRefresh(core.settings, core.store, core.writes, core.appender, core.reading)
        tasks = [asyncio.create_task(work) for work in (refresh.run(), *(each.run() for each in core.features))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Finish the requests under way and send their answers; after an internal error, return at once."""
        core, features = self._core, [*reversed(self._core.features)]
        for feature in features:
            await feature.stop()
        if core.writes.fault.done():
            return
        core.rewinds.stop()
        for feature in features:
            await feature.close()
        await core.job_socket.close()
        core.end_watched()
        await core.reads.close()
        with contextlib.closing(core.appender):
            try:
                if not core.store.loading:
                    await core.writes.drain()
            finally:  # answers are sent even if the log is broken
                for connection, _ in core.security.connections:
                    connection.close()
                core.appender.sync()
            for feature in features:
                await feature.end()


async def _serve(settings: Settings, security: Security, compose: Compose) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: security.reload(force=True))
    core = compose(settings, security, loop)
    server, fault = Server(core), core.writes.fault
    listening = await server.listen()
    stopping, watching = asyncio.create_task(stop.wait()), asyncio.create_task(security.run())
    try:
        await server.start()
        if await _run_until(without_collections(server.load()), stopping, fault):
            await _run_until(server.run(), stopping, fault)
        if fault.done():
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
