"""Settings of single share groups that kafka-configs of Kafka 4.2 sets in a cluster."""

import subprocess
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from offsetlake.serve.protocol.api_keys import SHARE_GROUP_HEARTBEAT
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER, java
from support.serve.kio_requests import ask
from support.serve.share_member import ShareMember, acquired, topic_id
from support.serve.sharing import Sharing

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]
TOPIC, SECONDS = "group-configs", 120
LOCK, INTERVAL = "share.record.lock.duration.ms", "share.heartbeat.interval.ms"


def configure(bootstrap: str, group: str, *options: str) -> str:
    """Run kafka-configs for a group; return what it prints."""
    command = java(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", group, *options,
        version=NEWER,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    return done.stdout + done.stderr


def interval_ms(bootstrap: str, group: str) -> float:
    """Join a group with a member that may have joined before; return the heartbeat interval in the response."""
    values = {"group_id": group, "member_id": str(uuid.uuid5(uuid.NAMESPACE_OID, group)), "rack_id": None}
    joined = ask(bootstrap, SHARE_GROUP_HEARTBEAT, 1, **values, member_epoch=0, subscribed_topic_names=[TOPIC])
    assert joined["error_code"] == 0, joined
    return float(joined["heartbeat_interval"])


def test_settings_of_groups_apply_and_can_change_while_their_members_fetch(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with Broker(tmp_path / "broker", version=NEWER) as broker:
        workload.create_topic(broker.bootstrap, TOPIC, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": TOPIC})
        producer.init_transactions(SECONDS)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce(TOPIC, b"value")
            assert producer.flush(SECONDS) == 0
            end(SECONDS)  # the records have the offsets 0, 2 and 4
        texts = f"share.auto.offset.reset=earliest,share.isolation.level=read_committed,{LOCK}=45000,{INTERVAL}=9000"
        assert "Completed" in configure(broker.bootstrap, "set", "--alter", "--add-config", texts)
        with Sharing(tmp_path, broker, share_auto_offset_reset="latest") as serving:
            id_ = topic_id(serving.share, TOPIC)
            assert "is not supported" in configure(serving.share, "set", "--alter", "--add-config", f"{LOCK}=46000")
            with ShareMember(serving.share, "set", id_) as member, ShareMember(serving.share, "not", id_) as other:
                await_interval(serving.share, "set", 9000)
                assert interval_ms(serving.share, "not") == 1000
                response = member.fetch()
                assert response["acquisition_lock_timeout"] == 45_000
                offsets = set[int]()
                while not {0, 4} <= offsets:
                    for first, last, _ in acquired(response).get(0, []):
                        offsets |= {*range(first, last + 1)}
                    response = member.fetch(max_wait=timedelta(milliseconds=100))
                assert 2 not in offsets
                assert acquired(other.fetch(max_wait=timedelta(0))) == {}
                configure(broker.bootstrap, "set", "--alter", "--add-config", f"{LOCK}=20000")
                while response["acquisition_lock_timeout"] != 20_000:
                    response = member.fetch(max_wait=timedelta(milliseconds=100))
                configure(broker.bootstrap, "set", "--alter", "--delete-config", f"{LOCK},{INTERVAL}")
                while response["acquisition_lock_timeout"] != 600_000:
                    response = member.fetch(max_wait=timedelta(milliseconds=100))
                await_interval(serving.share, "set", 1000)
            assert not [line for line in serving.said if "Traceback" in line]


def await_interval(bootstrap: str, group: str, expected_ms: int) -> None:
    """Wait until members of a group get a heartbeat interval."""
    deadline = time.monotonic() + SECONDS
    while interval_ms(bootstrap, group) != expected_ms:
        assert time.monotonic() < deadline
        time.sleep(0.1)
