"""OffsetFetch, versions 1 to 10: the request read in place, the answer put together from bytes as they are stored."""

import struct
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from offsetlake.serve import wire
from offsetlake.serve.base import NO_ID, Stored
from offsetlake.serve.client import Client
from offsetlake.serve.commit_rules import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_AUTHORIZATION_FAILED,
    NOBODY,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNSTABLE_OFFSET_COMMIT,
    Committer,
    fetch_refusal,
)
from offsetlake.serve.request_limits import REQUEST_LIMITS
from offsetlake.serve.rights import READ
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics

VERSIONS = range(1, 11)
_ALL_SINCE = _NO_ERROR_BELOW = 2
_THROTTLE, _EPOCH, _FLEXIBLE, _STABLE, _GROUPS, _MEMBER, _TOPIC_IDS = 3, 5, 6, 7, 8, 9, 10
KEPT, LARGEST_KEPT = 1000, 600  # requests that were read, and their bytes: each takes up to 20 kB as objects
_NOTHING: Stored = (-1, -1, b"", NO_ID)
_WITH_EPOCH, _WITHOUT_EPOCH, _INDEX = struct.Struct(">iqi"), struct.Struct(">iq"), struct.Struct(">i")
_INT16 = struct.Struct(">h")
_MIN_TOPIC_BYTES, _MIN_GROUP_BYTES = 3, 3  # an empty name, no elements, no tags
_MAX_ELEMENTS = REQUEST_LIMITS[9].max_elements

Topic = tuple[bytes, bytes, tuple[int, ...]]
"""Name, id (NO_ID below version 10) and partitions."""


class Asked:
    """What a request asks of one group; `topics` is None for all there are."""

    __slots__ = ("committer", "group", "topics")

    def __init__(self, cursor: wire.Cursor, version: int, name_of: Callable[[bytes], bytes | None]) -> None:
        self.group = cursor.name()
        self.committer = NOBODY
        if version >= _MEMBER:
            member, epoch = cursor.string(), cursor.int32()
            if member is not None or epoch >= 0:
                self.committer = Committer(epoch, member or b"", None)
        length = cursor.nullable_length(_MIN_TOPIC_BYTES) if version >= _ALL_SINCE else cursor.length(_MIN_TOPIC_BYTES)
        self.topics: list[Topic] | None = None
        if length >= 0:
            self.topics = []
            for _ in range(length):
                if version >= _TOPIC_IDS:
                    id_ = cursor.raw(16)
                    name = name_of(id_)
                else:
                    id_, name = NO_ID, cursor.string()
                    if name is None:
                        raise wire.Malformed("a fetch of a topic whose name is null")
                partitions = cursor.int32s()
                if len(partitions) > 1 and len({*partitions}) < len(
                    partitions
                ):  # 4 bytes each time would return 4 KiB of metadata
                    raise wire.Malformed("a fetch that names a partition twice")
                self.topics.append((b"" if name is None else name, id_, partitions))
                cursor.tags()
            if length > 1 and len({topic[:2] for topic in self.topics}) < length:
                raise wire.Malformed("a fetch that names a topic twice")
        if version >= _GROUPS:
            cursor.tags()


class OffsetFetch:
    """Answers OffsetFetch from a store; `errors` counts error codes, of partitions and of groups."""

    def __init__(self, store: Store, topics: Topics) -> None:
        self._store, self._topics = store, topics
        self.errors: Counter[int] = Counter()
        self._read_once = lru_cache(KEPT)(self._read)

    def answer(self, frame: bytes, at: int, version: int, client: Client) -> bytes:
        """Answer the request whose body begins at `at`; gives the body of the answer.

        Raises Malformed, IndexError or struct.error where the bytes are no such request.
        """
        # Whoever asks again asks the same; what an id stands for can come to be known.
        may_repeat = version < _TOPIC_IDS and len(frame) < LARGEST_KEPT
        asked, stable = (self._read_once if may_repeat else self._read)(frame[at:], version)
        flexible, many = version >= _FLEXIBLE, version >= _GROUPS
        out = [bytes(4)] if version >= _THROTTLE else []
        if many:
            out.append(wire.count(len(asked), flexible=True))
        for group in asked:
            if many:
                out.append(wire.string(group.group, flexible=True))
            self._answer_group(out, group, version, client, stable=stable)
        if flexible:
            out.append(b"\0")
        return b"".join(out)

    def _read(self, body: bytes, version: int) -> tuple[list[Asked], bool]:
        """Read a request; gives what it asks of each group, and whether only of offsets that are stable."""
        cursor = wire.Cursor(body, 0, flexible=version >= _FLEXIBLE, max_elements=_MAX_ELEMENTS)
        number = cursor.length(_MIN_GROUP_BYTES) if version >= _GROUPS else 1
        asked = [Asked(cursor, version, self._topics.name_of) for _ in range(number)]
        if len({of.group for of in asked}) < len(asked):  # all of a large group would be asked for by a byte or two
            raise wire.Malformed("a fetch that names a group twice")
        stable = version >= _STABLE and cursor.bool_()
        cursor.tags()
        return asked, stable

    def _answer_group(self, out: list[bytes], asked: Asked, version: int, client: Client, *, stable: bool) -> None:
        flexible, group = version >= _FLEXIBLE, asked.group
        tags = b"\0" if flexible else b""
        error = COORDINATOR_LOAD_IN_PROGRESS if self._store.loading else NONE
        if not client.may(READ, group):
            error = GROUP_AUTHORIZATION_FAILED
        if not error and asked.committer is not NOBODY:
            error = fetch_refusal(self._store.group(group), self._store.members(group), asked.committer)
        topics = asked.topics
        if topics is None:
            topics = [] if error else self._all(group, version)
        elif error and version >= _NO_ERROR_BELOW:
            topics = []
        out.append(wire.count(len(topics), flexible=flexible))
        for name, id_, partitions in topics:
            out += (
                id_ if version >= _TOPIC_IDS else wire.string(name, flexible=flexible),
                wire.count(len(partitions), flexible=flexible),
            )
            self._answer_topic(out, asked, (name, id_, partitions), version, error, stable=stable)
            out.append(tags)
        if version >= _NO_ERROR_BELOW:
            out.append(_INT16.pack(error))
            if error:
                self.errors[error] += 1
        if version >= _GROUPS:
            out.append(tags)

    def _answer_topic(
        self, out: list[bytes], asked: Asked, topic: Topic, version: int, error: int, *, stable: bool
    ) -> None:
        name, id_, partitions = topic
        if version >= _TOPIC_IDS and not name:
            error = error or UNKNOWN_TOPIC_ID
        found = [None] * len(partitions) if error else self._store.read(asked.group, name, partitions)
        if error:
            self.errors[error] += len(partitions)
        flexible, epochs = version >= _FLEXIBLE, version >= _EPOCH
        held = stable and not error and asked.group in self._store.pending
        for partition, stored in zip(partitions, found, strict=True):
            code = error
            if held and self._store.is_unstable(asked.group, name, partition):
                code, stored = UNSTABLE_OFFSET_COMMIT, None  # noqa: PLW2901
                self.errors[code] += 1
            offset, epoch, metadata, stored_id = stored or _NOTHING
            if id_ not in (stored_id, NO_ID) and stored_id != NO_ID:
                offset, epoch, metadata, _ = _NOTHING
            out += (
                _WITH_EPOCH.pack(partition, offset, epoch) if epochs else _WITHOUT_EPOCH.pack(partition, offset),
                wire.string(metadata, flexible=flexible) if metadata else b"\1" if flexible else b"\0\0",
                _INT16.pack(code) + b"\0" if flexible else _INT16.pack(code),
            )

    def _all(self, group: bytes, version: int) -> list[Topic]:
        topics: dict[bytes, list[int]] = {}
        for key in self._store.offsets(group):
            topics.setdefault(key[:-4], []).append(_INDEX.unpack(key[-4:])[0])
        return [
            (name, self._topics.id_of(name) if version >= _TOPIC_IDS else NO_ID, tuple(partitions))
            for name, partitions in topics.items()
        ]
