"""OffsetCommit, versions 2 to 10: a request is one record batch, so that all of its offsets are written or none."""

import struct
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from operator import lt
from random import random

from offsetlake.kafka.audit.headers import COMMIT
from offsetlake.kafka.batches.writer import NO_HEADERS, Headers, record_batch, record_batch_in_steps
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
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
from offsetlake.serve.storage.group_details import Committer
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.commit_request import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_THROTTLED_VERSION,
    CacheBudget,
    CommitRequest,
    LastCommit,
)
from offsetlake.serve.writes.commit_rules import commit_error, metadata_error
from offsetlake.serve.writes.pending_commit import Answer, PendingCommit
from offsetlake.serve.writes.quota import UNTHROTTLED, Quota, Throttle
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms
from offsetlake.util.token_buckets import MAX_NAME_BYTES

MIN_LARGE_REQUEST_BYTES = 4 << 10  # these are parsed and encoded in several steps
_STEP_PARTITIONS = 100
_LAST_RETENTION_VERSION, _FIRST_EPOCH_VERSION, _FIRST_INSTANCE_VERSION, _FIRST_TOPIC_ID_VERSION = 4, 6, 7, 10
_PARTITION_BYTES = 500  # approximate memory of a parsed partition
_INT32 = struct.Struct(">i")
_MIN_TOPIC_BYTES = 3  # an empty name, no partitions, no tags
_MAX_ELEMENTS = REQUEST_LIMITS[8].max_elements


class OffsetCommit:
    """Handles OffsetCommit requests; `errors` counts error codes, one per partition.

    A share `audited` of the commits, 0 to 1, is sampled for audit headers in the log. A commit without a member, as
    tools send them, always has audit headers if it is the first of its group on its connection or if it rewinds an
    offset. An offset is compared with the one in the previous request of the connection if the two are equal
    otherwise, and with the stored offset if not.
    """

    def __init__(
        self,
        store: Store,
        topics: Topics,
        writes: Writes,
        log_partitions: int,
        audited: float = 0,
        quota: Quota | None = None,
    ) -> None:
        self._store, self._topics, self._writes = store, topics, writes
        self._audited, self._quota = audited, quota
        self.errors: Counter[int] = Counter()
        self.cache_budget = CacheBudget()

        def log_partition(group: bytes) -> int:
            return partition_for_group(group.decode(errors="replace"), log_partitions)

        self._log_partition, self._cached_log_partition = log_partition, lru_cache(1 << 16)(log_partition)

    def log_partition(self, group: bytes) -> int:
        """Return the log partition of a group."""
        return (self._cached_log_partition if len(group) <= MAX_NAME_BYTES else self._log_partition)(group)

    def take(
        self, frame: bytes, position: int, header: wire.RequestHeader, answer: Answer, last: LastCommit, client: Client
    ) -> int:
        """Handle the request whose body begins at a position of the frame, and return how long to mute the connection.

        `answer` is called with the body of the answer, now or later; `last` is the last request of the connection.
        The result is in ms. Raises Malformed, IndexError or struct.error if the frame is not a valid request.
        """
        work = self._take(frame, position, header, answer, last, client)
        if len(frame) < MIN_LARGE_REQUEST_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _take(
        self, frame: bytes, position: int, header: wire.RequestHeader, answer: Answer, last: LastCommit, client: Client
    ) -> Work:
        request = last.request
        offsets: list[int] | tuple[int, ...] = () if request is None else request.repeated(frame)
        if (
            request is None
            or not offsets
            or MAX_OFFSET in offsets
            or request.revision != self._topics.revision
            or not self._store.accepts_commits(request.group)
            or not client.may(acl.COMMIT, request.group)
        ):
            request, offsets, error = yield from self._read(frame, position, header.version, client)
            last.keep(request, frame)
            if not offsets:
                answer(request.body(error))
                return 0
        throttle = self.throttle(request.group)
        if throttle.throttle_ms and header.version >= FIRST_THROTTLED_VERSION:
            answer = _throttled(answer, throttle.throttle_ms)
        if throttle.refused:
            self.errors[COORDINATOR_LOAD_IN_PROGRESS] += len(offsets)
            answer(request.body(COORDINATOR_LOAD_IN_PROGRESS))
            return throttle.muted_ms
        audit = (
            client.audit_headers(COMMIT, header.client_id) if self._is_audited(request, offsets, last) else NO_HEADERS
        )
        last.group, request.previous_offsets = request.group, offsets
        write = self._write(request, offsets, audit, answer, client.share)
        if throttle.delay_ms:
            self._writes.after(throttle.delay_ms, lambda: complete(write))
        else:
            yield from write
        return throttle.muted_ms

    def _write(
        self, request: CommitRequest, offsets: Sequence[int], audit: Headers, answer: Answer, share: Share
    ) -> Steps[None]:
        """Build the record batch of a commit and queue it."""
        now = now_ms()
        expiry = -1 if request.retention_ms < 0 else now + request.retention_ms
        records = (
            (key, offset_commit_value(offset, epoch, metadata, now, expiry, topic_id))
            for key, offset, (_, epoch, topic_id, metadata) in zip(request.keys, offsets, request.stored, strict=True)
        )
        if len(offsets) <= _STEP_PARTITIONS:
            batch = record_batch(now, records, audit)
        else:
            batch = yield from record_batch_in_steps(now, records, audit, _STEP_PARTITIONS)
        if len(batch.data) > MAX_COMMIT_BATCH_BYTES:
            self.errors[UNKNOWN_SERVER_ERROR] += len(offsets)
            answer(request.body(UNKNOWN_SERVER_ERROR))
            return
        commit = PendingCommit(
            self.log_partition(request.group), batch, self._store, request, offsets, answer, self.errors
        )
        self._writes.add(commit, share, len(offsets))

    def throttle(self, group: bytes) -> Throttle:
        """Count a commit against the quota of its group, and return how it is throttled."""
        return UNTHROTTLED if self._quota is None else self._quota.take(group)

    def is_sampled(self) -> bool:
        """Decide at random whether a commit is sampled for audit headers."""
        return self._audited > 0 and random() < self._audited  # noqa: S311 - a sample

    def _is_audited(self, request: CommitRequest, offsets: Sequence[int], last: LastCommit) -> bool:
        """Decide whether a commit gets audit headers."""
        if self.is_sampled():
            return True
        if not request.without_member:
            return False
        if request.group != last.group:
            return True
        if request.previous_offsets:
            return any(map(lt, offsets, request.previous_offsets))
        names = (name for name, _, _, _ in request.stored)
        return any(map(self._store.is_rewind, repeat(request.group), names, offsets))

    def _read(
        self, frame: bytes, position: int, version: int, client: Client
    ) -> Steps[tuple[CommitRequest, list[int], int]]:
        """Parse a request; return it, the offsets to store, and the error code of the other partitions."""
        cursor = wire.Cursor(frame, position, flexible=version >= FIRST_FLEXIBLE_VERSION, max_elements=_MAX_ELEMENTS)
        group = cursor.name()
        generation, member = cursor.int32(), cursor.name()
        instance = cursor.string() if version >= _FIRST_INSTANCE_VERSION else None
        retention = cursor.int64() if version <= _LAST_RETENTION_VERSION else -1
        error = COORDINATOR_LOAD_IN_PROGRESS if self._store.loading else NONE
        denied = not client.may(acl.COMMIT, group)
        if denied:
            error = GROUP_AUTHORIZATION_FAILED
        committer = Committer(generation, member, instance)
        request = CommitRequest(group, version, retention, self._topics.revision, committer)
        if not error and not (request.without_member and self._store.accepts_commits(group)):
            error = commit_error(self._store, group, request.committer, version)
            if not error and member:
                self._store.member_committed(group, member)
        offsets: list[int] = []
        for _ in range(cursor.length(_MIN_TOPIC_BYTES)):
            yield from self._read_topic(cursor, request, error, offsets, unchecked=denied or self._topics.awaited)
            yield 0  # a topic without partitions takes time, too
        cursor.tags()
        return request, offsets, error

    def _read_topic(
        self, cursor: wire.Cursor, request: CommitRequest, error: int, offsets: list[int], *, unchecked: bool
    ) -> Steps[None]:
        """Parse a topic of a request, and add its partitions to the request and to `offsets`.

        If the topics are `unchecked`, all partitions get the error, whether they exist or not: the client is denied
        access to the group, or the topics are not known yet.
        """
        version = request.version
        if version >= _FIRST_TOPIC_ID_VERSION:
            topic = topic_id = cursor.raw(16)
            name = self._topics.name_of(topic_id)
        else:
            name, topic_id = cursor.name(), ZERO_UUID
            topic = wire.string(name, flexible=version >= FIRST_FLEXIBLE_VERSION)
        partitions: list[tuple[int, int]] = []
        request.results.append((topic, partitions))
        prefix = b"" if name is None else offset_commit_key(request.group, name)
        for partition, offset, epoch, metadata, offset_position in cursor.committed(
            epochs=version >= _FIRST_EPOCH_VERSION
        ):
            if len(partitions) % _STEP_PARTITIONS == 0:
                yield _PARTITION_BYTES * _STEP_PARTITIONS
            if unchecked:
                code = error
            elif name is None:
                code = UNKNOWN_TOPIC_ID
            elif not self._topics.has_partition(name, partition):
                code = UNKNOWN_TOPIC_OR_PARTITION
            elif offset == MAX_OFFSET:  # the log end offset that ListOffsets answers for an unknown end
                code = error or OFFSET_OUT_OF_RANGE
            else:
                code = error or metadata_error(metadata)
            partitions.append((partition, code))
            if code:
                self.errors[code] += 1
            elif name is not None:
                self._topics.grow(name, partition)
                number = _INT32.pack(partition)
                request.add(prefix + number, (name + number, epoch, topic_id, metadata), offset_position)
                offsets.append(offset)
        cursor.tags()


def _throttled(answer: Answer, throttle_ms: int) -> Answer:
    """Set the throttle time of an answer, which is its first field."""
    return lambda body: answer(_INT32.pack(throttle_ms) + body[_INT32.size :])
