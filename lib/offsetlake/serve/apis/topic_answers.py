"""What Metadata and DescribeTopicPartitions answer about a topic."""

import uuid
from collections.abc import Sequence
from typing import Any

from offsetlake.kafka.error_codes import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.encoding import Encoded, Values
from offsetlake.serve.protocol.topic_descriptions import TopicTable
from offsetlake.serve.protocol.topics import Topics, is_valid_name
from offsetlake.serve.steps import Steps

MAX_DESCRIBED_PARTITIONS = 20_000
"""Maximum number of partitions in one Metadata response, if commits can create partitions."""


def requested_topic(topics: Topics, table: TopicTable, topic: Any, client: Client) -> dict[str, Any]:
    """Return the description of a topic that Metadata requests by name or id; `table` are the topics of the moment."""
    if topic.name is not None:
        return named_topic(topics, table, topic.name, client)
    id_ = topic.topic_id.bytes if topic.topic_id else ZERO_UUID
    name, error = table.name_of(id_), UNKNOWN_TOPIC_ID
    if name is None:
        topics.request(id_)
    elif client.may_read_topic(name):
        return described_topic(table, name)
    else:
        error = TOPIC_AUTHORIZATION_FAILED  # with the id and without the name, as a broker answers
    return {"error_code": error, "name": None, "topic_id": topic.topic_id, "partitions": []}


def named_topic(topics: Topics, table: TopicTable, text: str, client: Client) -> dict[str, Any]:
    """Return the description of the topic with a name from a client, as `described_topic`, or an error."""
    name, error = text.encode(), NONE
    if not client.may_read_topic(name):
        error = TOPIC_AUTHORIZATION_FAILED
    elif not is_valid_name(name):
        error = INVALID_TOPIC_EXCEPTION
    elif table.partitions(name) == 0:
        topics.request(name)
        error = UNKNOWN_TOPIC_OR_PARTITION if table.leads or table.brokers else LEADER_NOT_AVAILABLE
    if error:
        return {"error_code": error, "name": text, "topic_id": None, "partitions": range(0)}
    return described_topic(table, name)


def listed(table: TopicTable, client: Client) -> Steps[list[bytes]]:
    """Return the topics in the response to a request for all topics: where topics have permissions, the readable ones.

    Elsewhere they reveal what all groups read, so only a principal that may read all groups gets them. A topic that a
    request names is described to every authenticated client, because clients need that before they can commit.
    """
    if not client.checks_topics:
        return sorted(table.known()) if client.access.may_read_log() else []
    names = []
    for name in sorted(table.known()):
        if client.access.may_read_topic(name):
            names.append(name)
        yield 0
    return names


def described_topic(table: TopicTable, name: bytes) -> dict[str, Any]:
    """Return the description of a topic, with the numbers of its partitions only."""
    return {
        "error_code": NONE,
        "name": name.decode(),
        "topic_id": uuid.UUID(bytes=table.id_of(name)),
        "is_internal": table.is_internal(name),
        "partitions": range(table.partitions(name)),
    }


def encoded(table: TopicTable, topic: Values, limit: int | None, api: int, version: int) -> Encoded:
    """Return the encoded partitions of a topic, the first `limit` ones; all of them for an internal topic."""
    numbers = topic["partitions"]
    if not numbers:
        return Encoded(0, ())
    numbers = numbers if topic["is_internal"] else numbers[:limit]
    return table.encoded_partitions(topic["name"].encode(), numbers, api, version)


def partition_limit(table: TopicTable, topics: Sequence[Values]) -> int | None:
    """Return the maximum number of partitions of each topic in a response; None without a limit.

    If any topic exists, commits can create partitions: then a response contains at most MAX_DESCRIBED_PARTITIONS,
    the first ones of each topic, and at least one of each topic.
    """
    too_many = table.any and sum(len(topic["partitions"]) for topic in topics) > MAX_DESCRIBED_PARTITIONS
    return max(1, MAX_DESCRIBED_PARTITIONS // len(topics)) if too_many else None


def invalid_topic(topic: Any) -> dict[str, Any]:
    """Refuse a topic in Metadata that is identified as the version does not allow; names are not nullable in it."""
    return {"error_code": INVALID_REQUEST, "name": topic.name or "", "topic_id": topic.topic_id, "partitions": ()}
