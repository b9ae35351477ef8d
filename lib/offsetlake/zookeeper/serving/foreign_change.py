"""The write to the log of offsets that others have changed in ZooKeeper."""

import asyncio
import struct
from collections.abc import Mapping, Sequence

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit.headers import COMMIT, audit_headers
from offsetlake.kafka.batches.writer import Batch, record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key, offset_commit_value
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.storage.changed_keys import ChangedKeys
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.store import Store
from offsetlake.util.times import now_ms

PRINCIPAL = "zookeeper"
"""The principal of the audit event: ZooKeeper does not record who has written a znode."""

_PARTITION = struct.Struct(">i")
_NO_EPOCH = -1


class ForeignChange:
    """A write of the offsets of a group by key, None for a tombstone, except those that clients changed meanwhile.

    `done` is done when it is durable, and raises LogUnavailable if it could not be written.
    """

    exclusive = True

    def __init__(
        self, partition: int, store: Store, changed: ChangedKeys, group: bytes, offsets: Mapping[bytes, int | None]
    ) -> None:
        self.partition = partition
        self._store, self._changed, self._group, self._offsets = store, changed, group, dict(offsets)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def batches(self) -> Sequence[Batch]:
        """Return one batch, or none if clients have changed all of the offsets."""
        now = now_ms()
        self._offsets = {
            name: offset for name, offset in self._offsets.items() if not self._changed.contains(self._group, name)
        }
        records = [
            (
                offset_commit_key(self._group, name[:-4]) + name[-4:],
                None if offset is None else offset_commit_value(offset, _NO_EPOCH, b"", now, -1, ZERO_UUID),
            )
            for name, offset in self._offsets.items()
        ]
        return (record_batch(now, records, audit_headers(COMMIT, PRINCIPAL, b"", "")),) if records else ()

    def written(self, firsts: list[int]) -> None:
        """Serve the offsets."""
        if firsts:
            last = firsts[0] + len(self._offsets) - 1
            values = {
                name: VALUE.pack(offset, _NO_EPOCH, ZERO_UUID)
                for name, offset in self._offsets.items()
                if offset is not None
            }
            deleted = [
                (name[:-4], _PARTITION.unpack(name[-4:])[0]) for name, offset in self._offsets.items() if offset is None
            ]
            if values:
                self._store.commit(self._group, values, last)
            if deleted:
                self._store.delete_offsets(self._group, deleted, last)
        if not self.done.cancelled():
            self.done.set_result(None)

    def failed(self, error: LogUnavailable) -> None:
        """Report that nothing was written."""
        if not self.done.cancelled():
            self.done.set_exception(error)
