"""The rig itself: a broker that answers on all its listeners, traffic that reaches its log, oracles that agree."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from support.broker import workload
from support.broker.broker import PASSWORDS, Broker, BrokerFailedError
from support.broker.tools import DumpedRecord, await_loaded, broker_groups, broker_offsets, dump_log

pytestmark = pytest.mark.broker

TOPIC = "rig"
ORDERS = {(TOPIC, 0): 3, (TOPIC, 1): 4}


@pytest.fixture(scope="module")
def bootstrap(broker: Broker) -> str:
    workload.create_topic(broker.bootstrap, TOPIC, 2)
    return broker.bootstrap


def of_group(broker: Broker, group_id: str) -> list[DumpedRecord]:
    """Return the dumped records of a group, and the markers of the transactions that wrote some of them."""
    dumped = [record for record in dump_log(broker.data_dir) if record.log_topic == "__consumer_offsets"]
    own = [record for record in dumped if record.key and group_id in record.key["data"].values()]
    writers = {record.producer_id for record in own if record.is_transactional}
    ended = [record for record in dumped if record.marker and record.producer_id in writers]
    assert {record.log_partition for record in own + ended} == {own[0].log_partition}
    return sorted(own + ended, key=lambda record: record.offset)


def told(records: list[DumpedRecord]) -> list[Any]:
    """Say each record in short: its marker, its committed offset, or its type with "gone" for a tombstone."""
    said: list[Any] = []
    for record in records:
        kind = record.key["type"] if record.key else record.marker
        if record.tombstone:
            said.append(f"{kind} gone")
        else:
            said.append(record.payload["data"]["offset"] if kind == "1" and record.payload else kind)
    return said


def offsets_of(bootstrap: str, group_id: str) -> dict[tuple[str, int], tuple[int, int, str]]:
    return {
        (topic, part): found for (group, topic, part), found in broker_offsets(bootstrap).items() if group == group_id
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_sasl_listener_authenticates_each_user(broker: Broker, bootstrap: str, protocol: str, mechanism: str) -> None:
    address = broker.sasl_bootstrap if protocol == "SASL_PLAINTEXT" else broker.sasl_ssl_bootstrap
    settings = {
        "bootstrap.servers": address,
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(broker.certificate),
    }
    answers = {}
    for user, password in PASSWORDS.items():
        admin = AdminClient(settings | {"sasl.username": user, "sasl.password": password})
        answers[user] = admin.list_topics(TOPIC, timeout=120).topics[TOPIC]
    assert len(answers["admin"].partitions) == 2
    assert answers["reader"].error == KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_ssl_listener_presents_the_configured_certificate(broker: Broker, bootstrap: str) -> None:
    settings = {"bootstrap.servers": broker.ssl_bootstrap, "security.protocol": "SSL"}
    admin = AdminClient(settings | {"ssl.ca.location": str(broker.certificate)})
    described = admin.list_topics(timeout=120)
    assert described.cluster_id == broker.cluster_id
    assert TOPIC in described.topics


def test_classic_member_is_stable_until_it_leaves(broker: Broker, bootstrap: str) -> None:
    with closing(workload.member(bootstrap, "rig-classic", ORDERS, "classic")):
        assert broker_groups(bootstrap)["rig-classic"] == ("Stable", "classic", "consumer")
    assert broker_groups(bootstrap)["rig-classic"] == ("Empty", "classic", "consumer")
    assert told(of_group(broker, "rig-classic")) == ["2", "2", 3, 4, "2"]


def test_kip_848_member_is_stable_until_it_leaves(broker: Broker, bootstrap: str) -> None:
    with closing(workload.member(bootstrap, "rig-848", ORDERS, "consumer")):
        assert broker_groups(bootstrap)["rig-848"] == ("Stable", "consumer", "consumer")
    assert broker_groups(bootstrap)["rig-848"] == ("Empty", "consumer", "consumer")
    records = told(of_group(broker, "rig-848"))
    assert records[:5] == ["5", "3", "7", "6", "8"]
    assert records[-4:] == ["8 gone", "7 gone", "5 gone", "3"]
    assert {3, 4} <= set(records)


def test_committed_offsets_are_fetched_with_epoch_and_metadata(bootstrap: str) -> None:
    workload.simple_commit(bootstrap, "rig-simple", ORDERS, leader_epoch=0)
    workload.aiokafka_member(bootstrap, "rig-aiokafka", ORDERS, "мета payload: {")
    workload.admin_reset(bootstrap, "rig-simple", {(TOPIC, 1): 1})
    assert offsets_of(bootstrap, "rig-simple") == {(TOPIC, 0): (3, 0, ""), (TOPIC, 1): (1, -1, "")}
    assert offsets_of(bootstrap, "rig-aiokafka") == {
        (TOPIC, 0): (3, -1, "мета payload: {"),
        (TOPIC, 1): (4, -1, "мета payload: {"),
    }
    assert broker_groups(bootstrap)["rig-simple"] == ("Empty", "classic", "")


def test_dumped_offsets_equal_the_brokers_answers(broker: Broker, bootstrap: str) -> None:
    workload.aiokafka_member(bootstrap, "rig-группа", ORDERS, 'a" key: b')
    dumped = [record for record in of_group(broker, "rig-группа") if record.key and record.key["type"] == "1"]
    said = {}
    for record in dumped:
        assert record.key is not None
        assert record.payload is not None
        assert record.is_valid
        place, value = record.key["data"], record.payload["data"]
        said[place["topic"], place["partition"]] = (value["offset"], value["leaderEpoch"], value["metadata"])
    assert said == offsets_of(bootstrap, "rig-группа")


def test_deleted_offsets_and_groups_have_tombstones(broker: Broker, bootstrap: str) -> None:
    workload.simple_commit(bootstrap, "rig-deleted", ORDERS)
    workload.delete_offsets(bootstrap, "rig-deleted", TOPIC, [1])
    assert offsets_of(bootstrap, "rig-deleted") == {(TOPIC, 0): (3, -1, "")}
    workload.delete_group(bootstrap, "rig-deleted")
    assert "rig-deleted" not in broker_groups(bootstrap)
    assert told(of_group(broker, "rig-deleted")) == [3, 4, "1 gone", "1 gone", "2 gone"]


def test_transactions_commit_abort_and_stay_open(broker: Broker, bootstrap: str) -> None:
    group_id = "rig-transactions"
    workload.committed_transaction(bootstrap, "rig-1", group_id, ORDERS)
    workload.aborted_transaction(bootstrap, "rig-1", group_id, {(TOPIC, 0): 30})
    transaction = workload.open_transaction(bootstrap, "rig-2", group_id, {(TOPIC, 0): 60})
    assert offsets_of(bootstrap, group_id) == {(TOPIC, 0): (3, -1, ""), (TOPIC, 1): (4, -1, "")}
    records = of_group(broker, group_id)
    assert told(records) == [3, 4, "COMMIT", 30, "ABORT", 60]
    writers = [record.producer_id for record in records]
    assert writers[0] == writers[1] == writers[2] == writers[3] == writers[4] != writers[5]
    assert all(record.is_transactional for record in records)
    assert [record.is_control for record in records] == [False, False, True, False, True, False]
    transaction.commit()
    assert offsets_of(bootstrap, group_id)[TOPIC, 0] == (60, -1, "")


def test_crossed_transactions_keep_the_later_record(broker: Broker, bootstrap: str) -> None:
    workload.crossed_transactions(bootstrap, "rig-crossed", {(TOPIC, 0): 1}, {(TOPIC, 0): 2})
    assert offsets_of(bootstrap, "rig-crossed") == {(TOPIC, 0): (2, -1, "")}
    records = of_group(broker, "rig-crossed")
    assert told(records) == [1, 2, "COMMIT", "COMMIT"]
    first, second = records[0].producer_id, records[1].producer_id
    assert [record.producer_id for record in records] == [first, second, second, first]


@pytest.mark.long
def test_share_group_writes_its_state(broker: Broker, bootstrap: str) -> None:
    workload.produce(bootstrap, TOPIC, 10)
    workload.share_group(bootstrap, "rig-share", TOPIC, 10)
    assert broker_groups(bootstrap)["rig-share"] == ("Empty", "share", "share")
    state = [record for record in dump_log(broker.data_dir) if record.log_topic == "__share_group_state"]
    accepted = set()
    for record in state:
        assert record.key is not None
        assert record.payload is not None
        if record.key["data"]["groupId"] == "rig-share" and record.key["data"]["partition"] == 0:
            for batch in record.payload["data"]["stateBatches"]:
                assert batch["deliveryState"] == 2
                accepted |= set(range(batch["firstOffset"], batch["lastOffset"] + 1))
    assert accepted == set(range(10))


def test_bulk_commits_are_all_written(broker: Broker, bootstrap: str) -> None:
    workload.create_topic(bootstrap, "rig-wide", 20)
    workload.bulk_commits(bootstrap, "rig-wide", groups=12, partitions=20, rounds=3)
    wanted = {(f"bulk-{group}", "rig-wide", part): (2, -1, "") for group in range(12) for part in range(20)}
    found = {key: value for key, value in broker_offsets(bootstrap).items() if key[1] == "rig-wide"}
    assert found == wanted
    dumped = [
        record for record in dump_log(broker.data_dir) if record.key and "rig-wide" in record.key["data"].values()
    ]
    assert len(dumped) == 12 * 20 * 3


@pytest.mark.long
def test_killed_broker_keeps_all_offsets(tmp_path: Path) -> None:
    with Broker(tmp_path, {"broker.session.timeout.ms": "2000", "offsets.topic.num.partitions": "3"}) as own:
        workload.create_topic(own.bootstrap, TOPIC, 2)
        workload.simple_commit(own.bootstrap, "rig-crash", ORDERS)
        before = broker_offsets(own.bootstrap)
        own.kill()
        own.start()
        await_loaded(own.bootstrap, ["rig-crash"])
        assert broker_offsets(own.bootstrap) == before
        own.restart()
        await_loaded(own.bootstrap, ["rig-crash"])
        assert broker_offsets(own.bootstrap) == before
        own.stop()
        assert sorted(path.name for path in own.data_dir.glob("__consumer_offsets-*")) == [
            f"__consumer_offsets-{number}" for number in range(3)
        ]
    assert before == {("rig-crash", TOPIC, 0): (3, -1, ""), ("rig-crash", TOPIC, 1): (4, -1, "")}


@pytest.mark.long
def test_failed_start_reports_the_brokers_log(tmp_path: Path) -> None:
    broken = Broker(tmp_path, {"ssl.keystore.location": str(tmp_path / "nowhere.pem")})
    with pytest.raises(BrokerFailedError, match=r"nowhere\.pem"):
        broken.start()
    broken.stop()


def test_dump_marks_undecodable_and_damaged_records(tmp_path: Path) -> None:
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20
    )
    key = bytes.fromhex("0001000267310002747000000007")
    builder.append(0, 1700000000000, b"\x7f\xff" + key[2:], b"?", [])
    builder.append(1, 1700000000001, key, b"\x00\x63nonsense", [])
    builder.append(2, 1700000000002, key, None, [])
    segment = tmp_path / "__consumer_offsets-5" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(bytes(builder.build()))
    records = dump_log(segment)
    assert [(record.log_partition, record.offset, record.timestamp) for record in records] == [
        (5, number, 1700000000000 + number) for number in range(3)
    ]
    assert [record.undecoded is None for record in records] == [False, False, True]
    assert [record.tombstone for record in records] == [False, False, True]
    assert records[2].key == {"type": "1", "data": {"group": "g1", "topic": "tp", "partition": 7}}
    damaged = bytearray(segment.read_bytes())
    damaged[-20] ^= 1
    segment.write_bytes(damaged)
    assert [record.is_valid for record in dump_log(tmp_path)] == [False, False, False]


def test_member_without_permission_is_refused(broker: Broker, bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": PASSWORDS["reader"],
        "group.id": "rig-refused",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([TOPIC])
        answered = consumer.poll(30)
        assert answered is not None
        refused = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
        assert answered.error().code() in refused
