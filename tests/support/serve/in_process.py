"""A server without sockets, over a copy of the log of a real broker that has groups of all kinds."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from offsetlake.cli.serve_process import composed
from offsetlake.errors import LogUnavailable
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol import wire
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot
from offsetlake.serve.storage.snapshot_build import build
from offsetlake.share.share_groups import ShareGroups
from support.serve.kio_requests import answered, request

BROKER_LOG = Path(__file__).parents[2] / "fixtures" / "broker-log"
LOG_PARTITIONS = 50
HOST, PORT = "served.example", 9099
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Origin:
    """The initial state of a server of the broker's log: its mapped snapshot, and the log end offsets."""

    base: MappedSnapshot
    ends: dict[int, int]


class InProcess:
    """A server whose log is a copy in `folder`; `loop` runs while a response is awaited."""

    def __init__(
        self, folder: Path, origin: Origin, named: Mapping[bytes, int] | None = None, quota: float | None = None
    ) -> None:
        self.log, self.lake, self._origin = folder / "log", folder / "lake", origin
        if not self.log.exists():
            shutil.copytree(BROKER_LOG, self.log)
        self.loop = asyncio.new_event_loop()
        topics = None if named is None else {name.decode(): partitions for name, partitions in named.items()}
        settings = Settings(str(self.lake), str(self.log), "127.0.0.1", 0, topics, log_partitions=LOG_PARTITIONS)
        settings = replace(settings, http=("127.0.0.1", 0), commits_per_second=quota)
        self.parts = parts = composed(settings, Security(settings), self.loop)
        self.share = next(feature for feature in parts.features if isinstance(feature, ShareGroups))
        self.store, self.topics, self.writes, self.appender = parts.store, parts.topics, parts.writes, parts.appender
        self.commits, self.transactions, self.admin = parts.commits, parts.transactions, parts.dispatcher
        parts.cluster_apis.address = HOST, PORT
        self.client = Client()
        self.reconnect()

    def reconnect(self) -> None:
        """Continue as on a new connection."""
        self._service = Service(self.commits, self.parts.fetches, self.admin, self.client)

    def load(self) -> None:
        """Load the log, as a server does at its start."""
        self.parts.load(self._origin.base, self._origin.ends)
        self.loop.run_until_complete(self.share.load_states())
        self.loop.run_until_complete(self.parts.membership.load())

    def ask(self, api: int, version: int, **values: Any) -> dict[str, Any]:
        """Send a request, and return the response as plain values."""
        return answered(api, version, self.answer(request(api, version, values)))

    def answer(self, frame: bytes) -> bytes:
        """Return the response to a request, both as bytes."""
        return self.wait(self.start(frame))

    def start(self, frame: bytes) -> "asyncio.Future[bytes]":
        """Start a request; others can be started before its response is awaited."""
        future: asyncio.Future[bytes] = self.loop.create_future()
        self._service.take(frame, wire.read_header(frame), given_to(future))
        return future

    def wait(self, answer: "asyncio.Future[bytes]") -> bytes:
        """Wait for a response."""
        return self.loop.run_until_complete(asyncio.wait_for(answer, SECONDS))

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fail all writes to the log inside `with`, as on a full disk."""

        def full(*_: object) -> NoReturn:
            raise LogUnavailable("The disk is full.")

        with patch.object(self.appender, "append", full):
            yield

    def close(self) -> None:
        """Release the log and the event loop."""
        self.loop.run_until_complete(self.parts.reads.close())
        self.writes._sync_thread.shutdown()  # a sync under way would fail in a later test
        self.appender.close()
        self.loop.close()


def given_to(future: "asyncio.Future[bytes]") -> Answer:
    """Return a function that sets a future to the response, which it accepts in pieces."""
    return lambda *body: future.set_result(b"".join(body))


def built(lake: Path, log: Path, ends: Mapping[int, int] | None = None) -> Origin:
    """Build a snapshot of a log, in this process: the first one, or without the repair of the log up to log ends."""
    with tempfile.TemporaryFile() as file:
        request = {"lake": str(lake), "log": str(log), "ends": ends, "log_partitions": LOG_PARTITIONS}
        with patch.object(os, "nice"):
            answer = build(request | {"files": [file.fileno()]})
        return Origin(MappedSnapshot(file.fileno()), answer["ends"])
