"""A front without its cluster: before the first metadata, and while the broker is stopped; logging in to brokers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka import error_codes
from offsetlake.node.handover import topic_names
from offsetlake.node.joining import controllers_of
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.node.metadata.image_reader import MAX_VERSION, read_image
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.serve.steps import complete
from support.broker.broker import PASSWORDS, Broker
from support.broker.workload import create_topic, simple_commit
from support.serve.adopted import Adopted
from support.serve.http_client import ask as http
from support.serve.kio_requests import ask

TOPIC, SECONDS = "outage", 120
FIRST, LOST, BACK = "clients must wait for the first metadata", "the last metadata stays in force", "is available again"


def topic_error(bootstrap: str) -> int:
    topics = [{"topic_id": None, "name": TOPIC}]
    return int(ask(bootstrap, apis.METADATA, 12, topics=topics)["topics"][0]["error_code"])


def commit(bootstrap: str, topic: str = TOPIC) -> int:
    offsets = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": topic, "partitions": offsets}]
    answer = ask(bootstrap, apis.OFFSET_COMMIT, 9, group_id="outage", topics=topics)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def coordinator_error(bootstrap: str, kind: int) -> int:
    answer = ask(bootstrap, apis.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["k"])
    return int(answer["coordinators"][0]["error_code"])


@pytest.mark.long
def test_front_waits_for_its_cluster_and_serves_groups_without_it(tmp_path: Path) -> None:
    adopted = Adopted(tmp_path)
    broker, serving = adopted.broker, adopted.serving()
    with broker:
        create_topic(broker.bootstrap, "before", 1)
        simple_commit(broker.bootstrap, "before", {("before", 0): 1})
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        broker.stop()
    try:
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(serving.__enter__)
            serving.wait_for_line(f"{FIRST}: Kafka at {broker.bootstrap} by PLAINTEXT: {broker.bootstrap}: connection")
            serving.wait_for_line("Serving HTTP")
            assert topic_error(serving.bootstrap) == error_codes.LEADER_NOT_AVAILABLE
            assert commit(serving.bootstrap) == error_codes.COORDINATOR_LOAD_IN_PROGRESS
            assert coordinator_error(serving.bootstrap, 0) == error_codes.NONE
            assert coordinator_error(serving.bootstrap, 1) == error_codes.COORDINATOR_NOT_AVAILABLE
            assert http(serving.http, "GET", "/readyz").status == 503
            assert "offsetlake_cluster_available 0.0" in http(serving.http, "GET", "/metrics").body
            broker.start()
            starting.result()
        create_topic(broker.bootstrap, TOPIC, 1)
        _until_committed(serving.bootstrap)

        broker.stop()
        serving.wait_for_line(LOST)
        assert (topic_error(serving.bootstrap), commit(serving.bootstrap)) == (error_codes.NONE, error_codes.NONE)
        assert commit(serving.bootstrap, "another") == error_codes.UNKNOWN_TOPIC_OR_PARTITION
        assert coordinator_error(serving.bootstrap, 1) == error_codes.COORDINATOR_NOT_AVAILABLE
        state = http(serving.http, "GET", "/readyz")
        assert (state.status, state.body["cluster"]["available"]) == (200, False)
        broker.start()
        serving.wait_for_line(BACK)
        assert "offsetlake_cluster_available 1.0" in http(serving.http, "GET", "/metrics").body
    finally:
        serving.stop()
        broker.kill()
    for text in (FIRST, LOST, BACK):
        assert sum(text in line for line in serving.said) == 1


def _until_committed(bootstrap: str) -> None:
    while commit(bootstrap) != error_codes.NONE:
        asyncio.run(asyncio.sleep(0.1))  # the interval between polls


def secured(broker: Broker, **changes: str | None) -> dict[str, str]:
    properties: dict[str, str | None] = {
        "bootstrap.servers": broker.sasl_ssl_bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": PASSWORDS["admin"],
        "ssl.ca.location": str(broker.certificate),
    }
    return {name: value for name, value in {**properties, **changes}.items() if value is not None}


async def _metadata(properties: dict[str, str]) -> Any:
    cluster = Cluster(properties, 5000)
    running = asyncio.create_task(cluster.run())
    try:
        response = await cluster.send(apis.METADATA, range(MAX_VERSION, MAX_VERSION + 1), {"topics": None})
    finally:
        running.cancel()
    return complete(read_image(response.body, response.version))


async def _changes(bootstrap: str, topic: str) -> None:
    """Create a topic, and wait until it is reported as changed."""
    cluster, changes = Cluster({"bootstrap.servers": bootstrap}, 1000), asyncio.Queue[frozenset[str]]()
    cluster.changed.append(changes.put_nowait)
    running = asyncio.create_task(cluster.run())
    try:
        await cluster.loaded()
        revision = cluster.revision
        await asyncio.to_thread(create_topic, bootstrap, topic, 1)
        async with asyncio.timeout(SECONDS):
            while topic not in await changes.get():
                pass
        assert cluster.image.partitions(topic.encode()) == 1
        assert cluster.revision > revision
    finally:
        running.cancel()


def test_new_topics_are_reported(broker: Broker) -> None:
    asyncio.run(_changes(broker.bootstrap, "front-reported"))


async def _unused(bootstrap: str, names: list[bytes]) -> tuple[set[bytes], dict[bytes, int], set[bytes]]:
    """Return what the controller answers about names, and the topics in the metadata after that."""
    cluster = Cluster({"bootstrap.servers": bootstrap}, 1000)
    running = asyncio.create_task(cluster.run())
    try:
        await cluster.loaded()
        with closing(controllers_of(cluster)) as controllers:
            unused, unknown = await topic_names.unused_names(controllers, names)
        response = await cluster.send(apis.METADATA, range(MAX_VERSION, MAX_VERSION + 1), {"topics": None})
    finally:
        running.cancel()
    return unused, unknown, {*complete(read_image(response.body, response.version)).known()}


def test_controller_reports_names_without_a_topic(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No topic is created, and a name that no topic can have is not reported as unused."""
    monkeypatch.setattr(topic_names, "MAX_NAMES", 2)
    create_topic(broker.bootstrap, "front.used", 1)
    invalid = dict.fromkeys([b"front_used", b"front/used"], error_codes.INVALID_TOPIC_EXCEPTION)
    unused, unknown, topics = asyncio.run(_unused(broker.bootstrap, [b"front.used", b"front-unused", *invalid]))
    assert (unused, unknown) == ({b"front-unused"}, invalid)
    assert b"front.used" in topics
    assert b"front-unused" not in topics


def test_front_logs_in_to_the_cluster_over_tls(broker: Broker) -> None:
    image = asyncio.run(_metadata(secured(broker)))
    assert image.cluster_id == broker.cluster_id
    assert [(node.host, node.port) for node in image.brokers] == [("127.0.0.1", int(broker.sasl_ssl_bootstrap[10:]))]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"sasl.password": "wrong"}, "sasl.username or sasl.password is wrong for SCRAM-SHA-512"),
        ({"ssl.ca.location": None}, "the certificate of the broker is not trusted"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": None}, "closed the connection"),
    ],
)
def test_cause_of_a_refused_login_is_reported(broker: Broker, changes: dict[str, str | None], cause: str) -> None:
    with pytest.raises(LogUnavailable, match=cause) as failure:
        asyncio.run(_metadata(secured(broker, **changes)))
    assert PASSWORDS["admin"] not in str(failure.value)
