"""What becomes of a round in which something fails that nobody foresaw: the others of it, and those behind it."""

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
from offsetlake.serve.writes.rounds import MANY, MAX_ROUND_RECORDS, Flush, Writes
from serve.writes.test_disk import committed, fetched
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

SECONDS = 10


class Telling:
    """A write that says what it was told, but raises something in `raises`."""

    alone, partition = False, 0

    def __init__(self, raises: str = "") -> None:
        self._raises = raises
        self.told: list[int] | LogUnavailable | None = None

    def _step(self, name: str) -> None:
        if self._raises == name:
            raise ZeroDivisionError(name)

    def batches(self) -> Sequence[Batch]:
        self._step("batches")
        return (record_batch(1, [(b"k", b"v")]),)

    def written(self, firsts: list[int]) -> None:
        self._step("written")
        self.told = firsts

    def failed(self, error: LogUnavailable) -> None:
        self._step("failed")
        self.told = error


class Rounds:
    """Writes to a log of one partition, a round at a time."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.appender = Appender(folder, lambda _: 0)
        self.writes = Writes(self.appender, Flush.ALWAYS, self.loop)

    def round(self, *writes: Telling) -> list[list[int] | LogUnavailable | None]:
        """Give what each was told, when what comes behind them has had its turn, too."""
        for write in writes:
            self.writes.add(write)
        with suppress(LogUnavailable):
            self.loop.run_until_complete(asyncio.wait_for(self.writes.rest(), SECONDS))
        return [write.told for write in writes]


@pytest.fixture
def rounds(tmp_path: Path) -> Iterator[Rounds]:
    made = Rounds(tmp_path)
    yield made
    made.appender.close()
    made.loop.close()


def test_what_cannot_be_laid_out_fails_alone(rounds: Rounds, caplog: pytest.LogCaptureFixture) -> None:
    first, second, third = rounds.round(Telling(), Telling("batches"), Telling())
    assert (first, third) == ([0], [1])
    assert isinstance(second, LogUnavailable)
    assert rounds.round(Telling()) == [[2]]
    assert not rounds.writes.fault.done()
    assert "ZeroDivisionError: batches" in caplog.text


def test_what_is_written_but_cannot_be_served_is_a_fault(rounds: Rounds, caplog: pytest.LogCaptureFixture) -> None:
    """Those beside it are told what holds, for it is on the disk; nothing goes behind it."""
    assert rounds.round(Telling(), Telling("written"), Telling()) == [[0], None, [2]]
    assert rounds.writes.fault.done()
    (told,) = rounds.round(Telling())
    assert isinstance(told, LogUnavailable)
    assert "ZeroDivisionError: written" in caplog.text


def test_who_cannot_be_told_of_a_full_disk_is_a_fault(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    full = LogUnavailable("no more disk")
    monkeypatch.setattr(Appender, "append", _raising(full))
    assert rounds.round(Telling(), Telling("failed"), Telling()) == [full, None, full]
    assert rounds.writes.fault.done()


@pytest.mark.parametrize("writes", [1, MANY], ids=["waited for", "a thread waits"])
@pytest.mark.parametrize("name", ["append", "sync"])
def test_after_a_fault_of_what_writes_nothing_is_written(
    rounds: Rounds, name: str, writes: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is served is what was, and reads go on: as after an error of the disk."""
    with monkeypatch.context() as patched:
        patched.setattr(Appender, name, _raising(ZeroDivisionError(name)))
        told = rounds.round(*(Telling() for _ in range(writes)))
    assert {type(of) for of in [*told, *rounds.round(Telling())]} == {LogInDoubt}
    assert not rounds.writes.fault.done()
    assert f"ZeroDivisionError: {name}" in caplog.text


def _raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.slow
def test_a_fault_ends_the_process(tmp_path: Path) -> None:
    """What it serves may be wrong: the next start reads what the log says."""
    program = (
        "import sys; from offsetlake.serve import __main__, offset_commit;"
        "offset_commit.PendingCommit.written = lambda *_: 1 / 0; sys.exit(__main__.main())"
    )
    settings = Settings(str(tmp_path / "lake"), str(tmp_path / "log"), "127.0.0.1", 0, http=("127.0.0.1", 0))
    command = [sys.executable, "-c", program, settings.to_json()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = list(takewhile(lambda line: " serving " not in line, process.stderr))
        (bootstrap,) = re.findall(r"listening on (\S+)", "".join(said))
        with WireClient(bootstrap) as client, served(tmp_path / "log") as job:
            assert job is not None
            job.end(0)
            with pytest.raises((EOFError, ConnectionError)):
                committed(client, "g", 1)
            ends = process.stderr.read()
        assert process.wait(SECONDS) == 1
    assert "ZeroDivisionError" in ends
    assert ends.splitlines()[-1].startswith("error: the server has a fault")
    with Serving(tmp_path / "lake", tmp_path / "log") as serving, WireClient(serving.bootstrap) as client:
        assert fetched(client, "g") == [1, 1]


def test_a_commit_is_not_acknowledged_if_the_log_was_moved_while_it_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a folder that was moved can still be synced; only looking at the folder shows it."""
    folder = tmp_path / "log"
    folder.mkdir()
    rounds = Rounds(folder)
    assert rounds.round(Telling()) == [[0]]
    rounds.writes.look()
    sync = rounds.appender.sync

    def synced() -> None:
        folder.rename(tmp_path / "elsewhere")
        rounds.loop.call_soon_threadsafe(rounds.writes.look)
        sync()

    monkeypatch.setattr(rounds.appender, "sync", synced)
    told = rounds.round(*(Telling() for _ in range(MANY)))
    assert all(isinstance(each, LogInDoubt) for each in told)
    rounds.appender.close()
    rounds.loop.close()


def test_a_client_with_many_writes_delays_no_other(rounds: Rounds) -> None:
    """Its next write is in the next round, which has a bound; and the writes of each client keep their order."""
    order: list[str] = []

    class Ordered(Telling):
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
    rounds.writes.add(Ordered("small behind it"), other)
    rounds.loop.run_until_complete(asyncio.sleep(0))
    assert len(order) <= MAX_ROUND_RECORDS
    taken = len(order)
    rounds.writes.add(Ordered("light"), light)
    rounds.round()
    assert order.index("light") <= taken + 1
    assert [name for name in order if name.startswith("hostile")] == [f"hostile {number}" for number in range(2000)]
    assert order[-2:] == ["large", "small behind it"]
