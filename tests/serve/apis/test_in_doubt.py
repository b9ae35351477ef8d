"""Offsets and groups that quarantined records leave unknown are answered as such, not with what was before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from e2e.logs.test_quarantined_records import MEMBER, QuarantineLog, metadata, unread
from e2e.logs.test_quarantined_records import commit as commit_record
from offsetlake.kafka.error_codes import KAFKA_STORAGE_ERROR, NON_EMPTY_GROUP, NONE, UNSTABLE_OFFSET_COMMIT
from offsetlake.serve.protocol import api_keys as apis
from serve.http.test_http_in_process import OverHttp
from support.oracle.encoders import group_log_partition, group_metadata_key, offset_key
from support.serve.commands import commit, delete_groups, delete_offsets
from support.serve.http_client import exchange, problem
from support.serve.in_process import InProcess, built
from support.serve.serving import Serving

GROUP, OTHER, NEW = [f"g{number}" for number in range(999) if group_log_partition(f"g{number}", 50) == 0][:3]
Fill = Callable[[QuarantineLog], object]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Fill], InProcess]]:
    servers: list[InProcess] = []

    def started(fill: Fill) -> InProcess:
        log = QuarantineLog(tmp_path)
        fill(log)
        log.write()
        servers.append(InProcess(tmp_path, built(tmp_path / "lake", tmp_path / "log")))
        servers[-1].load()
        return servers[-1]

    yield started
    for server in servers:
        server.close()


def fetched(
    served: InProcess, *partitions: int, group: str = GROUP, stable: bool = False
) -> dict[int, tuple[int, int]]:
    """Return offset and error code by partition; of all partitions if none are named."""
    topics = [{"name": "t", "partition_indexes": partitions}] if partitions else None
    answer = served.ask(apis.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable)
    assert answer["error_code"] == NONE
    rows = [row for topic in answer["topics"] for row in topic["partitions"]]
    return {row["partition_index"]: (row["committed_offset"], row["error_code"]) for row in rows}


UNKNOWN = (-1, KAFKA_STORAGE_ERROR)


def undecodable_offset(log: QuarantineLog) -> None:
    log.batch(commit_record(0, 5, GROUP), commit_record(1, 6, GROUP), unread(offset_key(GROUP, "t", 0)))
    log.batch(unread(offset_key(GROUP, "t", 2)))


@pytest.mark.parametrize("stable", [False, True])
def test_offset_whose_newest_record_cannot_be_decoded(stable: bool, serve: Callable[[Fill], InProcess]) -> None:
    served = serve(undecodable_offset)
    expected = {0: UNKNOWN, 1: (6, NONE), 2: UNKNOWN}
    assert fetched(served, 0, 1, 2, stable=stable) == fetched(served, stable=stable) == expected
    many = fetched(served, *range(300), stable=stable)
    assert many == expected | dict.fromkeys(range(3, 300), (-1, NONE))
    assert commit(served, GROUP, "t", 0, 9) == NONE
    assert fetched(served, 0, 1, 2) == {0: (9, NONE), 1: (6, NONE), 2: UNKNOWN}
    assert delete_offsets(served, GROUP, ("t", 0)) == [NON_EMPTY_GROUP]


def test_group_whose_only_record_cannot_be_decoded(serve: Callable[[Fill], InProcess]) -> None:
    served = serve(lambda log: log.batch(unread(offset_key(GROUP, "t", 0))))
    assert fetched(served, 0, 1) == {0: UNKNOWN, 1: (-1, NONE)}


def test_offsets_before_a_batch_that_cannot_be_read(serve: Callable[[Fill], InProcess]) -> None:
    def fill(log: QuarantineLog) -> None:
        log.batch(commit_record(0, 5, GROUP), commit_record(1, 6, GROUP), commit_record(0, 1, OTHER))
        log.corrupt_batch(commit_record(0, 50, GROUP), commit_record(7, 50, GROUP))
        log.batch(commit_record(1, 7, GROUP), metadata(MEMBER, group=OTHER))

    served = serve(fill)
    assert fetched(served, 0, 1, 7) == {0: UNKNOWN, 1: (7, NONE), 7: UNKNOWN}
    assert fetched(served, 0, 1, group=OTHER) == {0: UNKNOWN, 1: UNKNOWN}
    assert fetched(served, 0, group=NEW) == {0: (-1, NONE)}
    assert commit(served, NEW, "t", 0, 9) == NONE
    assert fetched(served, 0, 1, group=NEW) == {0: (9, NONE), 1: (-1, NONE)}
    assert delete_groups(served, GROUP) == {GROUP: NON_EMPTY_GROUP}


def test_open_transactions_are_still_unstable(serve: Callable[[Fill], InProcess]) -> None:
    def fill(log: QuarantineLog) -> None:
        undecodable_offset(log)
        log.batch(commit_record(1, 9, GROUP), producer_id=1, producer_epoch=0, is_transactional=True)

    served = serve(fill)
    assert fetched(served, 0, 1, stable=True) == {0: UNKNOWN, 1: (-1, UNSTABLE_OFFSET_COMMIT)}


def test_group_whose_newest_record_cannot_be_decoded_is_unknown(serve: Callable[[Fill], InProcess]) -> None:
    served = serve(
        lambda log: log.batch(commit_record(0, 5, GROUP), metadata(group=GROUP), unread(group_metadata_key(GROUP)))
    )
    (described,) = served.ask(apis.DESCRIBE_GROUPS, 6, groups=[GROUP])["groups"]
    assert (described["group_state"], described["error_code"], described["members"]) == ("Unknown", NONE, [])
    (group,) = served.ask(apis.LIST_GROUPS, 5)["groups"]
    assert (group["group_id"], group["group_state"]) == (GROUP, "Unknown")
    assert fetched(served, 0) == {0: (5, NONE)}, "only the state of the group is unknown"
    assert delete_groups(served, GROUP) == {GROUP: NON_EMPTY_GROUP}


@pytest.mark.slow
def test_client_gets_the_error_of_the_partition(tmp_path: Path) -> None:
    log = QuarantineLog(tmp_path)
    undecodable_offset(log)
    log.write()
    with Serving(tmp_path / "lake", tmp_path / "log") as serving:
        consumer = Consumer({"bootstrap.servers": serving.bootstrap, "group.id": GROUP})
        found = consumer.committed([TopicPartition("t", number) for number in range(3)], timeout=30)
        consumer.close()
    errors = {each.partition: None if each.error is None else each.error.code() for each in found}
    assert errors == {0: KAFKA_STORAGE_ERROR, 1: None, 2: KAFKA_STORAGE_ERROR}


def test_http_answers_that_offsets_are_unknown(serve: Callable[[Fill], InProcess]) -> None:
    served = serve(undecodable_offset)
    http = OverHttp(served)
    try:
        answer = http.ask("GET", "/v1/offsets", group=GROUP)
        assert (answer.status, problem(answer)) == (503, "offsets-unknown")
        assert "leave 2 offsets" in answer.body["detail"]
        assert "t:0, t:2" in answer.body["detail"]
        assert http.ask("GET", "/v1/offsets", group=GROUP, topic="other").status == 200
        for partition, expected, name in ((0, 5, "offsets-unknown"), (2, None, "offsets-unknown")):
            body: dict[str, Any] = {"group": GROUP, "offsets": [exchange(expected, 9, partition=partition)]}
            assert problem(http.ask("POST", "/v1/commit", body)) == name
        body = {"group": GROUP, "offsets": [exchange(6, 9, partition=1)]}
        assert http.ask("POST", "/v1/commit", body).status == 200
    finally:
        http.close()
