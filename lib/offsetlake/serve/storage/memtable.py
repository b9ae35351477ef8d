"""The changes of groups since the mapped snapshot."""

import struct
from collections.abc import Sequence

VALUE = struct.Struct(">qi16s")
"""committed_offset, leader_epoch, topic_id; the metadata follows."""

OFFSET_BYTES = 8

StoredFields = tuple[bytes, int, bytes, bytes]
"""Key within the group, leader epoch, topic id and metadata of an offset to store."""


class OffsetChanges:
    """The changes of one group in one memtable: offsets by key, and whether the layers below are hidden.

    | Field             | Description |
    |-------------------|-------------|
    | offsets           | Stored offsets and tombstones by key |
    | hides_older       | The group was deleted: its entries in the layers below do not count |
    | exists            | The group exists because of this memtable |
    | accepts_commits   | A commit without a member was accepted, so that the next one will be, too |

    The last commit is added to `offsets` when they are read, or when a commit with other fields replaces it: of
    commits that differ only in their offsets, only the last one is ever added.
    """

    __slots__ = ("_last", "_offsets", "accepts_commits", "exists", "hides_older")

    def __init__(self) -> None:
        self._offsets: dict[bytes, bytes] = {}
        self._last: tuple[Sequence[StoredFields], bytes] | None = None
        self.hides_older = False
        self.exists = False
        self.accepts_commits = False

    @property
    def offsets(self) -> dict[bytes, bytes]:
        """Return the stored offsets and tombstones by key, which the caller may change."""
        if self._last is not None:
            (fields, offsets), self._last = self._last, None
            pack = VALUE.pack
            numbers = struct.unpack(f">{len(fields)}q", offsets)
            for (name, epoch, topic_id, metadata), offset in zip(fields, numbers, strict=True):
                self._offsets[name] = pack(offset, epoch, topic_id) + metadata
        return self._offsets

    def commit(self, fields: Sequence[StoredFields], offsets: bytes) -> None:
        """Store a commit; `offsets` are int64, in the order of the fields, which must not change any more."""
        if self._last is not None and self._last[0] is not fields:
            _ = self.offsets
        self._last = fields, offsets

    def last_commit(self, fields: Sequence[StoredFields]) -> bytes:
        """Return the offsets of the last commit if it had these fields and nothing was read since, else b""."""
        return self._last[1] if self._last is not None and self._last[0] is fields else b""

    def clear(self) -> None:
        """Remove all offsets: the group is deleted."""
        self._offsets, self._last = {}, None
        self.hides_older, self.exists, self.accepts_commits = True, False, False

    def add(self, newer: "OffsetChanges") -> None:
        """Apply newer changes of the same group."""
        if newer.hides_older:
            self.clear()
        self.offsets.update(newer.offsets)
        self.exists |= newer.exists
        self.accepts_commits |= newer.accepts_commits


Memtable = dict[bytes, OffsetChanges]
