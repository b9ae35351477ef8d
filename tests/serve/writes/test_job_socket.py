"""The job socket of a served log: conditional writes of jobs, which are durable and served when they are answered."""

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
from offsetlake.log.writer.append_protocol import JobRequest
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
    """A folder whose name is too long for the address of a socket."""
    return tmp_path_factory.mktemp("job-socket") / ("long" * 40) / "log"


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


def test_commit_between_reading_and_appending_is_kept(job: ServedLog, client: WireClient) -> None:
    groups = [name for name in (f"between-{number}" for number in range(20)) if place(name) == 1]
    moved, unchanged, others = groups[0], groups[1], groups[2:]
    for group in groups:
        commit(client, group, {0: 10, 1: 11})
    end = job.end(1)
    commit(client, moved, {1: 12})
    firsts = job.append(1, [tombstones(group, 0, 1, of_group="classic") for group in (others[0], moved, unchanged)])
    assert firsts == [end + 1, -1, end + 4]
    assert fetched(client, moved, 0, 1) == [10, 12]
    assert fetched(client, unchanged, 0, 1) == fetched(client, others[0], 0, 1) == [-1, -1]
    assert job.append(1, [tombstones(moved, 0)]) == [-1], "until the job reads again"
    assert job.end(1) == end + 7
    assert job.append(1, [tombstones(moved, 0)]) == [end + 7]
    assert fetched(client, moved, 0, 1) == [-1, 12]


def test_write_of_one_job_refuses_that_of_another_until_it_reads_again(
    job: ServedLog, client: WireClient, log: Path
) -> None:
    commit(client, "two-jobs", {0: 1})
    partition = place("two-jobs")
    with served(log) as other:
        assert other is not None
        assert other.end(partition) == job.end(partition)
        [first] = job.append(partition, [batch((key("two-jobs", 0), value(7)))])
        assert other.append(partition, [tombstones("two-jobs", 0)]) == [-1]
        assert fetched(client, "two-jobs", 0) == [7]
        assert other.end(partition) == first + 1
        assert other.append(partition, [tombstones("two-jobs", 0)]) == [first + 1]
    assert fetched(client, "two-jobs", 0) == [-1]


def test_all_record_types_are_served_when_they_are_answered(job: ServedLog, client: WireClient) -> None:
    group, id_ = "kinds", bytes(range(16))
    partition = place(group)
    job.end(partition)
    values = [value(1, expiry=5), value(2, 3, "three"), value(4, 5, "ü" * 200, topic_id=id_)]
    records = [(key(group, number), data) for number, data in enumerate(values)]
    job.append(partition, [batch(*records[:2], (key(group, 9), None), *records[2:])])
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
        job.end(partition)
        job.append(partition, [tombstones(group, of_group=kind)])
        assert fetched(client, group, 0, 1, 2) == [-1, -1, -1], "deleted with their group"
        commit(client, group, {1: number})
        assert fetched(client, group, 0, 1) == [-1, number]


def test_many_batches_are_sent_in_several_frames(
    job: ServedLog, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_log, "REQUEST_BYTES", 200)
    groups = [name for name in (f"pieces-{number}" for number in range(60)) if place(name) == 2]
    end = job.end(2)
    wide = batch(*((key(groups[0], partition), value(partition)) for partition in range(100)))
    firsts = job.append(2, [wide, *(batch((key(group, 0), value(5))) for group in groups[1:])])
    assert firsts == [end, *range(end + 100, end + 99 + len(groups))]
    job.sync()
    assert fetched(client, groups[0], *range(100)) == [*range(100)]
    assert {fetched(client, group, 0)[0] for group in groups[1:]} == {5}


def test_audit_headers_of_the_jobs_principal_are_accepted(job: ServedLog, client: WireClient, log: Path) -> None:
    partition = place("told")
    commit(client, "told", {0: 3})
    job.end(partition)
    assert job.principal == ME[1].decode()
    headers = audit_headers("reset", job.principal, b"offsetlake reset", "")
    [first] = job.append(partition, [batch((key("told", 0), value(1)), (key("told", 1), value(2)), headers=headers)])
    assert fetched(client, "told", 0, 1) == [1, 2]
    written = {r.log_offset: r.headers for r in read_log(log) if r.log_partition == partition and r.log_offset >= first}
    assert written == {first: tuple((name.encode(), content) for name, content in headers), first + 1: ()}


def corrupted(batch_: Batch, position: int) -> bytes:
    data = bytearray(batch_.data)
    data[position] ^= 1
    return bytes(data)


def sized(*batches: bytes | bytearray) -> bytes:
    return b"".join(append_protocol.SIZE.pack(len(data)) + data for data in batches)


WHAT, ME = ("act.what", b"reset"), ("act.principal", os_principal(os.geteuid()).encode())


def audit_headers_on_the_second_record() -> bytes:
    headers = tuple((name.encode(), content) for name, content in (WHAT, ME))
    records = (Record(0, T, key("g", 0), None), Record(1, T, key("g", 1), None, headers))
    return batch_bytes(PlainBatch(records=records))


_READ_END = append_protocol.APPEND_FIELDS.pack(place("g"), 1 << 40)
_VALID = tombstones("g", 0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", -5),
        append_protocol.SIZE.pack(1) + b"\x63",
        append_protocol.SIZE.pack(1) + bytes((JobRequest.END,)),
        append_protocol.SIZE.pack(3) + bytes((JobRequest.SYNC, 0, 0)),
        append_protocol.SIZE.pack(7) + bytes((JobRequest.APPEND,)) + b"abcdef",
        *(
            append_protocol.SIZE.pack(1 + len(fields)) + bytes((JobRequest.APPEND,)) + fields
            for fields in (
                append_protocol.APPEND_FIELDS.pack(place("g"), -1) + sized(_VALID.data),
                _READ_END + sized(_VALID.data)[:-1],
                _READ_END + sized(b"x" * 80),
                _READ_END + sized(corrupted(_VALID, len(_VALID.data) - 1)),
                _READ_END + sized(corrupted(_VALID, 16)),
                _READ_END + sized(_VALID.data + _VALID.data),
                _READ_END + sized(batch((key("g", 0), None), (key("h", 0), None)).data),
                _READ_END + sized(batch((b"\0\3\0\1g", value(1))).data),
                _READ_END + sized(batch((key("g", 0), b"\0\2" + value(1)[2:])).data),
                _READ_END + sized(batch((key("g", 0), value(1)[:-1])).data),
                _READ_END + sized(batch((key("g", 0)[:-1], None)).data),
                _READ_END + sized(batch((key("g", 0) + b"x", None)).data),
                _READ_END + sized(batch((None, None)).data),  # type: ignore[arg-type]
                *(
                    _READ_END + sized(batch((key("g", 0), None), headers=headers).data)
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
                _READ_END + sized(audit_headers_on_the_second_record()),
                *(
                    _READ_END + sized(batch_bytes(PlainBatch(records=(Record(0, T, key("g", 0), None),), codec=codec)))
                    for codec in CODECS[1:]
                ),
                _READ_END + sized(resealed(bytes(_VALID.data), attributes=7)),  # an unknown codec
            )
        ),
    ],
    ids=count(),
)
def test_invalid_request_closes_its_connection_only(
    job: ServedLog, client: WireClient, log: Path, garbage: bytes
) -> None:
    commit(client, "g", {0: 3})
    with socket.socket(socket.AF_UNIX) as invalid_job, append_protocol.address_of(log) as address:
        invalid_job.connect(address)
        invalid_job.settimeout(30)
        invalid_job.sendall(append_protocol.frame(JobRequest.END, append_protocol.END_FIELDS.pack(place("g"))))
        assert invalid_job.recv(100)
        invalid_job.sendall(garbage)
        invalid_job.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # the server closed without reading everything
            assert invalid_job.recv(100) == b""
    end = job.end(place("g"))
    assert fetched(client, "g", 0) == [3]
    assert job.append(place("g"), [tombstones("g", 0)]) == [end]
    assert fetched(client, "g", 0) == [-1]


def test_impossible_requests_are_refused_with_a_message(job: ServedLog, log: Path, tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match="has 3 log partitions; there is no log partition 3"):
        job.end(3)
    other = (place("g") + 1) % LOG_PARTITIONS
    job.end(other)
    with pytest.raises(LogUnavailable, match="Group 'g' belongs in log partition"):
        job.append(other, [tombstones("g", 0)])
    with pytest.raises(LogUnavailable, match="only compactions of that lake can delete"):
        job.cut(str(tmp_path), 0, 0)
    assert job.cut(str((log.parent / "lake").resolve()), 0, 0) == (0, 0)
    with socket.socket(socket.AF_UNIX) as invalid_job, append_protocol.address_of(log) as address:
        invalid_job.connect(address)
        invalid_job.sendall(
            append_protocol.frame(JobRequest.HELLO, append_protocol.HELLO_FIELDS.pack(append_protocol.VERSION + 1))
        )
        assert b"Use the same version of offsetlake" in invalid_job.recv(1000)


def test_commits_after_the_read_end_are_never_tombstoned(
    serving: Serving, job: ServedLog, client: WireClient, log: Path
) -> None:
    """Commits of the same keys continue while they are tombstoned, and the order in the log is checked."""
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
    done: list[tuple[str, int, int]] = []  # group, read end, first log offset
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
        history = {entry.record.log_offset: entry.commit for entry in entries if entry.key == (group, TOPIC, 0)}
        commits = [log_offset for log_offset, committed in history.items() if committed]
        ours = {first: end for name, end, first in done if name == group and first >= 0}
        assert sorted(ours) == [log_offset for log_offset, committed in history.items() if not committed]
        assert not [
            log_offset for log_offset in commits if any(end <= log_offset < first for first, end in ours.items())
        ]
        assert all(commits[-1] >= end for name, end, first in done if name == group and first < 0)
        newest = history[max(history)]
        assert fetched(client, group, 0) == [newest.committed_offset if newest else -1]
        assert max(committed.committed_offset for committed in history.values() if committed) == last[group]


def test_job_socket_is_accessible_to_its_user_only(serving: Serving, log: Path) -> None:
    mode = (log / append_protocol.SOCKET).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
