"""Permissions on topics, which clients of the listener for share consumers need."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.auth.acl import ADMIN, COMMIT, READ, Access, Grant
from offsetlake.kafka.error_codes import (
    INVALID_RECORD_STATE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.serve.net.client import Client, RequestContext
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.share.leader_reads import Fetched
from offsetlake.share.sessions import ShareSessions
from offsetlake.share.share_apis import ShareApis
from offsetlake.share.share_fetch import ShareFetch
from support.serve.in_process import InProcess, Origin
from support.serve.share_cluster import ShareCluster, image, record_batch, share_request

GROUPS = Grant("*", "*", READ | COMMIT | ADMIN)
ACCESS = Access([GROUPS, Grant("*", "orders*", READ, is_of_topics=True)])
ALL_TOPICS = Access([GROUPS, Grant("*", "*", READ, is_of_topics=True)])
READABLE, DENIED = "orders-1", "secret"
GROUP, MEMBER = "topic-permissions", str(uuid.UUID(int=7))
READABLE_ID, DENIED_ID = b"r" * 16, b"d" * 16


@pytest.fixture
def server(tmp_path: Path, origin: Origin) -> Iterator[InProcess]:
    found = InProcess(tmp_path, origin, {READABLE.encode(): 1, DENIED.encode(): 1})
    found.load()
    found.client.checks_topics, found.client.access = True, ACCESS
    yield found
    found.close()


def metadata(server: InProcess, topics: list[dict[str, Any]] | None) -> list[tuple[int, str | None]]:
    return [(each["error_code"], each["name"]) for each in server.ask(apis.METADATA, 12, topics=topics)["topics"]]


def test_a_topic_without_permission_is_not_described(server: InProcess) -> None:
    names: list[dict[str, Any]] = [{"name": name, "topic_id": None} for name in (READABLE, DENIED, "other")]
    refused = [(TOPIC_AUTHORIZATION_FAILED, DENIED), (TOPIC_AUTHORIZATION_FAILED, "other")]
    assert metadata(server, names) == [(NONE, READABLE), *refused]
    assert metadata(server, None) == [(NONE, READABLE)]
    by_id: list[dict[str, Any]] = [
        {"name": None, "topic_id": uuid.UUID(bytes=server.topics.id_of(name.encode()))} for name in (READABLE, DENIED)
    ]
    assert metadata(server, by_id) == [(NONE, READABLE), (TOPIC_AUTHORIZATION_FAILED, None)]
    for topics in ([], [READABLE, DENIED]):
        values = {"topics": [{"name": name} for name in topics], "response_partition_limit": 10, "cursor": None}
        found = server.ask(apis.DESCRIBE_TOPIC_PARTITIONS, 0, **values)["topics"]
        partitions = {each["name"]: (each["error_code"], len(each["partitions"])) for each in found}
        denied = {DENIED: (TOPIC_AUTHORIZATION_FAILED, 0)} if topics else {}
        assert partitions == {READABLE: (NONE, 1)} | denied


def heartbeat(server: InProcess, epoch: int, topics: list[str] | None) -> dict[str, Any]:
    beat = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch, "rack_id": None}
    return server.ask(apis.SHARE_GROUP_HEARTBEAT, 1, **beat, subscribed_topic_names=topics)


def join(server: InProcess, topic: str) -> None:
    """Join the group, and wait for the assignment of the topic."""
    response = heartbeat(server, 0, [topic])
    while not (response["assignment"] or {}).get("topic_partitions"):
        assert response["error_code"] == NONE
        response = heartbeat(server, response["member_epoch"], None)


def test_a_member_needs_permission_on_all_of_its_topics(server: InProcess) -> None:
    assert heartbeat(server, 0, [READABLE, DENIED])["error_code"] == TOPIC_AUTHORIZATION_FAILED
    assert server.store.group(GROUP.encode()) is None
    join(server, READABLE)


def test_a_group_that_reads_another_topic_is_not_described(server: InProcess) -> None:
    server.client.access = ALL_TOPICS
    join(server, DENIED)
    [described] = server.ask(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[GROUP])["groups"]
    assert (described["error_code"], len(described["members"])) == (NONE, 1)
    server.client.access = ACCESS
    [described] = server.ask(apis.SHARE_GROUP_DESCRIBE, 1, group_ids=[GROUP])["groups"]
    assert (described["error_code"], described["members"]) == (TOPIC_AUTHORIZATION_FAILED, [])


def test_offsets_are_described_altered_and_deleted_only_with_permission_on_the_topic(server: InProcess) -> None:
    names = (READABLE, DENIED)
    partition = {"partition_index": 0, "start_offset": 7}
    topics = [{"topic_name": name, "partitions": [partition]} for name in names]
    altered = server.ask(apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=topics)["responses"]
    codes = {each["topic_name"]: each["partitions"][0]["error_code"] for each in altered}
    assert codes == {READABLE: NONE, DENIED: TOPIC_AUTHORIZATION_FAILED}

    def offsets(requested: object) -> dict[str, tuple[int, int]]:
        groups = [{"group_id": GROUP, "topics": requested}]
        [group] = server.ask(apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=groups)["groups"]
        parts = {each["topic_name"]: each["partitions"][0] for each in group["topics"]}
        return {name: (part["error_code"], part["start_offset"]) for name, part in parts.items()}

    every = [{"topic_name": name, "partitions": [0]} for name in names]
    assert offsets(every) == {READABLE: (NONE, 7), DENIED: (TOPIC_AUTHORIZATION_FAILED, -1)}
    server.client.access = ALL_TOPICS
    server.ask(apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=topics[1:])
    assert offsets(None) == {READABLE: (NONE, 7), DENIED: (NONE, 7)}
    server.client.access = ACCESS
    assert offsets(None) == {READABLE: (NONE, 7)}
    named = [{"topic_name": name} for name in names]
    deleted = server.ask(apis.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=named)["responses"]
    codes = {each["topic_name"]: each["error_code"] for each in deleted}
    assert codes == {READABLE: NONE, DENIED: TOPIC_AUTHORIZATION_FAILED}
    server.client.access = ALL_TOPICS
    assert offsets(None) == {DENIED: (NONE, 7)}


def test_records_are_fetched_and_acknowledged_only_with_permission_on_the_topic() -> None:
    """A client without permission neither acquires records that another one makes available, nor disturbs it."""
    partition = SimpleNamespace(partition_index=0, acknowledgement_batches=[])
    topics = [
        SimpleNamespace(topic_id=uuid.UUID(bytes=id_), partitions=[partition]) for id_ in (READABLE_ID, DENIED_ID)
    ]
    limits = {"max_records": 10, "batch_size": 10, "max_bytes": 1 << 20}

    async def asked() -> None:
        sharing = ShareCluster(lambda _, offset: Fetched(0, end=5, records=b"" if offset else record_batch(0, 5)))
        sharing.cluster.image = image({READABLE.encode(): READABLE_ID, DENIED.encode(): DENIED_ID})
        fetches = ShareFetch(sharing.partitions)
        share = ShareApis(ShareSessions(2), sharing.partitions, fetches, sharing.settings)
        clients = {"allowed": Client(), "denied": Client()}
        for name, access in (("allowed", ALL_TOPICS), ("denied", ACCESS)):
            clients[name].checks_topics, clients[name].access = True, access

        async def send(member: str, api: Any, **values: Any) -> dict[bytes, dict[str, Any]]:
            context = RequestContext(2, clients[member], None)
            response = await api(share_request(member=member, **values), context)
            return {each["topic_id"].bytes: each["partitions"][0] for each in response["responses"]}

        found: dict[bytes, dict[str, Any]] = {}
        epoch = 0
        while len(found) < 2:  # both partitions are loaded, one after the other
            found |= await send("allowed", share.fetch, topics=topics, epoch=epoch, min_bytes=1, **limits)
            epoch += 1
            await asyncio.sleep(0)
        assert {id_: len(part["acquired_records"]) for id_, part in found.items()} == {READABLE_ID: 1, DENIED_ID: 1}
        refused = await send("denied", share.fetch, topics=topics, **limits)
        assert refused[DENIED_ID]["error_code"] == TOPIC_AUTHORIZATION_FAILED
        assert not refused[DENIED_ID]["records"]
        batch = SimpleNamespace(first_offset=0, last_offset=4, acknowledge_types=(1,))
        for topic in topics:
            topic.partitions = [SimpleNamespace(partition_index=0, acknowledgement_batches=[batch])]
        codes = await send("denied", share.acknowledge, topics=topics, epoch=1)
        assert codes[DENIED_ID]["error_code"] == TOPIC_AUTHORIZATION_FAILED
        assert codes[READABLE_ID]["error_code"] in {INVALID_RECORD_STATE, UNKNOWN_TOPIC_OR_PARTITION}
        codes = await send("allowed", share.acknowledge, topics=topics, epoch=epoch)
        assert [part["error_code"] for part in codes.values()] == [NONE, NONE]

    asyncio.run(asked())
