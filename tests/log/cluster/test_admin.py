"""Acting on groups: what is done is read back, and what is refused is said of each partition."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from kafka.net.connection import KafkaConnection as LibraryConnection
from kafka.protocol.metadata import MetadataRequest

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.log.cluster.connection import KafkaConnection
from support.broker import workload
from support.broker.acls import allow
from support.broker.broker import PASSWORDS, Broker

TIMEOUT_MS = 120_000
ACTIVE = "UNKNOWN_MEMBER_ID (25): the group has active members"
WRONG = "not-the-secret"
NOT_THERE = "GROUP_ID_NOT_FOUND (69): the group does not exist"
SUBSCRIBED = "GROUP_SUBSCRIBED_TO_TOPIC (86): an active member of the group is subscribed to the topic"


pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def leaves_nothing(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No thread stays, and the library logs nothing."""
    yield
    assert [each.name for each in threading.enumerate() if each.name.startswith(("kafka-io", "offsetlake"))] == []
    assert [record for record in caplog.get_records("call") if record.name.startswith("kafka")] == []
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.fixture
def admin(broker: Broker) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(KafkaConnection(bootstrap=broker.bootstrap, request_timeout_ms=TIMEOUT_MS)) as opened:
        yield opened


def sasl(broker: Broker, user: str, mechanism: str = "PLAIN", password: str | None = None) -> KafkaConnection:
    return KafkaConnection(
        bootstrap=broker.sasl_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=password or PASSWORDS[user],
        request_timeout_ms=TIMEOUT_MS,
    )


def topic_of(broker: Broker, name: str, partitions: int = 3) -> str:
    workload.create_topic(broker.bootstrap, name, partitions)
    return name


def produce(broker: Broker, topic: str, partition: int, timestamps: list[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for timestamp in timestamps:
        producer.produce(topic, b"x", partition=partition, timestamp=timestamp)
    assert producer.flush(120) == 0


def test_what_is_committed_is_read_back_exactly(broker: Broker, admin: ClusterAdmin) -> None:
    topic = topic_of(broker, "admin-exact")
    wanted = {
        (topic, 0): OffsetToCommit(0),
        (topic, 1): OffsetToCommit(2**62, 7, "naïve, мета 🦦"),
        (topic, 2): OffsetToCommit(5, -1, 'a"b,\n\x01'),
    }
    assert admin.committed("admin-exact") == {}
    assert admin.commit("admin-exact", wanted) == dict.fromkeys(wanted)
    assert admin.committed("admin-exact") == wanted
    assert admin.delete_offsets("admin-exact", [(topic, 1)]) == {(topic, 1): None}
    assert set(admin.committed("admin-exact")) == {(topic, 0), (topic, 2)}
    assert admin.delete_group("admin-exact") is None
    assert admin.committed("admin-exact") == {}
    assert admin.delete_group("admin-exact") == NOT_THERE
    assert admin.delete_offsets("admin-exact", wanted) == dict.fromkeys(wanted, NOT_THERE)
    assert admin.commit("admin-exact", {}) == admin.delete_offsets("admin-exact", []) == {}


def test_more_than_one_batch_of_the_broker_holds_goes_in_parts(broker: Broker, admin: ClusterAdmin) -> None:
    topic = topic_of(broker, "admin-many", 300)
    wanted = {(topic, number): OffsetToCommit(number, 0, f"{number:04}" * 1000) for number in range(300)}
    assert admin.commit("admin-many", wanted) == dict.fromkeys(wanted)
    assert admin.committed("admin-many") == wanted
    assert admin.log_ends(wanted) == dict.fromkeys(wanted, (0, 0))
    assert admin.delete_offsets("admin-many", wanted) == dict.fromkeys(wanted)
    assert admin.committed("admin-many") == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_change_of_active_group_is_refused(
    broker: Broker, admin: ClusterAdmin, protocol: Literal["classic", "consumer"]
) -> None:
    group, used, left = f"admin-used-{protocol}", f"admin-used-{protocol}", f"admin-left-{protocol}"
    topic_of(broker, used)
    topic_of(broker, left)
    offsets = {(used, 0): 3, (used, 1): 4, (left, 0): 5}
    assert admin.commit(group, {where: OffsetToCommit(offset) for where, offset in offsets.items()}) == dict.fromkeys(
        offsets
    )
    with closing(workload.member(broker.bootstrap, group, {(used, 0): 3, (used, 1): 4}, protocol)):
        assert admin.commit(group, {where: OffsetToCommit(1) for where in offsets}) == dict.fromkeys(offsets, ACTIVE)
        assert admin.delete_group(group) == "NON_EMPTY_GROUP (68): the group has active members"
        assert admin.delete_offsets(group, [(used, 1), (left, 0)]) == {(used, 1): SUBSCRIBED, (left, 0): None}
        assert {where: each.offset for where, each in admin.committed(group).items()} == {(used, 0): 3, (used, 1): 4}
    assert admin.delete_group(group) is None


def test_partitions_that_do_not_exist_are_refused_beside_those_that_do(broker: Broker, admin: ClusterAdmin) -> None:
    topic = topic_of(broker, "admin-some", 1)
    no_such = "UNKNOWN_TOPIC_OR_PARTITION (3): the topic or partition does not exist"
    asked = [(topic, 0), (topic, 1), ("admin-no-such", 0)]
    expected = dict(zip(asked, [None, no_such, no_such], strict=True))
    assert admin.commit("admin-some", {where: OffsetToCommit(1) for where in asked}) == expected
    assert admin.delete_offsets("admin-some", asked) == expected
    long = admin.commit("admin-some", {(topic, 0): OffsetToCommit(1, -1, "x" * 5000)})
    assert long == {
        (topic, 0): "OFFSET_METADATA_TOO_LARGE (12): the metadata is longer than the broker's offset.metadata.max.bytes"
    }


def test_log_ends_and_offsets_at_timestamp(broker: Broker, admin: ClusterAdmin) -> None:
    topic = topic_of(broker, "admin-logs")
    produce(broker, topic, 0, [1_000, 3_000, 2_000, 5_000])
    produce(broker, topic, 1, [9_000])
    every = [(topic, number) for number in range(3)]
    asked = [*every, (topic, 3), ("admin-no-such", 0)]
    assert admin.log_ends(asked) == dict(zip(every, [(0, 4), (0, 1), (0, 0)], strict=True))
    assert admin.log_ends([]) == admin.offsets_at([], 0) == {}
    for time, offsets in ((0, [0, 0, 0]), (-1, [0, 0, 0]), (2_500, [1, 0, 0]), (3_001, [3, 0, 0]), (9_001, [4, 1, 0])):
        assert admin.offsets_at(asked, time) == dict(zip(every, offsets, strict=True)), time
    assert admin.partitions([topic, "admin-no-such", "no/name"]) == {topic: [0, 1, 2]}
    assert admin.missing([topic, "admin-no-such", "no/name"]) == {"admin-no-such"}
    assert admin.partitions([]) == {}
    assert admin.missing([]) == set()


def test_no_request_can_create_a_topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    send = LibraryConnection._send_request

    def recorded(self: Any, request: Any, **options: Any) -> Any:
        sent.append(request)
        return send(self, request, **options)

    monkeypatch.setattr(LibraryConnection, "_send_request", recorded)
    with ClusterAdmin(KafkaConnection(bootstrap=broker.bootstrap, request_timeout_ms=TIMEOUT_MS)) as admin:
        nowhere = [("admin-no-such", 0)]
        assert admin.missing(["admin-no-such"]) == {"admin-no-such"}
        assert admin.log_ends(nowhere) == admin.offsets_at(nowhere, 0) == admin.partitions(["admin-no-such"]) == {}
        admin.commit("admin-creates", {nowhere[0]: OffsetToCommit(1)})
    asked = [request for request in sent if isinstance(request, MetadataRequest)]
    assert len(asked) > 4
    assert [request for request in asked if request.topics and request.allow_auto_topic_creation is not False] == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_authorized_user_changes_offsets(broker: Broker, mechanism: str) -> None:
    topic, group = topic_of(broker, f"admin-sasl-{mechanism}"), f"admin-sasl-{mechanism}"
    with ClusterAdmin(sasl(broker, "admin", mechanism)) as admin:
        assert admin.commit(group, {(topic, 0): OffsetToCommit(4)}) == {(topic, 0): None}
        assert admin.committed(group) == {(topic, 0): OffsetToCommit(4)}
        assert admin.delete_group(group) is None


def test_unauthorized_user_gets_missing_acl(broker: Broker, admin: ClusterAdmin) -> None:
    topic = topic_of(broker, "admin-rights")
    admin.commit("admin-rights", {(topic, 0): OffsetToCommit(4)})
    with ClusterAdmin(sasl(broker, "reader")) as reader:
        for refusal in (
            reader.commit("admin-rights", {(topic, 0): OffsetToCommit(1)})[topic, 0],
            reader.delete_offsets("admin-rights", [(topic, 0)])[topic, 0],
            reader.delete_group("admin-rights"),
        ):
            assert refusal is not None
            assert refusal.startswith("GROUP_AUTHORIZATION_FAILED (30): this user is not authorized for the group")
        with pytest.raises(LogUnavailable, match=r"GROUP_AUTHORIZATION_FAILED \(30\)"):
            reader.committed("admin-rights")
        assert reader.missing([topic, "admin-no-such"]) == set()
        assert reader.partitions([topic, "admin-no-such"]) == {}
        assert reader.log_ends([(topic, 0)]) == {}
        allow(broker.bootstrap, ResourceType.GROUP, "admin-rights", AclOperation.READ)
        refused = reader.commit("admin-rights", {(topic, 0): OffsetToCommit(1), (topic, 1): OffsetToCommit(1)})
        assert [str(each)[:31] for each in refused.values()] == ["TOPIC_AUTHORIZATION_FAILED (29)"] * 2
        assert reader.committed("admin-rights") == {}
    assert admin.committed("admin-rights") == {(topic, 0): OffsetToCommit(4)}


def test_over_tls(broker: Broker) -> None:
    topic = topic_of(broker, "admin-tls")
    for number, connection in enumerate(
        (
            KafkaConnection(
                bootstrap=broker.ssl_bootstrap,
                security_protocol="SSL",
                ssl_ca=str(broker.certificate),
                request_timeout_ms=TIMEOUT_MS,
            ),
            KafkaConnection(
                bootstrap=broker.sasl_ssl_bootstrap,
                security_protocol="SASL_SSL",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_username="admin",
                sasl_password=PASSWORDS["admin"],
                ssl_ca=str(broker.certificate),
                ssl_check_hostname=False,
                request_timeout_ms=TIMEOUT_MS,
            ),
        )
    ):
        with ClusterAdmin(connection) as admin:
            assert admin.commit("admin-tls", {(topic, number): OffsetToCommit(4)}) == {(topic, number): None}
            assert admin.log_ends([(topic, number)]) == {(topic, number): (0, 0)}


def test_failed_authentication_is_reported(broker: Broker) -> None:
    for connection, says in (
        (sasl(broker, "reader", password=WRONG), r"sasl\.username or sasl\.password is wrong for PLAIN"),
        (
            KafkaConnection(bootstrap=broker.ssl_bootstrap, security_protocol="SSL"),
            "certificate of the broker is not trusted",
        ),
        (KafkaConnection(bootstrap="127.0.0.1:1"), "connection refused"),
    ):
        with pytest.raises(LogUnavailable, match=says) as failed, ClusterAdmin(connection):
            pass
        assert WRONG not in str(failed.value)
