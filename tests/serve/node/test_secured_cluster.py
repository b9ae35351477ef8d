"""Clusters whose brokers and controllers use authentication or TLS among themselves, and with this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from offsetlake.auth.credentials import Credentials
from offsetlake.kafka import error_codes
from offsetlake.serve.protocol.api_keys import METADATA
from support.broker.broker import PASSWORDS, Broker
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import NODE, Adopted, until
from support.serve.secured import log_in
from support.serve.wire_client import WireClient

pytestmark = pytest.mark.long  # a broker of its own, whose groups are adopted

TOPIC, RECORDS, SECONDS = "secured", 20, 180
PRINCIPAL = "User:CN=admin,OU=tests,O=offsetlake"
"""The principal of the certificate that all nodes and clients use."""

MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


def write_certificate(folder: Path) -> None:
    """Write a certificate of PRINCIPAL with its key in one file, and that of its authority."""
    authority = trustme.CA()
    issued = authority.issue_cert(
        "127.0.0.1", common_name="admin", organization_unit_name="tests", organization_name="offsetlake"
    )
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]  # all that Java reads
    parts += [part.bytes() for part in issued.cert_chain_pems]
    (folder / "node.pem").write_bytes(b"".join(parts))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))


def broker_overrides(folder: Path, protocol: str, mechanism: str | None) -> dict[str, str]:
    """Return the properties of a broker and controller that connects to others with a security protocol."""
    protocols = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
    overrides = {
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": ",".join(
            [f"CONTROLLER:{protocol}", *(f"{each}:{each}" for each in protocols)]
        ),
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "super.users": f"User:ANONYMOUS;User:admin;{PRINCIPAL}",
        "auto.create.topics.enable": "true",
    }
    if mechanism is None:
        return overrides | {"ssl.client.auth": "required"}
    overrides["sasl.mechanism.inter.broker.protocol"] = mechanism
    overrides["sasl.mechanism.controller.protocol"] = mechanism
    overrides["listener.name.controller.sasl.enabled.mechanisms"] = mechanism
    password = PASSWORDS["admin"]
    login = f'org.apache.kafka.common.security.{MODULES[mechanism]} required username="admin" password="{password}"'
    login += f' user_admin="{password}";' if mechanism == "PLAIN" else ";"
    for listener in (protocol.lower(), "controller"):
        overrides[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = login
    return overrides


def client_properties(folder: Path, broker: Broker, protocol: str, mechanism: str | None) -> dict[str, str]:
    addresses = {
        "SASL_SSL": broker.sasl_ssl_bootstrap,
        "SASL_PLAINTEXT": broker.sasl_bootstrap,
        "SSL": broker.ssl_bootstrap,
    }
    properties = {"bootstrap.servers": addresses[protocol], "security.protocol": protocol}
    if protocol.endswith("SSL"):
        properties["ssl.ca.location"] = str(folder / "ca.pem")
    if mechanism is None:
        file = str(folder / "node.pem")
        return properties | {"ssl.certificate.location": file, "ssl.key.location": file}
    login = {"sasl.username": "admin", "sasl.password": PASSWORDS["admin"]}
    return properties | {"sasl.mechanism": mechanism} | login


def listener_settings(folder: Path, protocol: str, mechanism: str | None) -> dict[str, str]:
    """Return the settings of a serving process that listens with the security protocol."""
    settings = {}
    if protocol.endswith("SSL"):
        settings |= dict.fromkeys(("tls_certificate", "tls_key"), str(folder / "node.pem"))
    if mechanism is None:
        return settings | {"tls_client_ca": str(folder / "ca.pem")}
    credentials = Credentials()
    for name in ("admin", "reader"):
        credentials.add_user(name, PASSWORDS[name])
    credentials.write(folder / "credentials.json")
    return settings | {"credentials": str(folder / "credentials.json")}


@pytest.mark.parametrize(
    ("protocol", "mechanism"), [("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-512"), ("SSL", None)]
)
def test_groups_are_adopted_served_and_returned(tmp_path: Path, protocol: str, mechanism: str | None) -> None:
    """The controller, the brokers, the markers of transactions and clients log in as the same user."""
    write_certificate(tmp_path)
    adopted = Adopted(tmp_path, **broker_overrides(tmp_path, protocol, mechanism))
    settings = listener_settings(tmp_path, protocol, mechanism)
    with adopted.broker as broker:
        client = client_properties(tmp_path, broker, protocol, mechanism)
        (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in client.items()))
        create_topic(broker.bootstrap, TOPIC, 1)
        simple_commit(broker.bootstrap, "before", {(TOPIC, 0): 3})
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        options += ["--cluster", client["bootstrap.servers"], "--kafka-config", str(tmp_path / "client.properties")]
        code, output = adopted.adopt("--execute", *options)
        assert code == 0, output
        with adopted.serving(cluster=client, http=None, **settings) as serving:
            assert offset(client, "before") == 3
            assert offset(client | {"bootstrap.servers": serving.bootstrap}, "before") == 3
            produce(client)
            assert read(client, "reads") == [*range(RECORDS)]
            commit_transaction(client, "before", 9)
            until(lambda: offset(client, "before"), 9)
            assert own_settings(client)["node.id"].value == str(NODE)
            if protocol == "SASL_PLAINTEXT":
                topics_are_created_with_the_rights_of_clients(serving.bootstrap)
        code, output = adopted.move("return", "--execute", *options)
        assert code == 0, output
        for group, expected in (("before", 9), ("reads", RECORDS)):
            assert offset(client, group) == expected


def topics_are_created_with_the_rights_of_clients(bootstrap: str) -> None:
    """`admin` may create topics, `reader` may not."""

    def exists(name: str, user: str, *, allowed: bool = True) -> bool:
        topics = [{"topic_id": None, "name": name}]
        values = {"topics": topics, "allow_auto_topic_creation": allowed, "include_topic_authorized_operations": False}
        with WireClient(bootstrap) as client:
            (topic,) = log_in(client, user, PASSWORDS[user]).ask(METADATA, 12, values)["topics"]
            return bool(topic["error_code"] == error_codes.NONE)

    assert not exists("named-by-reader", "reader")
    until(lambda: exists("named-by-admin", "admin"), expected=True)
    assert not exists("named-by-reader", "admin", allowed=False)


def produce(client: Mapping[str, str]) -> None:
    producer = Producer(dict(client))
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number))
    assert producer.flush(SECONDS) == 0


def read(client: Mapping[str, str], group: str) -> list[int]:
    """Read RECORDS records as a member of a group, and commit."""
    settings: dict[str, Any] = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings | dict(client))
    consumer.subscribe([TOPIC])
    messages = consumer.consume(RECORDS, SECONDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [int(message.value() or b"") for message in messages]


def commit_transaction(client: Mapping[str, str], group: str, offset: int) -> None:
    """Commit an offset of partition 0 in a transaction."""
    producer = Producer(dict(client) | {"transactional.id": "moves"})
    consumer = Consumer(dict(client) | {"group.id": group})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    partitions = [TopicPartition(TOPIC, 0, offset)]
    producer.send_offsets_to_transaction(partitions, consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    consumer.close()


def own_settings(client: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the serving process, which a client requests from it."""
    node, admin = ConfigResource(ConfigResource.Type.BROKER, str(NODE)), AdminClient(dict(client))
    settings: dict[str, Any] = admin.describe_configs([node])[node].result(SECONDS)
    return settings


def offset(client: Mapping[str, str], group: str) -> int:
    """Return the committed offset of partition 0."""
    admin = AdminClient(dict(client))  # released, it would cancel the request
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return int(future.result(SECONDS).topic_partitions[0].offset)
