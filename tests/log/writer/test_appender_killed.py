"""A writer killed by SIGKILL at any write: the log opens again, and holds whole batches and all that was synced."""

import io
import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.log.disk.segment_bytes import end_of
from offsetlake.log.writer import appender as appender_module
from offsetlake.log.writer import journal as journal_module
from offsetlake.log.writer import journaling as journaling_module
from offsetlake.log.writer.appender import Appender
from offsetlake.log.writer.appending import appending
from offsetlake.log.writer.recovery import recover
from support.log.made_folders import PARTITION, batch, write
from support.oracle.log_reader import read_log
from support.oracle.log_writer import batch_bytes

T = 1_700_000_000_000
BATCHES, PARTITIONS = 8, 2
TORN = batch_bytes(batch(3, 2))[:-1]

WRITES = {"mkdir", "fsync", "fdatasync"}
JOURNAL_WRITES = {"posix_fallocate", "rename", "pwrite", "unlink"}
Report = Callable[[object], None]


def made(partition: int, number: int) -> Batch:
    """A batch of two records that say which of the partition's they are."""
    return record_batch(T, [(b"%d %d" % (partition, 2 * number + at), b"x" * 30) for at in range(2)])


class Kill:
    """Ends this process at the write of this number: right before it, or in the middle of bytes that are written."""

    def __init__(self, at: int, report: Report) -> None:
        self._at, self._count, self._report = at, itertools.count(1), report
        for name in WRITES | JOURNAL_WRITES:
            setattr(os, name, self._before(name, getattr(os, name)))
        appender_module.FileIO = journal_module.FileIO = self._file()  # type: ignore[misc]

    def _met(self, name: str) -> bool:
        is_met = next(self._count) == self._at  # also if two threads write
        if is_met:
            self._report({"at": name})
        return is_met

    def _before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            if self._met(name):
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return write

    def _file(self) -> type[io.FileIO]:
        kill = self

        class Killing(io.FileIO):
            def write(self, data: Any) -> int:
                if kill._met("write"):
                    super().write(bytes(data)[: len(data) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().write(data)

        return Killing


def killed_at(at: int, work: Callable[[Report], object]) -> tuple[list[Any], bool]:
    """Run work in a child that is killed at this write; what it reported, and whether it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:

        def report(said: object) -> None:
            os.write(writing, json.dumps(said).encode() + b"\n")

        try:
            Kill(at, report)
            work(report)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as told:
        said = [json.loads(line) for line in told]
    return said, os.WIFSIGNALED(os.waitpid(child, 0)[1])


def kills(prepare: Callable[[], object], work: Callable[[Report], object]) -> Iterator[list[Any]]:
    """Kill at the first write, at the second and so on, until one lives; what each has reported."""
    at, killed = 0, True
    while killed:
        at += 1
        prepare()
        said, killed = killed_at(at, work)
        yield said


@contextmanager
def opened_as_a_server_does(folder: Path) -> Iterator[Appender]:
    recover(folder)
    appender = Appender(folder, lambda segment: end_of(segment.path, segment.base_offset)[0], journaled=True)
    with closing(appender):
        yield appender


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("journaled", [False, True])
def test_a_writer_killed_at_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, journaled: bool) -> None:
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 300)
    monkeypatch.setattr(journal_module, "PARTS", 2)
    monkeypatch.setattr(journaling_module, "PARTS", 2)
    monkeypatch.setattr(journal_module, "PART_BYTES", 1024)
    monkeypatch.setattr(journal_module, "_SIZE", 2560)

    def write_all(report: Report) -> None:
        log = tmp_path / "log"
        with opened_as_a_server_does(log) if journaled else appending(log, "killed") as appender:
            for number in range(BATCHES):
                for partition in range(PARTITIONS):
                    appender.append(partition, [made(partition, number)])
                appender.sync()
                report({"synced": number})
        report({"ended": True})

    met = set()
    for said in kills((tmp_path / "log").mkdir, write_all):
        synced = max((line["synced"] for line in said if "synced" in line), default=-1) + 1
        if {"ended": True} not in said:
            met |= {line["at"] for line in said if "at" in line}
        _whole_and_all_that_was_synced(tmp_path / "log", synced)
        shutil.rmtree(tmp_path / "log")
    assert met == WRITES | {"write"} | (JOURNAL_WRITES if journaled else set())


def _whole_and_all_that_was_synced(log: Path, synced: int) -> None:
    with appending(log, "next") as appender:
        ends = [appender.end(partition) for partition in range(PARTITIONS)]
        for partition, end in enumerate(ends):
            assert end % 2 == 0, "a batch is whole or not there"
            assert 2 * synced <= end <= 2 * (synced + 1)
            appender.append(partition, [made(partition, end // 2)])
    for partition, end in enumerate(ends):
        found = [(r.log_offset, r.key) for r in read_log(log) if r.log_partition == partition]
        assert found == [(offset, b"%d %d" % (partition, offset)) for offset in range(end + 2)]


@pytest.mark.slow
def test_the_cutting_of_a_torn_tail_killed_at_each_write(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def torn() -> None:
        (segment,) = write(log, [batch(0, 3)])
        with segment.open("ab") as file:
            file.write(TORN)

    def opened(_: Report) -> None:
        with appending(log, "killed"):
            pass

    killed = 0
    for said in kills(torn, opened):
        killed += len(said)
        with appending(log, "next") as appender:
            assert appender.end(0) == 3
            assert appender.append(0, [record_batch(T, [(b"next", None)])]) == [3]
        assert [record.log_offset for record in read_log(log)] == [0, 1, 2, 3]
        assert [path.read_bytes() for path in (log / str(PARTITION)).glob("*.torn")] == [TORN]
        shutil.rmtree(log)
    assert killed == 3, "before the bytes are kept, their name is, they are cut off"
