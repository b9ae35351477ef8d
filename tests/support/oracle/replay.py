"""Replays an offset log as a group coordinator that loads it: record by record, in plain Python.

The algorithm is that of Kafka 4.2's offset manager: a map of what is committed and, per producer, a map of what is
pending until the producer's transaction marker comes. It is on purpose not the shorter "highest log offset wins".
"""

import base64
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from support.oracle.log_reader import ABORT, COMMIT, LogRecord

OffsetKey = tuple[str, str, int]  # group_id, topic, partition
Outcome = Literal["committed", "aborted", "open", "partial"]


class Commit(NamedTuple):
    """A committed or pending offset and its position in the log."""

    committed_offset: int
    leader_epoch: int | None  # None: unknown
    metadata: str
    commit_timestamp: int
    expire_timestamp: int | None
    topic_id: str | None  # 22 characters, as Kafka prints it
    log_partition: int
    log_offset: int
    producer_id: int


@dataclass
class OffsetRecord:
    """One offset record of the log. `outcome` is how its transaction ended, None for a plain record.

    A tombstone of a transaction takes effect at once whatever its outcome is. A part of a commit in parts, which has
    `commit_id` and `commit_size`, is partial until all parts are there.
    """

    record: LogRecord
    key_type: int
    key: OffsetKey
    kind: Literal["commit", "tombstone"]
    value_version: int | None
    commit: Commit | None
    outcome: Outcome | None
    commit_id: int | None = None
    commit_size: int | None = None


class Marker(NamedTuple):
    """A transaction marker."""

    log_partition: int
    log_offset: int
    log_timestamp: int
    producer_id: int
    producer_epoch: int
    kind: Literal["COMMIT", "ABORT"]
    coordinator_epoch: int


@dataclass
class State:
    """The result of a replay; `undecodable` are offset records (or null keys) that cannot be read.

    `partial` are parts of commits not complete, behind which nothing that counts stands of their key. `doubted` are
    keys, with the log offset, and `unknown_groups` groups, whose newest record has a value that cannot be read.
    """

    committed: dict[OffsetKey, Commit] = field(default_factory=dict)
    pending: dict[tuple[str, str, int, int], Commit] = field(default_factory=dict)
    history: list[OffsetRecord] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    undecodable: list[LogRecord] = field(default_factory=list)
    partial: list[OffsetRecord] = field(default_factory=list)
    doubted: dict[OffsetKey, int] = field(default_factory=dict)
    unknown_groups: set[str] = field(default_factory=set)


class UndecodableError(Exception):
    """The bytes are not a valid offset key or value."""


def replay(records: Iterable[LogRecord], until: int | None = None) -> State:
    """The state after all records, or after those with log_timestamp <= `until` (ms); records in log order.

    Records without a timestamp (magic 0) are older than any instant. Raises ValueError if a group is misplaced.
    """
    state = State()
    shards: dict[int, _Shard] = {}
    for record in records:
        if until is None or record.log_timestamp <= until:
            shards.setdefault(record.log_partition, _Shard(state)).apply(record)
    for shard in shards.values():
        if state.committed.keys() & shard.committed.keys():
            raise ValueError("one group has offsets in two log partitions")
        state.committed.update(shard.committed)
        state.partial += shard.partial
        for producer_id, commits in shard.pending.items():
            state.pending.update({(*key, producer_id): commit for key, commit in commits.items()})
    return state


class _Shard:
    """The offsets of a log partition in the memory of its coordinator."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.committed: dict[OffsetKey, Commit] = {}
        self.pending: dict[int, dict[OffsetKey, Commit]] = {}
        self.undecided: dict[int, list[OffsetRecord]] = {}
        self.partial: list[OffsetRecord] = []
        self.commit: list[OffsetRecord] = []  # the parts so far of the commit that the next record may go on with

    def apply(self, record: LogRecord) -> None:
        if record.is_control:
            if record.control_type in (ABORT, COMMIT):
                self.apply_marker(record)
            return
        try:
            entry = decode_offset_record(record)
        except UndecodableError:
            self.state.undecodable.append(record)
            if (key := readable_key(record)) is not None:
                self.state.doubted[key] = record.log_offset
            return
        if entry is None:
            self.apply_group(record)
            return
        self.state.history.append(entry)
        if entry.commit_id is not None:
            self.apply_part(entry)
        else:
            self.apply_entry(entry)

    def apply_group(self, record: LogRecord) -> None:
        """Classic groups only: the newest of their records says whether they are known."""
        key = _Reader(record.key or b"")
        if key.number(">h") == 2:
            group_id, value = key.string(), record.value
            if value is None or (len(value) >= 2 and value[:2] <= b"\0\4"):
                self.state.unknown_groups.discard(group_id)
            else:
                self.state.unknown_groups.add(group_id)

    def apply_part(self, entry: OffsetRecord) -> None:
        expected = [(part.commit_id, part.commit_size, part.record.log_offset + 1) for part in self.commit[-1:]]
        if expected != [(entry.commit_id, entry.commit_size, entry.record.log_offset)]:
            self.commit = []
        entry.outcome = "partial"
        self.commit.append(entry)
        self.partial.append(entry)
        if len(self.commit) == entry.commit_size:
            complete, self.commit = self.commit, []
            for part in complete:
                part.outcome = None
                self.partial.remove(part)
            for part in complete:
                self.apply_entry(part)

    def apply_entry(self, entry: OffsetRecord) -> None:
        record = entry.record
        if record.producer_id != -1:
            self.undecided.setdefault(record.producer_id, []).append(entry)
        if entry.commit is None or record.producer_id == -1:
            self.state.doubted.pop(entry.key, None)
        if entry.commit is None:
            self.committed.pop(entry.key, None)
            for commits in self.pending.values():
                commits.pop(entry.key, None)
            self.forget_parts(entry.key, record.log_offset)
        elif record.producer_id == -1:
            self.committed[entry.key] = entry.commit
            self.forget_parts(entry.key, record.log_offset)
        else:
            self.pending.setdefault(record.producer_id, {})[entry.key] = entry.commit

    def forget_parts(self, key: OffsetKey, log_offset: int) -> None:
        self.partial = [part for part in self.partial if part.key != key or part.record.log_offset > log_offset]

    def apply_marker(self, record: LogRecord) -> None:
        is_commit = record.control_type == COMMIT
        (coordinator_epoch,) = struct.unpack_from(">i", record.value or b"", 2)
        self.state.markers.append(
            Marker(
                record.log_partition,
                record.log_offset,
                record.log_timestamp,
                record.producer_id,
                record.producer_epoch,
                "COMMIT" if is_commit else "ABORT",
                coordinator_epoch,
            )
        )
        for entry in self.undecided.pop(record.producer_id, []):
            entry.outcome = "committed" if is_commit else "aborted"
        commits = self.pending.pop(record.producer_id, {})
        if is_commit:
            for key, commit in commits.items():
                stored = self.committed.get(key)
                if stored is None or commit.log_offset > stored.log_offset:
                    self.committed[key] = commit
                if commit.log_offset > self.state.doubted.get(key, -1):
                    self.state.doubted.pop(key, None)
                self.forget_parts(key, commit.log_offset)


def decode_offset_record(record: LogRecord) -> OffsetRecord | None:
    """The offset commit or tombstone in `record`; None if it is a record of another type.

    Raises UndecodableError where Kafka's loader would fail, or the headers of a part are malformed.
    """
    if record.key is None:
        raise UndecodableError("null key")
    key = _Reader(record.key)
    key_type = key.number(">h")
    if key_type not in (0, 1):
        return None
    offset_key = (key.string(), key.string(), key.number(">i"))
    outcome: Outcome | None = None if record.producer_id == -1 else "open"
    part = _part(record)
    if record.value is None:
        return OffsetRecord(record, key_type, offset_key, "tombstone", None, None, outcome, *part)
    value = _Reader(record.value)
    version = value.number(">h")
    if not 0 <= version <= (4 if key_type == 1 else 0):
        raise UndecodableError(f"value version {version} for key type {key_type}")
    commit = _commit(value, version, record)
    return OffsetRecord(record, key_type, offset_key, "commit", version, commit, outcome, *part)


def readable_key(record: LogRecord) -> OffsetKey | None:
    """The key of an offset record whose value cannot be read."""
    key = _Reader(record.key or b"")
    try:
        return (key.string(), key.string(), key.number(">i")) if key.number(">h") in (0, 1) else None
    except UndecodableError:
        return None


def _part(record: LogRecord) -> tuple[int, int] | tuple[()]:
    """Return commit ID and size of a part; the headers of transactional records are ignored."""
    told = [(name, content) for name, content in record.headers if name in (b"commit.id", b"commit.size")]
    if record.producer_id != -1 or not told:
        return ()
    content = dict(told)
    commit_id, size = content.get(b"commit.id"), content.get(b"commit.size")
    if len(told) != 2 or commit_id is None or size is None or len(commit_id) != 8 or len(size) != 4:
        raise UndecodableError(f"headers {told}")
    if int.from_bytes(size, signed=True) <= 0:
        raise UndecodableError(f"commit.size {size!r}")
    return int.from_bytes(commit_id, signed=True), int.from_bytes(size, signed=True)


def _commit(value: "_Reader", version: int, record: LogRecord) -> Commit:
    """Parse an OffsetCommitValue, versions 0 to 4, after its version number."""
    committed_offset = value.number(">q")
    leader_epoch = value.number(">i") if version >= 3 else -1
    metadata = value.compact_string() if version >= 4 else value.string()
    commit_timestamp = value.number(">q")
    expire_timestamp = value.number(">q") if version == 1 else -1
    topic_id = value.topic_id_tag() if version >= 4 else None
    return Commit(
        committed_offset,
        None if leader_epoch == -1 else leader_epoch,
        metadata,
        commit_timestamp,
        None if expire_timestamp == -1 else expire_timestamp,
        topic_id,
        record.log_partition,
        record.log_offset,
        record.producer_id,
    )


class _Reader:
    """Reads Kafka's primitive types from the start of some bytes; remaining bytes are ignored."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise UndecodableError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, layout: str) -> int:
        number: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return number

    def unsigned_varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.number(">B")
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def string(self) -> str:
        return self.take(self.number(">h")).decode(errors="replace")  # Java replaces what is no UTF-8

    def compact_string(self) -> str:
        return self.take(self.unsigned_varint() - 1).decode(errors="replace")

    def topic_id_tag(self) -> str | None:
        """The tag buffer of value version 4: tag 0 is the topic id (all zero: none), other tags are unknown."""
        topic_id = None
        for _ in range(self.unsigned_varint()):
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            content = self.take(size)
            if tag == 0 and size != 16:
                raise UndecodableError(f"a topic id of {size} bytes")
            if tag == 0:
                topic_id = None if content == bytes(16) else base64.urlsafe_b64encode(content).decode().rstrip("=")
        return topic_id
