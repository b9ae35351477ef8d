"""Offsets that are set while the members of their group run, over sockets."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import ANY

import pytest

from offsetlake.coordinator.rewind import NOT_WRITTEN
from offsetlake.errors import LogUnavailable
from offsetlake.kafka import error_codes
from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.served_log import ServedLog, served
from offsetlake.pipeline.emit.log_writer import WHILE_MEMBERS_RAN
from offsetlake.serve.groups.rewind_requests import NO_GROUP, STOPPING
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.writes.conditional import read_batch
from support.command_line import Run
from support.oracle.log_reader import read_log
from support.serve.commands import ABSENT
from support.serve.consuming_groups import (
    PARTITIONS,
    PROTOCOLS,
    TOPIC,
    ClassicConsumers,
    ConsumerProtocolConsumers,
)
from support.serve.http_client import ask, problem
from support.serve.in_process import InProcess, Origin
from support.serve.job_socket_requests import commit as simple_commit
from support.serve.members import OFFSET_COMMIT, Members, joining
from support.serve.serving import Serving
from support.serve.wire_client import WireClient

pytestmark = pytest.mark.slow
GROUP, LOG_PARTITIONS = "g", 3
STEP = 1_000_000
"""The distance of the offsets of two rewinds: more than the consumers process in between."""

NOTHING = b"\0\1\0\0\0\0\xff\xff\xff\xff"
NO_DELAY = {"initial_rebalance_delay_ms": 0}


def started(folder: Path, **more: Any) -> Serving:
    settings = more | {"topics": {TOPIC: PARTITIONS}, "coordinator": NO_DELAY, "log_partitions": LOG_PARTITIONS}
    return Serving(folder / "lake", folder / "log", **settings)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with started(tmp_path) as server:
        yield server


def key(partition: int, group: str = GROUP) -> bytes:
    return offset_commit_key(group.encode(), TOPIC.encode()) + partition.to_bytes(4)


def offsets(principal: str, *partitions: int, committed: int, group: str = GROUP) -> Batch:
    values = ((key(number, group), offset_commit_value(committed, -1, b"", 1, -1, ZERO_UUID)) for number in partitions)
    return record_batch(1, values, audit_headers("reset", principal, b"test", "here"))


def until_assigned(group: ClassicConsumers | ConsumerProtocolConsumers) -> None:
    """Run consumers until each partition is assigned again."""
    while sum(map(len, group.positions.values())) < PARTITIONS:
        group.turn()


def rewind_while_they_run(
    group: ClassicConsumers | ConsumerProtocolConsumers, log: ServedLog, pool: ThreadPoolExecutor, batch: Batch
) -> int:
    """Set offsets while the consumers take turns, and return the log offset of the first one."""
    number = partition_for_group(GROUP, LOG_PARTITIONS)
    done: Future[tuple[int, str]] = pool.submit(log.rewind, GROUP, number, batch)
    while not done.done():
        group.turn()
    log_offset, refusal = done.result()
    assert refusal == ""
    return log_offset


def committed_in(folder: Path, partition: int) -> list[tuple[int, int]]:
    """Return the log offset and the offset of each commit of a partition."""
    return [
        (record.log_offset, int.from_bytes(record.value[2:10]))
        for record in read_log(folder)
        if record.key == key(partition) and record.value is not None
    ]


def rewind_often(folder: Path, protocol: str, server: Serving, times: int) -> None:
    """Set offsets again and again under load, and check all commits in the log."""
    group = PROTOCOLS[protocol](server.bootstrap, GROUP)
    group.start()
    rewinds: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with ThreadPoolExecutor(1) as pool, served(folder) as log:
        assert log is not None
        for time in range(1, times + 1):
            partitions = sorted({time % PARTITIONS, (time * 5 + 1) % PARTITIONS})
            batch = offsets(log.principal, *partitions, committed=time * STEP)
            first = rewind_while_they_run(group, log, pool, batch)
            for number, log_offset in zip(partitions, range(first, first + len(partitions)), strict=True):
                rewinds[number].append(log_offset)
        until_assigned(group)
        group.turn()
    positions = {number: at for own in group.positions.values() for number, at in own.items()}
    group.close()
    for number, log_offsets in rewinds.items():
        step = 0
        for log_offset, offset in committed_in(folder, number):
            if log_offset in log_offsets:
                assert offset % STEP == 0
                step = offset // STEP
            assert offset // STEP == step, "a previous owner has overwritten the offset"
        assert positions[number] // STEP == step, "the consumer continues from the newest offset"
        assert positions[number] % STEP or not log_offsets
    assert group.refused or protocol == "cooperative"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumers_continue_from_the_offsets_that_are_set(protocol: str, tmp_path: Path, serving: Serving) -> None:
    rewind_often(tmp_path / "log", protocol, serving, times=3)


def stable(server: Serving, **joining: Any) -> Members:
    """Return a group of one member that has committed 3 for partition 0."""
    members = Members(server.bootstrap, GROUP)
    members.enter("a", **joining)
    members.receive("a")
    members.sync("a", assigned={"a": NOTHING})
    members.receive("a")
    assert commit(members, 3) == error_codes.NONE
    return members


def commit(members: Members, offset: int) -> int:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": TOPIC, "partitions": [row]}]
    values = {"topics": topics, "generation_id_or_member_epoch": members.generation}
    answer = members.ask("a", OFFSET_COMMIT, 9, **values)
    code: int = answer["topics"][0]["partitions"][0]["error_code"]
    return code


@pytest.mark.long
def test_member_that_does_not_respond_is_removed(tmp_path: Path, serving: Serving) -> None:
    members = stable(serving, rebalance_timeout=timedelta(seconds=3), session_timeout=timedelta(seconds=6))
    with served(tmp_path / "log") as log:
        assert log is not None
        assert log.rewind_limit_ms(GROUP) == 6_000
        number = partition_for_group(GROUP, LOG_PARTITIONS)
        assert log.rewind(GROUP, number, offsets(log.principal, 0, committed=1)) == (ANY, "")
        assert log.rewind_limit_ms(GROUP) is None
        assert log.rewind(GROUP, number, offsets(log.principal, 0, committed=2)) == (ANY, "")
        number = partition_for_group(ABSENT, LOG_PARTITIONS)
        unknown = log.rewind(ABSENT, number, offsets(log.principal, 0, committed=2, group=ABSENT))
    assert unknown == (-1, NO_GROUP)
    assert commit(members, 4) == error_codes.UNKNOWN_MEMBER_ID
    members.close()
    assert [offset for _, offset in committed_in(tmp_path / "log", 0)] == [3, 1, 2]


def test_rewind_that_a_kill_interrupts_has_not_happened(tmp_path: Path) -> None:
    with started(tmp_path) as server, served(tmp_path / "log") as log, ThreadPoolExecutor(1) as pool:
        assert log is not None
        members = stable(server)
        number = partition_for_group(GROUP, LOG_PARTITIONS)
        done = pool.submit(log.rewind, GROUP, number, offsets(log.principal, 0, committed=1))
        members.await_rebalance("a")
        server.kill()
        with pytest.raises(LogUnavailable, match="All of the offsets of the group are set, or none"):
            done.result()
    members.close()
    with started(tmp_path) as server:
        again = Members(server.bootstrap, GROUP, ids=members.ids, generation=members.generation)
        assert again.beat("a")["error_code"] == error_codes.NONE
        assert commit(again, 4) == error_codes.NONE
        again.close()
    assert [offset for _, offset in committed_in(tmp_path / "log", 0)] == [3, 4]


def test_server_that_stops_ends_the_rewind(tmp_path: Path) -> None:
    with started(tmp_path) as server, served(tmp_path / "log") as log, ThreadPoolExecutor(1) as pool:
        assert log is not None
        members = stable(server)
        number = partition_for_group(GROUP, LOG_PARTITIONS)
        done = pool.submit(log.rewind, GROUP, number, offsets(log.principal, 0, committed=1))
        members.await_rebalance("a")
        assert server.stop() == 0
        assert done.result() == (-1, STOPPING)
    members.close()


def test_offsets_that_cannot_be_written_are_not_set(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()

    def join(member: str) -> dict[str, Any]:
        return server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member, TOPIC))

    def start() -> asyncio.Task[Any]:
        task = server.loop.create_task(server.parts.rewinds.rewind(batch))
        server.loop.run_until_complete(asyncio.sleep(0))
        return task

    member = join("")["member_id"]
    join(member)
    batch = read_batch(bytes(offsets("User:a", 0, committed=1, group=ABSENT).data))
    done = start()
    with server.full_disk():
        assert join(member)["error_code"] == error_codes.NOT_COORDINATOR
    refused = server.loop.run_until_complete(done)
    assert refused == (-1, f"{NOT_WRITTEN}: error code {error_codes.NOT_COORDINATOR}")
    assert server.store.find(ABSENT.encode(), TOPIC.encode(), 0) is None
    again = start()
    assert join(member)["error_code"] == error_codes.NONE
    assert server.loop.run_until_complete(again).refusal == ""
    assert server.store.find(ABSENT.encode(), TOPIC.encode(), 0) is not None
    server.close()


@contextmanager
def running(group: ClassicConsumers | ConsumerProtocolConsumers) -> Iterator[None]:
    """Run the turns of consumers in a thread."""
    stop = Event()

    def turns() -> None:
        while not stop.is_set():
            group.turn()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(turns)
        try:
            yield
        finally:
            stop.set()
            done.result()


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["eager", "consumer"])
def test_commands_reset_and_restore_a_running_group(run: Run, tmp_path: Path, serving: Serving, protocol: str) -> None:
    group = PROTOCOLS[protocol](serving.bootstrap, GROUP)
    group.start()
    group.turn()
    place = ("--lake", str(tmp_path / "lake"), "--log", str(tmp_path / "log"), "--format", "json")
    reset = ("reset", GROUP, "--all-topics", "--to-offset", str(STEP))
    code, output, _ = run(*reset, *place)
    assert code != 0
    assert "it has members" in rows_of(output)[0]["reason"]
    limit = 300 + 45 * (protocol == "consumer")
    code, output, errors = run(*reset, "--live", *place)
    assert code == 0, errors
    assert {(row["outcome"], row["rewind_seconds"]) for row in rows_of(output)} == {("planned", limit)}
    assert f"are removed within {limit} seconds" in errors
    with running(group):
        code, output, errors = run(*reset, "--live", "--execute", *place)
        assert code == 0, errors
        assert {(row["outcome"], row["reason"]) for row in rows_of(output)} == {("done", WHILE_MEMBERS_RAN)}
        assert "--live" in errors.partition("To undo them:")[2]
        assert run(*reset[:-1], str(5 * STEP), "--live", "--execute", *place)[0] == 0
        run_id = rows_of(run("runs", "--lake", str(tmp_path / "lake"), "--format", "json")[1])
    until_assigned(group)
    moved = {at // STEP for own in group.positions.values() for at in own.values()}
    assert moved == {5}
    resets = [row["run_id"] for row in run_id if row["job"] == "reset"]
    with running(group):
        code, output, errors = run("restore", "--run", str(max(resets)), "--live", "--execute", *place)
        assert code == 0, errors
    until_assigned(group)
    moved = {at // STEP for own in group.positions.values() for at in own.values()}
    assert moved == {1}
    lake = ("--lake", str(tmp_path / "lake"), "--format", "json")
    events = rows_of(run("audit-events", "--group", GROUP, *lake)[1])
    assert [event["what"] for event in events if event["what"] != "commit"] == ["restore", "reset", "reset"]
    assert rows_of(run("audit", "regressions", "--group", GROUP, *lake)[1]) == [], "each change is that of a run"
    code, _, errors = run("check", "--suite", "after_emit", "--full", "--lake", str(tmp_path / "lake"))
    assert code == 0, errors
    group.close()


@pytest.mark.long
def test_live_without_members_or_server_changes_nothing(run: Run, tmp_path: Path) -> None:
    with started(tmp_path) as server:
        members = stable(server)
        members.leave("a")
        members.close()
        place = ("--lake", str(tmp_path / "lake"), "--log", str(tmp_path / "log"))
        reset = ("reset", GROUP, "--all-topics", "--to-offset", "1", "--live", *place)
        code, _, errors = run(*reset)
        assert (code, "--live changes nothing" in errors) == (0, True)
    code, _, errors = run(*reset, "--execute")
    assert (code, "--live changes nothing" in errors) == (0, True)
    assert [offset for _, offset in committed_in(tmp_path / "log", 0)] == [3, 1]


def test_live_requires_a_log_in_a_folder(run: Run) -> None:
    code, _, errors = run("reset", GROUP, "--all-topics", "--to-offset", "1", "--live", "--bootstrap", "localhost:1")
    assert code != 0
    assert "--live requires a log in a folder" in errors


def test_http_sets_offsets_of_a_running_group(tmp_path: Path) -> None:
    with started(tmp_path, http=("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        group = ClassicConsumers(server.bootstrap, GROUP)
        group.start()
        body = {"group": GROUP, "offsets": [{"topic": TOPIC, "partition": 1, "offset": 5 * STEP}]}
        done = pool.submit(ask, server.http, "POST", "/v1/rewind", body)
        while not done.done():
            group.turn()
        assert done.result().status == 200
        moved = {at // STEP for own in group.positions.values() for number, at in own.items() if number == 1}
        assert moved == {5}
        group.close()
        unknown = ask(server.http, "POST", "/v1/rewind", body | {"group": "nobody"})
        assert problem(unknown) == "group-not-found"
        with WireClient(server.bootstrap) as client:
            simple_commit(client, "simple", {0: 1}, TOPIC)
        refused = ask(server.http, "POST", "/v1/rewind", body | {"group": "simple"})
        assert (problem(refused), NO_GROUP in refused.body["detail"]) == ("rewind-refused", True)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_hundred_rewinds_under_load(protocol: str, tmp_path: Path, serving: Serving) -> None:
    rewind_often(tmp_path / "log", protocol, serving, times=100)
