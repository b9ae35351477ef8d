"""Transactions compared with a replay of the log, over restarts, snapshot refreshes and kills at any write."""

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
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.transactions import log as transaction_log
from offsetlake.serve.transactions.rules import Transaction
from offsetlake.serve.transactions.writes import CleanupWrite
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
    transacting = Transacting(tmp_path)
    yield transacting
    transacting.service.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_served_offsets_equal_a_replay_of_the_log(serving: Transacting, seed: int) -> None:
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
            with serving.owned():
                cycle(NoSpark(), Lake.open(serving.folder / "lake"), serving.folder / "log")
            serving.restart()


def test_pending_offset_older_than_a_stored_one_is_ignored_after_a_restart(serving: Transacting) -> None:
    """The newer one may be in the tail of the log or in the tables."""
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


@pytest.mark.long
def test_transaction_is_atomic_if_the_server_is_killed_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is copied after each write, with half of the last batch cut off, and loaded again."""
    copies: list[Path] = []
    real = Appender.append

    def append(self: Appender, partition: Partition, batches: Sequence[Batch]) -> list[int]:
        firsts = real(self, partition, batches)
        copies.append(tmp_path / f"copy-{len(copies)}")
        shutil.copytree(tmp_path / "real", copies[-1])
        written = copies[-1] / Path(str(self._tails[partition].file.name)).relative_to(tmp_path / "real")
        written.write_bytes(written.read_bytes()[: -len(batches[-1].data) // 2])
        return firsts

    transacting = Transacting(tmp_path / "real")
    groups = {"g0": 1, "g1": 2, "g7": 3}
    transacting.plain("g0", {0: 0})
    with monkeypatch.context() as patch:
        patch.setattr(Appender, "append", append)
        transacting.init("a")
        for group, offset in groups.items():
            transacting.commit("a", group, {0: offset}, new=True)
        before = transacting.producers["a"]
        transacting.end("a", commits=True, new=True)
        transacting.settle()
    whole, none = transacting.served()[0], {("g0", TOPIC, 0): (0, "0")}
    transacting.service.close()
    # The writes are the id, a partition and a commit of each group, the end, the markers, and the completion.
    first_commit, prepared = 2, 7
    assert len(copies) == 1 + 2 * len(groups) + 1 + len(groups) + 1
    for number, copy in enumerate(copies):
        pending, offsets = _after_a_kill(copy, before)
        assert offsets == (whole if number > prepared else none), number
        assert bool(pending) == (first_commit < number <= prepared), number


def _after_a_kill(folder: Path, producer: tuple[int, int]) -> tuple[set[Any], dict[Any, Any]]:
    """Load a copy, return its pending and its stored offsets, and check that the producer can be initialized again."""
    restarted = Transacting(folder)
    offsets, pending = restarted.served()
    assert (offsets, pending) == restarted.said_by_the_log()
    restarted.producers["a"] = producer
    while restarted.init("a") == CONCURRENT:
        restarted.settle()
    assert restarted.served()[1] == set(), "a new producer ends the open transaction of the previous one"
    restarted.service.close()
    return pending, offsets


@pytest.mark.long
def test_reset_is_refused_while_a_transaction_has_pending_offsets(run: Run, tmp_path: Path) -> None:
    lake, log, group = tmp_path / "lake", tmp_path / "log", "held"
    reset = ("reset", group, "--all-topics", "--shift-by", "10", "--execute", "--log", "log")
    with Serving(lake, log) as serving:
        side = Side(serving.bootstrap)
        side.plain(group, 1)
        side.init("a")
        cycle(NoSpark(), Lake.open(lake), log)
        side.commit("a", group, 5, 5)
        code, output, _ = run(*reset)
        assert code == Refused.exit_code
        assert f"of producer {side.producers['a'][0]} includes an offset of it" in output
        side.end("a", 5, commits=True)
        assert side.settled(group)[0][0] == 5


def test_transactional_id_too_long_for_a_record_is_not_marked_as_changing(serving: Transacting) -> None:
    request = SimpleNamespace(transactional_id="a" * 2**15, transaction_timeout=timedelta(minutes=1))
    for _ in range(2):
        with pytest.raises(ValueError, match="maximum"):
            serving.service.transactions.init_producer_id(
                request, RequestContext(0, serving.service.client, None), print
            )


@pytest.mark.parametrize("flush", Flush)
def test_old_segments_are_deleted_only_after_the_current_states_are_synced(
    tmp_path: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power loss could lose the current states together with the old segments."""
    loop, appender, steps = asyncio.new_event_loop(), Appender(tmp_path, lambda _: 0), list[str]()
    writes, log = Writes(appender, flush, loop), transaction_log.TransactionLog(tmp_path)
    transactions = {"a": Transaction(transactional_id="a", producer_id=1, timeout=1, updated=1)}
    monkeypatch.setattr(os, "fdatasync", lambda _: steps.append("synced"))
    monkeypatch.setattr(transaction_log, "delete", lambda _: steps.append("deleted"))
    writes.add(CleanupWrite(transaction_log.partition_of("a"), transactions, writes, log, 1))
    loop.run_until_complete(writes.drain())
    assert steps == ["synced", "deleted"]
    appender.close()
    loop.close()


@pytest.mark.parametrize("position", [8, 11, 40], ids=["a length far too large", "a length too large", "contents"])
def test_corrupt_transaction_log_is_refused(tmp_path: Path, position: int) -> None:
    partition = transaction_log.partition_of("a")
    folder = tmp_path / str(partition)
    folder.mkdir()
    transaction = Transaction(transactional_id="a", producer_id=1, timeout=1, updated=1)
    whole = bytes(transaction_log.state_batch([transaction]).data)
    (folder / f"{0:020}.log").write_bytes(whole)
    assert transaction_log.TransactionLog(tmp_path).read() == ({"a": transaction}, {partition: 1})
    (folder / f"{0:020}.log").write_bytes(whole[:position] + b"\x7f" + whole[position + 1 :])
    with pytest.raises(LogUnavailable, match="is corrupt"):
        transaction_log.TransactionLog(tmp_path).read()


def test_transaction_log_is_bounded_and_keeps_the_current_states(
    serving: Transacting, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert serving.producers["b"][0] > max(producer_id for producer_id, _ in before.values()), "producer ids are unique"
