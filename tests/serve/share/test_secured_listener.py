"""Kafka's console share consumer at a listener with TLS, SASL and permissions on groups and topics."""

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from offsetlake.kafka.error_codes import SASL_AUTHENTICATION_FAILED
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER, java
from support.serve.secured import USERS, Secured, authenticate, secured, shake_hands
from support.serve.sharing import Sharing

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]
TOPIC, OTHER_TOPIC, GROUP, RECORDS = "secured-share", "secured-share-other", "billing-share", 10
ACL = f"""
[[acl]]
principal = "User:admin"
group = "billing-*"
permissions = ["commit"]

[[acl]]
principal = "User:admin"
topic = "{TOPIC}"
permissions = ["read"]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    files = secured(tmp_path_factory.mktemp("secured"))
    files.replace_acl(ACL)
    return files


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory, broker: Broker, files: Secured) -> Iterator[Sharing]:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for topic in (TOPIC, OTHER_TOPIC):
        workload.create_topic(broker.bootstrap, topic, 1)
        for number in range(RECORDS):
            producer.produce(topic, str(number).encode())
    assert producer.flush(120) == 0
    with Sharing(tmp_path_factory.mktemp("sharing"), broker, security=files.settings) as serving:
        yield serving


def consume(sharing: Sharing, files: Secured, topic: str, group: str) -> tuple[list[int], str]:
    """Return the values that a share consumer reads before it ends, and its output."""
    module, password = "org.apache.kafka.common.security.plain.PlainLoginModule", USERS["admin"]
    login = f'{module} required username="admin" password="{password}";'
    properties = files.folder / "client.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={files.ca}\n"
    )
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--bootstrap-server", sharing.share, "--topic", topic, "--group", group, "--command-config", str(properties),
        "--max-messages", str(RECORDS), "--timeout-ms", "120000",
        version=NEWER,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    return [int(line) for line in done.stdout.splitlines() if line.isdigit()], done.stdout + done.stderr


def test_a_client_with_permissions_reads_all_records(sharing: Sharing, files: Secured) -> None:
    values, output = consume(sharing, files, TOPIC, GROUP)
    assert values == [*range(RECORDS)], output


@pytest.mark.parametrize(
    ("topic", "group", "error"),
    [(TOPIC, "other", "GroupAuthorizationException"), (OTHER_TOPIC, GROUP, "TopicAuthorizationException")],
)
def test_a_client_without_permission_reads_nothing(
    sharing: Sharing, files: Secured, topic: str, group: str, error: str
) -> None:
    values, output = consume(sharing, files, topic, group)
    assert values == []
    assert error in output


def test_a_client_with_a_wrong_password_is_refused(sharing: Sharing, files: Secured) -> None:
    with files.wire(sharing.share) as client:
        assert shake_hands(client, "PLAIN")["error_code"] == 0
        assert authenticate(client, b"\0admin\0wrong")["error_code"] == SASL_AUTHENTICATION_FAILED
