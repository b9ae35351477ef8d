"""OffsetFetch, versions 1 to 10: requests are read without a schema, responses are assembled from stored bytes.

Requests for many partitions are read and answered in steps. The response is still consistent for each group: the
references to all offsets of the group are copied first.

An offset is unknown if its newest record cannot be decoded. The stored one is older: from it, a consumer would read
again what was processed, and without an offset it would begin at auto.offset.reset, both without a word. Such a
partition is answered with KAFKA_STORAGE_ERROR: the consumers of Kafka and of librdkafka fail and name the partition. A
broker does not load the whole log partition. UNSTABLE_OFFSET_COMMIT would be retried for ever, because no end of a
transaction resolves it. A commit makes the offset known.
"""

import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from offsetlake.auth.acl import READ
from offsetlake.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNSTABLE_OFFSET_COMMIT,
)
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import OFFSET_FETCH
from offsetlake.serve.protocol.request_limits import REQUEST_LIMITS
from offsetlake.serve.protocol.topics import NamedPartition, Topics
from offsetlake.serve.steps import Steps, Work, complete
from offsetlake.serve.storage.doubt import Doubt
from offsetlake.serve.storage.group_details import NO_MEMBER, CommitSender
from offsetlake.serve.storage.mapped_snapshot import Stored
from offsetlake.serve.storage.prepared_responses import MAX_REQUEST_BYTES, Prepared
from offsetlake.serve.storage.store import Store, key
from offsetlake.serve.writes.commit_rules import fetch_error

_ALL_SINCE = _NO_ERROR_BELOW = 2
_THROTTLE, _EPOCH, _FLEXIBLE, _STABLE, _GROUPS, _MEMBER, _TOPIC_IDS = 3, 5, 6, 7, 8, 9, 10
MAX_WHOLE_REQUEST_BYTES = 1 << 10  # larger requests are read in steps
MAX_SMALL_PARTITIONS = 200  # of partitions and topics; requests for fewer are answered in one step
_NOTHING: Stored = (-1, -1, b"", ZERO_UUID)
_WITH_EPOCH, _WITHOUT_EPOCH = struct.Struct(">iqi"), struct.Struct(">iq")
_INT16 = struct.Struct(">h")
_MIN_TOPIC_BYTES, _MIN_GROUP_BYTES = 3, 3  # an empty name, no elements, no tags
_MAX_ELEMENTS = REQUEST_LIMITS[OFFSET_FETCH].max_elements

Topic = tuple[bytes, bytes, tuple[int, ...]]
"""Name, id (ZERO_UUID below version 10) and partitions."""

Read = Callable[[bytes, Sequence[int]], list[Stored | None]]
"""Returns the stored offsets of partitions of a topic."""


class GroupRequest:
    """The part of a request for one group; `topics` is None for all topics."""

    __slots__ = ("committer", "group", "topics")

    def __init__(self, group: bytes, committer: CommitSender, topics: list[Topic] | None) -> None:
        self.group, self.committer, self.topics = group, committer, topics


class Request(NamedTuple):
    """A decoded request; `stable` requires stable offsets (KIP-447), `is_small` answers it in one step."""

    groups: list[GroupRequest]
    stable: bool
    is_small: bool


class Unknown(NamedTuple):
    """Which offsets of a group are not answered: those of open transactions, and those that are in doubt."""

    unstable: Collection[bytes]
    doubt: Doubt | None

    def error(self, name: bytes, *, is_stored: bool) -> int:
        """Return the error code of the offset with a key, NONE if it is answered."""
        if self.doubt is not None and self.doubt.concerns(name, is_stored=is_stored):
            return KAFKA_STORAGE_ERROR
        return UNSTABLE_OFFSET_COMMIT if name in self.unstable else NONE


class OffsetFetch:
    """Answers OffsetFetch from a store; `errors` counts error codes, of partitions and of groups."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._store, self._topics = store, topics
        self.errors: Counter[int] = Counter()

    def take(self, frame: bytes, position: int, version: int, answer: Answer, client: Client) -> None:
        """Answer the request whose body begins at `position`, in steps if it is large.

        Raise Malformed, IndexError or struct.error if the request is malformed.
        """
        if len(frame) >= MAX_REQUEST_BYTES:
            client.work(self._respond(None, frame[position:], version, answer, client))
            return
        body = frame[position:]
        question = version, self._topics.revision if version >= _TOPIC_IDS else 0, body
        prepared = self._store.prepared.get(question)  # clients repeat their requests
        if prepared is not None and self._is_allowed(prepared, client):
            answer(prepared.response)
            return
        if len(frame) >= MAX_WHOLE_REQUEST_BYTES:
            client.work(self._respond(None, body, version, answer, client))
            return
        request = complete(self._read(body, version))
        if version >= _TOPIC_IDS and self._topics.deferred(
            partial(_unknown_topics, request), lambda: client.work(self._respond(None, body, version, answer, client))
        ):
            return
        if request.is_small:
            failures = self.errors.total()
            response = b"".join(complete(self._encoded(request, version, client)))
            if self.errors.total() == failures:
                groups = [(each.group, each.committer) for each in request.groups]
                self._store.prepared.keep(question, Prepared(groups, response))
            answer(response)
        else:
            client.work(self._respond(request, b"", version, answer, client))

    def _is_allowed(self, prepared: Prepared, client: Client) -> bool:
        """Check whether a client gets a prepared response rather than an error."""
        for group, committer in prepared.groups:
            if not client.may(READ, group):
                return False
            if committer is not NO_MEMBER and fetch_error(self._store, group, committer):
                return False
        return True

    def _respond(
        self, request: Request | None, body: bytes, version: int, answer: Answer, client: Client, error: int = NONE
    ) -> Work:
        """Read a request, unless it was read, and answer it, in steps, with an error of all groups if there is one."""
        if request is None:
            request = yield from self._read(body, version)
        answer(*(yield from self._encoded(request, version, client, error)))
        return 0

    def _read(self, body: bytes, version: int) -> Steps[Request]:
        """Read a request in steps."""
        cursor = wire.Cursor(body, 0, flexible=version >= _FLEXIBLE, max_elements=_MAX_ELEMENTS)
        number = cursor.length(_MIN_GROUP_BYTES) if version >= _GROUPS else 1
        groups: list[GroupRequest] = []
        size = 0
        for _ in range(number):
            group = yield from self._read_group(cursor, version)
            groups.append(group)
            topics = group.topics
            size += MAX_SMALL_PARTITIONS if topics is None else sum(1 + len(partitions) for _, _, partitions in topics)
        if len({group.group for group in groups}) < number:  # a few bytes could request all offsets of a large group
            raise wire.Malformed("the request names a group twice")
        stable = version >= _STABLE and cursor.bool_()
        cursor.tags()
        return Request(groups, stable, size < MAX_SMALL_PARTITIONS)

    def _read_group(self, cursor: wire.Cursor, version: int) -> Steps[GroupRequest]:
        group, committer = cursor.name(), NO_MEMBER
        if version >= _MEMBER:
            member, epoch = cursor.string(), cursor.int32()
            if member is not None or epoch >= 0:
                committer = CommitSender(epoch, member or b"", None)
        length = cursor.nullable_length(_MIN_TOPIC_BYTES) if version >= _ALL_SINCE else cursor.length(_MIN_TOPIC_BYTES)
        topics: list[Topic] = []
        for _ in range(length):
            if version >= _TOPIC_IDS:
                id_ = cursor.raw(16)
                name = self._topics.name_of(id_) or b""
            else:
                id_, name = ZERO_UUID, cursor.name()
            partitions = cursor.int32s()
            if len(partitions) > 1 and len({*partitions}) < len(partitions):
                raise wire.Malformed("the request names a partition twice")  # 4 bytes could return 4 KiB of metadata
            topics.append((name, id_, partitions))
            cursor.tags()
            yield 0
        if length > 1 and len({topic[:2] for topic in topics}) < length:
            raise wire.Malformed("the request names a topic twice")
        if version >= _GROUPS:
            cursor.tags()
        return GroupRequest(group, committer, None if length < 0 else topics)

    def _encoded(self, request: Request, version: int, client: Client, error: int = NONE) -> Steps[list[bytes]]:
        """Encode the response in steps; it is consistent for each group."""
        flexible, many = version >= _FLEXIBLE, version >= _GROUPS
        out = [b"\0"] if flexible else []  # the tagged fields of the header
        if version >= _THROTTLE:
            out.append(bytes(4))
        if many:
            out.append(wire.count(len(request.groups), flexible=True))
        for group in request.groups:
            if many:
                out.append(wire.string(group.group, flexible=True))
            yield from self._encode_group(out, group, request, version, client, error)
        if flexible:
            out.append(b"\0")
        return out

    def _encode_group(
        self, out: list[bytes], group_request: GroupRequest, request: Request, version: int, client: Client, error: int
    ) -> Steps[None]:
        flexible, group, committer = version >= _FLEXIBLE, group_request.group, group_request.committer
        tags = b"\0" if flexible else b""
        error = self._store.unavailable(group) or error
        if not client.may(READ, group):
            error = GROUP_AUTHORIZATION_FAILED
        if not error and committer is not NO_MEMBER:
            error = fetch_error(self._store, group, committer)
        topics: Sequence[Topic] = group_request.topics or []
        read: Read
        unstable: Collection[bytes] = self._store.pending.keys(group) if request.stable and not error else ()
        doubt = None if error else self._store.doubt(group)
        if error:
            topics, read = [] if version >= _NO_ERROR_BELOW else topics, _no_offsets
        elif request.is_small:
            read = partial(self._store.read, group)
        else:
            moment, unstable = self._store.group_offsets(group), {*unstable}
            read = moment.read
            if group_request.topics is None:
                partitions = yield from moment.partitions()
                topics = self._all_topics(version, partitions if doubt is None else doubt.with_keys(partitions))
        yield from self._encode_topics(out, topics, read, version, error, Unknown(unstable, doubt))
        if version >= _NO_ERROR_BELOW:
            out.append(_INT16.pack(error))
            if error:
                self.errors[error] += 1
        if version >= _GROUPS:
            out.append(tags)

    def _encode_topics(
        self,
        out: list[bytes],
        topics: Sequence[Topic],
        read: Read,
        version: int,
        error: int,
        unknown: "Unknown",
    ) -> Steps[None]:
        flexible = version >= _FLEXIBLE
        tags = b"\0" if flexible else b""
        out.append(wire.count(len(topics), flexible=flexible))
        for name, id_, partitions in topics:
            out += (
                id_ if version >= _TOPIC_IDS else wire.string(name, flexible=flexible),
                wire.count(len(partitions), flexible=flexible),
            )
            code = error or (UNKNOWN_TOPIC_ID if version >= _TOPIC_IDS and not name else NONE)
            for begin in range(0, len(partitions), MAX_SMALL_PARTITIONS):
                numbers = partitions[begin : begin + MAX_SMALL_PARTITIONS]
                offsets = _no_offsets(name, numbers) if code else read(name, numbers)
                piece = self._encode_partitions(numbers, offsets, (name, id_), version, code, unknown)
                out.append(piece)
                yield len(piece)
            out.append(tags)
            yield 0  # a topic without partitions takes time too

    def _encode_partitions(
        self,
        partitions: Sequence[int],
        offsets: Sequence[Stored | None],
        topic: tuple[bytes, bytes],
        version: int,
        error: int,
        unknown: "Unknown",
    ) -> bytes:
        """Return the encoded partitions of a topic, which is given by name and id, with their stored offsets."""
        name, id_ = topic
        has_unknown = not error and (bool(unknown.unstable) or unknown.doubt is not None)
        flexible, epochs = version >= _FLEXIBLE, version >= _EPOCH
        if error:
            self.errors[error] += len(partitions)
        out: list[bytes] = []
        for partition, stored in zip(partitions, offsets, strict=True):
            code = error
            if has_unknown and (found := unknown.error(key(name, partition), is_stored=stored is not None)):
                code, stored = found, None  # noqa: PLW2901
                self.errors[code] += 1
            offset, epoch, metadata, stored_id = stored or _NOTHING
            if id_ not in (stored_id, ZERO_UUID) and stored_id != ZERO_UUID:
                offset, epoch, metadata, _ = _NOTHING
            out += (
                _WITH_EPOCH.pack(partition, offset, epoch) if epochs else _WITHOUT_EPOCH.pack(partition, offset),
                wire.string(metadata, flexible=flexible) if metadata else b"\1" if flexible else b"\0\0",
                _INT16.pack(code) + b"\0" if flexible else _INT16.pack(code),
            )
        return b"".join(out)

    def _all_topics(self, version: int, partitions: Mapping[bytes, list[int]]) -> list[Topic]:
        """Return all topics of a group; by id, without those that no longer exist, as a broker does."""
        if version < _TOPIC_IDS:
            return [(name, ZERO_UUID, tuple(numbers)) for name, numbers in partitions.items()]
        topics = ((name, self._topics.id_of(name), tuple(numbers)) for name, numbers in partitions.items())
        return [topic for topic in topics if topic[1] != ZERO_UUID]


def _no_offsets(_topic: bytes, partitions: Sequence[int]) -> list[Stored | None]:
    return [None] * len(partitions)


def _unknown_topics(request: Request) -> list[NamedPartition]:
    topics = (topic for group in request.groups for topic in group.topics or ())
    return [NamedPartition(None, id_) for name, id_, _ in topics if not name]
