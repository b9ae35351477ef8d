"""Snapshot refreshes that fail: no acknowledged commit is lost, and serving continues."""

import asyncio
import errno
import logging
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import record_batch
from offsetlake.log.writer.appender import Appender
from offsetlake.serve import snapshot_refresh as module
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT
from offsetlake.serve.snapshot_refresh import SnapshotRefresh
from offsetlake.serve.storage.child_process import ChildFailed
from offsetlake.serve.writes.rounds import MIN_THREAD_SYNC_WRITES
from support.serve import commands
from support.serve.in_process import SECONDS, InProcess
from support.serve.kio_requests import answered, request

GROUP, TOPIC = "billing", "orders"


@pytest.fixture
def refresh(served: InProcess) -> SnapshotRefresh:
    return SnapshotRefresh(served.parts.settings, served.store, served.writes, served.appender, asyncio.Lock())


def wait(served: InProcess, work: Coroutine[Any, Any, Any]) -> None:
    served.loop.run_until_complete(asyncio.wait_for(work, SECONDS))


def assert_serves(served: InProcess, offset: int) -> None:
    """Assert that the committed offset is served and that commits are accepted."""
    assert commands.stored(served, GROUP)[TOPIC, 0] == offset
    assert not served.store.immutable_memtable
    assert commands.commit(served, GROUP, TOPIC, 0, offset + 1) == 0
    assert commands.stored(served, GROUP)[TOPIC, 0] == offset + 1


def _no_more(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _no_segment(_: Appender, _partition: int) -> int:
    raise LogUnavailable("no such segment")


@pytest.mark.parametrize(
    ("where", "name", "fails"),
    [
        (Appender, "end", _no_segment),
        (tempfile, "TemporaryFile", _no_more),
        (asyncio, "create_subprocess_exec", _no_more),
    ],
)
def test_failed_refresh_is_logged_and_retried_while_serving_continues(
    served: InProcess,
    refresh: SnapshotRefresh,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    name: str,
    fails: Callable[..., Any],
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0
    compactions = Path(served.parts.settings.lake, "offsets", "_delta_log")
    compactions.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(module, "CHECK_INTERVAL_SECONDS", 0)
    caplog.set_level(logging.WARNING)

    async def compact_twice() -> None:
        run = asyncio.create_task(refresh.run())
        for number in (1, 2):
            (compactions / f"9{number}.json").touch()
            while len(caplog.messages) < number and not run.done():
                await asyncio.sleep(0)
        assert not run.done()
        run.cancel()

    with monkeypatch.context() as patched:
        patched.setattr(where, name, fails)
        wait(served, compact_twice())
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "The snapshot refresh failed, serving continues from the current snapshot"
    ] * 2
    assert_serves(served, 100)


def test_failed_sync_before_a_refresh_merges_the_immutable_memtable_back(
    served: InProcess, refresh: SnapshotRefresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0
    served.appender.append(0, [record_batch(1, [(b"k", b"v")])])
    served.writes.require_sync()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _no_more)
        with pytest.raises(LogUnavailable):
            wait(served, refresh._refresh())
    assert served.writes.broken
    assert (served.store.failed_refreshes, served.store.immutable_memtable) == (1, {})
    assert commands.stored(served, GROUP)[TOPIC, 0] == 100


def test_refresh_cancelled_while_it_is_queued_does_not_block_writes(
    served: InProcess, refresh: SnapshotRefresh
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0

    async def cancel() -> None:
        task = asyncio.create_task(refresh._refresh())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    wait(served, cancel())
    assert_serves(served, 100)
    assert served.store.failed_refreshes == 0


def test_refresh_can_begin_while_a_thread_waits_for_a_sync(
    served: InProcess, refresh: SnapshotRefresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments that the refresh opens must not interfere with the sync."""

    async def fail(*_: object) -> None:
        raise ChildFailed("the build failed", 1)

    monkeypatch.setattr(module, "build", fail)
    fdatasync, refreshes = os.fdatasync, list[asyncio.Task[None]]()

    async def begin() -> None:
        if not refreshes:
            refreshes.append(asyncio.create_task(refresh._refresh()))
        for _ in range(3):
            await asyncio.sleep(0)

    def begin_then_sync(file: int) -> None:
        asyncio.run_coroutine_threadsafe(begin(), served.loop).result(SECONDS)
        fdatasync(file)

    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    values = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": rows}]}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", begin_then_sync)
        answers = [served.start(request(OFFSET_COMMIT, 9, values)) for _ in range(MIN_THREAD_SYNC_WRITES)]
        bodies = [answered(OFFSET_COMMIT, 9, served.wait(answer)) for answer in answers]
    assert {body["topics"][0]["partitions"][0]["error_code"] for body in bodies} == {0}
    with pytest.raises(ChildFailed):
        wait(served, asyncio.wait_for(refreshes[0], SECONDS))
    assert_serves(served, 7)
