"""Offsets of open transactions: what a COMMIT will have served, and what is unstable until then.

Which of them a COMMIT takes is decided when something newer comes to be stored of their key, so that nothing here asks
for log offsets of what is stored (`OffsetMetadataManager` of Kafka: a pending offset counts only if its log offset is
the greater).
"""

from collections.abc import Collection, Iterable

Holder = tuple[int, int]
"""Producer id and log partition: whose offsets one marker ends."""

Held = tuple[int, bytes | None]
"""Log offset, and the value as `offsetlake.serve.storage.store` has it; None where something newer is stored."""


class Pending:
    """By group and key (`offsetlake.serve.storage.store.key`) the offsets of each open transaction."""

    def __init__(self) -> None:
        self._held: dict[bytes, dict[bytes, dict[Holder, Held]]] = {}
        self._groups: dict[Holder, set[bytes]] = {}

    def __contains__(self, group: bytes) -> bool:
        """Tell whether a transaction holds any offset of a group."""
        return group in self._held

    def keys(self, group: bytes) -> Collection[bytes]:
        """Give what transactions hold offsets of."""
        return self._held.get(group, ())

    def hold(self, group: bytes, name: bytes, holder: Holder, held: Held) -> None:
        """Take in an offset of an open transaction."""
        self._held.setdefault(group, {}).setdefault(name, {})[holder] = held
        self._groups.setdefault(holder, set()).add(group)

    def overtake(self, group: bytes, name: bytes, log_offset: int) -> None:
        """Take in that something is stored of a key, at a log offset: what is below does not count any more."""
        of_key = self._held.get(group, {}).get(name, {})
        for holder, (held_at, _) in of_key.items():
            if held_at < log_offset:
                of_key[holder] = held_at, None

    def drop(self, group: bytes, name: bytes) -> None:
        """Take in a tombstone: nobody holds anything of the key any more."""
        held = self._held.get(group)
        if held is not None and held.pop(name, None) is not None and not held:
            del self._held[group]

    def end(self, holder: Holder) -> list[tuple[bytes, dict[bytes, Held]]]:
        """Take in a marker; gives by group what it ends."""
        found = []
        for group in self._groups.pop(holder, ()):
            held = self._held.get(group, {})
            ends = {name: of_key.pop(holder) for name, of_key in held.items() if holder in of_key}
            for name in [name for name in ends if not held[name]]:
                self.drop(group, name)
            found.append((group, ends))
        return found

    def holders(self) -> Iterable[Holder]:
        """Give whose offsets there are, or were until tombstones came."""
        return self._groups
