"""The topics that a request names, whose answer depends on whether they exist."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from offsetlake.serve.protocol.api_keys import (
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_TOPIC_PARTITIONS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_DELETE,
    TXN_OFFSET_COMMIT,
)
from offsetlake.serve.protocol.topics import NamedPartition


def named_topics(api: int, request: Any) -> list[NamedPartition]:
    """Return the topics in a request; none for an API whose answer does not depend on them."""
    read = _READERS.get(api)
    return [] if read is None else [*read(request)]


def _described(request: Any) -> Iterator[NamedPartition]:
    for topic in request.topics or ():
        if topic.name is not None:
            yield NamedPartition(topic.name.encode())
        elif getattr(topic, "topic_id", None) is not None:
            yield NamedPartition(None, topic.topic_id.bytes)


def _subscribed(request: Any) -> Iterator[NamedPartition]:
    return (NamedPartition(name.encode()) for name in request.subscribed_topic_names or ())


def _with_partitions(request: Any) -> Iterator[NamedPartition]:
    for topic in request.topics:
        last = max((each.partition_index for each in topic.partitions), default=0)
        if hasattr(topic, "name"):
            yield NamedPartition(topic.name.encode(), partition=last)
        elif topic.topic_id is not None:
            yield NamedPartition(None, topic.topic_id.bytes, last)


_READERS: Mapping[int, Callable[[Any], Iterable[NamedPartition]]] = {
    METADATA: _described,
    DESCRIBE_TOPIC_PARTITIONS: _described,
    CONSUMER_GROUP_HEARTBEAT: _subscribed,
    LIST_OFFSETS: _with_partitions,
    OFFSET_DELETE: _with_partitions,
    TXN_OFFSET_COMMIT: _with_partitions,
}
