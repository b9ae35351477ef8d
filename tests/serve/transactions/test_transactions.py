"""Transactions against a replay of the log written, over restarts, take-overs of snapshots, and kills at any write."""

import asyncio
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.batches.writer import Batch
from offsetlake.lake.lake import Lake
from offsetlake.log.writer.appender import Appender, Partition
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.transactions import log as transaction_log
from offsetlake.serve.transactions.rules import Transaction
from offsetlake.serve.transactions.writes import Cleaning
from offsetlake.serve.writes.rounds import Flush, Writes
from support.command_line import Run
from support.e2e.in_process import InProcess as NoSpark
from support.e2e.lakes import cycle
from support.serve.serving import Serving
from support.serve.transaction_comparison import Side
from support.serve.transaction_driver import TOPIC, Transacting

pytestmark = pytest.mark.slow

GROUPS, PARTITIONS = ("g0", "g1", "g2", "g3"), 3
PRODUCERS = {"old-0": False, "old-1": False, "new-0": True, "new-1": True}
RARELY = {"delete_group": 2, "delete_offset": 3, "restart": 1, "fold": 1, "cycle": 1}
WEIGHTS = {"commit": 30, "end": 12, "plain": 12, "init": 2} | RARELY
CONCURRENT = 51


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Transacting]:
    made = Transacting(tmp_path)
    yield made
    made.service.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_served_is_what_the_log_says(serving: Transacting, seed: int) -> None:
    chosen = random.Random(seed)
    for name in PRODUCERS:
        serving.init(name)
    for number in range(160):
        step = chosen.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        _do(serving, chosen, step, number)
        if step in RARELY or number % 20 == 0:
            assert serving.served() == serving.said_by_the_log(), (number, step)
    serving.restart()
    assert serving.served() == serving.said_by_the_log()
    assert any(serving.served())


def _do(serving: Transacting, chosen: random.Random, step: str, number: int) -> None:
    name, group = chosen.choice([*PRODUCERS]), chosen.choice(GROUPS)
    new, offsets = PRODUCERS[name], dict.fromkeys(chosen.sample(range(PARTITIONS), 2), number)
    match step:
        case "commit":
            assert serving.commit(name, group, offsets, new=new) == 0
        case "end":
            serving.end(name, commits=chosen.random() < 0.7, new=new)
        case "plain":
            assert serving.plain(group, offsets) == 0
        case "init":
            while serving.init(name) == CONCURRENT:
                serving.settle()
        case "delete_offset":
            serving.delete_offset(group, number % PARTITIONS)
        case "delete_group":
            serving.delete_group(group)
        case "fold" | "restart":
            getattr(serving, step)()
        case "cycle":
            cycle(NoSpark(), Lake.open(serving.folder / "lake"), serving.folder / "log")
            serving.restart()


def test_a_pending_offset_that_something_newer_overtook_does_not_count_after_a_restart(
    serving: Transacting,
) -> None:
    """Whether the newer one is in the tail of the log or in the tables."""
    lake = Lake.open(serving.folder / "lake")
    serving.init("a")
    serving.commit("a", "g", {0: 1, 1: 1, 2: 1}, new=True)
    serving.plain("g", {0: 2})
    serving.restart()
    cycle(NoSpark(), lake, serving.folder / "log")
    serving.plain("g", {1: 2})
    serving.restart()
    assert serving.served()[1] == {("g", TOPIC, partition) for partition in range(3)}
    assert serving.end("a", commits=True, new=True) == 0
    assert serving.served() == (
        {("g", TOPIC, 0): (2, "2"), ("g", TOPIC, 1): (2, "2"), ("g", TOPIC, 2): (1, "1")},
        set(),
    )


def test_killed_at_any_write_a_transaction_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill leaves the folder as it is behind a write, or with half of that write: then all before it is there."""
    copies: list[Path] = []
    real = Appender.append

    def append(self: Appender, partition: Partition, batches: Sequence[Batch]) -> list[int]:
        firsts = real(self, partition, batches)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(tmp_path / "real", copies[-1])
        written = copies[-1] / Path(str(self._tails[partition].file.name)).relative_to(tmp_path / "real")
        written.write_bytes(written.read_bytes()[: -len(batches[-1].data) // 2])
        return firsts

    real_one = Transacting(tmp_path / "real")
    groups = {"g0": 1, "g1": 2, "g7": 3}
    real_one.plain("g0", {0: 0})
    with monkeypatch.context() as patch:
        patch.setattr(Appender, "append", append)
        real_one.init("a")
        for group, offset in groups.items():
            real_one.commit("a", group, {0: offset}, new=True)
        before = real_one.producers["a"]
        real_one.end("a", commits=True, new=True)
        real_one.settle()
    whole, none = real_one.served()[0], {("g0", TOPIC, 0): (0, "0")}
    real_one.service.close()
    first_commit, prepared = 2, 7  # an id, of each group its partition and its commit, the end, markers, and done
    assert len(copies) == 1 + 2 * len(groups) + 1 + len(groups) + 1
    for number, copy in enumerate(copies):
        held, offsets = _after_a_kill(copy, before)
        assert offsets == (whole if number > prepared else none), number
        assert bool(held) == (first_commit < number <= prepared), number


def _after_a_kill(folder: Path, producer: tuple[int, int]) -> tuple[set[Any], dict[Any, Any]]:
    """Begin over what a kill left; gives what is open, and what is stored. Then the producer goes on, or a new one."""
    again = Transacting(folder)
    offsets, held = again.served()
    assert (offsets, held) == again.said_by_the_log()
    again.producers["a"] = producer
    while again.init("a") == CONCURRENT:
        again.settle()
    assert again.served()[1] == set(), "a new producer ends what the one before left open"
    again.service.close()
    return held, offsets


def test_a_job_leaves_alone_what_a_transaction_holds(run: Run, tmp_path: Path) -> None:
    lake, log, group = tmp_path / "lake", tmp_path / "log", "held"
    reset = ("reset", group, "--all-topics", "--shift-by", "10", "--execute", "--log", "log")
    with Serving(lake, log) as serving:
        side = Side(serving.bootstrap)
        side.plain(group, 1)
        side.init("a")
        cycle(NoSpark(), Lake.open(lake), log)
        side.commit("a", group, 5, 5)
        code, said, _ = run(*reset)
        assert code == Refused.exit_code
        assert f"of producer {side.producers['a'][0]} holds an offset of it" in said
        side.end("a", 5, commits=True)
        assert side.settled(group)[0][0] == 5


def test_an_id_that_no_record_holds_is_not_taken_for_one_that_changes(serving: Transacting) -> None:
    request = SimpleNamespace(transactional_id="a" * 2**15, transaction_timeout=timedelta(minutes=1))
    for _ in range(2):
        with pytest.raises(ValueError, match="at most"):
            serving.service.transactions.init_producer_id(
                request, RequestContext(0, serving.service.client, None), print
            )


@pytest.mark.parametrize("flush", Flush)
def test_what_is_superseded_goes_when_the_disk_has_what_stands(
    tmp_path: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without power the segments before it are gone for good, and it must not be."""
    loop, appender, steps = asyncio.new_event_loop(), Appender(tmp_path, lambda _: 0), list[str]()
    writes, log = Writes(appender, flush, loop), transaction_log.TransactionLog(tmp_path)
    standing = {"a": Transaction(transactional_id="a", producer_id=1, timeout=1, updated=1)}
    monkeypatch.setattr(os, "fdatasync", lambda _: steps.append("on disk"))
    monkeypatch.setattr(transaction_log, "delete", lambda _: steps.append("deleted"))
    writes.add(Cleaning(transaction_log.partition_of("a"), standing, writes, log, 1))
    loop.run_until_complete(writes.rest())
    assert steps == ["on disk", "deleted"]
    appender.close()
    loop.close()


@pytest.mark.parametrize("at", [8, 11, 40], ids=["a size far too large", "a size too large", "what it says"])
def test_a_damaged_log_of_transactions_is_told(tmp_path: Path, at: int) -> None:
    partition = transaction_log.partition_of("a")
    folder = tmp_path / str(partition)
    folder.mkdir()
    standing = Transaction(transactional_id="a", producer_id=1, timeout=1, updated=1)
    whole = bytes(transaction_log.state_batch([standing]).data)
    (folder / f"{0:020}.log").write_bytes(whole)
    assert transaction_log.TransactionLog(tmp_path).read() == ({"a": standing}, {partition: 1})
    (folder / f"{0:020}.log").write_bytes(whole[:at] + b"\x7f" + whole[at + 1 :])
    with pytest.raises(LogUnavailable, match="is damaged"):
        transaction_log.TransactionLog(tmp_path).read()


def test_what_is_superseded_of_the_transaction_log_goes(serving: Transacting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_log, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr("offsetlake.log.writer.appender.SEGMENT_BYTES", 2000)
    serving.init("a"), serving.init("left-open")
    serving.commit("left-open", "g", {1: 9}, new=True)
    for number in range(40):
        serving.commit("a", "g", {0: number}, new=True)
        serving.end("a", commits=True, new=True)
    serving.settle()
    folder = serving.folder / "log" / str(transaction_log.partition_of("a"))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8000
    assert len([*folder.iterdir()]) <= 3
    before = dict(serving.producers)
    serving.restart()
    assert serving.commit("a", "g", {0: 99}, new=True) == serving.end("a", commits=True, new=True) == 0
    assert serving.end("left-open", commits=True, new=True) == 0
    assert serving.served()[0] == {("g", TOPIC, 0): (99, "99"), ("g", TOPIC, 1): (9, "9")}
    serving.init("b")
    assert serving.producers["b"][0] > max(id_ for id_, _ in before.values()), "producer ids never come again"
