"""When the door of a log is open, and what its owner's beginning and end are to those who come in."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.errors import LogBusy, LogUnavailable
from offsetlake.log.address import LogAddress
from offsetlake.log.writer import append_protocol
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.served_log import served
from offsetlake.pipeline.emit.log_writer import LogWriter, open_writer
from offsetlake.serve.settings import Settings
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.job_socket import JobSocket
from offsetlake.serve.writes.rounds import Flush, Write, Writes
from support.serve.job_socket_requests import LOG_PARTITIONS, commit, fetched, place, tombstones
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

_EMPTY: Any = SimpleNamespace(pending=())
_HEAVY = ("numpy", "pyarrow", "numba", "deltalake", "pandas", "pyspark")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def serve(log: Path) -> Serving:
    return Serving(log.parent / "lake", log, log_partitions=LOG_PARTITIONS)


def test_the_owner_imports_nothing_heavy() -> None:
    program = f"import sys, offsetlake.serve.server; print([name for name in {_HEAVY} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


@pytest.mark.slow
def test_an_owner_that_was_killed_leaves_a_door_that_leads_nowhere(log: Path) -> None:
    with serve(log) as serving, WireClient(serving.bootstrap) as client, served(log) as job:
        assert job is not None
        for group in ("kept", "gone"):
            commit(client, group, {0: 5})
            job.end(place(group))
        [gone] = job.append(place("gone"), [tombstones("gone", 0)])
        assert gone >= 0
        serving.kill()
        with pytest.raises(LogUnavailable, match=r"has gone .* stays planned; run it again"):
            job.append(place("kept"), [tombstones("kept", 0)])
    assert (log / append_protocol.SOCKET).is_socket()
    with open_writer(LogAddress(folder=log), "test") as writer:
        assert isinstance(writer, LogWriter)
        assert writer.end(place("gone")) >= gone + 1
    with appending(log, "test"), pytest.raises(LogBusy, match="test"), open_writer(LogAddress(folder=log), "other"):
        pass
    with serve(log) as serving, WireClient(serving.bootstrap) as client, served(log) as job:
        assert job is not None, "the next owner opens it again"
        assert (fetched(client, "kept", 0), fetched(client, "gone", 0)) == ([5], [-1])
        job.end(0)
        assert serving.stop() == 0, "who only stands in the door keeps nobody from going"
        with pytest.raises(LogUnavailable, match="has gone"):
            job.sync()
    assert not (log / append_protocol.SOCKET).exists()
    assert not [line for line in serving.said if "Traceback" in line]
    with served(log) as job:
        assert job is None


class Owner:
    """A door alone, in a thread of its own, over a log of which `store` and `writes` are at hand."""

    def __init__(self, log: Path, flush: Flush) -> None:
        self.log, self.flush = log, flush
        self.store = Store()
        self.loop: asyncio.AbstractEventLoop
        self.writes: Writes
        self.door: JobSocket
        self.stop: asyncio.Event
        self._opened = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Owner":
        self.log.mkdir()
        self._thread.start()
        assert self._opened.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.stop.is_set():
            self.loop.call_soon_threadsafe(self.stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
        self.appender = Appender(self.log, lambda _: 0)
        self.writes = Writes(self.appender, self.flush, self.loop)
        settings = Settings("lake", str(self.log), "", 0, log_partitions=1)
        self.door = JobSocket(settings, self.store, self.writes, self.appender, lambda _: 0, asyncio.Lock())
        await self.door.open()
        self._opened.set()
        await self.stop.wait()
        await self.door.close()
        self.appender.close()


def test_while_the_log_is_loaded_jobs_are_told_to_wait(log: Path) -> None:
    with Owner(log, Flush.ALWAYS), pytest.raises(LogBusy, match="still loads it: try again"), served(log):
        pass


@pytest.mark.parametrize("flush", Flush)
def test_sync_brings_to_the_disk_whatever_the_flush_is(
    log: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Owner(log, flush) as owner:
        owner.store.load(_EMPTY)
        with served(log) as job:
            assert job is not None
            job.end(0)
            synced = []
            sync = Appender.sync

            def counted(of: Appender) -> None:
                sync(of)
                synced.append(of)

            monkeypatch.setattr(Appender, "sync", counted)
            job.append(0, [tombstones("g", 0)])
            before = len(synced)
            job.sync()
            assert len(synced) > before


def test_a_disk_that_fails_is_said(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Appender) -> None:
        raise LogUnavailable("no more disk")

    with Owner(log, Flush.ALWAYS) as owner:
        owner.store.load(_EMPTY)
        with served(log) as job:
            assert job is not None
            job.end(0)
            monkeypatch.setattr(Appender, "sync", failing)
            with pytest.raises(LogUnavailable, match="no more disk"):
                job.append(0, [tombstones("g", 0)])
            with pytest.raises(LogUnavailable, match="no more disk"):
                job.end(0)


def test_what_was_asked_before_the_end_is_done(log: Path) -> None:
    """The owner closes while a write is under way: it is finished and answered."""
    with Owner(log, Flush.ALWAYS) as owner:
        owner.store.load(_EMPTY)
        with served(log) as job:
            assert job is not None
            job.end(0)
            queue = owner.writes.add

            def add(write: Write) -> None:
                owner.stop.set()
                owner.loop.call_later(0.05, queue, write)

            owner.writes.add = add  # type: ignore[method-assign]
            assert job.append(0, [tombstones("g", 0)]) == [0]
            with pytest.raises(LogUnavailable, match="has gone"):
                job.sync()


def test_what_is_folded_is_still_known_to_be_new() -> None:
    store = Store()
    store.load(_EMPTY)
    store.commit(b"before", {}, 3)
    store.watch()
    store.commit(b"g", {}, 4)
    store.freeze()
    store.delete_offsets(b"h", [], 5)
    store.fold(_EMPTY)
    store.delete_group(b"i", 6)
    assert [store.newest(name) for name in (b"before", b"g", b"h", b"i")] == [-1, 4, 5, 6]
    store.watch()
    store.unwatch()
    assert store.newest(b"g") == 4
    store.unwatch()
    assert store.newest(b"g") == -1
