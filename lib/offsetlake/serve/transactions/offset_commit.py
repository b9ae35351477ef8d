"""TxnOffsetCommit: a request is written as one record batch, which takes effect when the transaction is committed."""

import struct
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import COMMIT
from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers, Producer, Record, record_batch_in_steps
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    INVALID_PRODUCER_EPOCH,
    NONE,
    NOT_COORDINATOR,
    OFFSET_OUT_OF_RANGE,
    PRODUCER_FENCED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers
from offsetlake.serve.protocol.api_keys import TXN_OFFSET_COMMIT
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES
from offsetlake.serve.protocol.topics import MAX_OFFSET, Topics
from offsetlake.serve.steps import Steps, Work
from offsetlake.serve.storage.group_details import CommitSender
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store, key
from offsetlake.serve.transactions.coordinator import Answer
from offsetlake.serve.transactions.permissions import denial
from offsetlake.serve.transactions.writes import Done
from offsetlake.serve.writes.commit_rules import metadata_error, transactional_commit_error
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

_FIRST_TOPIC_ID_VERSION = 6
_FIRST_LOADING_VERSION = 2  # with COORDINATOR_LOAD_IN_PROGRESS (14)
_COORDINATOR_NOT_AVAILABLE = 15
_STEP_PARTITIONS = 100
_INT32 = struct.Struct(">i")


class _TopicById(NamedTuple):
    """A topic of a request that names it by its id."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[Any]


def _id_of(topic: Any) -> bytes:
    """Return the id of a topic of a request, zeros without one."""
    topic_id = getattr(topic, "topic_id", None)
    return ZERO_UUID if topic_id is None else topic_id.bytes


class TransactionCheck(Protocol):
    """The coordinator of transactions, of this process or of a cluster."""

    def check(self, name: str, producer: Producer, partition: int, version: int, done: Done) -> None:
        """Check the transaction of a TxnOffsetCommit of a version; `done` is called with an error code."""


class TransactionalCommit:
    """The write of a request; `errors` are the error codes of the partitions in the order of the request."""

    exclusive = False

    def __init__(self, partition: int, request: Any, store: Store, errors: list[int], answer: Answer) -> None:
        self.partition, self._request, self._store, self._answer = partition, request, store, answer
        self._errors = errors
        self._group = request.group_id.encode()
        self._producer = Producer(request.producer_id, request.producer_epoch)
        self._values: list[tuple[bytes, bytes]] = []
        self._batch: Batch
        self.last_partitions: dict[bytes, int] = {}
        """By topic, the highest partition in the commit."""

    def build(self, audit: Headers) -> Steps[int]:
        """Build the record batch in steps; return its size in bytes, 0 if all partitions have errors."""
        now = now_ms()
        self._batch = yield from record_batch_in_steps(now, self._records(now), audit, _STEP_PARTITIONS, self._producer)
        return len(self._batch.data) if self._values else 0

    def _records(self, now: int) -> Iterator[Record]:
        indices = count()
        for topic in self._request.topics:
            name, topic_id = (topic.name or "").encode(), _id_of(topic)
            prefix = offset_commit_key(self._group, name)
            for partition in topic.partitions:
                index, metadata = next(indices), (partition.committed_metadata or "").encode()
                self._errors[index] = self._errors[index] or metadata_error(metadata)
                if not self._errors[index]:
                    number, offset = partition.partition_index, partition.committed_offset
                    epoch = getattr(partition, "committed_leader_epoch", -1)
                    self._values.append((key(name, number), VALUE.pack(offset, epoch, topic_id) + metadata))
                    self.last_partitions[name] = max(number, self.last_partitions.get(name, 0))
                    value = offset_commit_value(offset, epoch, metadata, now, -1, topic_id)
                    yield prefix + _INT32.pack(number), value

    def batches(self) -> Sequence[Batch]:
        """Return the one batch."""
        return (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Add the offsets to the pending ones and answer."""
        self._store.add_pending(self._group, (self._producer.id, self.partition), self._values, firsts[0])
        self.answer(NONE)

    def failed(self, _error: LogUnavailable) -> None:
        """Answer NOT_COORDINATOR (16), as a broker does that cannot write to its log."""
        self.answer(NOT_COORDINATOR)

    def answer(self, error: int) -> None:
        """Answer the request; partitions without an error of their own get `error`."""
        self._answer(answer_values(self._request, self._errors, error))


class TxnOffsetCommit:
    """Handles TxnOffsetCommit requests."""

    def __init__(
        self, store: Store, topics: Topics, writes: Writes, commits: OffsetCommit, transactions: TransactionCheck
    ) -> None:
        self._store, self._topics, self._writes, self._commits = store, topics, writes, commits
        self._transactions = transactions

    def handlers(self) -> Handlers:
        """Return the handler by API key."""
        return {TXN_OFFSET_COMMIT: self.take}

    def take(self, request: Any, context: RequestContext, answer: Answer) -> Work:
        """Handle a request in steps; `answer` is called now or later."""
        group = request.group_id.encode()
        if context.version >= _FIRST_TOPIC_ID_VERSION:
            request = request._replace(topics=[self._named(topic) for topic in request.topics])
        if error := denial(context, request.transactional_id, group):
            answer(answer_values(request, [], error))
            return 0
        errors: list[int] = []
        for topic in request.topics:
            for partition in topic.partitions:
                errors.append(self._partition_error(topic.name, partition))
                if len(errors) % _STEP_PARTITIONS == 0:
                    yield 0
        if all(errors):
            answer(answer_values(request, errors, NONE))
        elif self._store.loading:
            answer(answer_values(request, errors, _retriable_error(context.version)))
        elif error := self._store.unavailable(group) if group else INVALID_GROUP_ID:
            answer(answer_values(request, errors, error))
        else:
            throttle = self._commits.throttle(group)
            answer = _throttled(answer, throttle.throttle_ms) if throttle.throttle_ms else answer
            if throttle.refused:
                answer(answer_values(request, errors, _retriable_error(context.version)))
            else:
                yield from self._begin(request, context, errors, answer, throttle.delay_ms)
            return throttle.muted_ms
        return 0

    def _begin(
        self, request: Any, context: RequestContext, errors: list[int], answer: Answer, delay_ms: int
    ) -> Steps[None]:
        """Build the batch of a request, then check its transaction and queue the batch in one step."""
        name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
        partition = self._commits.log_partition(request.group_id.encode())
        commit = TransactionalCommit(partition, request, self._store, errors, answer)
        size = yield from commit.build(context.audit_headers(COMMIT) if self._commits.is_sampled() else NO_HEADERS)

        def queue(error: int) -> None:
            error = INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error or self._group_error(request)
            if error or not size:
                commit.answer(error)
            elif size > MAX_COMMIT_BATCH_BYTES:
                commit.answer(UNKNOWN_SERVER_ERROR)
            else:
                for topic, last in commit.last_partitions.items():
                    self._topics.grow(topic, last)
                self._writes.add(commit)

        def begin() -> None:
            self._transactions.check(name, producer, partition, context.version, queue)

        self._writes.after(delay_ms, begin)

    def _named(self, topic: Any) -> "_TopicById":
        """Return a topic that a request names by its id with its name; None if the id is unknown."""
        name = None if topic.topic_id is None else self._topics.name_of(topic.topic_id.bytes)
        return _TopicById(None if name is None else name.decode(), topic.topic_id, topic.partitions)

    def _partition_error(self, topic: str | None, partition: Any) -> int:
        if topic is None:
            return UNKNOWN_TOPIC_ID
        if not self._topics.has_partition(topic.encode(), partition.partition_index):
            return UNKNOWN_TOPIC_OR_PARTITION
        return OFFSET_OUT_OF_RANGE if partition.committed_offset == MAX_OFFSET else NONE

    def _group_error(self, request: Any) -> int:
        """Return the error code of the check against the group."""
        group, instance = request.group_id.encode(), getattr(request, "group_instance_id", None)
        committer = CommitSender(
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", "").encode(),
            None if instance is None else instance.encode(),
        )
        return transactional_commit_error(self._store, group, committer)


def _retriable_error(version: int) -> int:
    """Return the error code with which clients of a version retry."""
    return COORDINATOR_LOAD_IN_PROGRESS if version >= _FIRST_LOADING_VERSION else _COORDINATOR_NOT_AVAILABLE


def _throttled(answer: Answer, throttle_ms: int) -> Answer:
    """Set the throttle time of an answer."""
    return lambda values: answer({**values, "throttle_time": timedelta(milliseconds=throttle_ms)})


def answer_values(request: Any, errors: list[int], error: int) -> Values:
    """Return the fields of an answer; partitions without an error of their own get `error`."""
    remaining = iter(errors)

    def partitions(topic: Any) -> Lazy:
        numbers = [partition.partition_index for partition in topic.partitions]
        results = ({"partition_index": number, "error_code": next(remaining, NONE) or error} for number in numbers)
        return Lazy(len(numbers), results)

    topics = (
        {
            "name": getattr(topic, "name", None),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": partitions(topic),
        }
        for topic in request.topics
    )
    return {"topics": Lazy(len(request.topics), topics)}
