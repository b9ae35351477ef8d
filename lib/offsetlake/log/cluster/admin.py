"""Changes groups of a live cluster through Kafka's admin API, and reads their offsets.

OffsetCommit, OffsetDelete and DeleteGroups are sent for changes; Metadata, ListOffsets and OffsetFetch for reads. No
request creates a topic.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self
from uuid import UUID

from kafka import OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.errors import BrokerResponseError

from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.kafka.uuid import ZERO_UUID, uuid_text
from offsetlake.log.cluster import refusals
from offsetlake.log.cluster.admin_session import (
    FAILURES,
    RETRY_PAUSE,
    AdminSession,
    GivenUpError,
    is_lost,
    is_temporary,
    raise_temporary,
)
from offsetlake.log.cluster.connection import KafkaConnection

UNKNOWN_OFFSET = NO_LEADER = -1

REQUEST_BYTES = 200_000
"""Approximate size of the offsets in a request; a coordinator writes them as one batch of by default at most 1 MiB."""
PARTITION_BYTES = 100
"""Maximum size of an offset record without its group ID, topic and metadata."""

Partition = tuple[str, int]
"""Topic and partition."""
Described = dict[str, Any]
"""A topic as Metadata describes it."""


class Topic(NamedTuple):
    """The ID of a topic as Kafka's tools print it, None in clusters without topic IDs, and its partitions, sorted."""

    topic_id: str | None
    partitions: list[int]


class OffsetToCommit(NamedTuple):
    """A committed offset: the next offset to read, the leader epoch of the last one (-1 = unknown), and metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ClusterAdmin:
    """Changes and reads the offsets of groups: `with ClusterAdmin(connection) as admin`.

    A change returns the result for each partition: None for success, or the error as `NAME (code): meaning`. It raises
    no error: if the cluster stops answering, that is the result for the affected partitions.

    Raises:
        LogUnavailable: On entry and in reads: no broker is reachable within the request timeout, or the brokers reject
            the client.
        BadRequest: On entry: a certificate file cannot be read.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._session = AdminSession(connection)

    def __enter__(self) -> Self:
        self._session.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def commit(self, group_id: str, offsets: Mapping[Partition, OffsetToCommit]) -> dict[Partition, str | None]:
        """Commit offsets of a group without members; a group that does not exist is created."""
        sizes = {where: len(offset.metadata.encode()) for where, offset in offsets.items()}
        return self._act(_parts(group_id, sizes), partial(_alter, group_id=group_id, offsets=offsets))

    def delete_offsets(self, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, str | None]:
        """Delete offsets of a group for topics to which no member is subscribed; missing offsets are a success."""
        return self._act(_parts(group_id, dict.fromkeys(partitions, 0)), partial(_delete, group_id=group_id))

    def delete_group(self, group_id: str) -> str | None:
        """Delete a group without members and all its offsets; return None or the error.

        The error is UNKNOWN_SERVER_ERROR (-1) if the tombstones of its offsets do not fit into a batch of the broker,
        such as 10,000 with a long group ID. Its offsets must be deleted first then.
        """
        lost = False

        def attempt(client: Any) -> int:
            nonlocal lost
            try:
                code = refusals.code_of(client.delete_groups([group_id])[group_id])
            except FAILURES as failure:
                lost = lost or is_lost(failure)
                if not isinstance(failure, BrokerResponseError) or is_temporary(failure):
                    raise
                code = failure.errno
            raise_temporary(code)
            # A lost response to an earlier attempt means that this attempt may have deleted the group.
            return 0 if lost and code == GROUP_ID_NOT_FOUND else code

        try:
            return refusals.explain(self._session.within_timeout(attempt))
        except GivenUpError as given_up:
            return given_up.outcome

    def committed(self, group_id: str) -> dict[Partition, OffsetToCommit]:
        """Return all committed offsets of a group, without those of open transactions; none if it does not exist.

        The broker omits topics for which this user is not authorized.
        """
        found = self._session.read(lambda client: client.list_group_offsets([group_id]).get(group_id, {}))
        return {
            (where.topic, where.partition): OffsetToCommit(
                offset.offset, -1 if offset.leader_epoch is None else offset.leader_epoch, offset.metadata or ""
            )
            for where, offset in found.items()
        }

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return log start offset and high watermark of partitions, UNKNOWN_OFFSET if the server does not know them.

        Partitions that do not exist, have no leader or are not visible to this user are omitted.
        """
        earliest = self._offsets(self._led(partitions), OffsetSpec.EARLIEST)
        known = [where for where, offset in earliest.items() if offset != UNKNOWN_OFFSET]
        latest = self._offsets(known, OffsetSpec.LATEST)
        return {where: (offset, latest.get(where, UNKNOWN_OFFSET)) for where, offset in earliest.items()}

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the first offset at or after a time (ms since the epoch), or the log end offset if there is none.

        Partitions that do not exist, have no leader or are not visible to this user are omitted.
        """
        # Negative timestamps have a special meaning in ListOffsets, such as -1 for the latest offset.
        found = self._offsets(self._led(partitions), max(timestamp_ms, 0))
        at_end = [where for where, offset in found.items() if offset == UNKNOWN_OFFSET]
        return found | self._offsets(at_end, OffsetSpec.LATEST)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        """Return those topics that exist and are visible to this user."""
        return {
            topic["name"]: Topic(_topic_id(topic), sorted(_leaders(topic)))
            for topic in self._topics(names, _is_temporary)
            if not topic["error_code"]
        }

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return the partitions of those `topics` that exist and are visible to this user."""
        return {name: topic.partitions for name, topic in self.topics(topics).items()}

    def missing(self, topics: Collection[str]) -> set[str]:
        """Return those `topics` that do not exist according to the broker."""
        return self._with_error(topics, UNKNOWN_TOPIC_OR_PARTITION)

    def hidden(self, topics: Collection[str]) -> set[str]:
        """Return those `topics` that are not visible to this user."""
        return self._with_error(topics, TOPIC_AUTHORIZATION_FAILED)

    def _with_error(self, topics: Collection[str], code: int) -> set[str]:
        return {topic["name"] for topic in self._topics(topics, _is_temporary) if topic["error_code"] == code}

    def _act(
        self, parts: Iterable[list[Partition]], send: Callable[[Any, list[Partition]], dict[Any, Any]]
    ) -> dict[Partition, str | None]:
        """Return the result for each partition; after a timeout, the remaining parts are not sent."""
        results: dict[Partition, str | None] = {}
        given_up: str | None = None
        for part in parts:
            if given_up is None:
                part_results, given_up = self._act_on(part, send)
            else:
                part_results = dict.fromkeys(part, f"not sent: {given_up}")
            results |= part_results
        return results

    def _act_on(
        self, part: list[Partition], send: Callable[[Any, list[Partition]], dict[Any, Any]]
    ) -> tuple[dict[Partition, str | None], str | None]:
        """Return the result for each partition, and the last failure after a timeout. The requests are idempotent."""
        codes: dict[Partition, int] = {}

        def attempt(client: Any) -> None:
            for where, error in send(client, part).items():
                codes[where.topic, where.partition] = error.errno
            raise_temporary(*codes.values())

        try:
            self._session.within_timeout(attempt)
        except BrokerResponseError as refusal:
            return dict.fromkeys(part, refusals.explain(refusal.errno)), None
        except GivenUpError as given_up:
            final = {where: code for where, code in codes.items() if code not in refusals.COORDINATOR_UNAVAILABLE}
            results = {where: refusals.explain(final[where]) if where in final else given_up.outcome for where in part}
            return results, given_up.answer
        return {where: refusals.explain(codes[where]) if where in codes else refusals.NO_ANSWER for where in part}, None

    def _topics(self, names: Collection[str], is_temporary: Callable[[Described], bool]) -> list[Described]:
        """Return topics by name; those in a temporary state are requested again until the request timeout."""
        settled: list[Described] = []
        left = sorted(set(names))
        deadline = self._session.deadline()
        while left:
            found = self._session.read(partial(_describe, topics=left))
            temporary = [topic for topic in found if is_temporary(topic)]
            settled += [topic for topic in found if not is_temporary(topic)]
            if time.monotonic() >= deadline:
                return settled + temporary
            if left := [topic["name"] for topic in temporary]:
                time.sleep(RETRY_PAUSE)
        return settled

    def _led(self, partitions: Iterable[Partition]) -> list[Partition]:
        wanted = set(partitions)
        leaders = {
            (topic["name"], number): leader
            for topic in self._topics({name for name, _ in wanted}, _is_temporary_or_without_leader)
            for number, leader in _leaders(topic).items()
        }
        return sorted(where for where in wanted if leaders.get(where, NO_LEADER) != NO_LEADER)

    def _offsets(self, partitions: list[Partition], timestamp: int) -> dict[Partition, int]:
        if not partitions:
            return {}
        requested = {TopicPartition(*where): timestamp for where in partitions}
        found = self._session.read(lambda client: client.list_partition_offsets(requested))
        return {(where.topic, where.partition): offset.offset for where, offset in found.items()}


def _alter(client: Any, part: list[Partition], group_id: str, offsets: Mapping[Partition, OffsetToCommit]) -> Any:
    requested = {
        TopicPartition(*where): OffsetAndMetadata(
            offset=offsets[where].offset, metadata=offsets[where].metadata, leader_epoch=offsets[where].leader_epoch
        )
        for where in part
    }
    return client.alter_group_offsets(group_id, requested)


def _delete(client: Any, part: list[Partition], group_id: str) -> Any:
    return client.delete_group_offsets(group_id, [TopicPartition(*where) for where in part])


def _describe(client: Any, topics: list[str]) -> list[Described]:
    described: list[Described] = client.describe_topics(topics)
    return described


def _leaders(described: Described) -> dict[int, int]:
    return {partition["partition_index"]: partition["leader_id"] for partition in described["partitions"]}


def _topic_id(described: Described) -> str | None:
    data = UUID(described["topic_id"]).bytes if described.get("topic_id") else ZERO_UUID
    return None if data == ZERO_UUID else uuid_text(data)


def _is_temporary(described: Described) -> bool:
    return described["error_code"] not in refusals.PERMANENT_TOPIC_ERRORS


def _is_temporary_or_without_leader(described: Described) -> bool:
    return _is_temporary(described) or NO_LEADER in _leaders(described).values()


def _parts(group_id: str, metadata_bytes: Mapping[Partition, int]) -> Iterator[list[Partition]]:
    """Split partitions into parts whose offsets fit into one request."""
    part: list[Partition] = []
    size = 0
    for where, count in metadata_bytes.items():
        partition_size = PARTITION_BYTES + len(group_id.encode()) + len(where[0].encode()) + count
        if part and size + partition_size > REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(where)
        size += partition_size
    if part:
        yield part
