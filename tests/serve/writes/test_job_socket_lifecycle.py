"""The life cycle of the job socket: jobs while the server loads, stops or is killed."""

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

_EMPTY: Any = SimpleNamespace(pending=(), groups_not_read=frozenset())
_HEAVY = ("numpy", "pyarrow", "numba", "deltalake", "pandas", "pyspark")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def serve(log: Path) -> Serving:
    return Serving(log.parent / "lake", log, log_partitions=LOG_PARTITIONS)


def test_server_imports_no_heavy_module() -> None:
    program = f"import sys, offsetlake.cli.serve_process; print([name for name in {_HEAVY} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


@pytest.mark.long
@pytest.mark.slow
def test_job_socket_of_a_killed_server_is_ignored_and_replaced(log: Path) -> None:
    with serve(log) as serving, WireClient(serving.bootstrap) as client, served(log) as job:
        assert job is not None
        for group in ("kept", "gone"):
            commit(client, group, {0: 5})
            job.end(place(group))
        [gone] = job.append(place("gone"), [tombstones("gone", 0)])
        assert gone >= 0
        serving.kill()
        with pytest.raises(LogUnavailable, match=r"does not answer.* stay planned. Run the command again"):
            job.append(place("kept"), [tombstones("kept", 0)])
    assert (log / append_protocol.SOCKET).is_socket()
    with open_writer(LogAddress(folder=log), "test") as writer:
        assert isinstance(writer, LogWriter)
        assert writer.end(place("gone")) >= gone + 1
    with appending(log, "test"), pytest.raises(LogBusy, match="test"), open_writer(LogAddress(folder=log), "other"):
        pass
    with serve(log) as serving, WireClient(serving.bootstrap) as client, served(log) as job:
        assert job is not None, "the next server creates the socket again"
        assert (fetched(client, "kept", 0), fetched(client, "gone", 0)) == ([5], [-1])
        job.end(0)
        assert serving.stop() == 0, "an idle job does not delay the end of the server"
        with pytest.raises(LogUnavailable, match="does not answer"):
            job.sync()
    assert not (log / append_protocol.SOCKET).exists()
    assert not [line for line in serving.said if "Traceback" in line]
    with served(log) as job:
        assert job is None


class Owner:
    """Runs a job socket in a thread of its own, with access to its `store` and `writes`."""

    def __init__(self, log: Path, flush: Flush) -> None:
        self.log, self.flush = log, flush
        self.store = Store()
        self.loop: asyncio.AbstractEventLoop
        self.writes: Writes
        self.job_socket: JobSocket
        self.stop: asyncio.Event
        self._opened = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Owner":
        self.log.mkdir()
        self._thread.start()
        assert self._opened.wait(120)
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
        others: Any = lambda _: 0, asyncio.Lock(), SimpleNamespace()
        self.job_socket = JobSocket(settings, self.store, self.writes, self.appender, *others)
        await self.job_socket.open()
        self._opened.set()
        await self.stop.wait()
        await self.job_socket.close()
        self.appender.close()


def test_jobs_are_refused_while_the_log_is_loading(log: Path) -> None:
    with Owner(log, Flush.ALWAYS), pytest.raises(LogBusy, match="still loading it"), served(log):
        pass


@pytest.mark.parametrize("flush", Flush)
def test_sync_request_syncs_with_any_flush_setting(log: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch) -> None:
    with Owner(log, flush) as owner:
        owner.store.load(_EMPTY)
        with served(log) as job:
            assert job is not None
            job.end(0)
            synced = []
            sync = Appender.sync

            def counted(appender: Appender) -> None:
                sync(appender)
                synced.append(appender)

            monkeypatch.setattr(Appender, "sync", counted)
            job.append(0, [tombstones("g", 0)])
            before = len(synced)
            job.sync()
            assert len(synced) > before


def test_failed_sync_is_reported_to_jobs(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_write_under_way_is_finished_when_the_server_stops(log: Path) -> None:
    """The write is answered before the connection is closed."""
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
            with pytest.raises(LogUnavailable, match="does not answer"):
                job.sync()


def test_newest_log_offsets_of_groups_survive_a_refresh() -> None:
    store = Store()
    store.load(_EMPTY)
    store.commit(b"before", {}, 3)
    store.newest.watch()
    store.commit(b"g", {}, 4)
    store.begin_refresh()
    store.delete_offsets(b"h", [], 5)
    store.finish_refresh(_EMPTY)
    store.delete_group(b"i", 6)
    assert [store.newest.of(name) for name in (b"before", b"g", b"h", b"i")] == [-1, 4, 5, 6]
    store.newest.watch()
    store.newest.unwatch()
    assert store.newest.of(b"g") == 4
    store.newest.unwatch()
    assert store.newest.of(b"g") == -1
