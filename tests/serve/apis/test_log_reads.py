"""The log as a topic: Metadata, ListOffsets and Fetch for `__consumer_offsets`, in all versions."""

import asyncio
import threading
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.log.disk.partition_reader import PartitionReader
from offsetlake.log.writer import appender as appender_module
from offsetlake.serve.apis import log_reads
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.frame_memory import Memory
from offsetlake.serve.net.turns import Turns
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.writes import rounds as writes_module
from serve.net.test_connection import Sink, framed
from support.oracle.encoders import group_log_partition
from support.oracle.log_reader import ABORT, LogRecord, read_log
from support.serve.commands import commit
from support.serve.in_process import LOG_PARTITIONS, SECONDS, InProcess, Origin
from support.serve.kio_requests import answered, request
from support.serve.loop_clock import advance

LOG = "__consumer_offsets"
GROUP = "log-reads"
PARTITION = group_log_partition(GROUP, LOG_PARTITIONS)
HANGING = 39  # a log partition with an open transaction, and with one that was aborted
UNCOMMITTED, COMMITTED = 0, 1
ALL = 1 << 30


def partition_fetch(partition: int, offset: int = 0, max_bytes: int = ALL) -> dict[str, int]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}


def fetch_values(log: InProcess, *partitions: dict[str, int], wait: float = 0, **fields: Any) -> dict[str, Any]:
    """Return the values of a Fetch of the log, by name and by id."""
    id_ = uuid.UUID(bytes=log.topics.id_of(LOG.encode()))
    topic = {"topic": LOG, "topic_id": id_, "partitions": partitions}
    values = {"max_wait": timedelta(seconds=wait), "min_bytes": 1, "topics": [topic], "forgotten_topics_data": []}
    return values | fields


def fetch(log: InProcess, *partitions: dict[str, int], version: int = 18, **fields: Any) -> list[dict[str, Any]]:
    """Fetch from the log; return the answers for its partitions."""
    answer = log.ask(apis.FETCH, version, **fetch_values(log, *partitions, **fields))
    assert answer.get("error_code", 0) == 0
    assert answer.get("session_id", 0) == 0
    (topic,) = answer["responses"]
    assert topic.get("topic", LOG) == LOG
    found: list[dict[str, Any]] = topic["partitions"]
    return found


def ends(
    log: InProcess, *timestamps: int, version: int = 11, partition: int = HANGING, level: int = UNCOMMITTED
) -> Any:
    partitions = [{"partition_index": partition, "timestamp": timestamp} for timestamp in timestamps]
    topics = [{"name": LOG, "partitions": partitions}]
    (topic,) = log.ask(apis.LIST_OFFSETS, version, topics=topics, isolation_level=level)["topics"]
    return [(each["error_code"], each["timestamp"], each["offset"]) for each in topic["partitions"]]


def on_disk(log: InProcess, partition: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((log.log / f"{LOG}-{partition}").glob("*.log")))


def records_of(log: InProcess, partition: int) -> list[LogRecord]:
    return [record for record in read_log(log.log) if record.log_partition == partition]


def last_stable_offset(records: list[LogRecord]) -> tuple[int, list[dict[str, int]]]:
    """Return the first offset of the oldest open transaction, and the transactions that were aborted before it."""
    began: dict[int, int] = {}
    aborted = []
    for record in records:
        if record.is_control:
            first = began.pop(record.producer_id, None)
            if record.control_type == ABORT and first is not None:
                aborted.append({"producer_id": record.producer_id, "first_offset": first})
        elif record.producer_id >= 0:
            began.setdefault(record.producer_id, record.log_offset)
    stable = min(began.values(), default=records[-1].log_offset + 1)
    return stable, [each for each in aborted if each["first_offset"] < stable]


@pytest.mark.parametrize("version", apis.VERSIONS[apis.FETCH])
def test_fetch_returns_the_files_of_the_log(shared: InProcess, version: int) -> None:
    found = fetch(shared, *map(partition_fetch, range(LOG_PARTITIONS)), version=version, max_bytes=ALL)
    assert [each["partition_index"] for each in found] == [*range(LOG_PARTITIONS)]
    assert {each["error_code"] for each in found} == {0}
    log_ends = {record.log_partition: record.log_offset + 1 for record in read_log(shared.log)}
    for partition, each in enumerate(found):
        assert each["records"] == on_disk(shared, partition)
        assert each["aborted_transactions"] is None
        assert (each["high_watermark"], each.get("log_start_offset", 0)) == (log_ends.get(partition, 0), 0)


@pytest.mark.parametrize("version", apis.VERSIONS[apis.FETCH])
def test_read_committed_ends_before_an_open_transaction(shared: InProcess, version: int) -> None:
    records = records_of(shared, HANGING)
    stable, aborted = last_stable_offset(records)
    assert aborted
    assert stable <= records[-1].log_offset
    (found,) = fetch(shared, partition_fetch(HANGING), version=version, isolation_level=COMMITTED)
    assert (found["last_stable_offset"], found["aborted_transactions"]) == (stable, aborted)
    (rest,) = fetch(shared, partition_fetch(HANGING, stable), version=version)
    assert rest["last_stable_offset"] == stable
    assert rest["records"]
    assert found["records"] + rest["records"] == on_disk(shared, HANGING)
    (nothing,) = fetch(shared, partition_fetch(HANGING, stable), version=version, isolation_level=COMMITTED)
    assert (nothing["records"], nothing["aborted_transactions"]) == (b"", [])


def test_fetch_respects_the_limits_of_bytes(shared: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {number: on_disk(shared, number) for number in (36, 37, 38)}
    first = len(fetch(shared, partition_fetch(37, 0, 1))[0]["records"])
    assert 1 < first < len(whole[37])
    sizes = [
        len(each["records"])
        for each in fetch(shared, partition_fetch(36, 0, 1), partition_fetch(37, 0, 1), partition_fetch(38, 0, 1))
    ]
    assert sizes[1:] == [0, 0]  # only the first partition may exceed its limit, by one batch
    sizes = [
        len(each["records"]) for each in fetch(shared, *map(partition_fetch, whole), max_bytes=len(whole[36]) + first)
    ]
    assert sizes == [len(whole[36]), first, 0]
    assert [len(each["records"]) for each in fetch(shared, *map(partition_fetch, whole), max_bytes=-1)][1:] == [0, 0]
    monkeypatch.setattr(log_reads, "MAX_FETCH_BYTES", first)
    sizes = [
        len(each["records"])
        for each in fetch(shared, *map(partition_fetch, whole), max_bytes=ALL, min_bytes=ALL, wait=30)
    ]
    assert sizes[0] <= first
    assert sum(sizes) <= first


@pytest.mark.parametrize(
    ("partition", "offset", "fields", "error"),
    [
        (LOG_PARTITIONS, 0, {}, 3),
        (-1, 0, {}, 3),
        (HANGING, -1, {}, 1),
        (HANGING, 161, {}, 1),
        (0, 1, {}, 1),
        (HANGING, 0, {"isolation_level": 2}, 42),
    ],
)
def test_fetch_with_an_error_is_answered_at_once_with_the_other_partitions(
    shared: InProcess, partition: int, offset: int, fields: dict[str, int], error: int
) -> None:
    found = fetch(shared, partition_fetch(partition, offset), partition_fetch(38), wait=30, min_bytes=ALL, **fields)
    failed, whole = found
    assert (failed["partition_index"], failed["error_code"], failed["records"]) == (partition, error, b"")
    assert failed["high_watermark"] == -1
    assert whole["records"] == (b"" if fields else on_disk(shared, 38))


def test_fetch_of_the_log_and_another_topic_refuses_the_other(shared: InProcess) -> None:
    other = {"topic": "orders", "topic_id": uuid.UUID(int=5), "partitions": [partition_fetch(0)]}
    for version, names in ((12, ("topic",)), (18, ("topic_id",))):
        fields = fetch_values(shared, partition_fetch(HANGING, 160), wait=30)
        fields["topics"].append(other)
        log, orders = shared.ask(apis.FETCH, version, **fields)["responses"]
        assert [log["partitions"][0]["error_code"], orders["partitions"][0]["error_code"]] == [0, 29]
        assert [orders[name] for name in names] == [{"topic": "orders", "topic_id": uuid.UUID(int=5).bytes}[names[0]]]
    assert shared.ask(apis.FETCH, 18, **fetch_values(shared, wait=30) | {"topics": []})["responses"] == []


def test_fetch_session_is_refused(shared: InProcess) -> None:
    for session, epoch, error in ((0, 0, 0), (0, -1, 0), (7, -1, 0), (7, 0, 0), (7, 1, 70), (0, 3, 70)):
        fields = fetch_values(shared, partition_fetch(HANGING), session_id=session, session_epoch=epoch)
        answer = shared.ask(apis.FETCH, 18, **fields)
        assert (answer["error_code"], answer["session_id"], len(answer["responses"])) == (
            error,
            0,
            1 if not error else 0,
        )


def test_fetch_fails_while_the_log_is_loaded(loading: InProcess) -> None:
    assert [
        each["error_code"] for each in fetch(loading, partition_fetch(0), partition_fetch(LOG_PARTITIONS), wait=30)
    ] == [6, 3]
    assert ends(loading, -1) == [(6, -1, -1)]
    loading.load()
    assert fetch(loading, partition_fetch(HANGING))[0]["records"] == on_disk(loading, HANGING)


SINCE = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}


@pytest.mark.parametrize("version", apis.VERSIONS[apis.LIST_OFFSETS])
def test_list_offsets_returns_start_and_end_of_the_log(shared: InProcess, version: int) -> None:
    records = records_of(shared, HANGING)
    stable, _ = last_stable_offset(records)
    end = records[-1].log_offset + 1
    top = max(records, key=lambda record: (record.log_timestamp, -record.log_offset))
    latest = end if version < 2 else stable
    offsets = {-1: (-1, latest), -2: (-1, 0), -3: (-1, -1), -4: (-1, 0), -5: (-1, -1), -6: (-1, -1)}
    expected = [(0, *offsets[time]) if version >= since else (35, -1, -1) for time, since in SINCE.items()]
    assert ends(shared, *SINCE, version=version, level=COMMITTED) == expected
    assert top.log_offset >= stable
    if version >= 7:
        assert ends(shared, -3, version=version) == [(0, top.log_timestamp, top.log_offset)]
    assert ends(shared, -1, version=version) == [(0, -1, end)]
    assert ends(shared, -7, -(2**63), version=version) == [(35, -1, -1)] * 2
    assert ends(shared, -1, version=version, partition=LOG_PARTITIONS) == [(3, -1, -1)]
    if version >= 2:
        assert ends(shared, -1, version=version, level=9) == [(42, -1, -1)]


def test_list_offsets_returns_the_first_record_since_a_timestamp(shared: InProcess) -> None:
    records = records_of(shared, HANGING)
    times = sorted(
        {around for record in records for around in range(record.log_timestamp - 1, record.log_timestamp + 2)}
    )
    firsts = [next((row for row in records if row.log_timestamp >= time), None) for time in times]
    expected = [(0, first.log_timestamp, first.log_offset) if first else (0, -1, -1) for first in firsts]
    assert ends(shared, *times) == expected
    assert expected[-1] == (0, -1, -1)


def test_log_is_described_as_an_internal_topic(shared: InProcess) -> None:
    for version in apis.VERSIONS[apis.METADATA]:
        everything = shared.ask(apis.METADATA, version, topics=[] if version == 0 else None)["topics"]
        (topic,) = [topic for topic in everything if topic["name"] == LOG]
        (named,) = shared.ask(apis.METADATA, version, topics=[{"name": LOG, "topic_id": None}])["topics"]
        assert named == topic
        assert [row["partition_index"] for row in topic["partitions"]] == [*range(LOG_PARTITIONS)]
        if version >= 1:
            assert {topic["name"] for topic in everything if topic["is_internal"]} == {LOG}
    described = shared.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": LOG}])["topics"]
    assert [(topic["is_internal"], len(topic["partitions"])) for topic in described] == [(True, LOG_PARTITIONS)]


@pytest.mark.parametrize("name", ["__share_group_state", "__transaction_state"])
def test_other_internal_topics_do_not_exist(shared: InProcess, name: str) -> None:
    """An ingest asks for one of them, and would read the largest offset as its log end offset."""
    (topic,) = shared.ask(apis.METADATA, 13, topics=[{"name": name, "topic_id": None}])["topics"]
    assert (topic["error_code"], topic["partitions"]) == (3, [])
    asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    (topic,) = shared.ask(apis.LIST_OFFSETS, 7, topics=asked)["topics"]
    assert [(row["error_code"], row["offset"]) for row in topic["partitions"]] == [(3, -1)]


def test_offsets_of_the_log_can_be_committed(tmp_path: Path, origin: Origin) -> None:
    served = InProcess(tmp_path, origin, {b"orders": 1})
    served.load()
    assert [commit(served, GROUP, LOG, number, 5) for number in (0, LOG_PARTITIONS - 1, LOG_PARTITIONS)] == [0, 0, 3]
    served.close()


def begin(log: InProcess, offset: int, **fields: Any) -> "asyncio.Future[bytes]":
    """Start a Fetch of the log partition of GROUP."""
    return log.start(request(apis.FETCH, 18, fetch_values(log, partition_fetch(PARTITION, offset), **fields)))


def found(log: InProcess, answer: "asyncio.Future[bytes]") -> tuple[int, bytes]:
    """Wait for the response; return the high watermark and the records."""
    (partition,) = answered(apis.FETCH, 18, log.wait(answer))["responses"][0]["partitions"]
    return partition["high_watermark"], partition["records"]


def sleep(log: InProcess, seconds: float) -> None:
    log.loop.run_until_complete(asyncio.sleep(seconds))


def end_of(log: InProcess) -> int:
    [(_, _, end)] = ends(log, -1, partition=PARTITION)
    return int(end)


def test_fetch_at_the_end_waits_for_the_next_commit(served: InProcess) -> None:
    end, size = end_of(served), len(on_disk(served, PARTITION))
    waits = begin(served, end, wait=30)
    other = served.start(request(apis.FETCH, 18, fetch_values(served, partition_fetch(HANGING, 160), wait=30)))
    sleep(served, 0.05)
    assert not waits.done()
    assert commit(served, GROUP, "orders", 0, 1) == 0
    assert found(served, waits) == (end + 1, on_disk(served, PARTITION)[size:])
    assert not other.done()
    advance(served.loop, 30)
    assert found(served, other) == (160, b"")


def test_fetch_waits_no_longer_than_max_wait(served: InProcess) -> None:
    end = end_of(served)
    waits = begin(served, end, wait=30)
    sleep(served, 0.05)
    assert not waits.done()
    advance(served.loop, 30)
    assert found(served, waits) == (end, b"")
    assert found(served, begin(served, end, wait=30, min_bytes=0)) == (end, b"")
    assert found(served, begin(served, end, wait=-1)) == (end, b"")


def test_fetch_waits_for_min_bytes(served: InProcess) -> None:
    end, size = end_of(served), len(on_disk(served, PARTITION))
    waits = begin(served, end, wait=30, min_bytes=200)
    assert commit(served, GROUP, "orders", 0, 1) == 0
    sleep(served, 0.05)
    assert not waits.done()
    assert commit(served, GROUP, "orders", 1, 1) == 0
    assert found(served, waits) == (end + 2, on_disk(served, PARTITION)[size:])


def test_fetch_does_not_wait_at_the_end_of_a_segment(served: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later records are in another segment, and do not make the response larger; a broker does not wait either."""
    end, before = end_of(served), on_disk(served, PARTITION)
    monkeypatch.setattr(appender_module, "SEGMENT_BYTES", 1)
    for number in range(2):
        assert commit(served, GROUP, "orders", number, 1) == 0
    later = on_disk(served, PARTITION)[len(before) :]
    high, records = found(served, begin(served, end, wait=60, min_bytes=ALL))
    assert high == end + 2
    assert records
    assert len(records) < len(later)
    assert later.startswith(records)


def test_fetch_of_a_follower_is_not_recorded_without_a_cluster(served: InProcess) -> None:
    """A client can state any node id, and any number of partitions."""
    for node in range(3):
        fetches = partition_fetch(node), partition_fetch(10**6)
        served.ask(apis.FETCH, 11, **fetch_values(served, *fetches), replica_id=node)
    assert served.parts.reads.followers == {}


@pytest.mark.parametrize("api", [apis.FETCH, apis.LIST_OFFSETS])
def test_internal_error_closes_the_connection(
    served: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, api: int
) -> None:
    """The request cannot be answered, and its client would wait forever."""
    monkeypatch.setattr(PartitionReader, "refresh", lambda *_: 1 / 0)
    values = fetch_values(served, partition_fetch(0))
    if api == apis.LIST_OFFSETS:
        values = {"topics": [{"name": LOG, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    client, sink = Client(), Sink()
    service = Service(served.commits, served.parts.fetches, served.admin, client)
    connection = Connection(service, client, set(), Turns(served.loop, Memory()))
    connection.connection_made(cast("Any", sink))
    connection.data_received(framed(request(api, 11, values)))
    served.loop.run_until_complete(asyncio.wait(served.parts.reads.tasks._tasks))
    assert sink.closed
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_unacknowledged_records_are_not_returned(
    served: InProcess, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    is_syncing, gate = threading.Event(), threading.Event()

    def sync() -> None:
        is_syncing.set()
        assert gate.wait(SECONDS)
        if fails:
            raise LogUnavailable("the disk failed")

    end, before = end_of(served), on_disk(served, PARTITION)
    monkeypatch.setattr(writes_module, "MIN_THREAD_SYNC_WRITES", 0)  # a thread waits for the disk
    monkeypatch.setattr(served.appender, "sync", sync)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "orders", "partitions": [partition]}]
    waits = begin(served, end, wait=30)
    writing = served.start(request(apis.OFFSET_COMMIT, 9, {"group_id": GROUP, "topics": topics}))
    while not is_syncing.is_set():
        sleep(served, 0.01)
    assert len(on_disk(served, PARTITION)) > len(before)
    assert not writing.done()
    assert not waits.done()
    assert end_of(served) == end
    gate.set()
    served.wait(writing)
    if fails:
        advance(served.loop, 30)
    expected = (end, b"") if fails else (end + 1, on_disk(served, PARTITION)[len(before) :])
    assert found(served, waits) == expected
    assert end_of(served) == expected[0]
