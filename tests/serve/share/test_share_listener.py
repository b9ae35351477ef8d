"""The listener for share consumers over a live broker, with requests of ShareFetch and ShareAcknowledge."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from offsetlake.kafka.error_codes import (
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_NOT_FOUND,
    UNKNOWN_TOPIC_ID,
)
from offsetlake.share.sessions import FINAL_EPOCH
from support.broker import workload
from support.broker.broker import Broker
from support.serve.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    acquired,
    initialize,
    partitions_of,
    topic_id,
    values_in,
)
from support.serve.sharing import Sharing

pytestmark = [pytest.mark.broker, pytest.mark.slow]
NO_WAIT = timedelta(0)
SECONDS = 120


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Sharing]:
    with Sharing(tmp_path_factory.mktemp("sharing"), broker) as serving:
        yield serving


def produce(broker: Broker, topic: str, first: int, count: int, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5} | settings)
    for number in range(first, first + count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(SECONDS) == 0


@pytest.mark.parametrize("compression", ["none", "gzip", pytest.param("lz4", marks=pytest.mark.long), "zstd"])
def test_records_are_passed_on_unchanged(sharing: Sharing, broker: Broker, compression: str) -> None:
    topic, group = f"share-{compression}", f"share-{compression}"
    workload.create_topic(broker.bootstrap, topic, 1)
    produce(broker, topic, 0, 1000, **{"compression.type": compression})
    id_ = topic_id(sharing.share, topic)
    initialize(sharing.bootstrap, group, id_, 1)
    found: dict[int, bytes] = {}
    with ShareMember(sharing.share, group, id_) as member:
        taken: dict[int, list[tuple[int, int, int]]] = {}
        while len(found) < 1000:
            response = member.fetch(taken)
            assert response["error_code"] == 0, response
            assert all(part["acknowledge_error_code"] == 0 for part in partitions_of(response).values())
            ranges = acquired(response).get(0, [])
            values = values_in(response)
            found |= {offset: values[offset] for first, last, _ in ranges for offset in range(first, last + 1)}
            taken = {0: [(first, last, ACCEPT) for first, last, _ in ranges]}
        assert found == {number: str(number).encode() for number in range(1000)}
        assert partitions_of(member.acknowledge(taken))[0]["error_code"] == 0


@pytest.mark.long
def test_acknowledged_records_survive_a_kill(tmp_path: Path, broker: Broker) -> None:
    topic = group = "share-killed"
    workload.create_topic(broker.bootstrap, topic, 1)
    produce(broker, topic, 0, 90)
    with Sharing(tmp_path, broker) as serving:
        id_ = topic_id(serving.share, topic)
        initialize(serving.bootstrap, group, id_, 1)
        with ShareMember(serving.share, group, id_) as member:
            assert acquired(member.fetch()) == {0: [(0, 89, 1)]}
            done = {0: [(0, 29, ACCEPT), (30, 39, REJECT), (40, 49, RELEASE)]}
            assert partitions_of(member.acknowledge(done))[0]["error_code"] == 0
            serving.kill()
    with Sharing(tmp_path, broker) as serving, ShareMember(serving.share, group, id_) as member:
        offsets: dict[int, int] = {}
        for first, last, count in acquired(member.fetch())[0]:
            offsets |= dict.fromkeys(range(first, last + 1), count)
        assert offsets == dict.fromkeys(range(40, 50), 2) | dict.fromkeys(range(50, 90), 1)


def test_released_records_wake_another_member_that_waits(sharing: Sharing, broker: Broker) -> None:
    topic = group = "share-released"
    workload.create_topic(broker.bootstrap, topic, 1)
    produce(broker, topic, 0, 10)
    id_ = topic_id(sharing.share, topic)
    initialize(sharing.bootstrap, group, id_, 1)
    with ShareMember(sharing.share, group, id_) as second:
        with ShareMember(sharing.share, group, id_) as first:
            assert acquired(first.fetch()) == {0: [(0, 9, 1)]}
            assert acquired(second.fetch(max_wait=NO_WAIT)) == {}
        assert acquired(second.fetch()) == {0: [(0, 9, 2)]}  # the first one is gone
        produce(broker, topic, 10, 5)
        assert acquired(second.fetch()) == {0: [(10, 14, 1)]}


def test_the_start_offset_moves_with_the_log_start_and_a_deleted_topic_is_unknown(
    sharing: Sharing, broker: Broker
) -> None:
    topic = group = "share-deleted"
    workload.create_topic(broker.bootstrap, topic, 1)
    produce(broker, topic, 0, 50)
    id_ = topic_id(sharing.share, topic)
    initialize(sharing.bootstrap, group, id_, 1, start=0)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, 20)])[TopicPartition(topic, 0)].result(SECONDS)
    with ShareMember(sharing.share, group, id_) as member:
        assert acquired(member.fetch()) == {0: [(20, 49, 1)]}
        admin.delete_topics([topic])[topic].result(SECONDS)
        response = member.fetch()
        assert partitions_of(response)[0]["error_code"] == UNKNOWN_TOPIC_ID


@pytest.mark.long
def test_records_of_aborted_transactions_are_not_delivered(tmp_path: Path, broker: Broker) -> None:
    topic = group = "share-aborted"
    workload.create_topic(broker.bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"value", partition=0)
        assert producer.flush(SECONDS) == 0  # an abort would remove records that were not sent yet
        end(SECONDS)
    with Sharing(tmp_path, broker, share_isolation_level="read_committed") as serving:
        id_ = topic_id(serving.share, topic)
        initialize(serving.bootstrap, group, id_, 1)
        with ShareMember(serving.share, group, id_) as member:
            found: list[int] = []
            while 10 not in found:
                ranges = acquired(member.fetch()).get(0, [])
                found += [offset for first, last, _ in ranges for offset in range(first, last + 1)]
            assert not {4, 5, 6} & {*found}
            assert {0, 1, 2, 8, 9, 10} <= {*found}


def test_requests_that_do_not_fit_their_session_are_refused(sharing: Sharing, broker: Broker) -> None:
    topic = group = "share-refused"
    workload.create_topic(broker.bootstrap, topic, 1)
    produce(broker, topic, 0, 10)
    id_ = topic_id(sharing.share, topic)
    initialize(sharing.bootstrap, group, id_, 1)
    with ShareMember(sharing.share, group, id_) as member:
        assert member.acknowledge({})["error_code"] == INVALID_SHARE_SESSION_EPOCH
        assert member.fetch({0: [(0, 0, ACCEPT)]})["error_code"] == INVALID_REQUEST
        assert acquired(member.fetch()) == {0: [(0, 9, 1)]}
        member.epoch += 1
        assert member.fetch()["error_code"] == INVALID_SHARE_SESSION_EPOCH
        member.epoch -= 1
        after_records = member.acknowledge({0: [(5, 10, ACCEPT)]})
        assert partitions_of(after_records)[0]["error_code"] == INVALID_REQUEST
        assert partitions_of(member.acknowledge({0: [(0, 9, ACCEPT)]}))[0]["error_code"] == 0
        twice = member.acknowledge({0: [(0, 9, ACCEPT)]})
        assert partitions_of(twice)[0]["error_code"] in {0, INVALID_RECORD_STATE}  # 0: before the start offset
        renewal = member.fetch({0: [(0, 0, RENEW)]}, is_renew_ack=True)
        assert renewal["error_code"] == INVALID_REQUEST
        member.epoch = FINAL_EPOCH
        assert member.acknowledge({})["error_code"] == 0
        member.epoch = 1
        assert member.fetch()["error_code"] == SHARE_SESSION_NOT_FOUND
