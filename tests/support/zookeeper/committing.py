"""Commits to a serving process by real clients, and what znodes contain."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

SECONDS = 60
Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


def consumer(bootstrap: str, group: str, **settings: Any) -> Consumer:
    """Return a consumer of librdkafka that does not commit by itself."""
    own = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    return Consumer({**own, **{name.replace("_", "."): value for name, value in settings.items()}})


def commit(bootstrap: str, group: str, offsets: Offsets) -> None:
    """Commit offsets, and wait until they are acknowledged."""
    client = consumer(bootstrap, group)
    try:
        done = client.commit(
            offsets=[TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()],
            asynchronous=False,
        )
    finally:
        client.close()
    assert not [each.error for each in done or [] if each.error is not None]


def delete_group(bootstrap: str, group: str) -> None:
    """Delete a group with the admin API."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a client that is freed never answers
    admin.delete_consumer_groups([group])[group].result(SECONDS)


def fetched(bootstrap: str, group: str) -> Offsets:
    """Return all committed offsets of a group, by the admin API."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = ConsumerGroupTopicPartitions(group)
    result = admin.list_consumer_group_offsets([request])[group].result(SECONDS)
    return {(each.topic, each.partition): each.offset for each in result.topic_partitions if each.offset >= 0}


def znodes(client: KazooClient, group: str) -> dict[tuple[str, int], bytes]:
    """Return the contents of the znodes of a group's offsets."""
    found = {}
    for topic in _children(client, f"/consumers/{group}/offsets"):
        for partition in _children(client, f"/consumers/{group}/offsets/{topic}"):
            with suppress(NoNodeError):  # it was just deleted
                found[topic, int(partition)], _ = client.get(f"/consumers/{group}/offsets/{topic}/{partition}")
    return found


def content(offsets: Offsets) -> dict[tuple[str, int], bytes]:
    """Return what the znodes of offsets have to contain."""
    return {key: str(offset).encode() for key, offset in offsets.items()}


def wait_for(what: Callable[[], Any], expected: Any) -> None:
    """Call a function until it returns what is expected; raise AssertionError if it does not within SECONDS."""
    deadline = time.monotonic() + SECONDS
    while (found := what()) != expected:
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(0.02)  # the interval between polls


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []
