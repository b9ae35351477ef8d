"""Taking over snapshots when something fails on the way: nothing that was acknowledged goes, and the server goes on."""

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
from offsetlake.serve.writes.rounds import MANY
from support.serve import commands
from support.serve.in_process import SECONDS, InProcess
from support.serve.kio_requests import answered, request

GROUP, TOPIC = "billing", "orders"


@pytest.fixture
def folding(served: InProcess) -> SnapshotRefresh:
    return SnapshotRefresh(served.parts.settings, served.store, served.writes, served.appender, asyncio.Lock())


def wait(served: InProcess, work: Coroutine[Any, Any, Any]) -> None:
    served.loop.run_until_complete(asyncio.wait_for(work, SECONDS))


def assert_serves(served: InProcess, offset: int) -> None:
    """What was committed stands, and more can be."""
    assert commands.stored(served, GROUP)[TOPIC, 0] == offset
    assert not served.store.frozen
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
def test_what_cannot_be_taken_over_is_said_and_tried_again(
    served: InProcess,
    folding: SnapshotRefresh,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    name: str,
    fails: Callable[..., Any],
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0
    compactions = Path(served.parts.settings.lake, "offsets", "_delta_log")
    compactions.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(module, "LOOK", 0)
    caplog.set_level(logging.WARNING)

    async def compact_twice() -> None:
        run = asyncio.create_task(folding.run())
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
        "the tables could not be taken over, what is served goes on"
    ] * 2
    assert_serves(served, 100)


def test_a_sync_that_fails_as_a_layer_is_frozen_thaws_it(
    served: InProcess, folding: SnapshotRefresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0
    served.appender.append(0, [record_batch(1, [(b"k", b"v")])])
    served.writes.make_due()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", _no_more)
        with pytest.raises(LogUnavailable):
            wait(served, folding._fold())
    assert served.writes.broken
    assert (served.store.thaws, served.store.frozen) == (1, {})
    assert commands.stored(served, GROUP)[TOPIC, 0] == 100


def test_a_fold_that_is_cancelled_while_it_waits_for_its_turn_keeps_nobody_from_writing(
    served: InProcess, folding: SnapshotRefresh
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0

    async def cancel() -> None:
        fold = asyncio.create_task(folding._fold())
        await asyncio.sleep(0)
        fold.cancel()
        await asyncio.wait([fold])

    wait(served, cancel())
    assert_serves(served, 100)
    assert served.store.thaws == 0


def test_a_fold_begins_while_a_thread_waits_for_the_disk(
    served: InProcess, folding: SnapshotRefresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments it opens must not get in the way of the sync."""

    async def fail(*_: object) -> None:
        raise ChildFailed("nothing is made", 1)

    monkeypatch.setattr(module, "build", fail)
    fdatasync, folds = os.fdatasync, list[asyncio.Task[None]]()

    async def begin() -> None:
        if not folds:
            folds.append(asyncio.create_task(folding._fold()))
        for _ in range(3):
            await asyncio.sleep(0)

    def meanwhile(file: int) -> None:
        asyncio.run_coroutine_threadsafe(begin(), served.loop).result(SECONDS)
        fdatasync(file)

    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    values = {"group_id": GROUP, "topics": [{"name": TOPIC, "partitions": rows}]}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", meanwhile)
        answers = [served.start(request(OFFSET_COMMIT, 9, values)) for _ in range(MANY)]
        told = [answered(OFFSET_COMMIT, 9, served.wait(answer)) for answer in answers]
    assert {of["topics"][0]["partitions"][0]["error_code"] for of in told} == {0}
    with pytest.raises(ChildFailed):
        wait(served, asyncio.wait_for(folds[0], SECONDS))
    assert_serves(served, 7)
