"""Acts on the groups of a live cluster through its admin API, and reads back what was done.

What is sent: OffsetCommit, OffsetDelete and DeleteGroups to act; Metadata, ListOffsets and OffsetFetch to look. None of
them makes a broker create a topic.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

from kafka import OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.errors import BrokerResponseError

from offsetlake.kafka.error_codes import GROUP_ID_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.log.cluster import refusals
from offsetlake.log.cluster.admin_session import (
    FAILURES,
    RETRY_PAUSE,
    AdminSession,
    GivenUpError,
    is_lost,
    may_pass,
    raise_passing,
)
from offsetlake.log.cluster.connection import KafkaConnection

UNKNOWN_OFFSET = NO_LEADER = -1

REQUEST_BYTES = 200_000
"""Of offsets in one request, about: a coordinator writes them as one batch, of 1 MB at most unless configured."""
PARTITION_BYTES = 100
"""Of the record of an offset besides its group id, topic and metadata, at most."""

Partition = tuple[str, int]
"""Topic and partition."""
Described = dict[str, Any]
"""A topic as Metadata describes it."""


class OffsetToCommit(NamedTuple):
    """A committed offset: the next offset to read, the leader epoch of the last one read (-1 = none), any text."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ClusterAdmin:
    """A cluster whose groups are acted on: `with ClusterAdmin(connection) as admin`.

    Acting gives each partition its answer: None = done, else the refusal as `NAME (code): meaning`. It raises nothing:
    where the cluster stops answering on the way, that is the answer of the partitions it concerns.
    Entering, and looking, raise LogUnavailable with the likely cause where brokers are not reached within the request
    timeout or do not let us in; BadRequest for certificate files that cannot be read here.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._session = AdminSession(connection)

    def __enter__(self) -> Self:
        self._session.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def commit(self, group_id: str, offsets: Mapping[Partition, OffsetToCommit]) -> dict[Partition, str | None]:
        """Set offsets of a group without members; a group that is not there comes into being."""
        sizes = {where: len(each.metadata.encode()) for where, each in offsets.items()}
        return self._act(_parts(group_id, sizes), partial(_alter, group_id=group_id, offsets=offsets))

    def delete_offsets(self, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, str | None]:
        """Delete offsets of a group, of topics no member is subscribed to; where there is none, it is done as well."""
        return self._act(_parts(group_id, dict.fromkeys(partitions, 0)), partial(_delete, group_id=group_id))

    def delete_group(self, group_id: str) -> str | None:
        """Delete a group without members, and all its offsets: None = done, else the refusal.

        UNKNOWN_SERVER_ERROR (-1) is the answer where the tombstones of its offsets are more than one batch of the
        broker holds, 10,000 and a long group id are: then delete its offsets first.
        """
        lost = False

        def attempt(client: Any) -> int:
            nonlocal lost
            try:
                code = refusals.code_of(client.delete_groups([group_id])[group_id])
            except FAILURES as failure:
                lost = lost or is_lost(failure)
                if not isinstance(failure, BrokerResponseError) or may_pass(failure):
                    raise
                code = failure.errno
            raise_passing(code)
            # Asked again because an answer was lost: gone is what was wanted.
            return 0 if lost and code == GROUP_ID_NOT_FOUND else code

        try:
            return refusals.in_words(self._session.within_timeout(attempt))
        except GivenUpError as given_up:
            return given_up.outcome

    def committed(self, group_id: str) -> dict[Partition, OffsetToCommit]:
        """Give all offsets of a group, none of a group that is not there; those of open transactions are not in it.

        Offsets of topics this user has no right to are left out by the broker; LogUnavailable without one to the group.
        """
        found = self._session.look(lambda client: client.list_group_offsets([group_id]).get(group_id, {}))
        return {
            (where.topic, where.partition): OffsetToCommit(
                each.offset, -1 if each.leader_epoch is None else each.leader_epoch, each.metadata or ""
            )
            for where, each in found.items()
        }

    def log_ends(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Give log start offset and high watermark; partitions not there, not led or not ours to see are left out."""
        known = self._led(partitions)
        earliest, latest = self._offsets(known, OffsetSpec.EARLIEST), self._offsets(known, OffsetSpec.LATEST)
        return {where: (earliest[where], latest[where]) for where in known}

    def offsets_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Give the first offset at or after a time (ms since the epoch), the log's end where there is none.

        Partitions not there, not led or not ours to see are left out.
        """
        # ListOffsets takes negative times for something else: -1 is the latest offset.
        found = self._offsets(self._led(partitions), max(timestamp_ms, 0))
        later = [where for where, offset in found.items() if offset == UNKNOWN_OFFSET]
        return found | self._offsets(later, OffsetSpec.LATEST)

    def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Give the partitions of those of `topics` that are there and ours to see."""
        return {
            each["name"]: sorted(_leaders(each)) for each in self._topics(topics, _passes) if not each["error_code"]
        }

    def missing(self, topics: Collection[str]) -> set[str]:
        """Give those of `topics` that the broker says do not exist: none in doubt, none that is not ours to see."""
        return self._answered(topics, UNKNOWN_TOPIC_OR_PARTITION)

    def hidden(self, topics: Collection[str]) -> set[str]:
        """Give those of `topics` that this user has no right to see."""
        return self._answered(topics, TOPIC_AUTHORIZATION_FAILED)

    def _answered(self, topics: Collection[str], code: int) -> set[str]:
        return {each["name"] for each in self._topics(topics, _passes) if each["error_code"] == code}

    def _act(
        self, parts: Iterable[list[Partition]], send: Callable[[Any, list[Partition]], dict[Any, Any]]
    ) -> dict[Partition, str | None]:
        """Give each partition of each part its answer. Parts behind one that was given up are not tried."""
        answers: dict[Partition, str | None] = {}
        given_up: str | None = None
        for part in parts:
            if given_up is None:
                told, given_up = self._act_on(part, send)
            else:
                told = dict.fromkeys(part, f"not sent: {given_up}")
            answers |= told
        return answers

    def _act_on(
        self, part: list[Partition], send: Callable[[Any, list[Partition]], dict[Any, Any]]
    ) -> tuple[dict[Partition, str | None], str | None]:
        """Give each partition its answer, and what made us give up, if so. Sending twice does no harm."""
        codes: dict[Partition, int] = {}

        def attempt(client: Any) -> None:
            for where, kind in send(client, part).items():
                codes[where.topic, where.partition] = kind.errno
            raise_passing(*codes.values())

        try:
            self._session.within_timeout(attempt)
        except BrokerResponseError as refusal:
            return dict.fromkeys(part, refusals.in_words(refusal.errno)), None
        except GivenUpError as given_up:
            final = {where: code for where, code in codes.items() if code not in refusals.PASSING}
            told = {where: refusals.in_words(final[where]) if where in final else given_up.outcome for where in part}
            return told, given_up.answer
        return {
            where: refusals.in_words(codes[where]) if where in codes else refusals.NO_ANSWER for where in part
        }, None

    def _topics(self, names: Collection[str], passes: Callable[[Described], bool]) -> list[Described]:
        """Ask for topics by name; those whose state passes are asked for again, and given as they are in the end."""
        settled: list[Described] = []
        left = sorted(set(names))
        deadline = self._session.deadline()
        while left:
            found = self._session.look(partial(_describe, topics=left))
            passing = [each for each in found if passes(each)]
            settled += [each for each in found if not passes(each)]
            if time.monotonic() >= deadline:
                return settled + passing
            if left := [each["name"] for each in passing]:
                time.sleep(RETRY_PAUSE)
        return settled

    def _led(self, partitions: Iterable[Partition]) -> list[Partition]:
        wanted = set(partitions)
        leaders = {
            (each["name"], number): leader
            for each in self._topics({name for name, _ in wanted}, _passes_or_waits_for_a_leader)
            for number, leader in _leaders(each).items()
        }
        return sorted(where for where in wanted if leaders.get(where, NO_LEADER) != NO_LEADER)

    def _offsets(self, partitions: list[Partition], when: int) -> dict[Partition, int]:
        if not partitions:
            return {}
        asked = {TopicPartition(*where): when for where in partitions}
        found = self._session.look(lambda client: client.list_partition_offsets(asked))
        return {(where.topic, where.partition): each.offset for where, each in found.items()}


def _alter(client: Any, part: list[Partition], group_id: str, offsets: Mapping[Partition, OffsetToCommit]) -> Any:
    wanted = {
        TopicPartition(*where): OffsetAndMetadata(
            offset=offsets[where].offset, metadata=offsets[where].metadata, leader_epoch=offsets[where].leader_epoch
        )
        for where in part
    }
    return client.alter_group_offsets(group_id, wanted)


def _delete(client: Any, part: list[Partition], group_id: str) -> Any:
    return client.delete_group_offsets(group_id, [TopicPartition(*where) for where in part])


def _describe(client: Any, topics: list[str]) -> list[Described]:
    described: list[Described] = client.describe_topics(topics)
    return described


def _leaders(described: Described) -> dict[int, int]:
    return {each["partition_index"]: each["leader_id"] for each in described["partitions"]}


def _passes(described: Described) -> bool:
    return described["error_code"] not in refusals.OF_A_TOPIC


def _passes_or_waits_for_a_leader(described: Described) -> bool:
    return _passes(described) or NO_LEADER in _leaders(described).values()


def _parts(group_id: str, metadata_bytes: Mapping[Partition, int]) -> Iterator[list[Partition]]:
    """Divide partitions so that the offsets of each part fit into one request."""
    part: list[Partition] = []
    size = 0
    for where, count in metadata_bytes.items():
        need = PARTITION_BYTES + len(group_id.encode()) + len(where[0].encode()) + count
        if part and size + need > REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(where)
        size += need
    if part:
        yield part
