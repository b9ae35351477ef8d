"""The store of committed offsets: a mapped snapshot, and above it the memtable and the immutable memtable.

Writes go to the memtable. While a refresh builds the next snapshot, the memtable becomes the immutable memtable and a
new memtable takes the writes; if the refresh fails, the immutable memtable is merged back.

A memtable contains only what changed in a group. A stored offset is one bytes object, `VALUE` followed by the metadata,
so that an answer copies its head; an empty one is a tombstone. Keys within a group are `key(topic, partition)`.
"""

import struct
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

from offsetlake.kafka.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE, NOT_COORDINATOR
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.serve.storage import group_offsets
from offsetlake.serve.storage.changed_keys import ChangedKeys
from offsetlake.serve.storage.doubt import Doubt
from offsetlake.serve.storage.group_details import GroupDetails, GroupKind, GroupWithMembers
from offsetlake.serve.storage.group_offsets import GroupOffsets
from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot, SnapshotOffset, Stored
from offsetlake.serve.storage.memtable import VALUE, Memtable, OffsetChanges, StoredFields
from offsetlake.serve.storage.newest_records import NewestRecords
from offsetlake.serve.storage.pending import Pending, TransactionKey, valid_values
from offsetlake.serve.storage.prepared_responses import PreparedResponses

TOMBSTONE = b""
_PARTITION, _OFFSET = struct.Struct(">i"), struct.Struct(">q")
SIMPLE_GROUP: GroupKind = {"group_type": "classic", "state": "Empty", "protocol_type": None, "protocol": None}


def key(topic: bytes, partition: int) -> bytes:
    """Return the key of an offset within its group."""
    return topic + _PARTITION.pack(partition)


def encoded(entry: SnapshotOffset) -> bytes:
    """Return an entry of the snapshot as memtables store it."""
    return VALUE.pack(entry.offset, entry.epoch, entry.topic_id) + entry.metadata


class Store:
    """Offsets and groups by name, as UTF-8 bytes. It must not be read while it is `loading`.

    It counts the offsets `committed` and `deleted` since it was loaded, the `refreshes` of the snapshot and the
    `failed_refreshes`; `load_seconds` is how long loading took. The `live` groups have members and are newer than the
    layers; nobody may join a group while its tombstones are written (`deleting`). `group_deleted` is called with each
    deleted group, `refreshed` after a switch to the next snapshot, `member_committed` with each member that commits.
    `changed` collects the keys of changed offsets, of no group by default. `log_partition` returns that of a group.
    """

    def __init__(self) -> None:
        self.loading = True
        self.snapshot: MappedSnapshot
        self.memtable: Memtable = {}
        self.immutable_memtable: Memtable = {}
        self.pending = Pending()
        self.prepared = PreparedResponses()
        self.live: Mapping[bytes, GroupWithMembers] = {}
        self.deleting: set[bytes] = set()
        self.log_partition: Callable[[bytes], int] = lambda _: 0
        self.group_deleted: Callable[[bytes], None] = lambda _: None
        self.refreshed: Callable[[], None] = lambda: None
        self.member_committed: Callable[[bytes, bytes], None] = lambda _group, _member: None
        self.newest = NewestRecords()
        self.changed = ChangedKeys(lambda _: False)
        self.committed = self.deleted = self.refreshes = self.failed_refreshes = 0
        self._start_time, self.load_seconds = perf_counter(), 0.0

    def load(self, snapshot: MappedSnapshot) -> None:
        """Load the first snapshot, which covers the whole log.

        The pending offsets of transactions are read from this snapshot only; the store maintains them from then on.
        """
        self.snapshot, self.loading = snapshot, False
        for group, topic, partition, transaction, (log_offset, entry) in snapshot.pending:
            pending = log_offset, None if entry is None else encoded(entry)
            self.pending.add(group, key(topic, partition), transaction, pending)
        self.load_seconds = perf_counter() - self._start_time

    def unavailable(self, group: bytes) -> int:
        """Return the error code of requests about a group that cannot be answered now, NONE if they can.

        A group in a log partition that the folder of the log lacks gets NOT_COORDINATOR, as from a broker that has no
        replica of it: clients look for the coordinator again, and FindCoordinator answers COORDINATOR_NOT_AVAILABLE.
        Without an error, the group would have no offsets, and its consumers would begin at auto.offset.reset.
        """
        if self.loading:
            return COORDINATOR_LOAD_IN_PROGRESS
        not_read = self.snapshot.groups_not_read
        return NOT_COORDINATOR if not_read and self.log_partition(group) in not_read else NONE

    def log_ends(self, topic: bytes, partition: int) -> tuple[int, int] | None:
        """Return the last collected log start and log end offset of a partition, None if they are unknown."""
        return None if self.loading else self.snapshot.log_ends.get((topic, partition))

    def find(self, group: bytes, topic: bytes, partition: int) -> bytes | None:
        """Return a stored offset as memtables store it, or None if there is none."""
        for memtable in (self.memtable, self.immutable_memtable):
            changes = memtable.get(group)
            if changes is not None:
                value = changes.offsets.get(topic + _PARTITION.pack(partition))
                if value is not None:
                    return value or None
                if changes.hides_older:
                    return None
        number = self.snapshot.group(group)
        entry = self.snapshot.find(self.snapshot.run(number, topic), partition) if number >= 0 else -1
        return encoded(self.snapshot.entry(entry)) if entry >= 0 else None

    def read(self, group: bytes, topic: bytes, partitions: Iterable[int]) -> list[Stored | None]:
        """Return the stored offset of each of the given partitions of a topic, None for a partition without one."""
        layers, number = self._layers(group)
        return group_offsets.read(self.snapshot, number, layers, topic, partitions)

    def group_offsets(self, group: bytes) -> GroupOffsets:
        """Return the offsets of a group as they are now, unaffected by later writes."""
        layers, number = self._layers(group)
        return GroupOffsets(self.snapshot, number, [layer.copy() for layer in layers])

    def _layers(self, group: bytes) -> tuple[list[dict[bytes, bytes]], int]:
        """Return the offsets of a group in the memtables, the newest first, and its number in the snapshot or -1."""
        layers = []
        for memtable in (self.memtable, self.immutable_memtable):
            changes = memtable.get(group)
            if changes is not None:
                layers.append(changes.offsets)
                if changes.hides_older:
                    return layers, -1
        return layers, self.snapshot.group(group)

    def doubt(self, group: bytes) -> Doubt | None:
        """Return which offsets of a group are unknown; None if all are known."""
        snapshot = self.snapshot
        if group not in snapshot.unknown:
            return None
        memtables = [changes for each in (self.memtable, self.immutable_memtable) if (changes := each.get(group))]
        keys, others = snapshot.in_doubt.get(group, frozenset()), group in snapshot.partly_read
        if any(changes.hides_older for changes in memtables) or not (keys or others):
            return None
        return Doubt(keys, others, frozenset[bytes]().union(*(changes.offsets for changes in memtables)))

    def is_rewind(self, group: bytes, name: bytes, offset: int) -> bool:
        """Check whether an offset is below the stored offset of its key."""
        changes = self.memtable.get(group)
        value = changes.offsets.get(name) if changes is not None else None
        if value is None:
            value = self.find(group, name[: -_PARTITION.size], *_PARTITION.unpack(name[-_PARTITION.size :]))
        return value is not None and value != TOMBSTONE and _OFFSET.unpack_from(value)[0] > offset

    def is_unstable(self, group: bytes, topic: bytes, partition: int) -> bool:
        """Check whether an open transaction has an offset of a partition."""
        return key(topic, partition) in self.pending.keys(group)

    def unstable(self, group: bytes) -> set[tuple[bytes, int]]:
        """Return the topics and partitions of a group that open transactions have offsets of."""
        return {(name[:-4], _PARTITION.unpack(name[-4:])[0]) for name in self.pending.keys(group)}

    def offsets(self, group: bytes, topics: Container[bytes] | None = None) -> dict[bytes, bytes]:
        """Return the stored offsets of a group by key, of all topics or of some."""
        offsets: dict[bytes, bytes] = {}
        memtables = (self.memtable, self.immutable_memtable)
        layers = [changes for memtable in memtables if (changes := memtable.get(group)) is not None]
        hiding = next((depth for depth, changes in enumerate(layers) if changes.hides_older), None)
        if hiding is None and (number := self.snapshot.group(group)) >= 0:
            entries = self.snapshot.entries(number, topics)
            offsets = {key(topic, partition): encoded(entry) for topic, partition, entry in entries}
        for changes in reversed(layers if hiding is None else layers[: hiding + 1]):
            offsets |= changes.offsets
        return {name: value for name, value in offsets.items() if value and (topics is None or name[:-4] in topics)}

    def group(self, group: bytes) -> GroupKind | None:
        """Return the kind of a group (`MappedSnapshot.kind`), or None if there is no such group."""
        if (live := self.live.get(group)) is not None:
            return live.kind if not self.has_unknown_state(group) else {**live.kind, "state": UNKNOWN}
        exists = False
        for memtable in (self.memtable, self.immutable_memtable):
            changes = memtable.get(group)
            if changes is not None:
                exists |= changes.exists
                if changes.hides_older:
                    return SIMPLE_GROUP if exists else None
        number = self.snapshot.group(group)
        if number >= 0:
            return self.snapshot.kind(number)
        return SIMPLE_GROUP if exists else None

    def accepts_commits(self, group: bytes) -> bool:
        """Check whether the group accepted a commit without a member since the last refresh: it will the next one.

        That is unknown of a live group, which may have members by now.
        """
        changes = self.memtable.get(group)
        return changes is not None and changes.accepts_commits and group not in self.live

    def details(self, group: bytes) -> GroupDetails:
        """Return what is known of a group that is not live (`MappedSnapshot.details`)."""
        number = self._number(group)
        return self.snapshot.details(number) if number >= 0 else {}

    def _number(self, group: bytes) -> int:
        """Return the number of a group in the snapshot, -1 if it is not there or was deleted since."""
        memtables = (self.memtable, self.immutable_memtable)
        hidden = any((changes := memtable.get(group)) is not None and changes.hides_older for memtable in memtables)
        return -1 if hidden else self.snapshot.group(group)

    def groups(self) -> Iterator[tuple[bytes, GroupKind]]:
        """Yield all groups with their kinds; writes and refreshes may happen during the iteration."""
        snapshot, changed = self.snapshot, {*self.memtable, *self.immutable_memtable, *self.live}
        for number in snapshot.groups:
            name = snapshot.name(number)
            if name not in changed:
                yield name, snapshot.kind(number)
        for name in changed:
            kind = self.group(name)
            if kind is not None:
                yield name, kind

    def commit(self, group: bytes, values: dict[bytes, bytes], last: int, *, without_member: bool = False) -> None:
        """Store durable commits; `last` is the log offset of the newest.

        `without_member` says that no member of the group sent them and that the group was checked to accept such.
        """
        changes = self._changes(group, last)
        changes.offsets.update(values)
        self.changed.add(group, values)
        self._note_commit(changes, group, values, last, without_member=without_member)

    def commit_offsets(
        self, group: bytes, fields: Sequence[StoredFields], offsets: bytes, last: int, *, without_member: bool
    ) -> None:
        """Store a durable commit, as `commit`; `offsets` are int64 in the order of the fields."""
        changes = self._changes(group, last)
        changes.commit(fields, offsets)
        self.changed.add_commit(group, fields)
        names = [field[0] for field in fields] if group in self.pending else ()
        self._note_commit(changes, group, names, last, without_member=without_member)
        self.committed += len(fields) - len(names)

    def _note_commit(
        self, changes: OffsetChanges, group: bytes, names: Collection[bytes], last: int, *, without_member: bool
    ) -> None:
        changes.exists = True
        changes.accepts_commits |= without_member
        self.committed += len(names)
        if group in self.pending:
            for name in names:
                self.pending.invalidate_older(group, name, last)

    def last_commit(self, group: bytes, fields: Sequence[StoredFields]) -> bytes:
        """Return the offsets of the last commit of a group, as `OffsetChanges.last_commit`."""
        return b"" if (changes := self.memtable.get(group)) is None else changes.last_commit(fields)

    def add_pending(
        self, group: bytes, transaction: TransactionKey, values: list[tuple[bytes, bytes]], first: int
    ) -> None:
        """Add commits of an open transaction, with consecutive log offsets; they create their group right away."""
        self.commit(group, {}, first + len(values) - 1)
        for log_offset, (name, value) in enumerate(values, first):
            self.pending.add(group, name, transaction, (log_offset, value))

    def end_transaction(self, transaction: TransactionKey, marker: int, *, committed: bool) -> None:
        """Apply a transaction marker with its log offset: a COMMIT stores the pending offsets."""
        for group, ended in self.pending.end(transaction):
            changes = self._changes(group, marker)
            if committed:
                changes.offsets.update(valid := valid_values(ended))
                self.changed.add(group, valid)
                for name, (log_offset, _) in ended.items():
                    self.pending.invalidate_older(group, name, log_offset)

    def delete_offsets(self, group: bytes, partitions: list[tuple[bytes, int]], last: int) -> None:
        """Apply tombstones of offsets."""
        changes = self._changes(group, last)
        names = [key(*partition) for partition in partitions]
        changes.offsets.update(dict.fromkeys(names, TOMBSTONE))
        self.changed.add(group, names)
        self.deleted += len(partitions)
        for name in names if group in self.pending else ():
            self.pending.drop(group, name)

    def delete_group(self, group: bytes, last: int) -> None:
        """Apply the tombstone of a group, which comes after those of its offsets."""
        if self.changed.follows(group):
            self.changed.add(group, self.offsets(group))
        self._changes(group, last).clear()
        self.group_deleted(group)

    def is_unknown(self, group: bytes) -> bool:
        """Return whether a record that cannot be decoded leaves the group or one of its offsets unknown.

        A classic group whose members have joined since then is known: its records have its whole state.
        """
        if group not in self.snapshot.unknown or self._number(group) < 0:
            return False
        return not self._has_joined(group)

    def has_unknown_state(self, group: bytes) -> bool:
        """Return whether a record that cannot be decoded leaves the state of the group unknown, as `is_unknown`."""
        if group not in self.snapshot.unknown or (number := self._number(group)) < 0:
            return False
        return self.snapshot.kind(number)["state"] == UNKNOWN and not self._has_joined(group)

    def _has_joined(self, group: bytes) -> bool:
        live = self.live.get(group)
        return live is not None and live.kind["group_type"] == "classic" and live.last_offset >= 0

    def has_queued_records(self, group: bytes) -> bool:
        """Return whether records of the members of a group are not durable yet."""
        return group in self.live and self.live[group].has_queued_records()

    def replay_state(self, group: bytes) -> dict[str, Any] | None:
        """Return the replayed state of a group in the snapshot; None if it was deleted, or has only commits."""
        number = self._number(group)
        return self.snapshot.replay_state(number) if number >= 0 else None

    def _changes(self, group: bytes, last: int) -> OffsetChanges:
        self.newest.note(group, last)
        self.prepared.invalidate(group)
        changes = self.memtable.get(group)
        if changes is None:
            changes = self.memtable[group] = OffsetChanges()
        return changes

    def begin_refresh(self) -> None:
        """Begin a refresh: the memtable becomes immutable, as the next snapshot will contain its writes."""
        if self.immutable_memtable:  # of a refresh that neither finished nor failed
            self.merge_back()
        self.memtable, self.immutable_memtable = {}, self.memtable

    def finish_refresh(self, snapshot: MappedSnapshot) -> Memtable:
        """Switch to the next snapshot, which contains all writes before `begin_refresh`; return the old memtable."""
        obsolete, self.snapshot, self.immutable_memtable = self.immutable_memtable, snapshot, {}
        self.refreshes += 1
        self.refreshed()
        return obsolete

    def merge_back(self) -> None:
        """Merge the immutable memtable back, as no snapshot could be built."""
        newer, self.memtable, self.immutable_memtable = self.memtable, self.immutable_memtable, {}
        self.failed_refreshes += 1
        for group, changes in newer.items():
            merged = self.memtable.setdefault(group, changes)
            if merged is not changes:
                merged.add(changes)
