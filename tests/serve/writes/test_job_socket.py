"""The door of a log that is served: what jobs write there goes in on condition, at once and for good."""

import contextlib
import os
import random
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import audit_headers
from offsetlake.kafka.batches.writer import Batch
from offsetlake.log.writer import append_protocol, served_log
from offsetlake.log.writer.append_protocol import Request
from offsetlake.log.writer.os_users import os_principal
from offsetlake.log.writer.served_log import ServedLog, served
from support.kafka.made_batches import resealed
from support.oracle.log_reader import read_log
from support.oracle.log_writer import CODECS, Record, batch_bytes
from support.oracle.log_writer import Batch as PlainBatch
from support.oracle.replay import decode_offset_record
from support.serve.job_socket_requests import (
    LOG_PARTITIONS,
    TOPIC,
    T,
    batch,
    commit,
    fetched,
    key,
    place,
    tombstones,
    value,
)
from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_FETCH, WireClient

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a name too long for the address of a socket."""
    return tmp_path_factory.mktemp("door") / ("long" * 40) / "log"


@pytest.fixture(scope="module")
def serving(log: Path) -> Iterator[Serving]:
    with Serving(log.parent / "lake", log, log_partitions=LOG_PARTITIONS) as running:
        yield running
    assert not [line for line in running.said if "Traceback" in line or "Error" in line]


@pytest.fixture
def client(serving: Serving) -> Iterator[WireClient]:
    with WireClient(serving.bootstrap) as connected:
        yield connected


@pytest.fixture
def job(serving: Serving, log: Path) -> Iterator[ServedLog]:
    with served(log) as entered:
        assert entered is not None
        yield entered


def test_a_commit_between_the_look_and_the_write_is_kept(job: ServedLog, client: WireClient) -> None:
    there = [name for name in (f"between-{number}" for number in range(20)) if place(name) == 1]
    moved, still, others = there[0], there[1], there[2:]
    for group in there:
        commit(client, group, {0: 10, 1: 11})
    end = job.end(1)
    commit(client, moved, {1: 12})
    firsts = job.append(1, [tombstones(group, 0, 1, of_group="classic") for group in (others[0], moved, still)])
    assert firsts == [end + 1, -1, end + 4]
    assert fetched(client, moved, 0, 1) == [10, 12]
    assert fetched(client, still, 0, 1) == fetched(client, others[0], 0, 1) == [-1, -1]
    assert job.append(1, [tombstones(moved, 0)]) == [-1], "as long as nobody looks again"
    assert job.end(1) == end + 7
    assert job.append(1, [tombstones(moved, 0)]) == [end + 7]
    assert fetched(client, moved, 0, 1) == [-1, 12]


def test_what_one_job_wrote_another_has_to_see(job: ServedLog, client: WireClient, log: Path) -> None:
    commit(client, "two-jobs", {0: 1})
    at = place("two-jobs")
    with served(log) as other:
        assert other is not None
        assert other.end(at) == job.end(at)
        [first] = job.append(at, [batch((key("two-jobs", 0), value(7)))])
        assert other.append(at, [tombstones("two-jobs", 0)]) == [-1]
        assert fetched(client, "two-jobs", 0) == [7]
        assert other.end(at) == first + 1
        assert other.append(at, [tombstones("two-jobs", 0)]) == [first + 1]
    assert fetched(client, "two-jobs", 0) == [-1]


def test_every_kind_of_write_is_served_at_once(job: ServedLog, client: WireClient) -> None:
    group, id_ = "kinds", bytes(range(16))
    at = place(group)
    job.end(at)
    values = [value(1, expiry=5), value(2, 3, "three"), value(4, 5, "ü" * 200, topic_id=id_)]
    records = [(key(group, number), of) for number, of in enumerate(values)]
    job.append(at, [batch(*records[:2], (key(group, 9), None), *records[2:])])
    [answer] = client.ask(
        OFFSET_FETCH, 5, {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [0, 1, 2, 9]}]}
    )["topics"]
    assert [(of["committed_offset"], of["committed_leader_epoch"], of["metadata"]) for of in answer["partitions"]] == [
        (1, -1, ""),
        (2, 3, "three"),
        (4, 5, "ü" * 200),
        (-1, -1, ""),
    ]
    for number, kind in enumerate(("classic", "consumer", "streams")):
        job.end(at)
        job.append(at, [tombstones(group, of_group=kind)])
        assert fetched(client, group, 0, 1, 2) == [-1, -1, -1], "hidden with their group"
        commit(client, group, {1: number})
        assert fetched(client, group, 0, 1) == [-1, number]


def test_many_batches_go_in_pieces(job: ServedLog, client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_log, "REQUEST_BYTES", 200)
    groups = [name for name in (f"pieces-{number}" for number in range(60)) if place(name) == 2]
    end = job.end(2)
    wide = batch(*((key(groups[0], partition), value(partition)) for partition in range(100)))
    firsts = job.append(2, [wide, *(batch((key(group, 0), value(5))) for group in groups[1:])])
    assert firsts == [end, *range(end + 100, end + 99 + len(groups))]
    job.sync()
    assert fetched(client, groups[0], *range(100)) == [*range(100)]
    assert {fetched(client, group, 0)[0] for group in groups[1:]} == {5}


def test_who_comes_in_is_who_writes(job: ServedLog, client: WireClient, log: Path) -> None:
    at = place("told")
    commit(client, "told", {0: 3})
    job.end(at)
    assert job.principal == ME[1].decode()
    headers = audit_headers("reset", job.principal, b"offsetlake reset", "")
    [first] = job.append(at, [batch((key("told", 0), value(1)), (key("told", 1), value(2)), headers=headers)])
    assert fetched(client, "told", 0, 1) == [1, 2]
    written = {r.log_offset: r.headers for r in read_log(log) if r.log_partition == at and r.log_offset >= first}
    assert written == {first: tuple((name.encode(), of) for name, of in headers), first + 1: ()}


def spoilt(of: Batch, at: int) -> bytes:
    data = bytearray(of.data)
    data[at] ^= 1
    return bytes(data)


def sized(*batches: bytes | bytearray) -> bytes:
    return b"".join(append_protocol.SIZE.pack(len(data)) + data for data in batches)


WHAT, ME = ("act.what", b"reset"), ("act.principal", os_principal(os.geteuid()).encode())


def acts_on_the_second_record() -> bytes:
    headers = tuple((name.encode(), content) for name, content in (WHAT, ME))
    records = (Record(0, T, key("g", 0), None), Record(1, T, key("g", 1), None, headers))
    return batch_bytes(PlainBatch(records=records))


_LOOKED = append_protocol.APPEND_FIELDS.pack(place("g"), 1 << 40)
_GOOD = tombstones("g", 0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", -5),
        append_protocol.SIZE.pack(1) + b"\x63",
        append_protocol.SIZE.pack(1) + bytes((Request.END,)),
        append_protocol.SIZE.pack(3) + bytes((Request.SYNC, 0, 0)),
        append_protocol.SIZE.pack(7) + bytes((Request.APPEND,)) + b"abcdef",
        *(
            append_protocol.SIZE.pack(1 + len(fields)) + bytes((Request.APPEND,)) + fields
            for fields in (
                append_protocol.APPEND_FIELDS.pack(place("g"), -1) + sized(_GOOD.data),
                _LOOKED + sized(_GOOD.data)[:-1],
                _LOOKED + sized(b"x" * 80),
                _LOOKED + sized(spoilt(_GOOD, len(_GOOD.data) - 1)),
                _LOOKED + sized(spoilt(_GOOD, 16)),
                _LOOKED + sized(_GOOD.data + _GOOD.data),
                _LOOKED + sized(batch((key("g", 0), None), (key("h", 0), None)).data),
                _LOOKED + sized(batch((b"\0\3\0\1g", value(1))).data),
                _LOOKED + sized(batch((key("g", 0), b"\0\2" + value(1)[2:])).data),
                _LOOKED + sized(batch((key("g", 0), value(1)[:-1])).data),
                _LOOKED + sized(batch((key("g", 0)[:-1], None)).data),
                _LOOKED + sized(batch((key("g", 0) + b"x", None)).data),
                _LOOKED + sized(batch((None, None)).data),  # type: ignore[arg-type]
                *(
                    _LOOKED + sized(batch((key("g", 0), None), headers=headers).data)
                    for headers in (
                        [("commit.id", bytes(8))],
                        [WHAT],
                        [WHAT, ME, ("commit.size", bytes(4))],
                        [WHAT, ME, ME],
                        [WHAT, ("act.principal", b"\xff")],
                        [WHAT, ("act.principal", b"os:somebody-else")],
                        [WHAT, ("act.principal", b"User:alice")],
                    )
                ),
                _LOOKED + sized(acts_on_the_second_record()),
                *(
                    _LOOKED + sized(batch_bytes(PlainBatch(records=(Record(0, T, key("g", 0), None),), codec=codec)))
                    for codec in CODECS[1:]
                ),
                _LOOKED + sized(resealed(bytes(_GOOD.data), attributes=7)),  # a codec that is none
            )
        ),
    ],
    ids=count(),
)
def test_garbage_ends_its_connection_and_nothing_else(
    job: ServedLog, client: WireClient, log: Path, garbage: bytes
) -> None:
    commit(client, "g", {0: 3})
    with socket.socket(socket.AF_UNIX) as visitor, append_protocol.address_of(log) as address:
        visitor.connect(address)
        visitor.settimeout(30)
        visitor.sendall(append_protocol.frame(Request.END, append_protocol.END_FIELDS.pack(place("g"))))
        assert visitor.recv(100)
        visitor.sendall(garbage)
        visitor.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # where it went without reading all
            assert visitor.recv(100) == b""
    end = job.end(place("g"))
    assert fetched(client, "g", 0) == [3]
    assert job.append(place("g"), [tombstones("g", 0)]) == [end]
    assert fetched(client, "g", 0) == [-1]


def test_what_cannot_be_is_said(job: ServedLog, log: Path, tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="served with 3 log partitions: there is no 3"):
        job.end(3)
    other = (place("g") + 1) % LOG_PARTITIONS
    job.end(other)
    with pytest.raises(LogUnavailable, match="group 'g' belongs in log partition"):
        job.append(other, [tombstones("g", 0)])
    with pytest.raises(LogUnavailable, match="only that lake tells"):
        job.cut(tmp_path, 0, 0)
    assert job.cut(log.parent / "lake", 0, 0) == (0, 0)
    with socket.socket(socket.AF_UNIX) as visitor, append_protocol.address_of(log) as address:
        visitor.connect(address)
        visitor.sendall(
            append_protocol.frame(Request.HELLO, append_protocol.HELLO_FIELDS.pack(append_protocol.VERSION + 1))
        )
        assert b"Use the same version of offsetlake" in visitor.recv(1000)


def test_no_commit_behind_the_look_is_lost(serving: Serving, job: ServedLog, client: WireClient, log: Path) -> None:
    """Commits of the same keys keep coming while they are judged and tombstoned, and the log tells what came when."""
    groups, stop, rng = [f"race-{number}" for number in range(6)], threading.Event(), random.Random(5)
    last: dict[str, int] = {}

    def committing() -> None:
        with WireClient(serving.bootstrap) as committer:
            for number in count(1):
                group = rng.choice(groups)
                commit(committer, group, {0: number})
                last[group] = number
                if stop.is_set():
                    return

    thread = threading.Thread(target=committing)
    thread.start()
    done: list[tuple[str, int, int]] = []  # group, looked up to, first log offset
    try:
        while min(sum(first < 0 for *_, first in done), sum(first >= 0 for *_, first in done)) < 50:
            assert thread.is_alive()
            group = groups[len(done) % len(groups)]
            end = job.end(place(group))
            time.sleep(len(done) % 3 / 1000)
            [first] = job.append(place(group), [tombstones(group, 0)])
            done.append((group, end, first))
    finally:
        stop.set()
        thread.join()
    entries = [entry for record in read_log(log) if (entry := decode_offset_record(record))]
    for group in groups:
        of = {entry.record.log_offset: entry.commit for entry in entries if entry.key == (group, TOPIC, 0)}
        commits = [at for at, committed in of.items() if committed]
        ours = {first: end for name, end, first in done if name == group and first >= 0}
        assert sorted(ours) == [at for at, committed in of.items() if not committed]
        assert not [at for at in commits if any(end <= at < first for first, end in ours.items())]
        assert all(commits[-1] >= end for name, end, first in done if name == group and first < 0)
        newest = of[max(of)]
        assert fetched(client, group, 0) == [newest.committed_offset if newest else -1]
        assert max(committed.committed_offset for committed in of.values() if committed) == last[group]


def test_the_door_is_the_users_own(serving: Serving, log: Path) -> None:
    found = (log / append_protocol.SOCKET).stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
