"""Deletions of groups with all of their offsets, and of offsets of topics that their group is not subscribed to."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from offsetlake.auth.acl import ADMIN
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import DELETE_GROUP, DELETE_OFFSETS
from offsetlake.kafka.batches.writer import Batch, Headers, Record, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers
from offsetlake.serve.protocol.api_keys import DELETE_GROUPS, OFFSET_DELETE
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Share, Work
from offsetlake.serve.storage.offset_store import LOG_STORE, OffsetStore
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

MAX_OFFSETS_PER_WRITE = 1000
_PARTITION = struct.Struct(">i")

Partitions = list[tuple[bytes, int]]
LogPartition = Callable[[bytes], int]


class DeletionWrite(ABC):
    """A write that decides what to delete when all writes before it are done; `done` is called with an error code."""

    exclusive = True

    def __init__(self, partition: int, store: Store, group: bytes, audit: Headers, done: Callable[[int], None]) -> None:
        self.partition = partition
        self._store, self._group, self._audit, self._done = store, group, audit, done
        self._error, self._records = NONE, 0
        self._partitions: Partitions = []

    def batches(self) -> Sequence[Batch]:
        """Return one batch of tombstones, or none if there is nothing to delete."""
        self._error = self._decide()
        records: list[Record] = [
            (offset_commit_key(self._group, topic) + _PARTITION.pack(partition), None)
            for topic, partition in self._partitions
        ]
        records += [] if self._error else [(key, None) for key in self._group_keys()]
        self._records = len(records)
        return (record_batch(now_ms(), records, self._audit),) if records else ()

    def written(self, firsts: list[int]) -> None:
        """Remove the offsets from the store and answer."""
        if firsts:
            self._apply(firsts[0] + self._records - 1)
        self._store.deleting.discard(self._group)
        self._done(self._error)

    def failed(self, _error: LogUnavailable) -> None:
        """Answer NOT_COORDINATOR (16), as a broker does that cannot write to its log."""
        self._store.deleting.discard(self._group)
        self._done(NOT_COORDINATOR)

    @abstractmethod
    def _decide(self) -> int:
        """Determine the offsets to delete, and return an error code."""

    def _group_keys(self) -> Sequence[bytes]:
        """Return the keys of the records to tombstone after the offsets."""
        return ()

    def _apply(self, last: int) -> None:
        self._store.delete_offsets(self._group, self._partitions, last)


class _GroupDeletion(DeletionWrite):
    """Deletes a group without members and all of its offsets, including those of open transactions."""

    _type = "classic"

    def _decide(self) -> int:
        group = self._store.group(self._group)
        if group is None:
            return GROUP_ID_NOT_FOUND
        if group["state"] != "Empty" or self._store.is_unknown(self._group):
            return NON_EMPTY_GROUP
        if self._store.has_queued_records(self._group):  # they would follow the tombstones
            return COORDINATOR_LOAD_IN_PROGRESS
        self._store.deleting.add(self._group)
        self._type = group["group_type"]
        stored = [(key[:-4], _PARTITION.unpack(key[-4:])[0]) for key in self._store.offsets(self._group)]
        pending = self._store.unstable(self._group) - {*stored}
        self._partitions = stored + sorted(pending)
        return NONE

    def _group_keys(self) -> Sequence[bytes]:
        return group_tombstone_keys(self._group.decode(), self._type)

    def _apply(self, last: int) -> None:
        super()._apply(last)
        self._store.delete_group(self._group, last)


class _OffsetDeletion(DeletionWrite):
    """Deletes offsets of a group; `errors` are the error codes of the requested partitions, NONE for deleted ones."""

    def __init__(
        self,
        partition: int,
        store: Store,
        group: bytes,
        audit: Headers,
        done: Callable[[int], None],
        requested: Partitions,
        topics: Topics,
    ) -> None:
        super().__init__(partition, store, group, audit, done)
        self._requested, self._topics = requested, topics
        self.errors: list[int] = []

    def _decide(self) -> int:
        group = self._store.group(self._group)
        if group is None or group["group_type"] == "share":
            return GROUP_ID_NOT_FOUND
        consumers = group["group_type"] != "classic" or group["protocol_type"] == "consumer"
        if (group["state"] != "Empty" and not consumers) or self._store.is_unknown(self._group):
            return NON_EMPTY_GROUP
        for topic, partition in self._requested:
            error = NONE
            if not self._topics.has_partition(topic, partition):
                error = UNKNOWN_TOPIC_OR_PARTITION
            elif self._is_subscribed_to(topic.decode()):
                error = GROUP_SUBSCRIBED_TO_TOPIC
            elif self._is_stored(topic, partition):
                self._partitions.append((topic, partition))
            self.errors.append(error)
        return NONE

    def _is_subscribed_to(self, topic: str) -> bool:
        """Check whether members of the group use a topic, or might."""
        live = self._store.live.get(self._group)
        if live is not None:
            return live.is_subscribed_to(topic)
        details = self._store.details(self._group)
        return details.get("subscription") == "everything" or topic in (details.get("subscribed_topics") or ())

    def _is_stored(self, topic: bytes, partition: int) -> bool:
        """Check whether a partition has an offset, including one of an open transaction."""
        store, group = self._store, self._group
        return store.is_unstable(group, topic, partition) or store.find(group, topic, partition) is not None


class Deletions:
    """Handles DeleteGroups and OffsetDelete: queues the deletions with their audit headers.

    `preparations` are done before a group of a type is deleted, and end by calling their second argument with an error
    code. Of a group without one, the store of offsets decides whether it may be deleted.
    """

    def __init__(
        self,
        store: Store,
        topics: Topics,
        writes: Writes,
        log_partition: LogPartition,
        offset_store: OffsetStore = LOG_STORE,
    ) -> None:
        self._store, self._topics, self._writes, self._log_partition = store, topics, writes, log_partition
        self._offset_store = offset_store
        self.preparations: dict[str, Callable[[bytes, Callable[[int], None]], None]] = {}

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        return {DELETE_GROUPS: self.delete_groups, OFFSET_DELETE: self.delete_offsets}

    def delete_group(
        self, group: bytes, audit: Headers, done: Callable[[int], None], share: Share | None = None
    ) -> None:
        """Delete a group; `done` is called with an error code."""
        deletion = _GroupDeletion(self._log_partition(group), self._store, group, audit, done)

        def prepared(error: int) -> None:
            if error:
                done(error)
            else:
                self._writes.add(deletion, share)

        kind = self._store.group(group)
        prepare = None if kind is None else self.preparations.get(kind["group_type"])
        (prepare or self._offset_store.delete)(group, prepared)

    def delete_offset(
        self, group: bytes, topic: bytes, partition: int, audit: Headers, done: Callable[[int], None]
    ) -> None:
        """Delete an offset of a group; `done` is called with an error code."""

        def decided(error: int) -> None:
            done(error or deletion.errors[0])

        deletion = _OffsetDeletion(
            self._log_partition(group), self._store, group, audit, decided, [(topic, partition)], self._topics
        )
        self._writes.add(deletion)

    def delete_groups(self, request: Any, context: RequestContext, answer: Callable[[Values], None]) -> None:
        """Delete groups one after the other; `answer` is called when the last deletion is done.

        A deletion is queued when the one before is done, so that a long list neither fills the queue nor delays others.
        """
        names, errors = request.groups_names, list[int]()

        def delete_next() -> Work:
            """Collect error codes in steps, up to the first group whose deletion needs a write, and queue that."""
            while len(errors) < len(names):
                group = names[len(errors)].encode()
                if not context.may(ADMIN, group):
                    errors.append(GROUP_AUTHORIZATION_FAILED)
                elif error := self._store.unavailable(group):
                    errors.append(error)
                else:
                    self.delete_group(group, context.audit_headers(DELETE_GROUP), done, context.client.share)
                    return 0
                yield 0
            results = ({"group_id": name, "error_code": error} for name, error in zip(names, errors, strict=True))
            answer({"results": Lazy(len(names), results)})
            return 0

        def done(error: int) -> None:
            errors.append(error)
            context.client.work(delete_next())

        context.client.work(delete_next())

    def delete_offsets(self, request: Any, context: RequestContext, answer: Callable[[Values], None]) -> None:
        """Delete offsets of a group in parts of MAX_OFFSETS_PER_WRITE; a part is queued when the one before is done.

        `answer` is called when the last part is done, or when a part fails as a whole.
        """
        context.client.work(self._delete_offsets(request, context, answer))

    def _delete_offsets(self, request: Any, context: RequestContext, answer: Callable[[Values], None]) -> Work:
        group = request.group_id.encode()
        if not context.may(ADMIN, group):
            answer({"error_code": GROUP_AUTHORIZATION_FAILED, "topics": []})
            return 0
        if error := self._store.unavailable(group) if group else INVALID_GROUP_ID:
            answer({"error_code": error, "topics": []})
            return 0
        requested: Partitions = []
        for topic in request.topics:
            name = topic.name.encode()
            for topic_partition in topic.partitions:
                requested.append((name, topic_partition.partition_index))
                if len(requested) % MAX_OFFSETS_PER_WRITE == 0:
                    yield 0
        partition, audit, errors = self._log_partition(group), context.audit_headers(DELETE_OFFSETS), list[int]()

        def delete_next() -> None:
            part = requested[len(errors) : len(errors) + MAX_OFFSETS_PER_WRITE]

            def done(error: int) -> None:
                errors.extend(deletion.errors)
                if not error and len(errors) < len(requested):
                    delete_next()
                    return
                partition_errors = iter(errors)
                topics = [] if error else (_topic_result(topic, partition_errors) for topic in request.topics)
                answer({"error_code": error, "topics": Lazy(0 if error else len(request.topics), topics)})

            deletion = _OffsetDeletion(partition, self._store, group, audit, done, part, self._topics)
            self._writes.add(deletion)

        delete_next()
        return 0


def _topic_result(topic: Any, errors: Iterator[int]) -> Values:
    partitions = (
        {"partition_index": partition.partition_index, "error_code": next(errors)} for partition in topic.partitions
    )
    return {"name": topic.name, "partitions": Lazy(len(topic.partitions), partitions)}
