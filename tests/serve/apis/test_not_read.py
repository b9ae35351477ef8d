"""Groups whose log partition the folder of the log lacks have unknown offsets, not none."""

import shutil
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR
from offsetlake.kafka.placement import partition_for_share_partition
from offsetlake.kafka.uuid import uuid_text
from offsetlake.log.disk.folder import describe
from offsetlake.log.disk.lacking import LACKING_FILE
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, LogPartition
from offsetlake.log.writer.ownership import owned
from offsetlake.serve.protocol import api_keys as apis
from serve.http.test_http_in_process import OverHttp
from support.oracle.encoders import group_log_partition
from support.serve.commands import CONSUMER, EMPTY, OPEN, SHARE, commit, delete_groups, delete_offsets, listed, stored
from support.serve.http_client import exchange, problem
from support.serve.in_process import BROKER_LOG, InProcess, built
from support.serve.serving import Serving

LACKING = {EMPTY, CONSUMER, SHARE}
ABSENT = sorted(LogPartition(OFFSETS_TOPIC, group_log_partition(name, 50)) for name in LACKING)
TOPIC_ID = uuid.UUID(int=7)
SHARE_STATE = LogPartition(SHARE_STATE_TOPIC, partition_for_share_partition(OPEN, uuid_text(TOPIC_ID.bytes), 0, 50))


def copy_without(folder: Path, *partitions: LogPartition) -> Path:
    ignored = shutil.ignore_patterns("meta.properties", *map(str, partitions))
    shutil.copytree(BROKER_LOG, folder / "log", ignore=ignored)
    return folder / "log"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A server whose log lacks the partitions of some groups, and which has owned the log before."""
    folder = tmp_path_factory.mktemp("not-read")
    with owned(copy_without(folder, *ABSENT, SHARE_STATE), "serve"):
        server = InProcess(folder, built(folder / "lake", folder / "log"))
        server.load()
        yield server
        server.close()


def codes(answer: Any) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(answer, dict):
        own = {int(value) for name, value in answer.items() if name in ("error_code", "partition_error_code")}
        return own.union(*map(codes, answer.values()))
    return set().union(*map(codes, answer)) if isinstance(answer, list | tuple) else set()


PARTITION = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
MEMBER = {"member_id": "m", "generation_id": 1}
TIMEOUTS = dict.fromkeys(("session_timeout", "rebalance_timeout"), timedelta(seconds=9))
NOTHING_OWNED = {"topic_partitions": None}
REQUESTS: list[tuple[int, int, dict[str, Any]]] = [
    (apis.OFFSET_FETCH, 7, {"group_id": EMPTY, "topics": None}),
    (apis.OFFSET_FETCH, 1, {"group_id": EMPTY, "topics": [{"name": "orders", "partition_indexes": [0]}]}),
    (apis.OFFSET_FETCH, 9, {"groups": [{"group_id": EMPTY, "topics": [{"name": "orders", "partition_indexes": [0]}]}]}),
    (apis.OFFSET_COMMIT, 8, {"group_id": EMPTY, "topics": [{"name": "orders", "partitions": [PARTITION]}]}),
    (apis.JOIN_GROUP, 5, {"group_id": EMPTY, "protocol_type": "consumer", "protocols": [], **TIMEOUTS}),
    (apis.SYNC_GROUP, 3, {"group_id": EMPTY, "assignments": []} | MEMBER),
    (apis.HEARTBEAT, 3, {"group_id": EMPTY} | MEMBER),
    (apis.LEAVE_GROUP, 2, {"group_id": EMPTY, "member_id": "m"}),
    (apis.DESCRIBE_GROUPS, 6, {"groups": [EMPTY]}),
    (apis.DELETE_GROUPS, 2, {"groups_names": [EMPTY]}),
    (apis.OFFSET_DELETE, 0, {"group_id": EMPTY, "topics": []}),
    (apis.CONSUMER_GROUP_HEARTBEAT, 0, {"group_id": CONSUMER, "member_id": "m", "member_epoch": 0} | NOTHING_OWNED),
    (apis.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [CONSUMER]}),
    (apis.SHARE_GROUP_HEARTBEAT, 1, {"group_id": SHARE, "member_id": "m", "member_epoch": 0}),
    (apis.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [SHARE]}),
    (apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": SHARE, "topics": None}]}),
    (apis.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": SHARE, "topics": []}),
    (apis.DELETE_SHARE_GROUP_OFFSETS, 0, {"group_id": SHARE, "topics": []}),
    (apis.ADD_OFFSETS_TO_TXN, 3, {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "group_id": EMPTY}),
]  # fmt: skip


@pytest.mark.parametrize(("api", "version", "values"), REQUESTS)
def test_requests_fail_with_an_error_that_clients_retry(
    api: int, version: int, values: dict[str, Any], served: InProcess
) -> None:
    assert codes(served.ask(api, version, **values)) - {NONE} == {NOT_COORDINATOR}


def test_offsets_of_a_transaction_are_refused(served: InProcess) -> None:
    names = {"transactional_id": "t", "group_id": EMPTY, "producer_id": 1, "producer_epoch": 0}
    topics = [{"name": "orders", "partitions": [PARTITION]}]
    assert codes(served.ask(apis.TXN_OFFSET_COMMIT, 3, **names, topics=topics)) == {NOT_COORDINATOR}


def test_other_groups_are_served(served: InProcess) -> None:
    assert stored(served, OPEN)
    assert listed(served) & {EMPTY, CONSUMER, SHARE, OPEN} == {OPEN}
    assert commit(served, "ledger", "orders", 9, 5) == NONE


def test_share_state_that_the_log_lacks_does_not_begin_anew(served: InProcess) -> None:
    state = {"partition": 0, "leader_epoch": 0}
    topics = [{"topic_id": TOPIC_ID, "partitions": [state]}]
    answer = served.ask(apis.READ_SHARE_GROUP_STATE, 0, group_id=OPEN, topics=topics)
    assert codes(answer) == {NOT_COORDINATOR}


def test_no_coordinator_is_found(served: InProcess) -> None:
    answer = served.ask(apis.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[EMPTY, OPEN])
    found = {each["key"]: (each["error_code"], each["node_id"]) for each in answer["coordinators"]}
    assert found[EMPTY] == (COORDINATOR_NOT_AVAILABLE, -1)
    assert found[OPEN][0] == NONE
    assert served.ask(apis.FIND_COORDINATOR, 2, key_type=0, key=EMPTY)["error_code"] == COORDINATOR_NOT_AVAILABLE


def test_nothing_is_written_to_what_the_log_lacks(served: InProcess) -> None:
    assert commit(served, EMPTY, "orders", 0, 5) == NOT_COORDINATOR
    assert delete_groups(served, EMPTY) == {EMPTY: NOT_COORDINATOR}
    assert delete_offsets(served, EMPTY, ("orders", 0)) == [NOT_COORDINATOR]
    assert not [partition for partition in ABSENT if (served.log / str(partition)).exists()]


def test_http_names_the_log_partition(served: InProcess) -> None:
    http = OverHttp(served)
    try:
        where = f"{OFFSETS_TOPIC}-{group_log_partition(EMPTY, 50)}"
        body = {"group": EMPTY, "offsets": [exchange(None, 1)]}
        for request in (("GET", "/v1/offsets"), ("DELETE", "/v1/groups")):
            answer = http.ask(*request, group=EMPTY)
            assert (answer.status, problem(answer)) == (503, "log-partition-not-read")
            assert where in answer.body["detail"]
        assert problem(http.ask("POST", "/v1/commit", body)) == "log-partition-not-read"
        rewound = {"group": EMPTY, "offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
        assert problem(http.ask("POST", "/v1/rewind", rewound)) == "log-partition-not-read"
        ready = http.ask("GET", "/readyz").body
        absent = {OFFSETS_TOPIC: [each.partition for each in ABSENT], SHARE_STATE_TOPIC: [SHARE_STATE.partition]}
        assert ready["log_partitions_not_read"] == absent
        assert f"offsetlake_log_partitions_not_read {len(ABSENT) + 1}.0" in http.ask("GET", "/metrics").body
    finally:
        http.close()


@pytest.mark.slow
def test_consumer_does_not_begin_anew(tmp_path: Path) -> None:
    log = copy_without(tmp_path, *ABSENT)
    with Serving(tmp_path / "lake", log) as serving:
        consumer = Consumer({"bootstrap.servers": serving.bootstrap, "group.id": EMPTY})
        with pytest.raises(KafkaException):
            consumer.committed([TopicPartition("orders", 0)], timeout=3)
        consumer.close()
        numbers = ", ".join(str(where.partition) for where in ABSENT)
        assert f"NOT READ: the log {log} lacks {OFFSETS_TOPIC}-{numbers}. " in "\n".join(serving.said)


def test_what_was_absent_before_the_first_write_is_still_absent(tmp_path: Path) -> None:
    absent = [*ABSENT, LogPartition(SHARE_STATE_TOPIC, 3)]
    log = copy_without(tmp_path, *absent)
    assert describe(log).absent == absent
    (log / "replication-offset-checkpoint").write_text(f"0\n1\n{OFFSETS_TOPIC} 0 1000\n")
    (log / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    lost = describe(log).missing
    assert [(where.partition, offsets.end) for where, offsets in lost] == [(0, 1000)]
    for _ in range(2):
        with owned(log, "serve"):
            (log / "replication-offset-checkpoint").unlink(missing_ok=True)
            extent = describe(log)
        assert (extent.absent, extent.missing) == (absent, lost)
    shutil.copytree(BROKER_LOG / str(ABSENT[0]), log / str(ABSENT[0]))
    assert describe(log).absent == absent[1:]
    (log / LACKING_FILE).write_text("{}")
    with pytest.raises(LogUnavailable, match="names what the log lacked before its first write"):
        describe(log)


def test_partitions_after_the_highest_one_are_known_by_their_groups(tmp_path: Path) -> None:
    absent = [LogPartition(OFFSETS_TOPIC, number) for number in range(48, 50)]
    log = copy_without(tmp_path, *absent)
    with owned(log, "emit"):
        assert describe(log).absent == absent
