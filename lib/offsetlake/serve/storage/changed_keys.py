"""The keys whose committed offsets changed since they were last taken, for a copy of the offsets that follows."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from offsetlake.serve.storage.memtable import StoredFields

Keys = dict[bytes, set[bytes]]
"""Keys of offsets (`offsetlake.serve.storage.store.key`) by group."""


class _Changes:
    """The keys of one group; those of the last commit are added when the next one has others, or at the end."""

    __slots__ = ("keys", "last")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.last: Sequence[StoredFields] = ()

    def merge(self) -> set[bytes]:
        self.keys.update(field[0] for field in self.last)
        self.last = ()
        return self.keys


class ChangedKeys:
    """Changed keys by group, of the groups that `follows` accepts; each key once, whatever the number of its commits.

    `since` is the monotonic time of the first change that was not taken, None if there is none. `event` is set then.
    """

    def __init__(self, follows: Callable[[bytes], bool]) -> None:
        self.follows = follows
        self.event = asyncio.Event()
        self.since: float | None = None
        self._groups: dict[bytes, _Changes] = {}

    def __len__(self) -> int:
        return sum(len(changes.keys) + len(changes.last) for changes in self._groups.values())

    def add(self, group: bytes, keys: Iterable[bytes]) -> None:
        """Add changed keys of a group."""
        changes = self._of(group)
        if changes is not None:
            changes.keys.update(keys)

    def add_commit(self, group: bytes, fields: Sequence[StoredFields]) -> None:
        """Add the keys of a commit, whose fields must not change any more."""
        changes = self._of(group)
        if changes is not None and changes.last is not fields:
            changes.merge()
            changes.last = fields

    def _of(self, group: bytes) -> _Changes | None:
        changes = self._groups.get(group)
        if changes is None and self.follows(group):
            changes = self._groups[group] = _Changes()
            if self.since is None:
                self.since = time.monotonic()
                self.event.set()
        return changes

    def contains(self, group: bytes, key: bytes) -> bool:
        """Check whether a key was changed since it was last taken."""
        changes = self._groups.get(group)
        return changes is not None and key in changes.merge()

    def take(self) -> Keys:
        """Return all changed keys, and begin anew."""
        taken, self._groups, self.since = self._groups, {}, None
        self.event.clear()
        return {group: changes.merge() for group, changes in taken.items()}
