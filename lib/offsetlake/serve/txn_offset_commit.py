"""TxnOffsetCommit: one request is one record batch of a transaction, which counts when the transaction is committed."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.act_headers import COMMIT, Headers
from offsetlake.kafka.batch_writer import (
    NO_HEADERS,
    Batch,
    Producer,
    Record,
    offset_commit_key,
    offset_commit_value,
    record_batch,
)
from offsetlake.serve import commit_rules as rules
from offsetlake.serve.base import NO_ID
from offsetlake.serve.client import Asked
from offsetlake.serve.commit_rules import NONE, Committer
from offsetlake.serve.encoding import Lazy, Values
from offsetlake.serve.offset_commit import OffsetCommit, too_large
from offsetlake.serve.store import VALUE, Store, key
from offsetlake.serve.topics import LAST_OFFSET, Topics
from offsetlake.serve.transaction_rules import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
from offsetlake.serve.transactions import Answer, Transactions, denial
from offsetlake.serve.writes import Writes
from offsetlake.times import now_ms

_JOINS_SINCE, _LOADING_SINCE = 5, 2  # versions: the partition comes with it; old clients do not know of loading
_COORDINATOR_NOT_AVAILABLE = 15
_INT32 = struct.Struct(">i")


class TransactionalCommit:
    """A request that goes to the log; `errors` has those of partitions by their places in the request."""

    alone = False

    def __init__(
        self, partition: int, request: Any, store: Store, act: Headers, errors: list[int], answer: Answer
    ) -> None:
        self.partition, self._request, self._store, self._answer = partition, request, store, answer
        self._act, self._errors = act, errors
        self._group = request.group_id.encode()
        self._producer = Producer(request.producer_id, request.producer_epoch)
        self._values: list[tuple[bytes, bytes]] = []
        self._records: list[Record] = []

    def add(self, now: int, topic: str, of: Any) -> None:
        """Take in a partition."""
        name, metadata = topic.encode(), (of.committed_metadata or "").encode()
        epoch = getattr(of, "committed_leader_epoch", -1)
        record_key = offset_commit_key(self._group, name) + _INT32.pack(of.partition_index)
        value = offset_commit_value(of.committed_offset, epoch, metadata, now, -1, NO_ID)
        self._records.append((record_key, value))
        self._values.append((key(name, of.partition_index), VALUE.pack(of.committed_offset, epoch, NO_ID) + metadata))

    def batches(self) -> Sequence[Batch]:
        """Give the one batch."""
        return (record_batch(now_ms(), self._records, self._act, self._producer),)

    def written(self, firsts: list[int]) -> None:
        """Keep it for the marker, and answer."""
        self._store.hold(self._group, (self._producer.id, self.partition), self._values, firsts[0])
        self._answer(answered(self._request, self._errors, NONE))

    def failed(self, _error: LogUnavailable) -> None:
        """Answer as a broker does whose disk takes no more."""
        self._answer(answered(self._request, self._errors, rules.NOT_COORDINATOR))


class TxnOffsetCommit:
    """Takes TxnOffsetCommit requests to the log."""

    def __init__(
        self, store: Store, topics: Topics, writes: Writes, commits: OffsetCommit, transactions: Transactions
    ) -> None:
        self._store, self._topics, self._writes, self._commits = store, topics, writes, commits
        self._transactions = transactions

    def take(self, request: Any, asked: Asked, answer: Answer) -> int:
        """Take a request; `answer` is called now or later. Gives for how many ms its connection is to rest."""
        errors = [self._error(topic.name, of) for topic in request.topics for of in topic.partitions]

        def go_on(error: int) -> None:
            error = INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error or self._refusal(request)
            if error:
                answer(answered(request, errors, error))
            else:
                self._write(request, asked, errors, answer)

        name, group = request.transactional_id, request.group_id.encode()
        producer = Producer(request.producer_id, request.producer_epoch)
        if denied := denial(asked, name, group):
            answer(answered(request, [], denied))
        elif all(errors):
            answer(answered(request, errors, NONE))
        elif self._store.loading:
            answer(answered(request, errors, _try_again(asked.version)))
        elif not group:
            answer(answered(request, errors, rules.INVALID_GROUP_ID))
        else:
            throttle, partition = self._commits.throttle(group), self._commits.log_partition(group)
            answer = _throttled(answer, throttle.rest_ms) if throttle.rest_ms else answer

            def begin() -> None:
                if asked.version >= _JOINS_SINCE:
                    self._transactions.join(name, producer, partition, go_on)
                else:
                    go_on(self._transactions.may_write(name, producer, partition, asked.version))

            if throttle.refused:
                answer(answered(request, errors, _try_again(asked.version)))
            else:
                self._writes.after(throttle.delay_ms, begin)
            return throttle.muted_ms
        return 0

    def _error(self, topic: str, of: Any) -> int:
        if not self._topics.holds(topic.encode(), of.partition_index):
            return rules.UNKNOWN_TOPIC_OR_PARTITION
        return rules.OFFSET_OUT_OF_RANGE if of.committed_offset == LAST_OFFSET else NONE

    def _refusal(self, request: Any) -> int:
        """Give the error code of the group."""
        group, instance = request.group_id.encode(), getattr(request, "group_instance_id", None)
        committer = Committer(
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", "").encode(),
            None if instance is None else instance.encode(),
        )
        return rules.transactional_refusal(self._store.group(group), lambda: self._store.members(group), committer)

    def _write(self, request: Any, asked: Asked, errors: list[int], answer: Answer) -> None:
        now, place = now_ms(), 0
        partition = self._commits.log_partition(request.group_id.encode())
        act = asked.act(COMMIT) if self._commits.is_sampled() else NO_HEADERS
        commit = TransactionalCommit(partition, request, self._store, act, errors, answer)
        for topic in request.topics:
            for of in topic.partitions:
                errors[place] = errors[place] or too_large((of.committed_metadata or "").encode())
                if not errors[place]:
                    commit.add(now, topic.name, of)
                    self._topics.grow(topic.name.encode(), of.partition_index)
                place += 1
        if all(errors):
            answer(answered(request, errors, NONE))
        else:
            self._writes.add(commit)


def _try_again(version: int) -> int:
    """Return the error code that clients of a version try again for."""
    return rules.COORDINATOR_LOAD_IN_PROGRESS if version >= _LOADING_SINCE else _COORDINATOR_NOT_AVAILABLE


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
