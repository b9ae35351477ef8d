"""Rounds in which an unexpected error occurs: the outcome of their other writes and of the rounds after them."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.log.writer.appender import Appender, LogInDoubt
from offsetlake.log.writer.served_log import served
from offsetlake.serve.settings import Settings
from offsetlake.serve.steps import Share
from offsetlake.serve.writes.rounds import MAX_ROUND_RECORDS, MIN_THREAD_SYNC_WRITES, Flush, Writes
from serve.writes.test_disk import committed, fetched
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

SECONDS = 120


class RecordingWrite:
    """A write that records its outcome; the method named `raises` raises an error."""

    exclusive, partition = False, 0

    def __init__(self, raises: str = "") -> None:
        self._raises = raises
        self.outcome: list[int] | LogUnavailable | None = None

    def _step(self, name: str) -> None:
        if self._raises == name:
            raise ZeroDivisionError(name)

    def batches(self) -> Sequence[Batch]:
        self._step("batches")
        return (record_batch(1, [(b"k", b"v")]),)

    def written(self, firsts: list[int]) -> None:
        self._step("written")
        self.outcome = firsts

    def failed(self, error: LogUnavailable) -> None:
        self._step("failed")
        self.outcome = error


class Rounds:
    """Runs rounds of writes to a log of one partition."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.appender = Appender(folder, lambda _: 0)
        self.writes = Writes(self.appender, Flush.ALWAYS, self.loop)

    def round(self, *writes: RecordingWrite) -> list[list[int] | LogUnavailable | None]:
        """Queue writes, wait until they are done, and return their outcomes."""
        for write in writes:
            self.writes.add(write)
        with suppress(LogUnavailable):
            self.loop.run_until_complete(asyncio.wait_for(self.writes.drain(), SECONDS))
        return [write.outcome for write in writes]


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    rounds = Rounds(tmp_path)
    yield rounds
    rounds.appender.close()
    rounds.loop.close()


def test_write_whose_batches_cannot_be_built_fails_alone(rounds: Rounds, caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = rounds.round(RecordingWrite(), RecordingWrite("batches"), RecordingWrite())
    assert (first, third) == ([0], [1])
    assert isinstance(second, LogUnavailable)
    assert rounds.round(RecordingWrite()) == [[2]]
    assert not rounds.writes.fault.done()
    assert "ZeroDivisionError: batches" in caplog.text


def test_durable_write_that_cannot_be_served_is_a_fault(rounds: Rounds, caplog: pytest.LogCaptureFixture) -> None:
    """The other writes of the round succeed, as they are durable; no write after it is accepted."""
    assert rounds.round(RecordingWrite(), RecordingWrite("written"), RecordingWrite()) == [[0], None, [2]]
    assert rounds.writes.fault.done()
    (outcome,) = rounds.round(RecordingWrite())
    assert isinstance(outcome, LogUnavailable)
    assert "ZeroDivisionError: written" in caplog.text


def test_error_while_reporting_a_full_disk_is_a_fault(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    full = LogUnavailable("no more disk")
    monkeypatch.setattr(Appender, "append", _raising(full))
    assert rounds.round(RecordingWrite(), RecordingWrite("failed"), RecordingWrite()) == [full, None, full]
    assert rounds.writes.fault.done()


@pytest.mark.parametrize("writes", [1, MIN_THREAD_SYNC_WRITES], ids=["sync in the event loop", "sync in a thread"])
@pytest.mark.parametrize("name", ["append", "sync"])
def test_no_write_is_accepted_after_an_unexpected_error_of_the_appender(
    rounds: Rounds, name: str, writes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The served offsets do not change and reads continue, as after an I/O error."""
    with monkeypatch.context() as patched:
        patched.setattr(Appender, name, _raising(ZeroDivisionError(name)))
        outcomes = rounds.round(*(RecordingWrite() for _ in range(writes)))
    assert {type(outcome) for outcome in [*outcomes, *rounds.round(RecordingWrite())]} == {LogInDoubt}
    assert not rounds.writes.fault.done()
    assert f"ZeroDivisionError: {name}" in caplog.text


def _raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.long
@pytest.mark.slow
def test_process_exits_after_a_fault_and_its_next_start_serves_the_log(tmp_path: Path) -> None:
    """Served offsets may be wrong after a fault; the next start reads the log."""
    program = (
        "import sys; from offsetlake.cli import serve_process; from offsetlake.serve.writes import offset_commit;"
        "offset_commit.PendingCommit.written = lambda *_: 1 / 0; sys.exit(serve_process.main())"
    )
    settings = Settings(str(tmp_path / "lake"), str(tmp_path / "log"), "127.0.0.1", 0, http=("127.0.0.1", 0))
    command = [sys.executable, "-c", program, settings.to_json()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = list(takewhile(lambda line: not re.search(r"Serving \d", line), process.stderr))
        (bootstrap,) = re.findall(r"Listening on (\S+)", "".join(lines))
        with WireClient(bootstrap) as client, served(tmp_path / "log") as job:
            assert job is not None
            job.end(0)
            with pytest.raises((EOFError, ConnectionError)):
                committed(client, "g", 1)
            last_lines = process.stderr.read()
        assert process.wait(SECONDS) == 1
    assert "ZeroDivisionError" in last_lines
    assert last_lines.splitlines()[-1].startswith("error: An internal error occurred")
    with Serving(tmp_path / "lake", tmp_path / "log") as serving, WireClient(serving.bootstrap) as client:
        assert fetched(client, "g") == [1, 1]


def test_commit_is_refused_if_the_log_is_moved_during_its_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a folder that was moved can still be synced; only a check of the folder detects it."""
    folder = tmp_path / "log"
    folder.mkdir()
    rounds = Rounds(folder)
    assert rounds.round(RecordingWrite()) == [[0]]
    rounds.writes.check_log()
    sync = rounds.appender.sync

    def synced() -> None:
        folder.rename(tmp_path / "elsewhere")
        rounds.loop.call_soon_threadsafe(rounds.writes.check_log)
        sync()

    monkeypatch.setattr(rounds.appender, "sync", synced)
    outcomes = rounds.round(*(RecordingWrite() for _ in range(MIN_THREAD_SYNC_WRITES)))
    assert all(isinstance(outcome, LogInDoubt) for outcome in outcomes)
    rounds.appender.close()
    rounds.loop.close()


def test_client_with_many_writes_does_not_delay_other_clients(rounds: Rounds) -> None:
    """The next write of another client is in the next round, and the writes of each client keep their order."""
    order: list[str] = []

    class Ordered(RecordingWrite):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def batches(self) -> Sequence[Batch]:
            order.append(self._name)
            return super().batches()

    hostile, other, light = Share(), Share(), Share()
    for number in range(2000):
        rounds.writes.add(Ordered(f"hostile {number}"), hostile)
    rounds.writes.add(Ordered("large"), other, 20_000)
    rounds.writes.add(Ordered("small after it"), other)
    rounds.loop.run_until_complete(asyncio.sleep(0))
    assert len(order) <= MAX_ROUND_RECORDS
    taken = len(order)
    rounds.writes.add(Ordered("light"), light)
    rounds.round()
    assert order.index("light") <= taken + 1
    assert [name for name in order if name.startswith("hostile")] == [f"hostile {number}" for number in range(2000)]
    assert order[-2:] == ["large", "small after it"]
