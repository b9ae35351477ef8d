"""TxnOffsetCommit: one request is one record batch of a transaction, which counts when the transaction is committed."""

import struct
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

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
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.auth.principals import RequestContext
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES
from offsetlake.serve.protocol.topics import MAX_OFFSET, Topics
from offsetlake.serve.steps import Steps, Work
from offsetlake.serve.storage.store import VALUE, Store, key
from offsetlake.serve.transactions.coordinator import Answer, Transactions, denial
from offsetlake.serve.writes import commit_rules as rules
from offsetlake.serve.writes.commit_rules import Committer
from offsetlake.serve.writes.offset_commit import OffsetCommit, too_large
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms

_JOINS_SINCE, _LOADING_SINCE = 5, 2  # versions: the partition comes with it; old clients do not know of loading
_COORDINATOR_NOT_AVAILABLE = 15
_AT_ONCE = 100  # partitions
_INT32 = struct.Struct(">i")


class TransactionalCommit:
    """A request that goes to the log; `errors` has those of partitions by their places in the request."""

    alone = False

    def __init__(self, partition: int, request: Any, store: Store, errors: list[int], answer: Answer) -> None:
        self.partition, self._request, self._store, self._answer = partition, request, store, answer
        self._errors = errors
        self._group = request.group_id.encode()
        self._producer = Producer(request.producer_id, request.producer_epoch)
        self._values: list[tuple[bytes, bytes]] = []
        self._batch: Batch
        self.last_partitions: dict[bytes, int] = {}
        """By topic, the highest partition that it commits."""

    def build(self, audit: Headers) -> Steps[int]:
        """Build the record batch in steps; return its size in bytes, 0 if all partitions have errors."""
        now = now_ms()
        self._batch = yield from record_batch_in_steps(now, self._records(now), audit, _AT_ONCE, self._producer)
        return len(self._batch.data) if self._values else 0

    def _records(self, now: int) -> Iterator[Record]:
        places = count()
        for topic in self._request.topics:
            name = topic.name.encode()
            prefix = offset_commit_key(self._group, name)
            for of in topic.partitions:
                place, metadata = next(places), (of.committed_metadata or "").encode()
                self._errors[place] = self._errors[place] or too_large(metadata)
                if not self._errors[place]:
                    offset, epoch = of.committed_offset, getattr(of, "committed_leader_epoch", -1)
                    self._values.append(
                        (key(name, of.partition_index), VALUE.pack(offset, epoch, ZERO_UUID) + metadata)
                    )
                    self.last_partitions[name] = max(of.partition_index, self.last_partitions.get(name, 0))
                    value = offset_commit_value(offset, epoch, metadata, now, -1, ZERO_UUID)
                    yield prefix + _INT32.pack(of.partition_index), value

    def batches(self) -> Sequence[Batch]:
        """Give the one batch."""
        return (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Keep it for the marker, and answer."""
        self._store.hold(self._group, (self._producer.id, self.partition), self._values, firsts[0])
        self.refuse(NONE)

    def failed(self, _error: LogUnavailable) -> None:
        """Answer as a broker does whose disk takes no more."""
        self.refuse(NOT_COORDINATOR)

    def refuse(self, error: int) -> None:
        """Answer; partitions without an error of their own get `error`."""
        self._answer(answered(self._request, self._errors, error))


class TxnOffsetCommit:
    """Takes TxnOffsetCommit requests to the log."""

    def __init__(
        self, store: Store, topics: Topics, writes: Writes, commits: OffsetCommit, transactions: Transactions
    ) -> None:
        self._store, self._topics, self._writes, self._commits = store, topics, writes, commits
        self._transactions = transactions

    def take(self, request: Any, asked: RequestContext, answer: Answer) -> Work:
        """Take a request in turns; `answer` is called now or later."""
        group = request.group_id.encode()
        if denied := denial(asked, request.transactional_id, group):
            answer(answered(request, [], denied))
            return 0
        errors: list[int] = []
        for topic in request.topics:
            for of in topic.partitions:
                errors.append(self._error(topic.name, of))
                if len(errors) % _AT_ONCE == 0:
                    yield 0
        if all(errors):
            answer(answered(request, errors, NONE))
        elif self._store.loading:
            answer(answered(request, errors, _try_again(asked.version)))
        elif not group:
            answer(answered(request, errors, INVALID_GROUP_ID))
        else:
            throttle = self._commits.throttle(group)
            answer = _throttled(answer, throttle.rest_ms) if throttle.rest_ms else answer
            if throttle.refused:
                answer(answered(request, errors, _try_again(asked.version)))
            else:
                yield from self._begin(request, asked, errors, answer, throttle.delay_ms)
            return throttle.muted_ms
        return 0

    def _begin(
        self, request: Any, asked: RequestContext, errors: list[int], answer: Answer, delay_ms: int
    ) -> Steps[None]:
        """Build the batch of a request, then check its transaction and queue the batch in one step."""
        name, producer = request.transactional_id, Producer(request.producer_id, request.producer_epoch)
        partition = self._commits.log_partition(request.group_id.encode())
        commit = TransactionalCommit(partition, request, self._store, errors, answer)
        size = yield from commit.build(asked.audit_headers(COMMIT) if self._commits.is_sampled() else NO_HEADERS)

        def go_on(error: int) -> None:
            error = INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error or self._refusal(request)
            if error or not size:
                commit.refuse(error)
            elif size > MAX_COMMIT_BATCH_BYTES:
                commit.refuse(UNKNOWN_SERVER_ERROR)
            else:
                for topic, last in commit.last_partitions.items():
                    self._topics.grow(topic, last)
                self._writes.add(commit)

        def begin() -> None:
            if asked.version >= _JOINS_SINCE:
                self._transactions.join(name, producer, partition, go_on)
            else:
                go_on(self._transactions.may_write(name, producer, partition, asked.version))

        self._writes.after(delay_ms, begin)

    def _error(self, topic: str, of: Any) -> int:
        if not self._topics.has_partition(topic.encode(), of.partition_index):
            return UNKNOWN_TOPIC_OR_PARTITION
        return OFFSET_OUT_OF_RANGE if of.committed_offset == MAX_OFFSET else NONE

    def _refusal(self, request: Any) -> int:
        """Give the error code of the group."""
        group, instance = request.group_id.encode(), getattr(request, "group_instance_id", None)
        committer = Committer(
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", "").encode(),
            None if instance is None else instance.encode(),
        )
        return rules.transactional_refusal(self._store.group(group), lambda: self._store.members(group), committer)


def _try_again(version: int) -> int:
    """Return the error code that clients of a version try again for."""
    return COORDINATOR_LOAD_IN_PROGRESS if version >= _LOADING_SINCE else _COORDINATOR_NOT_AVAILABLE


def _throttled(answer: Answer, rest_ms: int) -> Answer:
    """Have an answer say how long its connection is left alone."""
    return lambda values: answer({**values, "throttle_time": timedelta(milliseconds=rest_ms)})


def answered(request: Any, errors: list[int], error: int) -> Values:
    """Make an answer; partitions without an error of their own get `error`."""
    of = iter(errors)

    def partitions(topic: Any) -> Lazy:
        numbers = [partition.partition_index for partition in topic.partitions]
        return Lazy(
            len(numbers), ({"partition_index": each, "error_code": next(of, NONE) or error} for each in numbers)
        )

    topics = ({"name": topic.name, "partitions": partitions(topic)} for topic in request.topics)
    return {"topics": Lazy(len(request.topics), topics)}
