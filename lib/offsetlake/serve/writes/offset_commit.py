"""OffsetCommit, versions 2 to 10: a request is one record batch, so that all of its offsets are written or none."""

import struct
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import repeat
from operator import lt
from random import random
from typing import NamedTuple

from offsetlake.auth import acl
from offsetlake.kafka.audit.headers import COMMIT
from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers
from offsetlake.kafka.commits.encoding import offset_commit_key
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
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.request_limits import MAX_COMMIT_BATCH_BYTES, REQUEST_LIMITS
from offsetlake.serve.protocol.topics import MAX_OFFSET, NamedPartition, Topics
from offsetlake.serve.steps import Share, Steps, Work, complete
from offsetlake.serve.storage.group_details import CommitSender
from offsetlake.serve.storage.offset_store import LOG_STORE, OffsetStore
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes.commit_request import FIRST_FLEXIBLE_VERSION, FIRST_THROTTLED_VERSION, CommitRequest
from offsetlake.serve.writes.commit_rules import commit_error, metadata_error
from offsetlake.serve.writes.commit_templates import (
    MAX_BODY_BYTES,
    STEP_PARTITIONS,
    CommitTemplate,
    CommitTemplates,
    first_batch,
    make_template,
)
from offsetlake.serve.writes.committed_groups import CommittedGroups
from offsetlake.serve.writes.pending_commit import Answer, PendingCommit, throttled
from offsetlake.serve.writes.quota import UNTHROTTLED, Quota, Throttle
from offsetlake.serve.writes.rounds import Writes
from offsetlake.util.times import now_ms
from offsetlake.util.token_buckets import MAX_NAME_BYTES

MIN_LARGE_REQUEST_BYTES = 4 << 10  # these are parsed and encoded in several steps
_LAST_RETENTION_VERSION, _FIRST_EPOCH_VERSION, _FIRST_INSTANCE_VERSION, _FIRST_TOPIC_ID_VERSION = 4, 6, 7, 10
_PARTITION_BYTES = 500  # approximate memory of a parsed partition
_INT32 = struct.Struct(">i")
_MAX_OFFSET = struct.pack(">q", MAX_OFFSET)
_MIN_TOPIC_BYTES = 3  # an empty name, no partitions, no tags
_MAX_ELEMENTS = REQUEST_LIMITS[8].max_elements


Build = Callable[[int, bytes, Headers], Batch]
"""Returns the record batch of a request: for the time in ms, its offsets as int64, and headers of its first record."""


class Origin(NamedTuple):
    """Where a request comes from: its header, how to answer it, the groups of its connection, its client."""

    header: wire.RequestHeader
    answer: Answer
    groups: CommittedGroups
    client: Client


class OffsetCommit:
    """Handles OffsetCommit requests; `errors` counts error codes, one per partition.

    A share `audited` of the commits, 0 to 1, is sampled for audit headers in the log. A commit without a member, as
    tools send them, always has audit headers if it is the first of its group on its connection or if it rewinds an
    offset. An offset is compared with the one in the previous request if that is still queued and the two are equal
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
        offset_store: OffsetStore = LOG_STORE,
    ) -> None:
        self._store, self._topics, self._writes = store, topics, writes
        self._audited, self._quota, self._offset_store = audited, quota, offset_store
        self.errors: Counter[int] = Counter()
        self._templates = CommitTemplates()

        def log_partition(group: bytes) -> int:
            return partition_for_group(group.decode(errors="replace"), log_partitions)

        self._log_partition, self._cached_log_partition = log_partition, lru_cache(1 << 16)(log_partition)

    def log_partition(self, group: bytes) -> int:
        """Return the log partition of a group."""
        return (self._cached_log_partition if len(group) <= MAX_NAME_BYTES else self._log_partition)(group)

    def take(
        self,
        frame: bytes,
        position: int,
        header: wire.RequestHeader,
        answer: Answer,
        groups: CommittedGroups,
        client: Client,
    ) -> int:
        """Handle the request whose body begins at a position of the frame, and return how long to mute the connection.

        `answer` is called with the body of the answer, now or later; `groups` are those of the connection.
        The result is in ms. Raises Malformed, IndexError or struct.error if the frame is not a valid request.
        """
        body = frame[position:]
        origin = Origin(header, answer, groups, client)
        group = wire.Cursor(body, 0, flexible=header.version >= FIRST_FLEXIBLE_VERSION).name()
        found = self._templates.find((header.version, group, len(body)), body)
        if found is not None and self._is_accepted(*found, client):
            template, offsets = found
            return self._accept(template.request, offsets, template.batch, origin)
        work = self._take(body, origin)
        if len(frame) < MIN_LARGE_REQUEST_BYTES:
            return complete(work)
        client.work(work)
        return 0

    def _is_accepted(self, template: CommitTemplate, offsets: bytes, client: Client) -> bool:
        """Check whether a repeated request is accepted as the one before it was."""
        request = template.request
        return not (
            _MAX_OFFSET in offsets
            or request.revision != self._topics.revision
            or self._store.loading
            or not client.may(acl.COMMIT, request.group)
            or self._error(request)
        )

    def _error(self, request: CommitRequest) -> int:
        """Return the error code of all partitions of a request, by the state of its group."""
        group, member = request.group, request.committer.member
        if request.without_member and self._store.accepts_commits(group):
            return NONE
        error = commit_error(self._store, group, request.committer, request.version)
        if not error and member:
            self._store.member_committed(group, member)
        return error

    def _take(self, body: bytes, origin: Origin, *, is_deferred: bool = False) -> Work:
        """Handle a request that repeats no other; once `is_deferred`, topics that are unknown do not exist."""
        request, offsets, error = yield from self._read(body, origin.header.version, origin.client)
        if request.unknown and not is_deferred and self._defer(request, body, origin):
            return 0
        if not offsets:
            origin.answer(request.body(error))
            return 0
        build: Build = partial(first_batch, request)
        kind = request.version, request.group, len(body)
        is_large = len(request.keys) > STEP_PARTITIONS
        if request.retention_ms < 0 and (is_large or self._templates.is_repeated(kind)):
            template = yield from make_template(request, body)
            build = template.batch
            if request.accepts_all() and len(body) <= MAX_BODY_BYTES:
                self._templates.keep(template)
        return self._accept(request, offsets, build, origin)

    def _defer(self, request: CommitRequest, body: bytes, origin: Origin) -> bool:
        """Read a request again when new topics in it are known; return False if there is nothing to wait for."""

        def proceed() -> None:
            origin.groups.deferred -= 1
            origin.client.work(self._take(body, origin, is_deferred=True))

        if not self._topics.deferred(lambda: request.unknown, proceed):
            return False
        origin.groups.deferred += 1
        for _, partitions in request.results:  # its errors are counted when it is answered
            self.errors.subtract(code for _, code in partitions if code)
        return True

    def _accept(self, request: CommitRequest, offsets: bytes, build: Build, origin: Origin) -> int:
        """Queue the write of a request, unless the quota of its group is exceeded; return how long to mute."""
        throttle, answer = self.throttle(request.group), origin.answer
        if error := self._offset_store.error:
            self.errors[error] += len(request.keys)
            answer(request.body(error))
            return 0
        if throttle.throttle_ms and request.version >= FIRST_THROTTLED_VERSION:
            answer = throttled(answer, throttle.throttle_ms)
        if throttle.refused:
            self.errors[COORDINATOR_LOAD_IN_PROGRESS] += len(request.keys)
            answer(request.body(COORDINATOR_LOAD_IN_PROGRESS))
            return throttle.muted_ms
        client, headers = origin.client, NO_HEADERS
        is_first = origin.groups.add(request.group)
        if self._is_audited(request, offsets, is_first=is_first):
            headers = client.audit_headers(COMMIT, origin.header.client_id)
        request.queued_offsets = offsets

        write = partial(self._write, request, offsets, build, headers, answer, client.share)
        self._writes.after(throttle.delay_ms, write)
        return throttle.muted_ms

    def _write(
        self, request: CommitRequest, offsets: bytes, build: Build, headers: Headers, answer: Answer, share: Share
    ) -> None:
        """Build the record batch of a commit and queue it."""
        batch = build(now_ms(), offsets, headers)
        if len(batch.data) > MAX_COMMIT_BATCH_BYTES:
            self.errors[UNKNOWN_SERVER_ERROR] += batch.records
            answer(request.body(UNKNOWN_SERVER_ERROR))
            return
        partition = self.log_partition(request.group)
        commit = PendingCommit(partition, batch, self._store, request, offsets, answer, self.errors, self._offset_store)
        self._writes.add(commit, share, batch.records)

    def throttle(self, group: bytes) -> Throttle:
        """Count a commit against the quota of its group, and return how it is throttled."""
        return UNTHROTTLED if self._quota is None else self._quota.take(group)

    def is_sampled(self) -> bool:
        """Decide at random whether a commit is sampled for audit headers."""
        return self._audited > 0 and random() < self._audited  # noqa: S311 - a sample

    def _is_audited(self, request: CommitRequest, offsets: bytes, *, is_first: bool) -> bool:
        """Decide whether a commit gets audit headers."""
        if self.is_sampled():
            return True
        if not request.without_member:
            return False
        if is_first:
            return True
        previous = request.queued_offsets or self._store.last_commit(request.group, request.stored)
        layout = f">{len(request.keys)}q"  # which `struct` has compiled for an earlier request
        numbers = struct.unpack(layout, offsets)
        if previous:
            return any(map(lt, numbers, struct.unpack(layout, previous)))
        names = (name for name, _, _, _ in request.stored)
        return any(map(self._store.is_rewind, repeat(request.group), names, numbers))

    def _read(self, body: bytes, version: int, client: Client) -> Steps[tuple[CommitRequest, bytes, int]]:
        """Parse a request; return it, the offsets to store as int64, and the error code of the other partitions."""
        cursor = wire.Cursor(body, 0, flexible=version >= FIRST_FLEXIBLE_VERSION, max_elements=_MAX_ELEMENTS)
        group = cursor.name()
        generation, member = cursor.int32(), cursor.name()
        instance = cursor.string() if version >= _FIRST_INSTANCE_VERSION else None
        retention = cursor.int64() if version <= _LAST_RETENTION_VERSION else -1
        error = self._store.unavailable(group)
        denied = not client.may(acl.COMMIT, group)
        if denied:
            error = GROUP_AUTHORIZATION_FAILED
        committer = CommitSender(generation, member, instance)
        request = CommitRequest(group, version, retention, self._topics.revision, committer)
        error = error or self._error(request)
        offsets: list[int] = []
        for _ in range(cursor.length(_MIN_TOPIC_BYTES)):
            yield from self._read_topic(cursor, request, error, offsets, unchecked=denied or self._topics.awaited)
            yield 0  # a topic without partitions takes time, too
        cursor.tags()
        return request, struct.pack(f">{len(offsets)}q", *offsets), error

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
            if len(partitions) % STEP_PARTITIONS == 0:
                yield _PARTITION_BYTES * STEP_PARTITIONS
            if unchecked:
                code = error
            elif name is None:
                code = UNKNOWN_TOPIC_ID
                request.unknown.append(NamedPartition(None, topic_id))
            elif not self._topics.has_partition(name, partition):
                code = UNKNOWN_TOPIC_OR_PARTITION
                request.unknown.append(NamedPartition(name, partition=partition))
            elif offset == MAX_OFFSET:  # the end of an unlimited range, which ListOffsets returns to Kafka's tools
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
