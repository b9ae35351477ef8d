"""A cluster whose brokers and controllers use SASL over TLS among themselves, and with this process."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from offsetlake.serve.auth.credentials import Credentials
from support.broker.broker import PASSWORDS
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted, until

pytestmark = pytest.mark.long  # a broker of its own, whose groups are adopted

TOPIC, SECONDS = "secured", 180
LOGIN = (
    f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{PASSWORDS["admin"]}"'
    f' user_admin="{PASSWORDS["admin"]}";'
)


def overrides(folder: Path) -> dict[str, str]:
    """Return the properties of a broker and controller that connects to others by SASL_SSL."""
    protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
    return {
        "inter.broker.listener.name": "SASL_SSL",
        "listener.security.protocol.map": ",".join(["CONTROLLER:SASL_SSL", *(f"{each}:{each}" for each in protocols)]),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": LOGIN,
        "listener.name.controller.plain.sasl.jaas.config": LOGIN,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "broker" / "certificate.pem"),
    }


def test_groups_move_and_transactions_end_over_tls_and_sasl(tmp_path: Path) -> None:
    """The controller, the adoption, the markers of transactions and clients log in with the same user."""
    adopted = Adopted(tmp_path, **overrides(tmp_path))
    credentials, key_store = Credentials(), str(tmp_path / "broker" / "keystore.pem")
    credentials.add_user("admin", PASSWORDS["admin"])
    credentials.write(tmp_path / "credentials.json")
    with adopted.broker as broker:
        client = {
            "bootstrap.servers": broker.sasl_ssl_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "ssl.ca.location": str(broker.certificate),
        }
        settings = {
            "tls_certificate": key_store,
            "tls_key": key_store,
            "credentials": str(tmp_path / "credentials.json"),
        }
        (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in client.items()))
        create_topic(broker.bootstrap, TOPIC, 1)
        simple_commit(broker.bootstrap, "before", {(TOPIC, 0): 3})
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        place = ["--cluster", broker.sasl_ssl_bootstrap, "--kafka-config", str(tmp_path / "client.properties")]
        code, output = adopted.adopt("--execute", *place, *options)
        assert code == 0, output
        with adopted.serving(cluster=client, http=None, **settings) as serving:
            assert offset(client, "before") == 3
            assert offset(client | {"bootstrap.servers": serving.bootstrap}, "before") == 3
            producer = Producer(client | {"transactional.id": "moves"})
            consumer = Consumer(client | {"group.id": "before"})
            producer.init_transactions(SECONDS)
            producer.begin_transaction()
            partitions = [TopicPartition(TOPIC, 0, 9)]
            producer.send_offsets_to_transaction(partitions, consumer.consumer_group_metadata(), SECONDS)
            producer.commit_transaction(SECONDS)
            consumer.close()
            until(lambda: offset(client, "before"), 9)


def offset(client: dict[str, str], group: str) -> int:
    """Return the committed offset of partition 0."""
    admin = AdminClient(client)  # released, it would cancel the request
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return int(future.result(SECONDS).topic_partitions[0].offset)
