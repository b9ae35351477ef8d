"""Pending offsets: those of open transactions, which are unstable until a transaction marker ends the transaction.

A pending offset takes effect only if its log offset is greater than that of the stored offset of the same key (as in
Kafka's `OffsetMetadataManager.replay`). That is decided when a newer offset of the key is stored, so that the log
offsets of stored offsets are not needed here.
"""

from collections.abc import Collection, Iterable

TransactionKey = tuple[int, int]
"""Producer id and log partition: the scope of one transaction marker."""

PendingOffset = tuple[int, bytes | None]
"""Log offset and value (as in `offsetlake.serve.storage.store`); the value is None if a newer offset is stored."""


def valid_values(ended: dict[bytes, PendingOffset]) -> dict[bytes, bytes]:
    """Return the values that take effect when their transaction is committed."""
    return {name: value for name, (_, value) in ended.items() if value is not None}


class Pending:
    """The pending offsets of each open transaction, by group and key (`offsetlake.serve.storage.store.key`)."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, dict[bytes, dict[TransactionKey, PendingOffset]]] = {}
        self._groups: dict[TransactionKey, set[bytes]] = {}

    def __contains__(self, group: bytes) -> bool:
        """Check whether an open transaction has an offset of a group."""
        return group in self._offsets

    def keys(self, group: bytes) -> Collection[bytes]:
        """Return the keys of a group that have pending offsets."""
        return self._offsets.get(group, ())

    def add(self, group: bytes, key: bytes, transaction: TransactionKey, offset: PendingOffset) -> None:
        """Add an offset of an open transaction."""
        self._offsets.setdefault(group, {}).setdefault(key, {})[transaction] = offset
        self._groups.setdefault(transaction, set()).add(group)

    def invalidate_older(self, group: bytes, key: bytes, log_offset: int) -> None:
        """Invalidate the pending offsets of a key below the log offset of an offset that is now stored."""
        by_transaction = self._offsets.get(group, {}).get(key, {})
        for transaction, (pending_log_offset, _) in by_transaction.items():
            if pending_log_offset < log_offset:
                by_transaction[transaction] = pending_log_offset, None

    def drop(self, group: bytes, key: bytes) -> None:
        """Drop all pending offsets of a key, which has been tombstoned."""
        offsets = self._offsets.get(group)
        if offsets is not None and offsets.pop(key, None) is not None and not offsets:
            del self._offsets[group]

    def end(self, transaction: TransactionKey) -> list[tuple[bytes, dict[bytes, PendingOffset]]]:
        """Remove the offsets of a transaction whose marker has been written, and return them by group."""
        ended = []
        for group in self._groups.pop(transaction, ()):
            offsets = self._offsets.get(group, {})
            removed = {key: of_key.pop(transaction) for key, of_key in offsets.items() if transaction in of_key}
            for key in [key for key in removed if not offsets[key]]:
                self.drop(group, key)
            ended.append((group, removed))
        return ended

    def transactions(self) -> Iterable[TransactionKey]:
        """Return the transactions that have, or had before a tombstone, pending offsets."""
        return self._groups

    def firsts(self) -> dict[int, int]:
        """Return the log offset of the first pending offset of each log partition that has one."""
        firsts: dict[int, int] = {}
        for offsets in self._offsets.values():
            for of_key in offsets.values():
                for (_, partition), (log_offset, _) in of_key.items():
                    firsts[partition] = min(log_offset, firsts.get(partition, log_offset))
        return firsts
