"""OffsetCommit, versions 2 to 10: one request is one record batch, all of its offsets in the log or none."""

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import lt
from random import random

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import COMMIT
from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers, record_batch, record_batch_in_steps
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    NOT_COORDINATOR,
    OFFSET_METADATA_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from offsetlake.kafka.placement import partition_for_group
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.auth import acl
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES, REQUEST_LIMITS
from offsetlake.serve.protocol.topics import MAX_OFFSET, Topics
from offsetlake.serve.steps import Share, Steps, Work, complete
from offsetlake.serve.storage.store import VALUE, Store
from offsetlake.serve.writes import commit_rules as rules
from offsetlake.serve.writes.commit_request import FLEXIBLE, THROTTLE, CommitRequest, Kept, LastCommit
from offsetlake.serve.writes.commit_rules import Committer
from offsetlake.serve.writes.quota import UNTHROTTLED, Quota, Throttle
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms
from offsetlake.util.token_buckets import MAX_NAME_BYTES

LARGE_BYTES = 4 << 10  # of a request that is read, and made records of, in turns
_AT_ONCE = 100  # partitions
METADATA_LIMIT = 4096  # UTF-16 units: offset.metadata.max.bytes of a broker
_RETENTION, _EPOCH, _INSTANCE, _TOPIC_IDS = 4, 6, 7, 10
_BYTES_EACH = 500  # of memory, about, of a partition that was read
_INT32 = struct.Struct(">i")
_MIN_TOPIC_BYTES = 3  # an empty name, no partitions, no tags
_MAX_ELEMENTS = REQUEST_LIMITS[8].max_elements

Answer = Callable[[bytes], None]


class PendingCommit:
    """A request that goes to the log; its records are made, their log offsets are not known yet."""

    __slots__ = ("_answer", "_batch", "_errors", "_offsets", "_request", "_store", "alone", "partition")

    def __init__(
        self,
        partition: int,
        batch: Batch,
        store: Store,
        request: CommitRequest,
        offsets: Sequence[int],
        answer: Answer,
        errors: Counter[int],
    ) -> None:
        self.partition, self.alone, self._batch, self._errors = partition, False, batch, errors
        self._store, self._request, self._offsets, self._answer = store, request, offsets, answer

    def batches(self) -> tuple[Batch]:
        """Give the one batch."""
        return (self._batch,)

    def written(self, firsts: list[int]) -> None:
        """Serve it from now on, and answer."""
        values = {
            name: VALUE.pack(offset, epoch, topic_id) + metadata
            for (name, epoch, topic_id, metadata), offset in zip(self._request.stored, self._offsets, strict=True)
        }
        request, last = self._request, firsts[0] + len(self._offsets) - 1
        self._store.commit(request.group, values, last, of_nobody=request.of_nobody)
        self._answer(self._request.accepted())

    def failed(self, _error: LogUnavailable) -> None:
        """Answer as a broker does whose disk takes no more."""
        self._errors[NOT_COORDINATOR] += len(self._offsets)
        self._answer(self._request.body(NOT_COORDINATOR))


class OffsetCommit:
    """Takes OffsetCommit requests to the log; `errors` counts error codes, one a partition.

    `recorded` is the share of them, 0 to 1, that say there who sent them. A commit of no member, as tools send them,
    always does where it is the first of its group on its connection, or goes back: behind what is stored; and where it
    is otherwise the one before on its connection, behind that.
    """

    def __init__(
        self,
        store: Store,
        topics: Topics,
        writes: Writes,
        log_partitions: int,
        recorded: float = 0,
        quota: Quota | None = None,
    ) -> None:
        self._store, self._topics, self._writes = store, topics, writes
        self._recorded, self._quota = recorded, quota
        self.errors: Counter[int] = Counter()
        self.kept = Kept()

        def place(group: bytes) -> int:
            return partition_for_group(group.decode(errors="replace"), log_partitions)

        self._place, self._place_once = place, lru_cache(1 << 16)(place)

    def log_partition(self, group: bytes) -> int:
        """Return the log partition of a group."""
        return (self._place_once if len(group) <= MAX_NAME_BYTES else self._place)(group)

    def take(
        self, frame: bytes, at: int, header: wire.RequestHeader, answer: Answer, last: LastCommit, client: Client
    ) -> int:
        """Take the request whose body begins at `at`; `answer` is called with the body of the answer, now or later.

        `last` is the last one of its connection, `client` who is there. Gives for how many ms that is to rest. Raises
        Malformed, IndexError or struct.error where the bytes are no such request.
        """
        work = self._take(frame, at, header, answer, last, client)
        if len(frame) < LARGE_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _take(
        self, frame: bytes, at: int, header: wire.RequestHeader, answer: Answer, last: LastCommit, client: Client
    ) -> Work:
        request = last.request
        offsets: list[int] | tuple[int, ...] = () if request is None else request.repeated(frame)
        if (
            request is None
            or not offsets
            or MAX_OFFSET in offsets
            or not self._store.takes_commits(request.group)
            or not client.may(acl.COMMIT, request.group)
        ):
            request, offsets, error = yield from self._read(frame, at, header.version, client)
            last.keep(request, frame)
            if not offsets:
                answer(request.body(error))
                return 0
        throttle = self.throttle(request.group)
        if throttle.rest_ms and header.version >= THROTTLE:
            answer = _throttled(answer, throttle.rest_ms)
        if throttle.refused:
            self.errors[COORDINATOR_LOAD_IN_PROGRESS] += len(offsets)
            answer(request.body(COORDINATOR_LOAD_IN_PROGRESS))
            return throttle.muted_ms
        audit = client.audit_headers(COMMIT, header.client_id) if self._tells(request, offsets, last) else NO_HEADERS
        last.group, request.before = request.group, offsets
        write = self._write(request, offsets, audit, answer, client.share)
        if throttle.delay_ms:
            self._writes.after(throttle.delay_ms, lambda: complete(write))
        else:
            yield from write
        return throttle.muted_ms

    def _write(
        self, request: CommitRequest, offsets: Sequence[int], audit: Headers, answer: Answer, share: Share
    ) -> Steps[None]:
        """Make a record batch of a commit, and queue it."""
        now = now_ms()
        expiry = -1 if request.expires < 0 else now + request.expires
        records = (
            (key, offset_commit_value(offset, epoch, metadata, now, expiry, topic_id))
            for key, offset, (_, epoch, topic_id, metadata) in zip(request.keys, offsets, request.stored, strict=True)
        )
        if len(offsets) <= _AT_ONCE:
            batch = record_batch(now, records, audit)
        else:
            batch = yield from record_batch_in_steps(now, records, audit, _AT_ONCE)
        if len(batch.data) > MAX_COMMIT_BATCH_BYTES:
            self.errors[UNKNOWN_SERVER_ERROR] += len(offsets)
            answer(request.body(UNKNOWN_SERVER_ERROR))
            return
        commit = PendingCommit(
            self.log_partition(request.group), batch, self._store, request, offsets, answer, self.errors
        )
        self._writes.add(commit, share, len(offsets))

    def throttle(self, group: bytes) -> Throttle:
        """Count a commit of a group against its quota."""
        return UNTHROTTLED if self._quota is None else self._quota.take(group)

    def is_sampled(self) -> bool:
        """Draw whether a commit is of the share that says who sent it."""
        return self._recorded > 0 and random() < self._recorded  # noqa: S311 - a sample

    def _tells(self, request: CommitRequest, offsets: Sequence[int], last: LastCommit) -> bool:
        """Decide whether a commit says who sent it."""
        if self.is_sampled():
            return True
        if not request.of_nobody:
            return False
        if request.group != last.group:
            return True
        if request.before:
            return any(map(lt, offsets, request.before))
        names = (name for name, _, _, _ in request.stored)
        return any(map(self._store.goes_back, repeat(request.group), names, offsets))

    def _read(self, frame: bytes, at: int, version: int, client: Client) -> Steps[tuple[CommitRequest, list[int], int]]:
        """Read a request; gives it with the offsets to store, and the error code of all others without one."""
        cursor = wire.Cursor(frame, at, flexible=version >= FLEXIBLE, max_elements=_MAX_ELEMENTS)
        group = cursor.name()
        generation, member = cursor.int32(), cursor.name()
        instance = cursor.string() if version >= _INSTANCE else None
        retention = cursor.int64() if version <= _RETENTION else -1
        error = COORDINATOR_LOAD_IN_PROGRESS if self._store.loading else NONE
        denied = not client.may(acl.COMMIT, group)
        if denied:
            error = GROUP_AUTHORIZATION_FAILED
        of_nobody = generation < 0 and not member and instance is None
        request = CommitRequest(group, version, retention, of_nobody=of_nobody)
        if not error and not (of_nobody and self._store.takes_commits(request.group)):
            committer = Committer(generation, member, instance)
            of = self._store.group(request.group)
            error = rules.refusal(of, lambda: self._store.members(request.group), committer, version)
        offsets: list[int] = []
        for _ in range(cursor.length(_MIN_TOPIC_BYTES)):
            yield from self._read_topic(cursor, request, error, offsets, denied=denied)
            yield 0  # a topic without partitions takes time too
        cursor.tags()
        return request, offsets, error

    def _read_topic(
        self, cursor: wire.Cursor, request: CommitRequest, error: int, offsets: list[int], *, denied: bool
    ) -> Steps[None]:
        """Read a topic of a request, and take in what is to be stored and answered of it.

        Who is `denied` the group is told that of all partitions, whether there are such or not.
        """
        version = request.version
        if version >= _TOPIC_IDS:
            named = topic_id = cursor.raw(16)
            name = self._topics.name_of(topic_id)
        else:
            name, topic_id = cursor.name(), ZERO_UUID
            named = wire.string(name, flexible=version >= FLEXIBLE)
        partitions: list[tuple[int, int]] = []
        request.answered.append((named, partitions))
        prefix = b"" if name is None else offset_commit_key(request.group, name)
        for partition, offset, epoch, metadata, place in cursor.committed(epochs=version >= _EPOCH):
            if len(partitions) % _AT_ONCE == 0:
                yield _BYTES_EACH * _AT_ONCE
            if denied:
                code = error
            elif name is None:
                code = UNKNOWN_TOPIC_ID
            elif not self._topics.has_partition(name, partition):
                code = UNKNOWN_TOPIC_OR_PARTITION
            elif offset == MAX_OFFSET:  # the end ListOffsets gives for one that nobody knows
                code = error or OFFSET_OUT_OF_RANGE
            else:
                code = error or too_large(metadata)
            partitions.append((partition, code))
            if code:
                self.errors[code] += 1
            elif name is not None:
                self._topics.grow(name, partition)
                number = _INT32.pack(partition)
                request.add(prefix + number, (name + number, epoch, topic_id, metadata), place)
                offsets.append(offset)
        cursor.tags()


def _throttled(answer: Answer, rest_ms: int) -> Answer:
    """Have an answer say how long its connection is left alone: it begins with that."""
    return lambda body: answer(_INT32.pack(rest_ms) + body[_INT32.size :])


def too_large(metadata: bytes) -> int:
    """Give the error code of metadata that is too long, or NONE."""
    units = len(metadata) if len(metadata) <= METADATA_LIMIT else len(metadata.decode().encode("utf-16-le")) // 2
    return OFFSET_METADATA_TOO_LARGE if units > METADATA_LIMIT else NONE
