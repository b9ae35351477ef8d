"""Deletions: of groups with all of their offsets, and of offsets of a group that nobody there is subscribed to."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

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
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.records.group_tombstones import group_tombstone_keys
from offsetlake.serve.auth.acl import ADMIN
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.steps import Share, Work
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

MAX_OFFSETS_PER_WRITE = 1000
_PARTITION = struct.Struct(">i")

Partitions = list[tuple[bytes, int]]
LogPartition = Callable[[bytes], int]


class _Deletion(ABC):
    """Decides when its turn has come, with all before it written; `done` hears an error code."""

    alone = True

    def __init__(self, partition: int, store: Store, group: bytes, audit: Headers, done: Callable[[int], None]) -> None:
        self.partition = partition
        self._store, self._group, self._audit, self._done = store, group, audit, done
        self._error, self._records = NONE, 0
        self._keys: Partitions = []

    def batches(self) -> Sequence[Batch]:
        """Give one batch of tombstones, none where there is nothing to delete."""
        self._error = self._decide()
        records: list[Record] = [
            (offset_commit_key(self._group, topic) + _PARTITION.pack(partition), None)
            for topic, partition in self._keys
        ]
        records += [] if self._error else [(key, None) for key in self._group_keys()]
        self._records = len(records)
        return (record_batch(now_ms(), records, self._audit),) if records else ()

    def written(self, firsts: list[int]) -> None:
        """Serve it no more, and answer."""
        if firsts:
            self._apply(firsts[0] + self._records - 1)
        self._done(self._error)

    def failed(self, _error: LogUnavailable) -> None:
        """Answer as a broker does whose disk takes no more."""
        self._done(NOT_COORDINATOR)

    @abstractmethod
    def _decide(self) -> int:
        """Find the offsets that go; gives an error code."""

    def _group_keys(self) -> Sequence[bytes]:
        """Give the keys of what goes behind the offsets."""
        return ()

    def _apply(self, last: int) -> None:
        self._store.delete_offsets(self._group, self._keys, last)


class _GroupDeletion(_Deletion):
    """Deletes a group without members and all of its offsets, those of open transactions too."""

    _type = "classic"

    def _decide(self) -> int:
        group = self._store.group(self._group)
        if group is None:
            return GROUP_ID_NOT_FOUND
        if group["state"] != "Empty":
            return NON_EMPTY_GROUP
        self._type = group["group_type"]
        if self._type == "share":  # its state is in a log that is not ours
            return INVALID_REQUEST
        stored = [(key[:-4], _PARTITION.unpack(key[-4:])[0]) for key in self._store.offsets(self._group)]
        pending = self._store.unstable(self._group) - {*stored}
        self._keys = stored + sorted(pending)
        return NONE

    def _group_keys(self) -> Sequence[bytes]:
        return group_tombstone_keys(self._group.decode(), self._type)

    def _apply(self, last: int) -> None:
        super()._apply(last)
        self._store.delete_group(self._group, last)


class _OffsetDeletion(_Deletion):
    """Deletes offsets of a group; `errors` has those of partitions that stay, by their place in `asked`."""

    def __init__(
        self,
        partition: int,
        store: Store,
        group: bytes,
        audit: Headers,
        done: Callable[[int], None],
        asked: Partitions,
        topics: Topics,
    ) -> None:
        super().__init__(partition, store, group, audit, done)
        self._asked, self._topics = asked, topics
        self.errors: list[int] = []

    def _decide(self) -> int:
        group = self._store.group(self._group)
        if group is None or group["group_type"] == "share":
            return GROUP_ID_NOT_FOUND
        consumers = group["group_type"] != "classic" or group["protocol_type"] == "consumer"
        if group["state"] != "Empty" and not consumers:
            return NON_EMPTY_GROUP
        details = self._store.members(self._group)
        all_topics = details.get("subscription") == "everything"
        subscribed = {name.encode() for name in details.get("subscribed_topics") or ()}
        for topic, partition in self._asked:
            error = NONE
            if not self._topics.has_partition(topic, partition):
                error = UNKNOWN_TOPIC_OR_PARTITION
            elif all_topics or topic in subscribed:
                error = GROUP_SUBSCRIBED_TO_TOPIC
            elif self._is_stored(topic, partition):
                self._keys.append((topic, partition))
            self.errors.append(error)
        return NONE

    def _is_stored(self, topic: bytes, partition: int) -> bool:
        """Check whether there is an offset of a partition, also one of an open transaction."""
        store, group = self._store, self._group
        return store.is_unstable(group, topic, partition) or store.find(group, topic, partition) is not None


class Deletions:
    """Takes DeleteGroups and OffsetDelete to the log, and with them who asked."""

    def __init__(self, store: Store, topics: Topics, writes: Writes, log_partition: LogPartition) -> None:
        self._store, self._topics, self._writes, self._log_partition = store, topics, writes, log_partition

    def delete_group(
        self, group: bytes, audit: Headers, done: Callable[[int], None], share: Share | None = None
    ) -> None:
        """Delete a group; `done` hears an error code."""
        self._writes.add(_GroupDeletion(self._log_partition(group), self._store, group, audit, done), share)

    def delete_offset(
        self, group: bytes, topic: bytes, partition: int, audit: Headers, done: Callable[[int], None]
    ) -> None:
        """Delete an offset of a group; `done` hears an error code."""

        def decided(error: int) -> None:
            done(error or deletion.errors[0])

        deletion = _OffsetDeletion(
            self._log_partition(group), self._store, group, audit, decided, [(topic, partition)], self._topics
        )
        self._writes.add(deletion)

    def delete_groups(self, request: Any, asked: RequestContext, answer: Callable[[Values], None]) -> None:
        """Delete groups one after the other; `answer` is called when the last is done.

        Each is queued when the one before is done, so that a long list neither fills the queue nor delays other writes.
        """
        names, errors = request.groups_names, list[int]()

        def go_on() -> Work:
            """Refuse what needs no write in turns; return at the first group that does."""
            while len(errors) < len(names):
                group = names[len(errors)].encode()
                if not asked.may(ADMIN, group):
                    errors.append(GROUP_AUTHORIZATION_FAILED)
                elif self._store.loading:
                    errors.append(COORDINATOR_LOAD_IN_PROGRESS)
                else:
                    self.delete_group(group, asked.audit_headers(DELETE_GROUP), done, asked.client.share)
                    return 0
                yield 0
            results = ({"group_id": name, "error_code": error} for name, error in zip(names, errors, strict=True))
            answer({"results": Lazy(len(names), results)})
            return 0

        def done(error: int) -> None:
            errors.append(error)
            asked.client.work(go_on())

        asked.client.work(go_on())

    def delete_offsets(self, request: Any, asked: RequestContext, answer: Callable[[Values], None]) -> None:
        """Delete offsets of a group, MAX_OFFSETS_PER_WRITE at a time; each part is queued when the one before is done.

        `answer` is called when the last is done, or one fails as a whole.
        """
        asked.client.work(self._delete_offsets(request, asked, answer))

    def _delete_offsets(self, request: Any, asked: RequestContext, answer: Callable[[Values], None]) -> Work:
        group = request.group_id.encode()
        if not asked.may(ADMIN, group):
            answer({"error_code": GROUP_AUTHORIZATION_FAILED, "topics": []})
            return 0
        if not group or self._store.loading:
            answer({"error_code": COORDINATOR_LOAD_IN_PROGRESS if group else INVALID_GROUP_ID, "topics": []})
            return 0
        wanted: Partitions = []
        for topic in request.topics:
            name = topic.name.encode()
            for of in topic.partitions:
                wanted.append((name, of.partition_index))
                if len(wanted) % MAX_OFFSETS_PER_WRITE == 0:
                    yield 0
        partition, audit, errors = self._log_partition(group), asked.audit_headers(DELETE_OFFSETS), list[int]()

        def delete_next() -> None:
            part = wanted[len(errors) : len(errors) + MAX_OFFSETS_PER_WRITE]

            def done(error: int) -> None:
                errors.extend(deletion.errors)
                if not error and len(errors) < len(wanted):
                    delete_next()
                    return
                of_partitions = iter(errors)
                topics = [] if error else (_of_topic(topic, of_partitions) for topic in request.topics)
                answer({"error_code": error, "topics": Lazy(0 if error else len(request.topics), topics)})

            deletion = _OffsetDeletion(partition, self._store, group, audit, done, part, self._topics)
            self._writes.add(deletion)

        delete_next()
        return 0


def _of_topic(topic: Any, errors: Any) -> Values:
    partitions = ({"partition_index": of.partition_index, "error_code": next(errors)} for of in topic.partitions)
    return {"name": topic.name, "partitions": Lazy(len(topic.partitions), partitions)}
