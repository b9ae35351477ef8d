"""Changes and reads the start offsets of share groups of a live cluster through Kafka's admin API (KIP-932)."""

from collections.abc import Collection, Mapping
from typing import Any, Self

from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.log.cluster import refusals
from offsetlake.log.cluster.cluster import BrokerConnections, LoopThread, TryAgainError
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.share_requests import AlterOffsets, DeleteOffsets, DescribeOffsets

UNDECIDED = -1
"""The start offset of a share partition that no member has read yet."""

_DOES_NOT_EXIST = {UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID}

Partition = tuple[str, int]
"""Topic and partition."""


class ShareGroupAdmin:
    """Reads, sets and deletes start offsets of share groups: `with ShareGroupAdmin(connection) as admin`.

    A change returns the result for each partition or topic: None for success, or the error as `NAME (code): meaning`.
    Every request is idempotent, and is repeated until the request timeout if the coordinator is unavailable.

    Raises:
        LogUnavailable: No broker answers within the request timeout, or the brokers do not support share groups.
        BadRequest: A certificate file cannot be read.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings, self._thread = connection, LoopThread()
        self._cluster = BrokerConnections(connection)

    def __enter__(self) -> Self:
        self._thread.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.start(self._cluster.close()).result()
        self._thread.__exit__()

    def start_offsets(self, group_id: str) -> dict[Partition, int]:
        """Return the start offset of each share partition, or UNDECIDED; none if the group does not exist.

        An error of a share partition that exists raises LogUnavailable, as it does not say that it was deleted.
        """
        response = self._send(group_id, DescribeOffsets(group_id))
        [(_, topics, error, _, _)] = response.groups
        if error == GROUP_ID_NOT_FOUND:
            return {}
        if error:
            raise self._cluster.unavailable(f"the start offsets of group {group_id}: {refusals.explain(error)}")
        start_offsets: dict[Partition, int] = {}
        for topic, _, _, partitions, _ in topics:
            for partition, start_offset, _, partition_error, _, _ in partitions:
                if partition_error == NONE:
                    start_offsets[topic, partition] = start_offset
                elif partition_error not in _DOES_NOT_EXIST:
                    what = f"the start offset of {topic}-{partition} of group {group_id}"
                    raise self._cluster.unavailable(f"{what}: {refusals.explain(partition_error)}")
        return start_offsets

    def alter(self, group_id: str, offsets: Mapping[Partition, int]) -> dict[Partition, str | None]:
        """Set start offsets of a group without members, which discards the delivery states of these partitions.

        A broker of version 4.2 creates a group that does not exist.
        """
        by_topic: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            by_topic.setdefault(topic, {})[partition] = offset
        response = self._send(group_id, AlterOffsets(group_id, by_topic))
        if response.error_code:
            return dict.fromkeys(offsets, refusals.explain(response.error_code))
        answers = {
            (topic, partition): refusals.explain(error)
            for topic, _, _, partitions, _ in response.topics
            for partition, error, _, _ in partitions
        }
        return {where: answers.get(where, refusals.NO_ANSWER) for where in offsets}

    def delete(self, group_id: str, topics: Collection[str]) -> dict[str, str | None]:
        """Delete the share partitions of topics of a group without members."""
        response = self._send(group_id, DeleteOffsets(group_id, topics))
        if response.error_code:
            return dict.fromkeys(topics, refusals.explain(response.error_code))
        answers = {topic: refusals.explain(error) for topic, _, _, error, _, _ in response.topics}
        return {topic: answers.get(topic, refusals.NO_ANSWER) for topic in topics}

    def _send(self, group_id: str, request: Any) -> Any:
        """Return the response of the coordinator of the group."""

        async def attempt() -> Any:
            response = await self._cluster.send(
                await self._cluster.coordinator(group_id), _Supported(self._cluster, request)
            )
            for error in _errors_of_groups(response):
                if error in refusals.COORDINATOR_UNAVAILABLE:
                    raise TryAgainError(str(refusals.explain(error)))
            return response

        return self._thread.start(self._cluster.within_timeout(attempt)).result()


class _Supported:
    """A request that raises LogUnavailable for a broker without its API."""

    def __init__(self, cluster: BrokerConnections, request: Any) -> None:
        self._cluster, self._request = cluster, request

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        if self._request.API_KEY not in versions:
            raise self._cluster.unavailable("the brokers have no share groups: Kafka 4.1 with share.version 1 has them")
        return self._request.prepare(versions)


def _errors_of_groups(response: Any) -> list[int]:
    if hasattr(response, "groups"):
        errors = [error for _, _, error, _, _ in response.groups]
        topics = (topic for _, topics, _, _, _ in response.groups for topic in topics)
        return errors + [partition[3] for topic in topics for partition in topic[3]]
    return [response.error_code]
