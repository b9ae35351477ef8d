"""The states of share partitions over a log: durable before they are answered, undone if not, loaded as they were."""

import asyncio
import errno
import os
import shutil
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from offsetlake.auth.acl import Access, Grant
from offsetlake.coordinator.share_state.requests import (
    DeleteRequest,
    InitializeRequest,
    ReadRequest,
    SharePartitionKey,
    SummaryRequest,
    WriteRequest,
)
from offsetlake.errors import LogMismatch, LogUnavailable
from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.positions import LogPartition
from offsetlake.rules.share_state import StateBatch
from offsetlake.serve.steps import complete
from offsetlake.share.state import placement, share_states
from offsetlake.share.state.share_states import ShareStates
from offsetlake.util.times import now_ms
from support.oracle.log_writer import Batch, Record, write_partition
from support.serve.in_process import BROKER_LOG, InProcess, Origin

TOPIC, PARTITIONS = b"walked", 3
ACKNOWLEDGED = 2
DAY_MS = 86_400_000
FULL = LogUnavailable("The log cannot be written: no space left on device.")
T = TypeVar("T")


@pytest.fixture
def server(tmp_path: Path, origin: Origin) -> Iterator[InProcess]:
    """A server whose log has no state of share partitions."""
    shutil.copytree(BROKER_LOG, tmp_path / "log", ignore=shutil.ignore_patterns("__share_group_state-*"))
    started = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    started.load()
    yield started
    started.close()


def states_of(server: InProcess) -> ShareStates:
    return server.share.states


def run(server: InProcess, *requests: Coroutine[Any, Any, T]) -> list[T]:
    async def gathered() -> list[T]:
        return list(await asyncio.gather(*requests))

    return server.loop.run_until_complete(gathered())


def key(server: InProcess, group: str = "g", partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(group, uuid_text(server.topics.id_of(TOPIC)), partition)


def write(share_partition: SharePartitionKey, first: int, last: int) -> WriteRequest:
    return WriteRequest(share_partition, 1, 0, -1, (StateBatch(first, last, 1, ACKNOWLEDGED),))


def initialize(server: InProcess, *keys: SharePartitionKey) -> None:
    results = run(server, *(states_of(server).initialize(InitializeRequest(each, 1, 0)) for each in keys))
    assert {result.error_code for result in results} <= {0}


def summaries(server: InProcess, *keys: SharePartitionKey) -> list[Any]:
    return run(server, *(states_of(server).summary(SummaryRequest(each)) for each in keys))


def batches(server: InProcess, share_partition: SharePartitionKey) -> tuple[StateBatch, ...]:
    (result,) = run(server, states_of(server).read(ReadRequest(share_partition, 0)))
    assert result.error_code == 0
    return result.batches


def restarted(server: InProcess, folder: Path, origin: Origin) -> InProcess:
    """Return another server, over a copy of the log."""
    shutil.copytree(server.log, folder / "log")
    started = InProcess(folder, origin, {TOPIC: PARTITIONS})
    started.load()
    return started


def refuse_writes(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> list[int]:
        raise FULL

    monkeypatch.setattr(server.appender, "append", refused)


def test_states_are_the_same_after_a_restart(server: InProcess, tmp_path: Path, origin: Origin) -> None:
    keys = [key(server, group, number) for group in ("g", "é😀", "a:b") for number in range(PARTITIONS)]
    initialize(server, *keys)
    run(server, *(states_of(server).write(write(each, number, number + 4)) for number, each in enumerate(keys)))
    run(server, states_of(server).read(ReadRequest(keys[1], 7)), states_of(server).delete(DeleteRequest(keys[2])))
    again = restarted(server, tmp_path / "again", origin)
    assert summaries(again, *keys) == summaries(server, *keys)
    assert batches(again, keys[0]) == batches(server, keys[0]) == (StateBatch(0, 4, 1, ACKNOWLEDGED),)
    assert (len(states_of(again)), states_of(again).size_bytes) == (
        len(states_of(server)),
        states_of(server).size_bytes,
    )
    fenced = run(again, states_of(again).read(ReadRequest(keys[1], 6)))
    assert fenced[0].error_code == 74
    assert run(again, states_of(again).write(write(keys[0], 5, 9)))[0].error_code == 0
    again.close()


def test_requests_fail_until_the_states_are_loaded(loading: InProcess) -> None:
    share_partition = SharePartitionKey("g", "0UpezRseR2unUk_C-KbOfg", 0)
    assert summaries(loading, share_partition)[0].error_code == 14


def test_what_cannot_be_written_is_undone(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests that depend on a failed write fail with NOT_COORDINATOR, and the state before it is kept."""
    one, other = key(server), key(server, "other")
    initialize(server, one)
    states, size = states_of(server), states_of(server).size_bytes
    with monkeypatch.context() as failing:
        refuse_writes(server, failing)
        requests: list[Coroutine[Any, Any, Any]] = [
            states.write(write(one, 0, 4)),
            states.write(write(one, 5, 9)),
            states.read(ReadRequest(one, 0)),
            states.initialize(InitializeRequest(other, 1, 0)),
            states.summary(SummaryRequest(other)),
        ]
        assert [result.error_code for result in run(server, *requests)] == [16] * 5
    assert batches(server, one) == ()
    assert [each.start_offset for each in summaries(server, one, other)] == [0, -1]
    assert states.size_bytes == size
    assert run(server, states.write(write(one, 5, 9)))[0].error_code == 0
    assert batches(server, one) == (StateBatch(5, 9, 1, ACKNOWLEDGED),)


def test_a_failed_sync_refuses_all_later_writes(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one = key(server)
    initialize(server, one)

    def failing(_file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", failing)
    write_results = run(server, states_of(server).write(write(one, 0, 4)))
    write_results += run(server, states_of(server).write(write(one, 5, 9)))
    assert [result.error_code for result in write_results] == [16, 16]
    assert batches(server, one) == ()


def test_a_state_that_no_record_can_contain_is_refused(server: InProcess) -> None:
    one = key(server)
    initialize(server, one)
    many = tuple(StateBatch(2 * number, 2 * number, 1, ACKNOWLEDGED) for number in range(60_000))
    results = run(
        server, *(states_of(server).write(WriteRequest(one, 1, 0, -1, part)) for part in (many, many[:40_000]))
    )
    results += run(server, states_of(server).write(WriteRequest(one, 1, 0, -1, many[40_000:])))
    assert [result.error_code for result in results] == [-1, 0, -1]
    assert len(batches(server, one)) == 40_000


def test_a_batch_without_records_is_ignored(server: InProcess) -> None:
    one = key(server)
    initialize(server, one)
    request = WriteRequest(one, 1, 0, -1, (StateBatch(9, 5, 1, 0), StateBatch(0, 6, 2, 0), StateBatch(7, 3, 1, 4)))
    assert run(server, states_of(server).write(request))[0].error_code == 0
    assert batches(server, one) == (StateBatch(0, 6, 2, 0),)


def test_a_group_id_that_no_record_can_contain_is_refused(server: InProcess) -> None:
    (result,) = run(server, states_of(server).initialize(InitializeRequest(key(server, "g" * 40_000), 1, 0)))
    assert result.error_code == -1


def test_states_do_not_grow_beyond_the_limit(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = key(server), key(server, "h")
    initialize(server, one)
    monkeypatch.setattr(share_states, "MAX_SIZE_BYTES", states_of(server).size_bytes)
    states = states_of(server)
    requests = states.initialize(InitializeRequest(other, 1, 0)), states.write(write(one, 0, 4))
    assert [result.error_code for result in run(server, *requests)] == [15, 15]
    assert run(server, states.delete(DeleteRequest(one)))[0].error_code == 0
    initialize(server, other)


def test_cold_states_get_a_snapshot(server: InProcess, tmp_path: Path, origin: Origin) -> None:
    keys = [key(server, partition=number) for number in range(PARTITIONS)]
    initialize(server, *keys)
    run(server, states_of(server).write(write(keys[0], 0, 4)))
    before, ends = batches(server, keys[0]), server.appender.ends()
    complete(states_of(server).cold_snapshots(now_ms()))
    server.loop.run_until_complete(server.writes.drain())
    assert server.appender.ends() == ends, "no snapshot is old"
    for _ in range(2):  # after the first time, all snapshots are cold
        complete(states_of(server).cold_snapshots(now_ms() + DAY_MS))
        server.loop.run_until_complete(server.writes.drain())
        grown = server.appender.ends()
        assert sum(grown.values()) - sum(ends.values()) == PARTITIONS
    again = restarted(server, tmp_path / "again", origin)
    assert batches(again, keys[0]) == batches(server, keys[0]) == before
    again.close()


def test_states_of_a_topic_that_was_created_again_are_removed(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(server, partition=number) for number in range(PARTITIONS)]
    initialize(server, *keys)
    states = states_of(server)
    monkeypatch.setattr(share_states, "CONFIRMED_AFTER_SECONDS", 0.0)
    with monkeypatch.context() as lagging:
        lagging.setattr(server.topics, "name_of", lambda _id: None)
        states.topics_changed(frozenset({TOPIC.decode()}))
    assert run(server, states.remove_replaced()) == [frozenset()], "the former id was shown by a lagging broker"
    with monkeypatch.context() as hidden:
        hidden.setattr(server.topics, "name_of", lambda _id: None)
        hidden.setattr(server.topics, "id_of", lambda _name: bytes(16))
        states.topics_changed(frozenset({TOPIC.decode()}))
    assert len(states) == PARTITIONS
    monkeypatch.setattr(server.topics, "name_of", lambda _id: None)
    states.topics_changed(frozenset({"another"}))
    states.topics_changed(frozenset({TOPIC.decode()}))
    assert run(server, states.remove_replaced()) == [{keys[0].topic_id}]
    assert len(states) == 0
    server.loop.run_until_complete(server.writes.drain())


def test_only_brokers_may_send_the_requests(server: InProcess) -> None:
    initialize(server, key(server))
    part = {"partition": 0, "leader_epoch": 0}
    topics = [{"topic_id": uuid.UUID(bytes=server.topics.id_of(TOPIC)), "partitions": [part]}]
    keys = [":".join(map(str, key(server)))]

    def codes() -> list[int]:
        (topic,) = server.ask(84, 0, group_id="g", topics=topics)["results"]
        (found,) = server.ask(10, 6, key_type=2, coordinator_keys=keys)["coordinators"]
        return [topic["partitions"][0]["error_code"], found["error_code"]]

    assert codes() == [0, 0]
    server.client.access = Access([Grant("User:ANONYMOUS", "g*", 7)])
    assert codes() == [31, 31]
    server.client.access = Access([Grant("User:ANONYMOUS", "*", 4)])
    assert codes() == [0, 0]


def test_a_log_with_another_number_of_partitions_is_refused(server: InProcess, tmp_path: Path, origin: Origin) -> None:
    initialize(server, key(server))
    (used,) = (each for each in server.appender.ends() if isinstance(each, LogPartition))
    shutil.copytree(server.log, tmp_path / "again" / "log")
    other = LogPartition(used.topic, (used.partition + 1) % 50)
    shutil.rmtree(tmp_path / "again" / "log" / str(other), ignore_errors=True)
    (tmp_path / "again" / "log" / str(used)).rename(tmp_path / "again" / "log" / str(other))
    again = InProcess(tmp_path / "again", origin, {TOPIC: PARTITIONS})
    message = f"Share partition .*, which belongs in {used}, is in {again.log}/{other}, because .* Delete the folders"
    with pytest.raises(LogMismatch, match=message):
        again.load()
    assert again.store.loading, "no offset is served before"
    again.close()


def test_a_misplaced_share_partition_after_the_first_ones_is_refused_when_all_are_loaded(
    server: InProcess, tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(server, group=f"g{number}") for number in range(200)]
    initialize(server, *keys)
    first, second, *_ = (path for path in sorted(server.log.glob("__share_group_state-*/*.log")))
    monkeypatch.setattr(placement, "_MAX_HEAD_BYTES", first.stat().st_size)
    shutil.copytree(server.log, tmp_path / "again" / "log")
    copy = tmp_path / "again" / "log" / first.parent.name / first.name
    copy.write_bytes(first.read_bytes() + second.read_bytes())
    again = InProcess(tmp_path / "again", origin, {TOPIC: PARTITIONS})
    with pytest.raises(LogMismatch, match=f"is in {copy.parent}"):
        again.load()
    assert not again.store.loading
    again.close()


def test_a_log_partition_beyond_those_of_the_topic_is_refused(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    (server.log / "__share_group_state-50").mkdir()
    with pytest.raises(LogMismatch, match=r"__share_group_state-50, because .* other than 50"):
        server.load()
    server.close()


@pytest.mark.parametrize("topic", ["__share_group_state", "__consumer_offsets", "__transaction_state"])
def test_a_folder_that_is_not_named_as_a_partition_is_ignored(tmp_path: Path, origin: Origin, topic: str) -> None:
    server = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    foreign = server.log / f"{topic}-3.bak"
    foreign.mkdir()
    (foreign / f"{0:020}.log").write_bytes(b"torn")
    server.load()
    initialize(server, key(server))
    assert (foreign / f"{0:020}.log").read_bytes() == b"torn"
    server.close()


def test_a_segment_that_begins_with_zeros_is_refused_as_corrupt(tmp_path: Path, origin: Origin) -> None:
    """The length fields are consistent: they are those of batches without a header."""
    server = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    segment = server.log / "__share_group_state-3" / f"{0:020}.log"
    segment.parent.mkdir(exist_ok=True)
    segment.write_bytes(bytes(12 * 100))
    with pytest.raises(LogUnavailable, match=f"{segment} is corrupt"):
        server.load()
    server.close()


def test_records_that_cannot_be_decoded_are_skipped(
    tmp_path: Path, origin: Origin, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    garbage = [(None, b"v"), (b"", b"v"), (b"\0\0", b"v"), (b"\0\7g", b"v"), (b"\0\0\0\1g" + bytes(20), b"\0\0\1")]
    records = tuple(Record(number, 1, *pair) for number, pair in enumerate(garbage))
    write_partition(log, 3, [Batch(records=records)], topic="__share_group_state")
    server = InProcess(tmp_path, origin, {TOPIC: PARTITIONS})
    server.load()
    assert len(states_of(server)) == 0
    assert f"{len(garbage)} records of __share_group_state cannot be decoded" in caplog.text
    server.close()


def test_a_cut_log_has_the_same_state(server: InProcess, tmp_path: Path, origin: Origin) -> None:
    """`maintain --log` keeps the newest snapshot of each share partition, and what follows it."""
    one = key(server)
    initialize(server, one)
    run(server, states_of(server).write(write(one, 0, 4)))
    complete(states_of(server).cold_snapshots(now_ms() + DAY_MS))
    run(server, states_of(server).write(write(one, 7, 9)))
    (segment,) = server.log.glob("__share_group_state-*/*.log")
    cut = tmp_path / "again" / "log" / segment.parent.name / f"{2:020}.log"
    cut.parent.mkdir(parents=True)
    data = segment.read_bytes()
    for _ in range(2):  # the first snapshot and the first update
        data = data[12 + int.from_bytes(data[8:12]) :]
    cut.write_bytes(data)
    again = InProcess(tmp_path / "again", origin, {TOPIC: PARTITIONS})
    again.load()
    assert batches(again, one) == batches(server, one) == (StateBatch(0, 4, 1, 2), StateBatch(7, 9, 1, 2))
    assert run(again, states_of(again).write(write(one, 10, 11)))[0].error_code == 0
    assert again.appender.ends()[LogPartition("__share_group_state", int(segment.parent.name.rpartition("-")[2]))] == 5
    again.close()
