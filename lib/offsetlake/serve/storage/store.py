"""What is served: the base, and over it what was written since, in two layers; the older is frozen while it is folded.

A layer tells of a group only what changed. A stored offset is one bytes object, `VALUE` and the metadata behind it, so
that an answer copies its head; an empty one is a tombstone. Keys within a group are `key(topic, partition)`.
"""

import struct
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Any

from offsetlake.serve.storage import group_offsets
from offsetlake.serve.storage.mapped_snapshot import Entry, MappedSnapshot, Stored
from offsetlake.serve.storage.pending import Held, Holder, Pending

VALUE = group_offsets.VALUE
"""committed_offset, leader_epoch, topic_id; the metadata follows."""

TOMBSTONE = b""
_PARTITION, _OFFSET = struct.Struct(">i"), struct.Struct(">q")
SIMPLE_GROUP = {"group_type": "classic", "state": "Empty", "protocol_type": None, "protocol": None}


def key(topic: bytes, partition: int) -> bytes:
    """Name an offset within its group."""
    return topic + _PARTITION.pack(partition)


def encoded(entry: Entry) -> bytes:
    """Give an entry of the base as layers hold it."""
    return VALUE.pack(entry.offset, entry.epoch, entry.topic_id) + entry.metadata


def _counting(ended: dict[bytes, Held]) -> dict[bytes, bytes]:
    return {name: value for name, (_, value) in ended.items() if value is not None}


class Changes:
    """What one layer says of one group: offsets by key, and whether all that is below it is hidden."""

    __slots__ = ("hides", "offsets", "takes_commits", "there")

    def __init__(self) -> None:
        self.offsets: dict[bytes, bytes] = {}
        self.hides = False
        self.there = False  # the group, by this layer
        self.takes_commits = False  # of nobody in particular: it has taken one


Layer = dict[bytes, Changes]


class Store:
    """Offsets and groups by name, all of UTF-8 bytes; nothing may be asked while it is `loading`.

    It counts the offsets `committed` and `deleted` since it was loaded, how often bases were taken over, `folds`, or
    could not be, `thaws`, and the seconds until it was loaded.
    """

    def __init__(self) -> None:
        self.loading = True
        self.base: MappedSnapshot
        self.fresh: Layer = {}
        self.frozen: Layer = {}
        self.pending = Pending()
        self._watching = 0
        self._newest: dict[bytes, int] = {}  # since somebody watches
        self.committed = self.deleted = self.folds = self.thaws = 0
        self._began, self.load_seconds = perf_counter(), 0.0

    def load(self, base: MappedSnapshot) -> None:
        """Begin with a base that has all that the log says.

        What transactions hold is taken from this one alone: from now on it is kept here.
        """
        self.base, self.loading = base, False
        for group, topic, partition, holder, (log_offset, entry) in base.pending:
            held = log_offset, None if entry is None else encoded(entry)
            self.pending.hold(group, key(topic, partition), holder, held)
        self.load_seconds = perf_counter() - self._began

    def log_ends(self, topic: bytes, partition: int) -> tuple[int, int] | None:
        """Give where the log of a partition began and ended when that was asked last; None where it is not known."""
        return None if self.loading else self.base.log_ends.get((topic, partition))

    def find(self, group: bytes, topic: bytes, partition: int) -> bytes | None:
        """Give what is stored, as layers hold it; None where nothing is."""
        for layer in (self.fresh, self.frozen):
            changes = layer.get(group)
            if changes is not None:
                value = changes.offsets.get(topic + _PARTITION.pack(partition))
                if value is not None:
                    return value or None
                if changes.hides:
                    return None
        number = self.base.group(group)
        if number >= 0:
            at = self.base.find(self.base.run(number, topic), partition)
            if at >= 0:
                return encoded(self.base.entry(at))
        return None

    def read(self, group: bytes, topic: bytes, partitions: Iterable[int]) -> list[Stored | None]:
        """Give what is stored of some partitions of a topic; None where nothing is."""
        layers, number = self._layers(group)
        return group_offsets.read(self.base, number, layers, topic, partitions)

    def group_offsets(self, group: bytes) -> group_offsets.Moment:
        """Return the offsets of a group as they are now, whatever becomes of them."""
        layers, number = self._layers(group)
        return group_offsets.Moment(self.base, number, [layer.copy() for layer in layers])

    def _layers(self, group: bytes) -> tuple[list[dict[bytes, bytes]], int]:
        """Return what the layers have of a group, the newest first, and its number in the base or -1."""
        layers = []
        for layer in (self.fresh, self.frozen):
            changes = layer.get(group)
            if changes is not None:
                layers.append(changes.offsets)
                if changes.hides:
                    return layers, -1
        return layers, self.base.group(group)

    def goes_back(self, group: bytes, name: bytes, offset: int) -> bool:
        """Tell whether an offset is below what is stored of its key."""
        changes = self.fresh.get(group)
        value = changes.offsets.get(name) if changes is not None else None
        if value is None:
            value = self.find(group, name[: -_PARTITION.size], *_PARTITION.unpack(name[-_PARTITION.size :]))
        return value is not None and value != TOMBSTONE and _OFFSET.unpack_from(value)[0] > offset

    def is_unstable(self, group: bytes, topic: bytes, partition: int) -> bool:
        """Tell whether a transaction that is open holds an offset of it."""
        return key(topic, partition) in self.pending.keys(group)

    def unstable(self, group: bytes) -> set[tuple[bytes, int]]:
        """Give topics and partitions that a transaction that is open holds offsets of."""
        return {(name[:-4], _PARTITION.unpack(name[-4:])[0]) for name in self.pending.keys(group)}

    def offsets(self, group: bytes) -> dict[bytes, bytes]:
        """Give all stored offsets of a group by key."""
        found: dict[bytes, bytes] = {}
        layers = [changes for layer in (self.fresh, self.frozen) if (changes := layer.get(group)) is not None]
        hiding = next((depth for depth, changes in enumerate(layers) if changes.hides), None)
        if hiding is None and (number := self.base.group(group)) >= 0:
            found = {key(topic, partition): encoded(entry) for topic, partition, entry in self.base.entries(number)}
        for changes in reversed(layers if hiding is None else layers[: hiding + 1]):
            found |= changes.offsets
        return {name: value for name, value in found.items() if value}

    def group(self, group: bytes) -> dict[str, Any] | None:
        """Give the kind of a group (`MappedSnapshot.kind`), None where there is none."""
        there = False
        for layer in (self.fresh, self.frozen):
            changes = layer.get(group)
            if changes is not None:
                there |= changes.there
                if changes.hides:
                    return SIMPLE_GROUP if there else None
        number = self.base.group(group)
        if number >= 0:
            return self.base.kind(number)
        return SIMPLE_GROUP if there else None

    def takes_commits(self, group: bytes) -> bool:
        """Tell whether a commit of nobody in particular was taken since the last fold: the next one will be too."""
        changes = self.fresh.get(group)
        return changes is not None and changes.takes_commits

    def members(self, group: bytes) -> dict[str, Any]:
        """Give what only a group with members has: `MappedSnapshot.details`; nothing without members."""
        hidden = any((changes := layer.get(group)) is not None and changes.hides for layer in (self.fresh, self.frozen))
        number = -1 if hidden else self.base.group(group)
        return self.base.details(number) if number >= 0 else {}

    def groups(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Give all groups there are with their kinds; groups may change, and bases be taken over, meanwhile."""
        base, changed = self.base, {*self.fresh, *self.frozen}
        for number in base.groups:
            name = base.name(number)
            if name not in changed:
                yield name, base.kind(number)
        for name in changed:
            kind = self.group(name)
            if kind is not None:
                yield name, kind

    def watch(self) -> None:
        """Begin to keep in mind, for one more who decides about groups, which are written to."""
        self._watching += 1

    def unwatch(self) -> None:
        """End it, for one of them."""
        self._watching -= 1
        if not self._watching:
            self._newest = {}

    def newest(self, group: bytes) -> int:
        """Give the log offset of the newest record of a group that came since `watch`; -1 for none."""
        return self._newest.get(group, -1)

    def commit(self, group: bytes, values: dict[bytes, bytes], last: int, *, of_nobody: bool = False) -> None:
        """Take in commits that are in the log for good; `last` is the log offset of the newest.

        `of_nobody`: no member sent them, and the group was asked whether it takes such.
        """
        changes = self._changes(group, last)
        changes.offsets |= values
        changes.there = True
        changes.takes_commits |= of_nobody
        self.committed += len(values)
        if group in self.pending:
            for name in values:
                self.pending.overtake(group, name, last)

    def hold(self, group: bytes, holder: Holder, values: list[tuple[bytes, bytes]], first: int) -> None:
        """Take in commits of an open transaction, one a log offset; they make their group all the same."""
        self.commit(group, {}, first + len(values) - 1)
        for log_offset, (name, value) in enumerate(values, first):
            self.pending.hold(group, name, holder, (log_offset, value))

    def end_transaction(self, holder: Holder, marker: int, *, committed: bool) -> None:
        """Take in a marker, at its log offset: what it commits is served."""
        for group, ended in self.pending.end(holder):
            changes = self._changes(group, marker)
            if committed:
                changes.offsets |= _counting(ended)
                for name, (log_offset, _) in ended.items():
                    self.pending.overtake(group, name, log_offset)

    def delete_offsets(self, group: bytes, keys: list[tuple[bytes, int]], last: int) -> None:
        """Take in tombstones of offsets."""
        changes = self._changes(group, last)
        changes.offsets.update((key(*of), TOMBSTONE) for of in keys)
        self.deleted += len(keys)
        if group in self.pending:
            for of in keys:
                self.pending.drop(group, key(*of))

    def delete_group(self, group: bytes, last: int) -> None:
        """Take in the tombstone of a group, behind those of its offsets."""
        changes = self._changes(group, last)
        changes.offsets.clear()
        changes.hides, changes.there, changes.takes_commits = True, False, False

    def _changes(self, group: bytes, last: int) -> Changes:
        if self._watching:
            self._newest[group] = last
        changes = self.fresh.get(group)
        if changes is None:
            changes = self.fresh[group] = Changes()
        return changes

    def freeze(self) -> None:
        """Begin to fold: what was written so far will be in the next base."""
        if self.frozen:  # by a fold that neither came to an end nor gave up
            self.thaw()
        self.fresh, self.frozen = {}, self.fresh

    def fold(self, base: MappedSnapshot) -> Layer:
        """Take over the next base, made of all that was there at `freeze`; gives the layer that is not needed now."""
        folded, self.base, self.frozen = self.frozen, base, {}
        self.folds += 1
        return folded

    def thaw(self) -> None:
        """Give up folding: no next base could be made."""
        fresh, self.fresh, self.frozen = self.fresh, self.frozen, {}
        self.thaws += 1
        for group, changes in fresh.items():
            below = self.fresh.setdefault(group, changes)
            if below is not changes:
                if changes.hides:
                    below.offsets, below.hides, below.there, below.takes_commits = {}, True, False, False
                below.offsets |= changes.offsets
                below.there |= changes.there
                below.takes_commits |= changes.takes_commits
