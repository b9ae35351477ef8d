"""What answers requests, without sockets: over the log of a real broker that has groups of all kinds."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offsetlake.log.appender import Appender
from offsetlake.log.segments import Segment
from offsetlake.serve import wire
from offsetlake.serve.admin import Admin
from offsetlake.serve.base import Base
from offsetlake.serve.build import build
from offsetlake.serve.client import Client
from offsetlake.serve.offset_commit import OffsetCommit
from offsetlake.serve.offset_fetch import OffsetFetch
from offsetlake.serve.parts import Parts
from offsetlake.serve.service import Service
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics
from offsetlake.serve.traffic import Traffic
from offsetlake.serve.writes import Flush, Writes
from serve.asking import answered, request

BROKER_LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
LOG_PARTITIONS = 50
CLUSTER, HOST, PORT = "cluster-of-the-tests--", "served.example", 9099
SECONDS = 30


@dataclass(frozen=True, slots=True)
class Origin:
    """What a server of the broker's log begins with: its base, and where the log ends."""

    base: Base
    ends: dict[int, int]


class InProcess:
    """A service whose log is a copy in `folder`; `loop` runs while it is asked."""

    def __init__(self, folder: Path, origin: Origin, named: Mapping[bytes, int] | None = None) -> None:
        self.log, self.lake, self._origin = folder / "log", folder / "lake", origin
        shutil.copytree(BROKER_LOG, self.log)
        self.loop = asyncio.new_event_loop()
        self.appender = Appender(self.log, self._end_of)
        self.store, self.topics = Store(), Topics(named)
        self.writes = Writes(self.appender, Flush.ALWAYS, self.loop)
        commits = OffsetCommit(self.store, self.topics, self.writes, LOG_PARTITIONS)
        self.admin = Admin(self.store, self.topics, self.writes, commits.log_partition, CLUSTER)
        self.admin.address = HOST, PORT
        self._service = Service(commits, OffsetFetch(self.store, self.topics), self.admin, Client())
        self.parts = Parts(
            str(self.lake), self.store, self.topics, self.writes, self.appender, commits.log_partition, [], Counter,
            Traffic(),
        )  # fmt: skip

    def load(self) -> None:
        """Load what the log says, as a server does that begins."""
        base = self._origin.base
        self.topics.learn(base.known_topics)
        self.store.load(base)

    def ask(self, api: int, version: int, **values: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        return answered(api, version, self.answer(request(api, version, values)))

    def answer(self, frame: bytes) -> bytes:
        """Give the answer to a request as it comes from the wire."""
        return self.wait(self.start(frame))

    def start(self, frame: bytes) -> "asyncio.Future[bytes]":
        """Take a request; others may follow before its answer is waited for."""
        future: asyncio.Future[bytes] = self.loop.create_future()
        self._service.take(frame, wire.read_header(frame), future.set_result)
        return future

    def wait(self, answer: "asyncio.Future[bytes]") -> bytes:
        """Wait for an answer."""
        return self.loop.run_until_complete(asyncio.wait_for(answer, SECONDS))

    def close(self) -> None:
        """Let go of the log."""
        self.appender.close()
        self.loop.close()

    def _end_of(self, segment: Segment) -> int:
        return self._origin.ends[int(segment.path.parent.name.rpartition("-")[2])]


def built(lake: Path, log: Path) -> Origin:
    """Make a base of a log, in this process."""
    with tempfile.TemporaryFile() as file:
        asked = {"lake": str(lake), "log": str(log), "ends": None, "log_partitions": LOG_PARTITIONS}
        ends = build(asked | {"file": file.fileno()})["ends"]
        return Origin(Base(file.fileno()), ends)
